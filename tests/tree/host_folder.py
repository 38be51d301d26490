"""A bound host folder with a trash, for tests."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fusefs.tree.backend import Actor, File, Node, Owner
from fusefs.tree.host_trash import MoveEntry, TrashOrigin
from fusefs.tree.host_tree import HostTree

ME = Actor("s")
US = Owner(os.geteuid(), os.getegid())


class FolderTrash:
    """A trash that is a folder with one folder an entry."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origins: list[TrashOrigin] = []

    def add(self, origin: TrashOrigin, move: MoveEntry) -> None:
        place = self.folder / str(len(self.origins))
        place.mkdir()
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            move(fd, b"entry")
        except OSError:
            place.rmdir()
            raise
        finally:
            os.close(fd)
        self.origins.append(origin)

    def entry(self, number: int = -1) -> Path:
        return self.folder / str(number % len(self.origins)) / "entry"


class Bound:
    """A folder, its trash and the tree made of them."""

    def __init__(self, base: Path, trash: Path | None = None) -> None:
        self.folder = base / "bound"
        self.folder.mkdir()
        trash = trash or base / "trash"
        trash.mkdir()
        self.trash = FolderTrash(trash)
        self.tree = HostTree(str(self.folder), self.trash)
        self.root = self.tree.root()

    def at(self, path: str | bytes) -> Node:
        node = self.root
        for name in os.fsencode(path).split(b"/"):
            node = self.tree.lookup(node.key, name)
        return node

    def names(self, node: Node) -> list[bytes]:
        directory = self.tree.open_directory(node.key)
        found: list[bytes] = []
        while entries := directory.entries(found[-1] if found else b"", 3):
            found += [entry.name for entry in entries]
        directory.close()
        return found

    def put_back(self, path: str) -> None:
        place = os.open(self.trash.entry().parent, os.O_PATH)
        try:
            self.tree.put_back(tuple(os.fsencode(path).split(b"/")), place, b"entry")
        finally:
            os.close(place)


class raises:  # noqa: N801 - reads as a function
    """Expect an `OSError` with this errno."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert isinstance(error, OSError), f"no error where {errno.errorcode[self.number]} is due"
        assert error.errno == self.number, error
        return True


class open_file:  # noqa: N801 - reads as a function
    def __init__(self, bound: Bound, node: Node, *, write: bool = False) -> None:
        self.file: File = bound.tree.open_file(node.key, write=write)

    def __enter__(self) -> File:
        return self.file

    def __exit__(self, *_: object) -> None:
        assert self.file.close() is None
