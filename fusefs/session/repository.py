"""A mounted repository as a session works in it: what is staged, and putting it back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from fusefs.contract.errors import (
    Blocked,
    ContractError,
    NothingStaged,
    NotInRepository,
    ReadOnly,
)
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below, render
from fusefs.session.ignores import ignored
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.store.kv import Writer
from fusefs.store.mounts import MountSpec
from fusefs.store.working_copies import WorkingCopy, set_working_copy, working_copy
from fusefs.tree.repository_changes import Changed, Changes
from fusefs.tree.repository_merge import entry_at
from fusefs.tree.repository_objects import TreeEntry
from fusefs.tree.repository_tree import RepositoryTree
from fusefs.tree.repository_trees import edit_tree, write_tree


class OnlyNew(ContractError):
    """Nothing to put back: only new files are staged, which stay unless that is wished."""

    code = "FS_NOTHING_STAGED"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"Nothing to restore: in {path} only new files are staged. To remove them, for good: "
            f"fusefs repo restore --new {path}"
        )


class Restored(NamedTuple):
    """What was put back, and what new files were removed, relative to the repository."""

    back: tuple[Path, ...]
    dropped: tuple[Path, ...]


class Repository:
    """The working copy that a session has of one mounted repository.

    Attributes:
        session: who works in it.
        mount, spec: where the repository is mounted, and what it is.
        tree: the working copy.
    """

    def __init__(
        self,
        session: Session,
        path: str | bytes,
        *,
        outside: Callable[[str], ContractError] = NotInRepository,
    ) -> None:
        """Find the repository that `path` is in.

        Args:
            session: who works in it.
            path: any path in the repository, there or not.
            outside: what is raised where there is none.

        Raises:
            ContractError: the path cannot be seen, or is in no repository.
        """
        self.session = session
        session.refresh()
        wanted = session.resolve(path)
        cursor = session.view.rules.cursor(wanted)
        if not (cursor.visible or cursor.passage):
            raise cursor.unseen(wanted)
        mounts = session.view.instance.mounts.all()
        mount = next((where for where in mounts if is_at_or_below(wanted, where)), None)
        backend = None if mount is None else session.view.tree.resolve(mount).backend
        if mount is None or not isinstance(backend, RepositoryTree):
            raise outside(render(wanted))
        self.mount: Path = mount
        self.spec: MountSpec = mounts[mount]
        self.tree = backend
        self.path: Path = wanted[len(mount) :]
        backend.follow()

    @property
    def instance(self) -> Instance:
        """The instance."""
        return self.session.view.instance

    @property
    def branch(self) -> str:
        """The branch that commits go to."""
        return self.tree.copy.branch or self.spec.branch

    def catch_up(self) -> None:
        """Wait until the store shows what other processes have acknowledged: their open batch."""
        with self.instance.kv.write():
            pass
        self.tree.follow()

    def absolute(self, path: Path) -> str:
        """Return the path in the tree of a path in the repository."""
        return render((*self.mount, *path))

    def level(self, path: Path) -> Level:
        """Return the session's level on a path in the repository."""
        return self.session.view.rules.cursor((*self.mount, *path)).level

    def hides(self, path: Path) -> bool:
        """Tell whether a path in the repository is hidden from the session."""
        return self.level(path) < Level.RO

    def changes(self, below: Iterable[Path] = ((),)) -> list[Changed]:
        """Return what is staged at or below paths, as far as the session sees it.

        New files that a ``.gitignore`` names are left out, but for those that are merged.
        """
        tops = tuple(below)
        return [
            changed
            for changed in self.all_changes()
            if not self.hides(changed.path)
            and any(is_at_or_below(changed.path, top) for top in tops)
        ]

    def all_changes(self) -> list[Changed]:
        """Return what is staged, also where the session does not see it: tell it nothing of that.

        New files that a ``.gitignore`` names are left out, but for those that are merged.
        """
        with self.instance.kv.read() as txn:
            changes = list(Changes(self.instance, self.tree, txn).all())
        left_out = self.ignored([changed.path for changed in changes if changed.old is None])
        return [changed for changed in changes if changed.path not in left_out]

    def ignored(self, paths: Collection[Path]) -> set[Path]:
        """Return those of new files that a ``.gitignore`` names and no merge brings."""
        found = ignored(self.session, self.mount, self.tree.objects.folder, paths)
        return {path for path in found if not self._is_merged(path)}

    def _is_merged(self, path: Path) -> bool:
        """Tell whether the commit that is being merged, if any, has something at a path."""
        objects, merging = self.tree.objects, self.tree.copy.merging
        return bool(merging) and entry_at(objects, objects.tree_of(merging), path) is not None

    def write_tree(self, changes: Iterable[Changed]) -> bytes:
        """Return the id of a tree that is the base with `changes` made, all of it written."""
        return edit_tree(self.tree.objects, self.base, self._written(changes))

    def _written(self, changes: Iterable[Changed]) -> dict[Path, TreeEntry | None]:
        with self.instance.kv.read() as txn:
            writer = Changes(self.instance, self.tree, txn)
            return {
                changed.path: None if changed.node is None else writer.write_blob(changed.node)
                for changed in changes
            }

    def work_tree(self) -> bytes:
        """Return the whole working copy as a tree, written: what the session does not see, or
        git ignores, is in it, too."""
        with self.instance.kv.read() as txn:
            changes = list(Changes(self.instance, self.tree, txn).all())
        return self.write_tree(changes)

    @property
    def base(self) -> bytes:
        """The tree that changes are counted from."""
        return self.tree.objects.tree_of(self.tree.copy.base)

    @property
    def is_whole(self) -> bool:
        """The session sees all of the repository. Commit ids, and whatever else is made of all of
        it, are for such sessions alone (contract section 5)."""
        return self.session.view.rules.cursor(self.mount).whole

    def diff(
        self, below: Iterable[Path] = ((),), *, binary: bool = False, colour: bool = False
    ) -> bytes:
        """Return what is staged as a patch to the base, as git-diff(1) shows it."""
        changes, objects = self.changes(below), self.tree.objects
        nothing = write_tree(objects, {})
        # Of what is changed alone: a file that is hidden may stand where a directory is staged.
        old = edit_tree(objects, nothing, {changed.path: changed.old for changed in changes})
        new = edit_tree(objects, nothing, self._written(changes))
        return objects.patch(old, new, full_ids=not self.is_whole, binary=binary, colour=colour)

    def restore(self, below: Path, *, new: bool = False) -> Restored:
        """Put back what the base has at or below a path.

        At the top of the repository this also gives up a merge that is not committed yet.

        Args:
            below: relative to the repository.
            new: also remove files that the base does not have, for good.

        Raises:
            ContractError: nothing is changed there, the session may not change it, or something
                is in the way.
        """
        found = self.changes([below])
        changes = [c for c in found if new or c.old is not None]
        copy = self.tree.copy
        gives_up = below == () and bool(copy.merging)
        if not (changes or gives_up):
            where = self.absolute(below)
            if found:
                raise OnlyNew(where)
            raise NothingStaged("restore", where)
        for changed in changes:
            if self.level(changed.path) < Level.STAGE:
                raise ReadOnly(self.absolute(changed.path))
        edits = {changed.path: changed.old for changed in changes}
        with self.instance.kv.write() as txn:
            if gives_up and not self.move(txn, copy, copy._replace(merging=b"")):
                raise Blocked(
                    f"Not restored: {self.absolute(())} is being changed. Try again."
                )
            self.rewrite(txn, edits, prune=new, failing="Not restored")
        self.instance.commit()
        self.tree.follow()
        return Restored(
            tuple(changed.path for changed in changes if changed.old is not None),
            tuple(changed.path for changed in changes if changed.old is None),
        )

    def rewrite(
        self, txn: Writer, edits: Mapping[Path, TreeEntry | None], *, prune: bool, failing: str
    ) -> None:
        """Have paths show other objects (see `RepositoryTree.rewrite`).

        Where something stands in the way of what the session does not see, nothing is done: it
        stays as it is in the working copy, which says nothing of what the session commits.

        Raises:
            Blocked: something is in the way; its text begins with `failing`.
        """
        try:
            self.tree.rewrite(
                txn, edits, self.session.view.actor, self.mount, prune=prune, hidden=self.hides
            )
        except OSError as error:
            if error.filename is None:
                raise
            path = tuple(os.fsencode(error.filename).split(b"/"))
            why = (
                "is being written; close it first"
                if error.errno == errno.EBUSY
                else "is in the way; move it away first"
            )
            raise Blocked(f"{failing}: {self.absolute(path)} {why}.") from None

    def move(self, txn: Writer, old: WorkingCopy, new: WorkingCopy) -> bool:
        """Note the working copy's new state; False if `old` is not what is there."""
        mount, session = self.spec.id, self.session.spec.name
        if working_copy(txn, mount, session) != old:
            return False
        set_working_copy(txn, mount, session, new)
        return True
