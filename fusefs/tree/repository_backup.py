"""Copies of the clones of mounted repositories, for backups.

Refs are copied before objects: what they name is there by then, and objects never change. What a
snapshot of the store refers to was in the clone before the snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

Copy = Callable[[Path, Path], None]

_TRIES = 3


def clone_files(clone: Path) -> Iterator[Path]:
    """Yield the files of a clone, relative to it, in the order in which they are to be copied."""
    later = []
    for directory, _, files in os.walk(clone):
        for name in sorted(files):
            path = Path(directory, name).relative_to(clone)
            top = path.parts[0]
            if name.endswith(".lock") or top == "worktrees" or top.startswith("tmp_"):
                continue  # git worktrees are copies, made again when they are asked for
            if top == "objects":
                if not name.startswith("tmp_"):
                    later.append(path)
            else:
                yield path
    yield from later


def copy_clone(source: Path, target: Path, earlier: Path, copy: Copy, link: Copy) -> None:
    """Copy a clone that may be in use.

    Args:
        source: the clone.
        target: where the copy goes.
        earlier: a copy made before, if there is one.
        copy: copies one file.
        link: takes one over from `earlier`; FileNotFoundError where that is not possible.

    Raises:
        FileNotFoundError: it is gone, or being packed anew without end.
    """
    for left in reversed(range(_TRIES)):
        for name in ("refs", "objects/info", "objects/pack"):
            (target / name).mkdir(0o700, parents=True, exist_ok=True)
        try:
            for path in clone_files(source):
                to = target / path
                to.parent.mkdir(0o700, parents=True, exist_ok=True)
                to.unlink(missing_ok=True)
                if path.parts[0] == "objects" and _is_same(source / path, earlier / path):
                    link(earlier / path, to)
                else:
                    copy(source / path, to)
        except FileNotFoundError:
            if not left or not source.is_dir():
                raise
        else:
            return


def _is_same(file: Path, earlier: Path) -> bool:
    try:
        return file.stat().st_size == earlier.stat().st_size
    except FileNotFoundError:
        return False
