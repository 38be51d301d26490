"""Commits: what is staged, made into a commit of the branch and sent to where it belongs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as HostPath

from fusefs.contract.errors import InvalidArgument, NotCommitted
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below
from fusefs.forge.credentials import find
from fusefs.forge.errors import Moved
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session.repository import Repository
from fusefs.tree.repository_changes import Changed


@dataclass(frozen=True)
class Committed:
    """A commit that was made.

    Attributes:
        commit: its id, in hexadecimal.
        branch: the branch that is at it now.
        paths: what it changed, relative to the repository.
    """

    commit: str
    branch: str
    paths: tuple[Path, ...]


def commit(repository: Repository, message: str, paths: Sequence[Path] = ()) -> Committed:
    """Commit staged changes and send them to the branch that the repository is mounted at.

    Args:
        repository: the session's working copy.
        message: the commit message.
        paths: only changes at or below these, relative to the repository; all if there are none.

    Raises:
        NotCommitted: the session may stage but not commit a path that was named, or all there is.
        InvalidArgument: nothing is staged, or there is no message.
        Moved: the branch has commits that the working copy does not build on.
        ForgeError: the commit could not be sent.
    """
    if not message.strip():
        raise InvalidArgument("Not committed: a commit needs a message.")
    chosen = _chosen(repository, paths or (repository.path,), named=bool(paths))
    if not chosen:
        raise InvalidArgument(
            f"Nothing to commit: nothing is staged in {repository.absolute(repository.path)}."
        )
    copy, objects = repository.tree.copy, repository.tree.objects
    made = _make(repository, message, chosen)
    objects.pin(copy.top, made)
    _send(repository, made)
    with repository.instance.kv.write() as txn:
        repository.move(txn, copy, made)
    repository.instance.commit()
    # `made` is built on it. What sync pinned stays: not all of that need be committed.
    objects.unpin(copy.top, copy.base)
    repository.tree.follow()
    return Committed(made.hex(), repository.spec.branch, tuple(item.path for item in chosen))


def _chosen(repository: Repository, tops: Sequence[Path], *, named: bool) -> list[Changed]:
    for top in tops:
        cursor = repository.session.view.rules.cursor((*repository.mount, *top))
        if not (cursor.visible or cursor.passage):
            raise cursor.unseen((*repository.mount, *top))
    everything = repository.all_changes()
    changes = [
        item
        for item in everything
        if repository.level(item.path) >= Level.RO
        and any(is_at_or_below(item.path, top) for top in tops)
    ]
    allowed = [item for item in changes if repository.level(item.path) >= Level.COMMIT]
    for top in tops:
        below = [item for item in changes if is_at_or_below(item.path, top)]
        refused = [item for item in below if item not in allowed]
        if refused and (named or not allowed):
            raise NotCommitted(repository.absolute(refused[0].path))
        if repository.level(top) < Level.COMMIT and not below:
            raise NotCommitted(repository.absolute(top))
    return allowed + _making_way(repository, allowed, everything)


def _making_way(
    repository: Repository, chosen: Sequence[Changed], everything: Sequence[Changed]
) -> list[Changed]:
    """Return the removals without which nothing can come where `chosen` has something: of a
    file where a directory is to be, of all that is in a directory where a file is to be.

    Raises:
        NotCommitted: the session may not commit one of them.
    """
    paths = {item.path for item in chosen}
    removed = {
        item.path: item for item in everything if item.new is None and item.path not in paths
    }
    if not removed:
        return []
    above: dict[Path, list[Changed]] = {}
    for path, item in removed.items():
        for depth in range(1, len(path)):
            above.setdefault(path[:depth], []).append(item)
    found: dict[Path, Changed] = {}
    for item in chosen:
        if item.new is None:
            continue
        ways = [removed[p] for d in range(1, len(item.path)) if (p := item.path[:d]) in removed]
        for way in (*ways, *above.get(item.path, ())):
            if repository.level(way.path) < Level.COMMIT:
                raise NotCommitted(repository.absolute(item.path))
            found[way.path] = way
    return list(found.values())


def _make(repository: Repository, message: str, chosen: Sequence[Changed]) -> bytes:
    text = message if message.endswith("\n") else message + "\n"
    return repository.tree.objects.write_commit(
        repository.write_tree(chosen), [repository.tree.copy.base], text, author(repository)
    )


def author(repository: Repository) -> tuple[str, str]:
    """Return name and address of the session's user, given as ``Name <address>``."""
    spec = repository.session.spec
    name, bracket, address = spec.user.partition("<")
    name = name.strip() or spec.name
    return name, address.rstrip("> ") if bracket else f"{name.replace(' ', '.')}@localhost"


def _send(repository: Repository, made: bytes) -> None:
    spec = repository.spec
    remote = parse(spec.url)
    transport = Transport(remote, spec.forge, find(remote, spec.forge))
    base = repository.tree.copy.base.hex()
    folder = HostPath(repository.instance.mounts.folder(spec))
    try:
        transport.push(folder, made.hex(), spec.branch, base)
    except Moved:
        raise Moved(
            f"Not committed: {spec.branch} has moved on since this working copy began; the "
            f"changes stay staged. To take them in: fusefs sync {repository.absolute(())}"
        ) from None
    repository.tree.objects.note_branch(spec.branch, made)
