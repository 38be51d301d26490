"""Three-way merges of trees, as git does them, and how two trees differ."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path as HostPath

from fusefs.contract.paths import Path
from fusefs.forge.git_process import Limits, run
from fusefs.tree.repository_objects import TREE, RepositoryObjects, TreeEntry
from fusefs.tree.repository_trees import edit_tree

_OURS = b"<<<<<<< "
_THEIRS = b">>>>>>> "


def merge(
    objects: RepositoryObjects, ours: bytes, theirs: bytes, *, names: tuple[str, str]
) -> tuple[bytes, list[Path]]:
    """Merge two commits without a working tree (git-merge-tree(1)).

    Args:
        objects: the repository.
        ours: a commit.
        theirs: another one.
        names: what both are called where they conflict.

    Returns:
        The merged tree, in which conflicting files show both sides, and those files' paths.

    Raises:
        OSError: git could not merge.
        ForgeError: git is not there, or takes too long.
    """
    output = run(
        # Written to disk for good: working copies will refer to it. Renames are not guessed at:
        # where a file went, and with it what is staged, could be told by files that are hidden.
        ["-c", "core.fsync=committed,loose-object", "-c", "merge.renames=false",
         "-c", "merge.directoryRenames=false", "merge-tree", "--write-tree", "-z",
         "--name-only", "--no-messages", ours.hex(), theirs.hex()],
        repository=HostPath(objects.folder),
        limits=Limits(idle=Limits.total),
    )  # fmt: skip
    if output.status not in (0, 1):
        raise OSError(None, f"git cannot merge: {output.err.strip()}")
    tree, *listed = os.fsencode(output.out).split(b"\0")
    conflicts = [tuple(name.split(b"/")) for name in dict.fromkeys(listed) if name]
    labels = ((ours.hex(), names[0]), (theirs.hex(), names[1]))
    merged = bytes.fromhex(tree.decode())
    return _label(objects, merged, conflicts, labels), conflicts


def _label(
    objects: RepositoryObjects,
    tree: bytes,
    conflicts: Iterable[Path],
    labels: tuple[tuple[str, str], tuple[str, str]],
) -> bytes:
    """Have conflicts name both sides in words instead of by object id."""
    (ours, our_name), (theirs, their_name) = labels
    edits: dict[Path, TreeEntry | None] = {}
    for path in conflicts:
        entry = entry_at(objects, tree, path)
        if entry is None:
            continue
        for commit, name in labels:
            # A file that another stands in the way of gets a name with the commit in it.
            if path[-1].endswith(b"~" + commit.encode()):
                last = path[-1].removesuffix(commit.encode()) + name.replace("/", "_").encode()
                edits |= {path: None, (*path[:-1], last): entry}
        if path in edits or entry.mode not in (0o100644, 0o100755):
            continue
        data = objects.read(entry.oid)
        named = data.replace(_OURS + ours.encode(), _OURS + our_name.encode())
        named = named.replace(_THEIRS + theirs.encode(), _THEIRS + their_name.encode())
        if named != data:
            edits[path] = TreeEntry(entry.mode, objects.write(named))
    return edit_tree(objects, tree, edits) if edits else tree


def entry_at(objects: RepositoryObjects, tree: bytes, path: Path) -> TreeEntry | None:
    """Return what stands at a path below a tree, or None."""
    at: TreeEntry | None = TreeEntry(TREE, tree)
    for name in path:
        if at is None or not at.is_tree:
            return None
        at = objects.entries(at.oid).get(name)
    return at


def differences(
    objects: RepositoryObjects, old: bytes | None, new: bytes | None, path: Path = ()
) -> Iterable[tuple[Path, TreeEntry | None]]:
    """Yield the paths at which two trees have other files, with what the new one has there."""
    before = {} if old is None else objects.entries(old)
    after = {} if new is None else objects.entries(new)
    for name in sorted({*before, *after}):
        here, there = before.get(name), after.get(name)
        if here == there:
            continue
        below = (*path, name)
        old_tree = here.oid if here is not None and here.is_tree else None
        new_tree = there.oid if there is not None and there.is_tree else None
        if old_tree is not None or new_tree is not None:
            yield from differences(objects, old_tree, new_tree, below)
        if there is not None and new_tree is None:
            yield below, there
        elif here is not None and old_tree is None:
            yield below, None
