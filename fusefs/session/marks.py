"""What a node of a mounted repository is beyond its kind, for attributes and listings of facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fusefs.contract.kinds import Kind
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below
from fusefs.session.place import Place
from fusefs.store.mounts import MountSpec

if TYPE_CHECKING:
    from fusefs.session.view_reader import ViewReader
    from fusefs.tree.repository_tree import RepositoryTree

SUBMODULE = "submodule"
LFS_POINTER = "lfs pointer"

_LFS_FIRST = b"version https://git-lfs.github.com/spec/"
_LFS_MOST_BYTES = 1024
"""A pointer is smaller than this (git-lfs, docs/spec.md)."""


def mark_of(view: ViewReader, place: Place) -> str | None:
    """Return `SUBMODULE` or `LFS_POINTER` for a visible place that is one, else None."""
    found = repository_of(view, place)
    if found is None:
        return None
    stat = view.stat(place)
    if stat.kind == Kind.DIR and found.tree.is_submodule(place.key):
        return SUBMODULE
    if stat.kind == Kind.FILE and len(_LFS_FIRST) < stat.size < _LFS_MOST_BYTES:
        file = view.open_file(place, write=False)
        try:
            text = b"".join(file.chunks())
        finally:
            file.close()
        if text.startswith(_LFS_FIRST) and b"\noid sha256:" in text:
            return LFS_POINTER
    return None


class InRepository(NamedTuple):
    """Where a visible place is in a mounted repository."""

    view: ViewReader
    tree: RepositoryTree
    mount: Path
    spec: MountSpec
    path: Path

    @property
    def branch(self) -> bytes:
        """The branch that commits go to."""
        self.tree.follow()
        return (self.tree.copy.branch or self.spec.branch).encode()

    def staged(self) -> int:
        """Return how many paths at or below this one differ from the base, of those seen.

        A large file that was written again as it was counts as well: reading it would take long.
        """
        from fusefs.tree.repository_changes import Changes  # noqa: PLC0415 - as below

        self.tree.follow()
        rules = self.view.rules
        with self.view.instance.kv.read() as txn:
            return sum(
                is_at_or_below(changed.path, self.path)
                and rules.cursor((*self.mount, *changed.path)).level >= Level.RO
                for changed in Changes(self.view.instance, self.tree, txn, roughly=True).all()
            )


def repository_of(view: ViewReader, place: Place) -> InRepository | None:
    """Return where a place is in a mounted repository, None where it is in none."""
    path = place.path
    for mount, spec in view.instance.mounts.all().items():
        if is_at_or_below(path, mount):
            # Here, since pygit2 takes longer to load than all the rest.
            from fusefs.tree.repository_tree import RepositoryTree  # noqa: PLC0415

            backend = view.backend_of(place)
            if isinstance(backend, RepositoryTree):
                return InRepository(view, backend, mount, spec, path[len(mount) :])
    return None
