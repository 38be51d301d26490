"""Commits: what is staged, made into a commit of the branch and sent to where it belongs."""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as HostPath

from fusefs.contract.errors import (
    Blocked,
    ContractError,
    InvalidArgument,
    NotCommitted,
    NothingStaged,
    ReadOnly,
)
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below, render
from fusefs.contract.sessions import OPERATOR
from fusefs.forge.credentials import find
from fusefs.forge.errors import ForgeError, HistoryLost, Moved, Refused
from fusefs.forge.git_process import Watch
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session.conflicts import conflicting, showing_both
from fusefs.session.repository import Repository
from fusefs.session.status import Tracked
from fusefs.store import journal
from fusefs.store.working_copies import set_unmerged, working_copy
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
        ReadOnly: it may not even stage it.
        NothingStaged: nothing is staged.
        InvalidArgument: there is no message.
        Blocked: a file shows both sides of a conflict, or a merge is not committed as a whole.
        Moved: the branch has commits that the working copy does not build on.
        ForgeError: the commit could not be sent.
    """
    return send(repository, prepare(repository, message, paths))


def prepare(repository: Repository, message: str, paths: Sequence[Path] = ()) -> Prepared:
    """Make the commit of `commit`, without sending it."""
    if not message.strip():
        raise InvalidArgument("Not committed: a commit needs a message.")
    try:
        message.encode()
    except UnicodeEncodeError:
        raise InvalidArgument("Not committed: the message is not UTF-8 text.") from None
    merging = bool(repository.tree.copy.merging)
    if merging:
        _check_merge(repository, paths)
    chosen = _chosen(repository, paths or (repository.path,), named=bool(paths))
    if not (chosen or merging):
        raise NothingStaged("commit", repository.absolute(repository.path))
    unsettled = conflicting(repository, chosen)
    if unsettled:
        raise Blocked(
            f"Not committed: {repository.absolute(unsettled[0])} shows both sides of a conflict "
            "(`<<<<<<< staged`). Put it right first."
        )
    copy, made = repository.tree.copy, _make(repository, message, chosen)
    repository.tree.objects.pin(copy.top, made)
    paths = tuple(item.path for item in chosen)
    return Prepared(copy.base.hex(), Committed(made.hex(), repository.branch, paths))


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
    base, made = bytes.fromhex(prepared.base), bytes.fromhex(prepared.done.commit)
    parents = [parent.raw for parent in repository.tree.objects.commit(made).parent_ids]
    unsettled = showing_both(repository)
    with repository.instance.kv.write() as txn:
        copy = working_copy(txn, repository.spec.id, repository.session.spec.name)
        if copy is None or copy.base != base:
            return
        if (copy.branch or repository.spec.branch) != prepared.done.branch:
            return  # switched meanwhile: there, what was committed is staged
        merging = b"" if copy.merging in parents else copy.merging
        repository.move(txn, copy, copy._replace(base=made, merging=merging))
        set_unmerged(txn, copy.top, unsettled)
        journal.append(
            txn, time=time.time_ns(), process=repository.instance.process,
            actor=repository.session.spec.name, op=journal.Op.COMMIT,
            path=b"/" + b"/".join(repository.mount),
            detail=journal.describe(
                {"commit": prepared.done.commit, "branch": prepared.done.branch}
            ),
        )  # fmt: skip
        repository.instance.journalled()
    repository.instance.commit()
    # The new base is built on it. What sync pinned stays: not all of that need be committed.
    repository.tree.objects.unpin(copy.top, base)
    repository.tree.follow()


def left_staged(repository: Repository, tops: Sequence[Path]) -> list[Path]:
    """Return what a commit of all at or below `tops` leaves staged, as the session may not commit
    it."""
    cursor = repository.session.view.rules.cursor(repository.mount)
    if cursor.commit_refusal(repository.mount) is None:
        return []
    return [
        changed.path
        for changed in repository.changes(tops)
        if repository.level(changed.path) < Level.COMMIT
    ]


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
            raise _refusal(repository, refused[0].path)
        if repository.level(top) < Level.COMMIT and not below:
            raise _refusal(repository, top)
    _check_ways(repository, allowed)
    return allowed + _making_way(repository, allowed, everything)


def _check_ways(repository: Repository, chosen: Sequence[Changed]) -> None:
    """Check that nothing is made in a directory that the session does not see, and in which the
    base has nothing that it sees: there may be a file that is not to be told of, nor destroyed.
    As on the mount, where nothing can be made in a passage.

    Raises:
        NotCommitted: something would be.
    """
    tracked = Tracked(repository)
    for item in chosen:
        if item.old is None:
            for depth in range(1, len(item.path)):
                above = item.path[:depth]
                if repository.hides(above) and not tracked.has_any(above):
                    raise NotCommitted(repository.absolute(item.path))


def _refusal(repository: Repository, path: Path) -> ContractError:
    """Return why the session may not commit a path: it may change it, read it, or not even that."""
    full = (*repository.mount, *path)
    cursor = repository.session.view.rules.cursor(full)
    if not cursor.visible:
        return cursor.unseen(full)
    return (NotCommitted if cursor.level >= Level.STAGE else ReadOnly)(render(full))


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


def _check_merge(repository: Repository, paths: Sequence[Path]) -> None:
    """Check that a merge is committed whole: what is left out, others' work, would be undone."""
    cursor = repository.session.view.rules.cursor(repository.mount)
    refusal = cursor.commit_refusal(repository.mount)
    if refusal is not None:
        raise refusal
    if any((*paths, repository.path)):
        where = repository.absolute(())
        raise Blocked(
            f"Not committed: a merge is committed as a whole. Commit {where}, or give it up: "
            f"fusefs repo restore --new {where}"
        )


def _make(repository: Repository, message: str, chosen: Sequence[Changed]) -> bytes:
    text = message if message.endswith("\n") else message + "\n"
    return repository.tree.objects.write_commit(
        repository.write_tree(chosen), repository.tree.copy.parents, text, author(repository)
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
    kept = "".join(c for c in text if c.isprintable() and c not in "<>")
    return kept.strip(" .,:;\"\\'")


def _own_author(repository: Repository) -> tuple[str, str]:
    try:
        said = repository.tree.objects.git("var", "GIT_AUTHOR_IDENT").decode(errors="replace")
    except (OSError, ForgeError):
        said = ""
    match = _IDENT.fullmatch(said.strip())
    if match is not None and match["name"].strip():
        return match["name"].strip(), match["address"]
    return getpass.getuser(), f"{getpass.getuser()}@localhost"


def transport(repository: Repository, watch: Watch | None = None) -> Transport:
    """Return the way to a repository's remote."""
    spec = repository.spec
    remote = parse(spec.url)
    return Transport(remote, spec.forge, find(remote, spec.forge), watch=watch or Watch())


def _push(repository: Repository, prepared: Prepared, watch: Watch) -> None:
    spec, made, where = repository.spec, prepared.done, repository.absolute(())
    folder = HostPath(repository.instance.mounts.folder(spec))
    try:
        transport(repository, watch).push(folder, made.commit, made.branch, prepared.base)
    except Moved:
        raise Moved(
            f"Not committed: {made.branch} has moved on since this working copy began; the "
            f"changes stay staged. To take them in: fusefs sync {where}"
        ) from None
    except HistoryLost:
        raise HistoryLost(
            f"The branch {made.branch} is gone from {spec.url}. To go on with another one: "
            f"fusefs switch BRANCH {where}. To make one: fusefs branch NAME {where}"
        ) from None
    except Refused as error:
        if not error.said:
            raise
        raise Refused(
            f"Not committed: {spec.url} refused it on {made.branch}; the changes stay staged. Put "
            "right what it says, or propose it on another branch: "
            f"fusefs branch NAME {where}, commit, fusefs pr create {where}\n{error.said}"
        ) from None
    repository.tree.objects.note_branch(made.branch, bytes.fromhex(made.commit))
