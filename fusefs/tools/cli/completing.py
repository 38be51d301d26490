"""What the shell is offered while an argument is typed. Whatever goes wrong offers nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import wraps

import click
from click.shell_completion import CompletionItem

from fusefs.tools.cli.options import Options, open_instance, open_session

log = logging.getLogger(__name__)

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_SPECIAL = frozenset(" \"'\\$`;&|<>()*?[]{}!#~")
"""What a shell would read as something other than a part of a word."""


def _quiet(completer: Completer) -> Completer:
    @wraps(completer)
    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            return completer(ctx, param, incomplete)
        except Exception as error:  # noqa: BLE001 - the line that is being typed stays whole
            log.debug("no completion: %s", error)
            return []

    return complete


@_quiet
def complete_path(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the paths of the tree that begin so, as the session given sees them."""
    from fusefs.session.stat import DIRECTORY_KINDS

    folder, slash, _ = incomplete.rpartition("/")
    above = folder + slash
    with open_session(ctx.ensure_object(Options), ctx.params.get("session_name")) as session:
        found = session.list(above or ".")
    return _items(
        (
            f"{above}{entry.name}{'/' if entry.stat.kind in DIRECTORY_KINDS else ''}"
            for entry in found
        ),
        incomplete,
    )


@_quiet
def complete_mount(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the paths at which repositories are mounted."""
    from fusefs.contract.paths import render

    with open_instance(ctx.ensure_object(Options)) as instance:
        found = sorted(render(path) for path in instance.mounts.all())
    return _items(found, incomplete)


@_quiet
def complete_trash(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the ids of what is in the trash; where a path is begun, its old paths."""
    from fusefs.contract.paths import decode
    from fusefs.store.trash_can import TrashCan

    with open_instance(ctx.ensure_object(Options)) as instance:
        entries = TrashCan(instance).entries()[::-1]
    if incomplete.startswith("/"):
        return _items(dict.fromkeys(decode(entry.path) for entry in entries), incomplete)
    return _items((str(entry.id) for entry in entries), incomplete)


def _items(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(word)
        for word in words
        if word.startswith(incomplete) and word.isprintable() and _SPECIAL.isdisjoint(word)
    ]
