"""A mount in a process of its own that answers questions about itself on standard input.

Run as ``python -m tests.daemon.process FOLDER SESSION MOUNTPOINT READY_FD OPTIONS``. Names of
files bring about failures that a sound store does not have: see `_FAULTS`.
"""

from __future__ import annotations

import errno
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from fusefs.daemon import daemon, logs
from fusefs.daemon.options import MountOptions
from fusefs.daemon.serve import serve
from fusefs.session.handles import ViewFile
from fusefs.session.place import Place
from fusefs.session.view_reader import ViewReader
from fusefs.session.view_tree import ViewTree

FOREVER = threading.Event()


def _answer(running: list[daemon.Daemon]) -> None:
    questions: dict[str, Callable[[], object]] = {
        "inodes": lambda: len(running[0]._operations.inodes),
        "files": lambda: len(running[0]._operations.files.by_number),
        "directories": lambda: len(running[0]._operations.directories.by_number),
    }
    for line in sys.stdin:
        print(questions[line.strip()](), flush=True)


def _fail(name: bytes) -> None:
    if name.startswith(b"errno-"):
        raise OSError(getattr(errno, name[6:].decode()), "made to fail")
    if name == b"bug":
        raise ZeroDivisionError("made to fail")
    if name == b"key-error":
        raise KeyError("made to fail")


def _fail_change(name: bytes) -> None:
    if name == b"breaks":
        raise ZeroDivisionError("made to fail")
    if name == b"breaks-os":
        raise OSError(errno.EBADF, "made to fail")


def _break() -> None:
    child, read_nowait = ViewReader.child, ViewFile.read_nowait

    def failing_child(self: ViewReader, place: Place, name: bytes) -> Any:
        _fail(name)
        return child(self, place, name)

    def slow_read_nowait(self: ViewFile, offset: int, size: int) -> bytes | None:
        if self.place.name in (b"slow", b"hang"):

            def later(offset: int, size: int) -> bytes:
                if self.place.name == b"hang":
                    FOREVER.wait()
                return read_nowait(self, offset, size) or b""

            self.read = later
            return None
        return read_nowait(self, offset, size)

    _break_changes()
    ViewReader.child = failing_child  # type: ignore[method-assign]
    ViewFile.read_nowait = slow_read_nowait  # type: ignore[method-assign]


def _break_changes() -> None:
    """Let files of some names fail at whatever carries bytes, once it has been done."""
    write, set_xattr, create = ViewFile.write, ViewTree.set_xattr, ViewTree.create

    def failing_write(self: ViewFile, offset: int, data: bytes) -> int:
        written = write(self, offset, data)
        _fail_change(self.place.name)
        return written

    def failing_set_xattr(self: ViewTree, place: Place, name: bytes, value: bytes) -> None:
        set_xattr(self, place, name, value)
        _fail_change(place.name)

    def failing_create(self: ViewTree, place: Place, name: bytes, *how: Any, **more: Any) -> Any:
        made = create(self, place, name, *how, **more)
        _fail_change(name.removesuffix(b"-link") if name.endswith(b"-link") else b"")
        return made

    ViewFile.write = failing_write  # type: ignore[method-assign]
    ViewTree.set_xattr = failing_set_xattr  # type: ignore[method-assign]
    ViewTree.create = failing_create  # type: ignore[method-assign]


def serve_one(
    folder: str, session: str, mountpoint: str, options: str, ready_fd: int | None
) -> None:
    """Mount a session and serve it."""
    given = json.loads(options)
    logs.set_up(session, given.pop("log_format", "text"), given.pop("log_level", "info"))
    _break()
    running: list[daemon.Daemon] = []
    run = daemon.Daemon.run

    def noted_run(self: daemon.Daemon) -> None:
        running.append(self)
        threading.Thread(target=_answer, args=(running,), daemon=True).start()
        run(self)

    daemon.Daemon.run = noted_run  # type: ignore[method-assign]
    how = MountOptions(**given)
    serve(folder, session, mountpoint, how, ready_fd=ready_fd)


def main() -> None:
    folder, session, mountpoint, ready_fd, options = sys.argv[1:]
    serve_one(folder, session, mountpoint, options, int(ready_fd) if ready_fd != "-" else None)


if __name__ == "__main__":
    main()
