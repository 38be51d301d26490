"""Opening a mounted repository for a session: its clone, and the session's working copy."""

from __future__ import annotations

import errno

from fusefs.contract.paths import Path
from fusefs.store.instance import Instance
from fusefs.store.mounts import MountSpec
from fusefs.store.working_copies import WorkingCopy, begin_working_copy, working_copy
from fusefs.tree.repository_objects import RepositoryObjects
from fusefs.tree.repository_tree import RepositoryTree
from fusefs.tree.store_tree import StoreTree


def open_mount(
    instance: Instance, store: StoreTree, path: Path, spec: MountSpec, session: str
) -> RepositoryTree:
    """Return the working copy that a session has of a mount, which begins at its first use.

    Raises:
        OSError: the clone cannot be opened.
    """
    objects = RepositoryObjects(instance.mounts.folder(spec))

    def begin() -> WorkingCopy:
        with instance.kv.read() as txn:
            found = working_copy(txn, spec.id, session)
        if found is not None:
            return found
        try:
            commit = objects.commit(objects.branch(spec.branch))
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT,
                f"{spec.url} has no branch {spec.branch} any more, so no working copy can begin "
                "there. If it is back: fusefs repo fetch. Else mount another branch: "
                "fusefs repo rm, fusefs repo add --branch",
            ) from None
        with instance.kv.write() as txn:
            found = working_copy(txn, spec.id, session)
            if found is None:
                found = begin_working_copy(
                    txn, spec.id, path, session, base=commit.id.raw, tree=commit.tree_id.raw
                )
                objects.pin(found.top, found.base)
        return found

    return RepositoryTree(instance, store, objects, begin)

