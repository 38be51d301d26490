"""Who serves which mountpoint: a locked file in the instance for each mount.

The kernel drops the lock when the daemon ends, however it ends; until then the file says who
serves what. Whoever unmounts waits for the lock, and thereby until all is safe.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from fusefs.daemon.mountpoint import MountError
from fusefs.store.flocks import try_lock

_PAUSE = 0.01


class Served(NamedTuple):
    """A live mount of an instance."""

    pid: int
    mountpoint: str
    session: str


class MountLock:
    """The lock of one mount, held by its daemon."""

    def __init__(self, run: Path, served: Served) -> None:
        """Take the lock in the instance's ``run`` folder.

        Raises:
            MountError: another daemon serves this mountpoint.
        """
        self._path = run / _name(served.mountpoint)
        while True:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if not try_lock(self._fd):
                os.close(self._fd)
                raise MountError(f"{served.mountpoint} is served by another process already.")
            if _is_file(self._fd, self._path):
                break
            os.close(self._fd)  # its last holder has just removed it
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(served._asdict()).encode() + b"\n", 0)

    def release(self) -> None:
        """Give the lock back: the daemon has finished."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


class Held:
    """The lock of a mount whose daemon died, held so that no other one begins meanwhile."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


def dead_lock(path: Path) -> Held | None:
    """Take the lock in a file whose daemon died; None if it lives, or the file is gone."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not (try_lock(fd) and _is_file(fd, path)):
        os.close(fd)
        return None
    return Held(path, fd)


def read(path: Path) -> Served | None:
    """Return what a lock file says, None where its process died before it had said it."""
    try:
        return Served(**json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def locks(run: Path) -> list[Path]:
    """Return the lock files in an instance's ``run`` folder, of the living and the dead."""
    return sorted(run.glob("mount-*.lock"))


def served(run: Path) -> Iterator[Served]:
    """Yield the live mounts of the instance whose ``run`` folder this is."""
    for path in locks(run):
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError), path.open() as file:
            if _is_locked(file.fileno()):
                yield Served(**json.load(file))


def find(mountpoint: str) -> int | None:
    """Return a descriptor of the lock of the daemon that serves `mountpoint`, if it is found.

    It is looked for among the open files of this user's processes, since a mountpoint does not
    say which instance it shows. Close the descriptor.
    """
    wanted = f"/run/{_name(mountpoint)}"
    for process in os.listdir("/proc"):
        if not process.isdecimal():
            continue
        folder = f"/proc/{process}/fd"
        try:
            for name in os.listdir(folder):
                link = f"{folder}/{name}"
                if os.readlink(link).endswith(wanted):
                    return os.open(link, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # it ended, or is not this user's
    return None


def wait(fd: int, seconds: float) -> bool:
    """Wait until the lock of a daemon is released; tell whether it was."""
    give_up = time.monotonic() + seconds
    while _is_locked(fd):
        if time.monotonic() > give_up:
            return False
        time.sleep(_PAUSE)
    return True


def _is_locked(fd: int) -> bool:
    if not try_lock(fd, shared=True):
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _is_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _name(mountpoint: str) -> str:
    return f"mount-{hashlib.sha256(os.fsencode(mountpoint)).hexdigest()[:16]}.lock"
