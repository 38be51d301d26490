"""Options that every command takes, and the instance and the session they lead to."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from fusefs.contract.sessions import SessionSpec
    from fusefs.session.session import Session
    from fusefs.store.instance import Instance


class _HostPath(click.Path):
    """Unlike click's own it does not look at the path: a mount there may be stuck."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        return Path(os.fsdecode(value))


HOST_PATH = _HostPath()
"""A path of the host. Whether it can be read is found out by whoever reads it."""

_CATCH_UP_SECONDS = 0.25
_SESSION_COMMAND = re.compile(
    r"\bfusefs (sync|switch|branch|commit|status|diff|tag|release|repo restore"
    r"|pr (create|list|show|update|close|merge))(?= )"
)
"""Commands in texts that mean a session's own working copy, or what it asks of a forge."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True)
class Options:
    """What was given before or after the subcommand."""

    instance: Path | None = None
    json: bool = False

    @property
    def folder(self) -> Path:
        """The instance's folder: `--instance`, else the environment, else the user's own."""
        if self.instance is not None:
            return self.instance.absolute()
        if given := os.environ.get("FUSEFS_INSTANCE"):
            return Path(given).expanduser().absolute()
        data = os.environ.get("XDG_DATA_HOME", "")
        # A relative value is to be ignored (XDG Base Directory Specification).
        base = Path(data) if data.startswith("/") else Path.home() / ".local/share"
        return base / "fusefs"


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    options = ctx.ensure_object(Options)
    if param.name == "instance" and value is not None:
        options.instance = value
    elif param.name == "json" and value:
        options.json = True


def common_options(command: Command) -> Command:
    """Add `--instance` and `--json`, which may stand before and after a subcommand."""
    command = click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_keep,
        help="Print one JSON document.",
    )(command)
    return click.option(
        "--instance",
        metavar="DIR",
        type=HOST_PATH,
        expose_value=False,
        callback=_keep,
        help="Folder of the instance.  [default: $FUSEFS_INSTANCE, $XDG_DATA_HOME/fusefs]",
    )(command)


def complete_session(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the names of the instance's sessions to the shell."""
    from click.shell_completion import CompletionItem

    from fusefs.store.instance import Instance, InstanceError

    try:
        # Not the moment for an upgrade.
        with Instance.open(ctx.ensure_object(Options).folder, progress=None) as instance:
            names = instance.sessions.names()
    except (InstanceError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def session_option(command: Command) -> Command:
    """Add `--session NAME`: whose view answers; without it, the person's, who may do all."""
    return click.option(
        "--session",
        "session_name",
        metavar="NAME",
        shell_complete=complete_session,
        help="See and act as this session.  [default: as the owner of the instance]",
    )(command)


@contextmanager
def open_instance(options: Options) -> Iterator[Instance]:
    """Open the instance for one command, which sees all that was done before."""
    from fusefs.store.instance import Instance

    instance = Instance.open(options.folder)
    try:
        # A mount that does not answer must not hold up who only looks.
        with contextlib.suppress(OSError):
            instance.catch_up(_CATCH_UP_SECONDS)
        before = instance.journal.last()
        yield instance
        if instance.journal.last() != before:
            _start_indexing(instance)
    finally:
        instance.close()


def _start_indexing(instance: Instance) -> None:
    from fusefs.session.index_starter import IndexStarter

    with contextlib.suppress(OSError):  # the next one does
        IndexStarter(instance).start()


def find_session(instance: Instance, name: str) -> SessionSpec:
    """Return the session called `name`.

    Raises:
        InstanceError: there is none.
    """
    from fusefs.store.instance import InstanceError

    try:
        return instance.sessions.get(name)
    except KeyError:
        known = ", ".join(instance.sessions.names()) or "there are none yet"
        raise InstanceError(f"No such session: {name} (known: {known}).") from None


@contextmanager
def open_session(options: Options, name: str | None) -> Iterator[Session]:
    """Open the instance, as the session `name` or as its owner.

    Commands that a refusal names are then commands of this session in this instance.
    """
    from fusefs.contract.errors import ContractError
    from fusefs.session.session import Session

    with open_instance(options) as instance:
        if name is None:
            yield Session(instance)
            return
        try:
            yield Session(instance, find_session(instance, name))
        except ContractError as error:
            error.text = _SESSION_COMMAND.sub(
                lambda found: f"{found[0]} --session {shlex.quote(name)}", error.text
            )
            raise
