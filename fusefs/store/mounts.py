"""Repositories mounted in the tree, and each session's working copy of them.

A working copy is a tree of nodes like the instance's own, below a top of its own. Of a
directory in the state `OBJECT` no entry is stored: they are those of its tree object, until
the first of them changes. So a working copy costs what was changed in it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path as HostPath
from typing import TYPE_CHECKING, NamedTuple

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path, render, resolve
from fusefs.store import keys, nodes, orphans
from fusefs.store.definitions import define
from fusefs.store.journal import Op
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.records import Record, State

if TYPE_CHECKING:
    from fusefs.store.instance import Instance

_OBJECT_ID = 20
"""Bytes of a git object id."""


class MountSpec(NamedTuple):
    """A repository mounted at a path of the tree.

    Attributes:
        id: tells it from every other, also from an earlier one at its path.
        url: where the repository comes from and goes to.
        branch: the branch that working copies begin at and commits go to.
        forge: the kind of forge: ``local``, ``github``, ``gitlab`` or ``gitea``.
    """

    id: int
    url: str
    branch: str
    forge: str


class MountTable:
    """The repositories mounted in the tree, by path."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def all(self) -> dict[Path, MountSpec]:
        """Return all mounts."""
        with self._instance.kv.read() as txn:
            return mounts_in(txn)

    def new_id(self) -> int:
        """Return an id for a mount."""
        with self._instance.kv.write() as txn:
            return nodes.new_id(txn)

    def put(self, path: Path, spec: MountSpec, actor: str) -> None:
        """Mount `spec` at `path`."""
        self._change(path, spec, actor)

    def remove(
        self, path: Path, actor: str, *, check: Callable[[Reader], None] = lambda txn: None
    ) -> None:
        """Take the mount at `path` away, with all working copies of it.

        Args:
            path: where it is.
            actor: who wants it.
            check: raises what stands against it, in the same transaction.

        Raises:
            KeyError: there is none.
        """
        self._change(path, None, actor, check)

    def _change(
        self,
        path: Path,
        spec: MountSpec | None,
        actor: str,
        check: Callable[[Reader], None] = lambda txn: None,
    ) -> None:
        with self._instance.kv.write() as txn:
            mounts = mounts_in(txn)
            check(txn)
            if spec is None:
                _end_working_copies(txn, mounts[path].id)
                txn.delete(keys.RIGHTS + keys.number(mounts[path].id))
                del mounts[path]
            else:
                mounts[path] = spec
            value = {render(where): list(what) for where, what in mounts.items()}
            txn.put(keys.META_MOUNTS, json.dumps(value).encode())
            define(self._instance, txn, Op.BIND, render(path), actor)
        self._instance.commit()

    def folder(self, spec: MountSpec) -> str:
        """Return where the clone of a mounted repository is kept."""
        return os.fspath(self._instance.folder / "repositories" / f"{spec.id:x}.git")

    def worktrees(self, spec: MountSpec) -> HostPath:
        """Return the folder of the git worktrees of a mounted repository."""
        return self._instance.folder / "worktrees" / f"{spec.id:x}"


def mounts_in(txn: Reader) -> dict[Path, MountSpec]:
    """Return all mounts as `txn` has them, by path."""
    raw = txn.get(keys.META_MOUNTS)
    if raw is None:
        return {}
    return {resolve(path): MountSpec(*what) for path, what in json.loads(raw).items()}


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


def working_copy(txn: Reader, mount: int, session: str) -> WorkingCopy | None:
    """Return a session's working copy of a mount, None where it has none yet."""
    raw = txn.get(_key(mount, session))
    return None if raw is None else _unpack(raw)


def working_copies(txn: Reader, mount: int) -> dict[str, WorkingCopy]:
    """Return all working copies of a mount, by session."""
    prefix = keys.WORKING + keys.number(mount)
    return {
        key[len(prefix) :].decode(): _unpack(raw)
        for key, raw in txn.range(prefix, after_prefix(prefix))
    }


def begin_working_copy(
    txn: Writer, mount: int, path: Path, session: str, *, base: bytes, tree: bytes, changed: int
) -> WorkingCopy:
    """Give a session a working copy with nothing changed.

    Args:
        txn: the transaction.
        mount: the mount's id.
        path: the mount's path in the tree.
        session: the session's name.
        base: object id of a commit.
        tree: object id of its tree.
        changed: when the commit was made, in nanoseconds; what is unchanged shows this time.
    """
    if txn.get(keys.node(keys.WORKING_ID)) is None:
        nodes.place(txn, 0, keys.number(keys.WORKING_ID), _directory(keys.WORKING_ID, 0, b""))
    top = nodes.new_id(txn)
    nodes.place(txn, keys.WORKING_ID, keys.number(top), _directory(top, changed, tree))
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


def _end_working_copies(txn: Writer, mount: int) -> None:
    """Leave the nodes of all working copies of a mount to the collector."""
    now = time.time_ns()
    for session, copy in working_copies(txn, mount).items():
        end_working_copy(txn, mount, session, copy, now)


def end_working_copy(txn: Writer, mount: int, session: str, copy: WorkingCopy, now: int) -> None:
    """Leave the nodes of a working copy to the collector."""
    orphans.orphan(txn, nodes.locate(txn, copy.top), now)
    txn.delete(keys.working_top(copy.top))
    txn.delete(_key(mount, session))
