"""A bound host folder whose changes through fusefs are in the instance's journal.

A record names actor and path, and no hashes: nobody reads a host's file to journal it. It
follows the change, which is the host's at once; where it cannot be written, the change stands
and the failure is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path, decode, render
from fusefs.store import journal
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from fusefs.tree.backend import PERSON, Actor, Change, Node, Owner
from fusefs.tree.host_files import HostFile
from fusefs.tree.host_nodes import HostNode
from fusefs.tree.host_trash import HostTrash
from fusefs.tree.host_tree import HostTree

_log = logging.getLogger(__name__)


class JournalledHost(HostTree):
    """The backend of a host folder bound at one path of an instance's tree."""

    def __init__(self, folder: str, trash: HostTrash, instance: Instance, bound_at: Path) -> None:
        """Bind `folder` as `HostTree` does."""
        super().__init__(folder, trash)
        self._instance = instance
        self._bound_at = bound_at

    def open_file(self, key: Hashable, *, write: bool, actor: Actor = PERSON) -> HostFile:
        file = super().open_file(key, write=write, actor=actor)
        if write:
            file.written = lambda: self._journal(actor, Op.WRITE, _path(key))
        return file

    def create(self, parent: Hashable, name: bytes, kind: Kind, mode: int, owner: Owner,
               actor: Actor, *, target: bytes = b"") -> Node:  # fmt: skip
        made = super().create(parent, name, kind, mode, owner, actor, target=target)
        self._journal(actor, Op.CREATE, (*_path(parent), name))
        return made

    def set_attributes(self, key: Hashable, change: Change, actor: Actor) -> Node:
        node = super().set_attributes(key, change, actor)
        if change.size is not None:
            self._journal(actor, Op.WRITE, _path(key))
        self._journal(actor, Op.ATTRIBUTES, _path(key), detail=_changes(change))
        return node

    def remove(self, parent: Hashable, name: bytes, actor: Actor, *,
               directory: bool | None) -> None:  # fmt: skip
        super().remove(parent, name, actor, directory=directory)
        self._journal(actor, Op.REMOVE, (*_path(parent), name))

    def rename(self, parent: Hashable, name: bytes, new_parent: Hashable, new_name: bytes,
               actor: Actor, *, replace: bool, exchange: bool = False) -> None:  # fmt: skip
        path, target = (*_path(parent), name), (*_path(new_parent), new_name)
        super().rename(
            parent, name, new_parent, new_name, actor, replace=replace, exchange=exchange
        )
        self._journal(actor, Op.EXCHANGE if exchange else Op.RENAME, path, target)

    def set_xattr(self, key: Hashable, name: bytes, value: bytes, actor: Actor) -> None:
        super().set_xattr(key, name, value, actor)
        self._journal(actor, Op.XATTR, _path(key), detail=_attribute(name))

    def remove_xattr(self, key: Hashable, name: bytes, actor: Actor) -> None:
        super().remove_xattr(key, name, actor)
        self._journal(actor, Op.XATTR, _path(key), detail=_attribute(name))

    def _journal(
        self, actor: Actor, op: Op, path: Path, target: Path | None = None, *, detail: bytes = b""
    ) -> None:
        about = self._whole(path) if target is None else b"\0".join(
            (self._whole(path), self._whole(target))
        )
        try:
            with self._instance.kv.write(lazy=True) as txn:
                journal.append(
                    txn, time=time.time_ns(), process=self._instance.process,
                    actor=actor.session, op=op, path=about, detail=detail,
                )  # fmt: skip
                self._instance.journalled()
        except OSError as error:
            _log.error(
                "not journalled: %s of %s by %s: %s",
                op.name.lower(), render((*self._bound_at, *path)), actor.session, error,
            )  # fmt: skip

    def _whole(self, path: Path) -> bytes:
        return b"/" + b"/".join((*self._bound_at, *path))


def _path(key: Hashable) -> Path:
    assert isinstance(key, HostNode)
    return tuple(key.path())


def _changes(change: Change) -> bytes:
    """Return what the attributes are now; what they were is not asked."""
    now: dict[str, list[int | str | None]] = {}
    for field in ("mode", "uid", "gid", "atime", "mtime"):
        value = getattr(change, field)
        if value is not None:
            now[field] = [None, f"{value:o}" if field == "mode" else value]
    return journal.describe(now)


def _attribute(name: bytes) -> bytes:
    return journal.describe({"attribute": decode(name)})
