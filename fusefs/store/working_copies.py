"""Each session's working copy of a mounted repository.

A working copy is a tree of nodes like the instance's own, below a top of its own. The entries of
a directory in the state `OBJECT` are those of its tree object, but for what lies over it: entries
that are stored, and names that are superseded. So a working copy costs what was changed in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path
from fusefs.store import keys, nodes, orphans
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.records import Record, State

_OBJECT_ID = 20
"""Bytes of a git object id."""


class WorkingCopy(NamedTuple):
    """One session's copy of a mounted repository.

    Attributes:
        top: id of the node at its top.
        base: object id of the commit that its changes are counted from.
        branch: where its commits go; empty for the branch of the mount.
        merging: object id of the commit that its next commit merges, if any.
    """

    top: int
    base: bytes
    branch: str = ""
    merging: bytes = b""

    @property
    def parents(self) -> tuple[bytes, ...]:
        """The commits that its next commit is built on."""
        return (self.base, self.merging) if self.merging else (self.base,)


class Unmerged(NamedTuple):
    """A path at which a merge could not bring two sides together.

    Attributes:
        path: relative to the working copy's top.
        code: two letters, as git-status(1) has them.
        left: what the merge left there: its mode (4 bytes) and object id, or b"" for nothing.
    """

    path: Path
    code: str
    left: bytes


def unmerged(txn: Reader, top: int) -> list[Unmerged]:
    """Return what merges left in the working copy with this top for somebody to decide."""
    raw = txn.get(keys.unmerged(top)) or b""
    return [
        Unmerged(tuple(path.split(b"/")), code.decode(), bytes.fromhex(left.decode()))
        for code, left, path in (line.split(b" ", 2) for line in raw.split(b"\0")[:-1])
    ]


def set_unmerged(txn: Writer, top: int, found: Iterable[Unmerged]) -> None:
    """Note what is unmerged in the working copy with this top."""
    raw = b"".join(
        b"%s %s %s\0" % (one.code.encode(), one.left.hex().encode(), b"/".join(one.path))
        for one in found
    )
    if raw:
        txn.put(keys.unmerged(top), raw)
    else:
        txn.delete(keys.unmerged(top))


def working_copy(txn: Reader, mount: int, session: str) -> WorkingCopy | None:
    """Return a session's working copy of a mount, None where it has none yet."""
    raw = txn.get(_key(mount, session))
    return None if raw is None else _unpack(raw)


def is_untouched(txn: Reader, copy: WorkingCopy) -> bool:
    """Tell whether nothing was ever changed in a working copy."""
    return (
        nodes.locate(txn, copy.top).record.content_state == State.OBJECT
        and nodes.is_empty(txn, copy.top)
        and next(nodes.superseded(txn, copy.top), None) is None
    )


def working_copies(txn: Reader, mount: int) -> dict[str, WorkingCopy]:
    """Return all working copies of a mount, by session."""
    prefix = keys.WORKING + keys.number(mount)
    return {
        key[len(prefix) :].decode(): _unpack(raw)
        for key, raw in txn.range(prefix, after_prefix(prefix))
    }


def all_working_copies(txn: Reader) -> Iterator[tuple[int, str, WorkingCopy]]:
    """Yield all working copies, each with its mount's id and its session."""
    for key, raw in txn.range(keys.WORKING, after_prefix(keys.WORKING)):
        yield keys.to_number(key[1:]), key[9:].decode(), _unpack(raw)


def begin_working_copy(
    txn: Writer, mount: int, path: Path, session: str, *, base: bytes, tree: bytes
) -> WorkingCopy:
    """Give a session a working copy with nothing changed.

    Args:
        txn: the transaction.
        mount: the mount's id.
        path: the mount's path in the tree.
        session: the session's name.
        base: object id of a commit.
        tree: object id of its tree.

    What is unchanged shows the time of this moment, as files do that git-checkout(1) writes: the
    commit's own time would tell of what is hidden.
    """
    now = time.time_ns()
    if txn.get(keys.node(keys.WORKING_ID)) is None:
        nodes.place(txn, 0, keys.number(keys.WORKING_ID), _directory(keys.WORKING_ID, 0, b""))
    top = nodes.new_id(txn)
    nodes.place(txn, keys.WORKING_ID, keys.number(top), _directory(top, now, tree))
    txn.put(keys.working_top(top), keys.number(mount) + b"/".join(path))
    copy = WorkingCopy(top, base)
    set_working_copy(txn, mount, session, copy)
    return copy


def set_working_copy(txn: Writer, mount: int, session: str, copy: WorkingCopy) -> None:
    """Note a working copy's state."""
    value = keys.number(copy.top) + copy.base + copy.branch.encode()
    txn.put(_key(mount, session), value + (b"\0" + copy.merging if copy.merging else b""))


def _unpack(raw: bytes) -> WorkingCopy:
    at = 8 + _OBJECT_ID
    branch, _, merging = raw[at:].partition(b"\0")  # a branch's name has no NUL
    return WorkingCopy(keys.to_number(raw), raw[8:at], branch.decode(), merging)


def _directory(node_id: int, when: int, tree: bytes) -> Record:
    return Record(
        Kind.DIR, State.OBJECT if tree else State.CLEAN, 0o755, os.geteuid(), os.getegid(), 0,
        when, when, when, when, node_id, tree,
    )  # fmt: skip


def _key(mount: int, session: str) -> bytes:
    return keys.WORKING + keys.number(mount) + session.encode()


def end_working_copies(txn: Writer, *, mount: int | None = None, session: str = "") -> None:
    """Leave the nodes of all working copies of a mount, or of a session, to the collector."""
    now = time.time_ns()
    for found, name, copy in list(all_working_copies(txn)):
        if found == mount or (mount is None and name == session):
            end_working_copy(txn, found, name, copy, now)


def end_working_copy(txn: Writer, mount: int, session: str, copy: WorkingCopy, now: int) -> None:
    """Leave the nodes of a working copy to the collector."""
    orphans.orphan(txn, nodes.locate(txn, copy.top), now)
    txn.delete(keys.working_top(copy.top))
    txn.delete(keys.unmerged(copy.top))
    txn.delete(_key(mount, session))
