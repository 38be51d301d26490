"""A mounted repository as a session works in it: what is staged, and putting it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusefs.contract.errors import ContractError, NothingStaged, NotInRepository, ReadOnly
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below, render
from fusefs.session.ignores import Ignores
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.store.mounts import MountSpec, set_working_copy
from fusefs.tree.repository_changes import Changed, Changes
from fusefs.tree.repository_merge import entry_at
from fusefs.tree.repository_tree import RepositoryTree
from fusefs.tree.repository_trees import edit_tree


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

    def changes(self, below: Iterable[Path] = ((),)) -> list[Changed]:
        """Return what is staged at or below paths, as far as the session sees it.

        New files that a ``.gitignore`` names are left out, but for those that are merged.
        """
        tops = tuple(below)
        ignores = Ignores(self.session, self.mount)
        with self.instance.kv.read() as txn:
            return [
                changed
                for changed in Changes(self.instance, self.tree, txn).all()
                if any(is_at_or_below(changed.path, top) for top in tops)
                and self.level(changed.path) >= Level.RO
                and not (
                    changed.old is None
                    and changed.path in ignores
                    and not self._is_merged(changed.path)
                )
            ]

    def _is_merged(self, path: Path) -> bool:
        """Tell whether the commit that is being merged, if any, has something at a path."""
        objects, merging = self.tree.objects, self.tree.copy.merging
        return bool(merging) and entry_at(objects, objects.tree_of(merging), path) is not None

    def write_tree(self, changes: Iterable[Changed]) -> bytes:
        """Return the id of a tree that is the base with `changes` made, all of it written."""
        with self.instance.kv.read() as txn:
            writer = Changes(self.instance, self.tree, txn)
            edits = {
                changed.path: None if changed.node is None else writer.write_blob(changed.node)
                for changed in changes
            }
        return edit_tree(self.tree.objects, self.base, edits)

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
        staged = self.write_tree(self.changes(below))
        return self.tree.objects.patch(
            self.base, staged, full_ids=not self.is_whole, binary=binary, colour=colour
        )

    def restore(self, below: Path, *, new: bool = False) -> list[Path]:
        """Put back what the base has at or below a path; return what was put back.

        At the top of the repository this also gives up a merge that is not committed yet.

        Args:
            below: relative to the repository.
            new: also remove files that the base does not have, for good.

        Raises:
            ContractError: nothing is changed there, or the session may not change it.
        """
        changes = [c for c in self.changes([below]) if new or c.old is not None]
        gives_up = below == () and bool(self.tree.copy.merging)
        if not (changes or gives_up):
            raise NothingStaged("restore", self.absolute(below))
        for changed in changes:
            if self.level(changed.path) < Level.STAGE:
                raise ReadOnly(self.absolute(changed.path))
        with self.instance.kv.write() as txn:
            edits = {changed.path: changed.old for changed in changes}
            self.tree.rewrite(txn, edits, self.session.view.actor, self.mount, prune=new)
            if gives_up:
                copy = self.tree.copy._replace(merging=b"")
                set_working_copy(txn, self.spec.id, self.session.spec.name, copy)
        self.instance.commit()
        self.tree.follow()
        return [changed.path for changed in changes]
