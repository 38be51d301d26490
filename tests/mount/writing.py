"""A writer whose every call is noted in a model, and what a mount must show of it later."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_SIZES = (0, 10, 1000, 60_000, 65_536, 70_000, 300_000, 1_500_000)
_DIRECTORIES = ("", "d0/", "d1/")
_MOST_OPEN = 4
_LAST = 60
_GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)

Seen = dict[str, tuple[str, bytes, tuple[tuple[str, bytes], ...]]]
"""Paths below a writer's directory to kind, content and extended attributes."""


@dataclass(eq=False)
class Node:
    """A node of the model."""

    kind: str
    data: bytes = b""
    xattrs: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Pending:
    """A call that has not returned: what was before it and will be after it.

    Attributes:
        torn: the file of which a part may be written.
    """

    what: str
    before: Seen
    after: Seen
    torn: str | None


class Writer(threading.Thread):
    """Changes files below a directory of a mount until the mount is gone.

    Attributes:
        tree: what every call, the pending one included, has left.
        pending: the call that did not return.
        calls: how many did.
        done: the last of those.
        error: what ended the work.
    """

    def __init__(self, top: Path, rng: random.Random, tree: dict[str, Node]) -> None:
        super().__init__()
        self.top = top
        self.tree = tree
        self.pending: Pending | None = None
        self.calls = 0
        self.done: deque[str] = deque(maxlen=_LAST)
        self.error: BaseException | None = None
        self._random = rng
        self._open: dict[int, Node] = {}

    def run(self) -> None:
        try:
            while True:
                self._random.choice(_OPERATIONS)(self)
        except BaseException as error:  # noqa: BLE001 - told by `died_of_the_kill`
            self.error = error
        finally:
            for fd in self._open:
                with contextlib.suppress(OSError):
                    os.close(fd)

    @property
    def died_of_the_kill(self) -> bool:
        """The mount's end is what ended the work."""
        return isinstance(self.error, OSError) and self.error.errno in _GONE

    def seen(self) -> Seen:
        """Return the model as `look` would find it."""
        return {
            path: (node.kind, node.data, tuple(sorted(node.xattrs.items())))
            for path, node in self.tree.items()
        }

    def _call(
        self,
        what: str,
        call: Callable[[], object],
        change: Callable[[], object] = lambda: None,
        *,
        torn: Node | None = None,
    ) -> None:
        """Do one call, and to the model what it does."""
        before = self.seen()
        change()
        name = next((path for path, node in self.tree.items() if node is torn), None)
        self.pending = Pending(what, before, self.seen(), name)
        call()
        self.pending = None
        self.calls += 1
        self.done.append(what)

    # What is chosen.

    def _file(self) -> str:
        directories = [d for d in _DIRECTORIES if not d or d[:-1] in self.tree]
        return f"{self._random.choice(directories)}f{self._random.randrange(8)}"

    def _bytes(self) -> bytes:
        return self._random.randbytes(self._random.choice(_SIZES))

    def _existing(self, kind: str = "file") -> str | None:
        names = [path for path, node in self.tree.items() if node.kind == kind]
        return self._random.choice(names) if names else None

    # Operations.

    def _open_file(self, name: str, flags: int) -> int:
        opened: list[int] = []

        def change() -> None:
            node = self.tree.setdefault(name, Node("file"))
            if flags & os.O_TRUNC:
                node.data = b""

        path = self.top / name
        self._call(
            f"open {name} {flags:o}", lambda: opened.append(os.open(path, flags, 0o644)), change
        )
        self._open[opened[0]] = self.tree[name]
        return opened[0]

    def _close(self, fd: int) -> None:
        what = f"close {self._known_as(fd)}"
        del self._open[fd]  # at once: it is gone even if closing it fails
        self._call(what, lambda: os.close(fd))

    def _sync(self, fd: int) -> None:
        self._call(f"fsync {self._known_as(fd)}", lambda: os.fsync(fd))

    def _known_as(self, fd: int) -> str:
        """Return what a file that is open is called by now."""
        names = (path for path, node in self.tree.items() if node is self._open[fd])
        return f"{fd}, {next(names, 'removed')}"

    def _pwrite(self, fd: int, offset: int, data: bytes) -> None:
        node = self._open[fd]
        old = node.data.ljust(offset, b"\0") if data else node.data

        def change() -> None:
            node.data = old[:offset] + data + old[offset + len(data) :]

        self._call(
            f"write {len(data)} at {offset} of {self._known_as(fd)}",
            lambda: _all_of(data, lambda rest: os.pwrite(fd, rest, offset + len(data) - len(rest))),
            change,
            torn=node,
        )

    def write(self) -> None:
        """Write a file anew, and perhaps leave it open."""
        fd = self._open_file(self._file(), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._pwrite(fd, 0, self._bytes())
        if self._random.random() < 0.5 or len(self._open) > _MOST_OPEN:
            self._close(fd)

    def replace(self) -> None:
        """Write a file beside and rename it over."""
        fresh, name = "fresh", self._file()
        fd = self._open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._pwrite(fd, 0, self._bytes())
        if self._random.random() < 0.3:
            self._sync(fd)
        self._close(fd)
        self._rename(fresh, name)

    def _rename(self, old: str, new: str) -> None:
        def change() -> None:
            for path in [p for p in self.tree if p == old or p.startswith(old + "/")]:
                self.tree[new + path[len(old) :]] = self.tree.pop(path)

        self._call(
            f"rename {old} {new}", lambda: os.rename(self.top / old, self.top / new), change
        )

    def overwrite(self) -> None:
        """Write somewhere into a file that is open, and perhaps sync it."""
        if not self._open:
            name = self._existing()
            if name is None:
                return
            self._open_file(name, os.O_RDWR)
        fd = self._random.choice(list(self._open))
        data = self._bytes()
        self._pwrite(fd, self._random.randrange(len(self._open[fd].data) + 100), data)
        if self._random.random() < 0.5:
            self._sync(fd)
        if self._random.random() < 0.3:
            self._close(fd)

    def append(self) -> None:
        """Append to a file."""
        fd = self._open_file(self._file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        node, data = self._open[fd], self._bytes()

        def change() -> None:
            node.data += data

        self._call(
            f"append {len(data)} to {self._known_as(fd)}",
            lambda: _all_of(data, lambda rest: os.write(fd, rest)),
            change,
            torn=node,
        )
        self._close(fd)

    def truncate(self) -> None:
        """Make a file shorter or longer."""
        name = self._existing()
        if name is not None:
            node, size = self.tree[name], self._random.choice(_SIZES)
            what = f"truncate {name} to {size}"

            def change() -> None:
                node.data = node.data[:size].ljust(size, b"\0")

            self._call(what, lambda: os.truncate(self.top / name, size), change)

    def write_mapped(self) -> None:
        """Write through a mapping and msync it."""
        name = self._existing()
        if name is None or not self.tree[name].data:
            return
        node = self.tree[name]
        offset = self._random.randrange(len(node.data))
        data = self._bytes()[: len(node.data) - offset]

        def change() -> None:
            node.data = node.data[:offset] + data + node.data[offset + len(data) :]

        path = self.top / name
        self._call(
            f"msync {len(data)} at {offset} of {name}",
            lambda: _write_mapped(path, offset, data),
            change,
            torn=node,
        )

    def remove(self) -> None:
        """Remove a file."""
        name = self._existing()
        if name is not None:
            self._call(
                f"unlink {name}", lambda: os.unlink(self.top / name), lambda: self.tree.pop(name)
            )

    def directories(self) -> None:
        """Make, remove or rename a directory."""
        name = self._random.choice(_DIRECTORIES)[:-1]
        if not name:
            return
        if name not in self.tree:
            self._call(
                f"mkdir {name}",
                lambda: os.mkdir(self.top / name),
                lambda: self.tree.setdefault(name, Node("directory")),
            )
        elif not any(path.startswith(name + "/") for path in self.tree):
            self._call(
                f"rmdir {name}", lambda: os.rmdir(self.top / name), lambda: self.tree.pop(name)
            )
        else:
            other = {"d0": "d1", "d1": "d0"}[name]
            if other not in self.tree:
                self._rename(name, other)

    def attributes(self) -> None:
        """Set an extended attribute."""
        name = self._existing()
        if name is not None:
            node, value = self.tree[name], self._random.randbytes(20)

            def change() -> None:
                node.xattrs = {**node.xattrs, "user.t": value}

            path = self.top / name
            self._call(f"setxattr {name}", lambda: os.setxattr(path, "user.t", value), change)

    def link(self) -> None:
        """Make or replace a symbolic link."""
        fresh, target = f"fresh-{self._random.randbytes(4).hex()}", f"t{self.calls}"

        def change() -> None:
            self.tree[fresh] = Node("link", target.encode())

        self._call("symlink", lambda: os.symlink(target, self.top / fresh), change)
        self._rename(fresh, "l")


_OPERATIONS = (
    *(Writer.write,) * 3, *(Writer.replace,) * 3, *(Writer.overwrite,) * 4, *(Writer.append,) * 3,
    Writer.truncate, Writer.write_mapped, Writer.remove, Writer.remove, Writer.directories,
    Writer.directories, Writer.attributes, Writer.link,
)  # fmt: skip


def _all_of(data: bytes, write: Callable[[bytes], int]) -> None:
    """Write what is left until nothing is: a mount that dies cuts a write short."""
    while data:
        data = data[write(data) :]


def _write_mapped(path: Path, offset: int, data: bytes) -> None:
    """Write and msync in a process of its own, which SIGBUS may kill.

    Raises:
        OSError: it did not get through.
    """
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            fd = os.open(path, os.O_RDWR)
            with mmap.mmap(fd, 0) as mapped:
                mapped[offset : offset + len(data)] = data
                mapped.flush()
                os._exit(0)
        os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(errno.ENOTCONN, "the mapping's process died")


def look(top: Path) -> Seen:
    """Return everything below a directory."""
    found: Seen = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            kind, data = "file", b""
            if os.path.islink(path):
                kind, data = "link", os.readlink(path).encode()
            elif os.path.isdir(path):
                kind = "directory"
            else:
                data = Path(path).read_bytes()
            listed = os.listxattr(path, follow_symlinks=False)
            attributes = ((n, os.getxattr(path, n, follow_symlinks=False)) for n in sorted(listed))
            kept = tuple((n, value) for n, value in attributes if n == "user.t")
            found[os.path.relpath(path, top)] = kind, data, kept
    return found


def differences(found: Seen, writer: Writer) -> list[str]:
    """Return what is not as it must be, in words."""
    pending = writer.pending
    if pending is None:
        return _compare(found, writer.seen())
    if not _compare(found, pending.before) or not _compare(found, pending.after):
        return []
    name = pending.torn
    if name is not None and name in found and name in pending.before:
        torn = found[name]
        mixed = _is_mixed(torn[1], pending.before[name][1], pending.after[name][1])
        rest = _compare(found, {**pending.after, name: torn})
        if mixed and not rest:
            return []
    return [
        f"during {pending.what}, neither as before: {_compare(found, pending.before)}",
        f"nor as after: {_compare(found, pending.after)}",
        f"What was done before: {'; '.join(writer.done)}",
    ]


def _compare(found: Seen, wanted: Seen) -> list[str]:
    return [
        f"{path}: {_short(found.get(path))} instead of {_short(wanted.get(path))}"
        for path in sorted(found.keys() | wanted.keys())
        if found.get(path) != wanted.get(path)
    ]


def _short(node: tuple[str, bytes, tuple[tuple[str, bytes], ...]] | None) -> str:
    if node is None:
        return "nothing"
    return f"{node[0]} of {len(node[1])} bytes ({node[1][:6].hex()}...{node[1][-6:].hex()})"


def _is_mixed(found: bytes, old: bytes, new: bytes) -> bool:
    """Tell whether every byte is of one of two states."""
    if not min(len(old), len(new)) <= len(found) <= max(len(old), len(new)):
        return False
    old, new = old.ljust(len(found), b"\0"), new.ljust(len(found), b"\0")
    step = 4096
    return all(
        found[at : at + step] in (old[at : at + step], new[at : at + step])
        or all(f in pair for f, *pair in zip(found[at:at + step], old[at:at + step],
                                             new[at:at + step], strict=False))
        for at in range(0, len(found), step)
    )  # fmt: skip
