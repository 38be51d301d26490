"""Repositories mounted in the tree."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path as HostPath
from typing import TYPE_CHECKING, NamedTuple

from fusefs.contract.paths import Path, render, resolve
from fusefs.store import keys, nodes
from fusefs.store.definitions import define
from fusefs.store.journal import Op
from fusefs.store.kv import Reader
from fusefs.store.working_copies import end_working_copies

if TYPE_CHECKING:
    from fusefs.store.instance import Instance


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
            before = mounts.get(path)
            if spec is None:
                end_working_copies(txn, mount=mounts[path].id)
                txn.delete(keys.RIGHTS + keys.number(mounts[path].id))
                del mounts[path]
            else:
                mounts[path] = spec
            value = {render(where): list(what) for where, what in mounts.items()}
            txn.put(keys.META_MOUNTS, json.dumps(value).encode())
            define(
                self._instance, txn, Op.BIND, render(path), actor,
                before=None if before is None else before._asdict(),
                after=None if spec is None else spec._asdict(),
            )  # fmt: skip
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
