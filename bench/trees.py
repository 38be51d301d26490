"""The trees that the work is done on: made once, the same in every run."""

from __future__ import annotations

import os
import random
from pathlib import Path

from bench.peers import run

FILES_PER_DIRECTORY = 20
_DIRECTORIES_PER_SHELF = 50
_WORDS = [
    "file", "tree", "node", "entry", "level", "grant", "floor", "passage", "session", "view",
    "mount", "path", "name", "store", "key", "content", "journal", "trash", "lookup", "read",
    "write", "open", "close", "rename", "remove", "handle", "inode", "cache",
]  # fmt: skip
NEEDLE = "needle"
"""A word that one line in some thousand has, for searches."""


def small_files(top: Path, files: int) -> None:
    """Make text files of 100 bytes to 30 KB, 4 KB on average, each with content of its own."""
    chosen = random.Random(files)
    for number in range(0, files, FILES_PER_DIRECTORY):
        place = number // FILES_PER_DIRECTORY
        folder = top / f"s{place // _DIRECTORIES_PER_SHELF}" / f"d{place}"
        folder.mkdir(parents=True)
        for inner in range(number, min(number + FILES_PER_DIRECTORY, files)):
            size = min(max(int(chosen.lognormvariate(7.8, 1.0)), 100), 30_000)
            _write(folder / f"file{inner}.txt", _text(chosen, inner, size))


def tiny_files(top: Path, files: int) -> None:
    """Make files of one line."""
    for number in range(0, files, FILES_PER_DIRECTORY):
        folder = top / f"s{number // 10_000}" / f"d{number // FILES_PER_DIRECTORY}"
        folder.mkdir(parents=True)
        for inner in range(number, min(number + FILES_PER_DIRECTORY, files)):
            _write(folder / f"f{inner}", b"file number %d\n" % inner)


def repository(top: Path, files: int) -> None:
    """Make a git repository with everything committed."""
    small_files(top, files)
    # No maintenance in the background, which would run beside what is measured.
    git = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")
    run("git", "init", "-q", cwd=top)
    run("git", "config", "gc.auto", "0", cwd=top)
    run(*git, "add", "-A", cwd=top)
    run(*git, "commit", "-q", "-m", "all", cwd=top)


def paths(top: Path) -> list[str]:
    """Return every file below `top`, relative to it, in a mixed order that is always the same."""
    found = [
        os.path.relpath(os.path.join(folder, name), top)
        for folder, _, names in os.walk(top)
        for name in names
    ]
    found.sort()
    random.Random(1).shuffle(found)
    return found


def _text(chosen: random.Random, number: int, size: int) -> bytes:
    lines = [f"{number}"]
    length = 0
    while length < size:
        line = " ".join(chosen.choices(_WORDS, k=10))
        if chosen.random() < 0.0005:
            line += f" {NEEDLE}"
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines).encode()[:size]


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
