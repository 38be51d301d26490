"""Commits: what is staged, made into a commit of the branch and sent to where it belongs."""

from __future__ import annotations

import getpass
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as HostPath

from fusefs.contract.errors import InvalidArgument, NotCommitted, NothingStaged
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below
from fusefs.contract.sessions import OPERATOR
from fusefs.forge.credentials import find
from fusefs.forge.errors import ForgeError, Moved
from fusefs.forge.git_process import Watch
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session.repository import Repository
from fusefs.store.mounts import set_working_copy, working_copy
from fusefs.tree.repository_changes import Changed

_IDENT = re.compile(r"(?P<name>.*) <(?P<address>[^<>]+)> [0-9]+ [+-][0-9]{4}")


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


@dataclass(frozen=True)
class Prepared:
    """A commit that is made and that nobody sees yet.

    Attributes:
        base: the commit it is built on.
        done: what there is to say of it once it is sent.
    """

    base: str
    done: Committed


def commit(repository: Repository, message: str, paths: Sequence[Path] = ()) -> Committed:
    """Commit staged changes and send them to the branch of the working copy.

    Args:
        repository: the session's working copy.
        message: the commit message.
        paths: only changes at or below these, relative to the repository; all if there are none.

    Raises:
        NotCommitted: the session may stage but not commit a path that was named, or all there is.
        NothingStaged: nothing is staged.
        InvalidArgument: there is no message.
        Moved: the branch has commits that the working copy does not build on.
        ForgeError: the commit could not be sent.
    """
    return send(repository, prepare(repository, message, paths))


def prepare(repository: Repository, message: str, paths: Sequence[Path] = ()) -> Prepared:
    """Make the commit of `commit`, without sending it."""
    if not message.strip():
        raise InvalidArgument("Not committed: a commit needs a message.")
    merging = bool(repository.tree.copy.merging)
    if merging:
        _check_merge(repository, paths)
    chosen = _chosen(repository, paths or (repository.path,), named=bool(paths))
    if not (chosen or merging):
        raise NothingStaged("commit", repository.absolute(repository.path))
    base, made = repository.tree.copy.base, _make(repository, message, chosen)
    paths = tuple(item.path for item in chosen)
    return Prepared(base.hex(), Committed(made.hex(), repository.branch, paths))


def send(repository: Repository, prepared: Prepared, watch: Watch | None = None) -> Committed:
    """Send a commit to its branch and count changes from it on; again, it is the same one.

    Raises:
        Moved: the branch is not at its base, nor at it.
        ForgeError: it could not be sent.
    """
    _push(repository, prepared, watch or Watch())
    note(repository, prepared)
    return prepared.done


def note(repository: Repository, prepared: Prepared) -> None:
    """Count changes from a commit that was sent, unless the working copy has moved on already."""
    with repository.instance.kv.write() as txn:
        mount, session = repository.spec.id, repository.session.spec.name
        copy = working_copy(txn, mount, session)
        if copy is not None and copy.base.hex() == prepared.base:
            moved = copy._replace(base=bytes.fromhex(prepared.done.commit), merging=b"")
            set_working_copy(txn, mount, session, moved)
    repository.instance.commit()
    repository.tree.follow()


def _chosen(repository: Repository, tops: Sequence[Path], *, named: bool) -> list[Changed]:
    for top in tops:
        cursor = repository.session.view.rules.cursor((*repository.mount, *top))
        if not (cursor.visible or cursor.passage):
            raise cursor.unseen((*repository.mount, *top))
    changes = repository.changes(tops)
    allowed = [item for item in changes if repository.level(item.path) >= Level.COMMIT]
    for top in tops:
        below = [item for item in changes if is_at_or_below(item.path, top)]
        refused = [item for item in below if item not in allowed]
        if refused and (named or not allowed):
            raise NotCommitted(repository.absolute(refused[0].path))
        if repository.level(top) < Level.COMMIT and not below:
            raise NotCommitted(repository.absolute(top))
    return allowed


def _check_merge(repository: Repository, paths: Sequence[Path]) -> None:
    """Check that a merge is committed whole: what is left out, others' work, would be undone."""
    cursor = repository.session.view.rules.cursor(repository.mount)
    refusal = cursor.commit_refusal(repository.mount)
    if refusal is not None:
        raise refusal
    if any((*paths, repository.path)):
        where = repository.absolute(())
        raise InvalidArgument(
            f"Not committed: a merge is committed as a whole. Commit {where}, or give it up: "
            f"fusefs repo restore --new {where}"
        )


def _make(repository: Repository, message: str, chosen: Sequence[Changed]) -> bytes:
    text = message if message.endswith("\n") else message + "\n"
    copy = repository.tree.copy
    parents = [copy.base, copy.merging] if copy.merging else [copy.base]
    return repository.tree.objects.write_commit(
        repository.write_tree(chosen), parents, text, author(repository)
    )


def author(repository: Repository) -> tuple[str, str]:
    """Return name and address of the session's user, given as ``Name <address>``.

    For the owner of the instance they are those that git is set to.
    """
    spec = repository.session.spec
    if spec.name == OPERATOR.name:
        return _own_author(repository)
    name, bracket, address = spec.user.partition("<")
    name, address = _plain(name), _plain(address)
    if not bracket and "@" in name:
        return name.partition("@")[0] or spec.name, name
    name = name or spec.name
    return name, address or f"{name.replace(' ', '.')}@localhost"


def _plain(text: str) -> str:
    """Return text without what git has no way to write into a commit."""
    return "".join(c for c in text if c.isprintable() and c not in "<>").strip()


def _own_author(repository: Repository) -> tuple[str, str]:
    try:
        said = repository.tree.objects.git("var", "GIT_AUTHOR_IDENT").decode(errors="replace")
    except (OSError, ForgeError):
        said = ""
    match = _IDENT.fullmatch(said.strip())
    if match is not None and match["name"].strip():
        return match["name"].strip(), match["address"]
    return getpass.getuser(), f"{getpass.getuser()}@localhost"


def _push(repository: Repository, prepared: Prepared, watch: Watch) -> None:
    spec, made = repository.spec, prepared.done
    remote = parse(spec.url)
    transport = Transport(remote, spec.forge, find(remote, spec.forge), watch=watch)
    folder = HostPath(repository.instance.mounts.folder(spec))
    try:
        transport.push(folder, made.commit, made.branch, prepared.base)
    except Moved:
        raise Moved(
            f"Not committed: {made.branch} has moved on since this working copy began; the "
            f"changes stay staged. To take them in: fusefs sync {repository.absolute(())}"
        ) from None
    repository.tree.objects.note_branch(made.branch, bytes.fromhex(made.commit))
