"""Copying the clones of mounted repositories: into a backup and out of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

_FOLDER = "repositories"


def copy_clones(
    source: Path, target: Path, names: Iterable[str], count: Callable[[int], None]
) -> list[str]:
    """Copy clones from one instance's folder to another's; return the names that are not there.

    Objects are only ever added to a clone, so a copy has all that an earlier snapshot of the
    ordered store refers to, whatever is fetched or committed meanwhile. Its git worktrees are
    left out: they are copies.

    Args:
        source: the folder of an instance.
        target: the folder of another one.
        names: the clones' names.
        count: told of the bytes.
    """
    missing = []
    (target / _FOLDER).mkdir(mode=0o700, exist_ok=True)
    for name in names:
        clone = source / _FOLDER / name
        if not clone.is_dir():
            missing.append(name)
            continue

        def skip(folder: str, found: list[str], clone: Path = clone) -> list[str]:
            here = {"worktrees"} if Path(folder) == clone else set()
            return [n for n in found if n in here or n.endswith(".lock") or n.startswith("tmp_")]

        def copy(from_file: str, to_file: str) -> None:
            with contextlib.suppress(FileNotFoundError):  # a ref that went meanwhile
                shutil.copy2(from_file, to_file)
                count(os.stat(to_file).st_size)

        shutil.copytree(clone, target / _FOLDER / name, ignore=skip, copy_function=copy)
    return missing


def clones_in(folder: Path) -> list[str]:
    """Return the names of the clones in a backup's folder."""
    try:
        return sorted(name for name in os.listdir(folder / _FOLDER) if name.endswith(".git"))
    except FileNotFoundError:
        return []  # of a time without repositories
