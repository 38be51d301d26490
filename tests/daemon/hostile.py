"""Hostile requests on a mount: whatever a program can ask of the kernel.

``python -m tests.daemon.hostile DIRECTORY --seconds 60`` asks for a minute below a directory of a
mount, prints the seed (``--seed`` repeats a run) and, at the end, how often each call was answered
how. It ends with status 1 at an answer that a file system must not give.

It makes DIRECTORY its root first, for which it must be root: a link to ``/`` or to ``..`` is among
what it makes and follows, and the machine's own files are no business of its.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import random
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

NEVER = (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.ENOSYS, errno.EFAULT, errno.EBADFD)
"""Errnos that say something went wrong inside."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_RENAMEAT2, _UTIMENSAT, _FALLOCATE, _GETDENTS64, _FACCESSAT2 = 316, 280, 285, 217, 439
_AT_FDCWD = -100

NAMES = (
    b"", b".", b"..", b"a", b"b", b"c", b"d", b"e/f", b"d/a", b"d/b", b"n" * 255, b"n" * 256,
    b"n" * 1024, b"x/" * 600 + b"x", b"a/", b"d/", b"d//a", b"./a", b"d/../a", b"a/b", b"\xff\xfe",
    b"\x01\n\t\x7f", "é".encode(), "é".encode(), b" ", b"-", b".fusefs", b"d/.fusefs", b"*",
    b"\xf0\x9f\x98\x80", b"link", b"loop", b"fifo",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 7, 511, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20, (1 << 25) + 1, 1 << 62,
    (1 << 63) - 1, (1 << 63) - 4096, -(1 << 31), -(1 << 63),
)  # fmt: skip
HUGE = ((1 << 31) - 1, 1 << 31, (1 << 32) - 2, 1 << 32, 1 << 40)
"""Sizes that a sparse file can have; what is written there is hashed, which takes long."""
SIZES = (0, 1, 2, 100, 4095, 4096, 4097, 65535, 65536, 65537, 131072, 200_000)
FLAGS = (
    os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND, os.O_NONBLOCK, os.O_DIRECT, os.O_SYNC,
    os.O_DSYNC, os.O_NOFOLLOW, os.O_DIRECTORY, os.O_PATH, os.O_TMPFILE, os.O_NOATIME, os.O_CLOEXEC,
    os.O_NOCTTY, os.O_LARGEFILE, 1 << 25, 1 << 30,
)  # fmt: skip
XATTRS = (
    b"user.a", b"user.b", b"user.", b"user", b"", b"user." + b"x" * 250, b"user." + b"x" * 251,
    b"user.fusefs.level", b"user.fusefs.sha256", b"user.\xff\n", b"security.capability",
    b"security.selinux", b"trusted.a", b"system.posix_acl_access", b"system.x", b"none.x",
)  # fmt: skip


class Hostile:
    """Asks things below a directory; all that it does follows from the seed."""

    def __init__(self, seed: int, *, huge: bool = False) -> None:
        """Work below the root of this process; `huge`: also with sizes of gigabytes."""
        self._numbers = (*NUMBERS, *HUGE) if huge else NUMBERS
        self._rng = random.Random(seed)
        self._fds: list[int] = []
        self.answers: Counter[tuple[str, str]] = Counter()
        self.last = ""
        calls = [name for name in sorted(dir(self)) if name.startswith("call_")]
        self._calls = tuple((name[5:], getattr(self, name)) for name in calls)

    def close(self) -> None:
        """Close what is open."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def step(self) -> None:
        """Ask one thing.

        Raises:
            AssertionError: the answer is none that a file system gives.
        """
        name, call = self._rng.choice(self._calls)
        self.last = name
        try:
            call()
        except OSError as error:
            number = error.errno or 0
            self.answers[name, errno.errorcode.get(number, str(number))] += 1
            assert number not in NEVER, (name, error, self.last)
        except (ValueError, OverflowError):
            self.answers[name, "not a call"] += 1
        else:
            self.answers[name, "done"] += 1

    # What is asked with.

    def _path(self) -> bytes:
        return b"/" + self._rng.choice(NAMES)

    def _number(self) -> int:
        return self._rng.choice(self._numbers)

    def _mode(self) -> int:
        any_mode = self._rng.getrandbits(16)
        return self._rng.choice((0, 0o644, 0o755, 0o777, 0o7777, 0o4755, 0o200, any_mode))

    def _fd(self) -> int:
        if not self._fds or self._rng.random() < 0.3:
            self.call_open()
        return self._rng.choice(self._fds)

    def _syscall(self, number: int, *arguments: object) -> int:
        result = int(_libc.syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            found = ctypes.get_errno()
            raise OSError(found, os.strerror(found))
        return result

    # The calls.

    def call_open(self) -> None:
        flags = self._rng.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR, 3)) | os.O_NONBLOCK
        for flag in self._rng.sample(FLAGS, self._rng.choice((0, 1, 1, 2, 3, 5))):
            flags |= flag
        path = self._path()
        self.last = f"open {path[:200]!r} {flags:o}"
        fd = os.open(path, flags, self._mode() & 0o7777)
        self._fds.append(fd)
        if len(self._fds) > 20:
            os.close(self._fds.pop(0))

    def call_close(self) -> None:
        if self._fds:
            os.close(self._fds.pop(self._rng.randrange(len(self._fds))))

    def call_read(self) -> None:
        fd, size, offset = self._fd(), self._rng.choice(SIZES), self._number()
        self.last = f"read {size} at {offset}"
        data = os.pread(fd, size, offset)
        assert len(data) <= size

    def call_write(self) -> None:
        fd, data, offset = self._fd(), os.urandom(self._rng.choice(SIZES)), self._number()
        self.last = f"write {len(data)} at {offset}"
        done = os.pwrite(fd, data, offset)
        assert done <= len(data)

    def call_truncate(self) -> None:
        size = self._number()
        self.last = f"truncate {size}"
        if self._rng.random() < 0.5:
            os.truncate(self._path(), size)
        else:
            os.ftruncate(self._fd(), size)

    def call_seek(self) -> None:
        os.lseek(self._fd(), self._number(), self._rng.choice((0, 1, 2, 3, 4, 5, 99, -1)))

    def call_fallocate(self) -> None:
        mode = self._rng.choice((0, 1, 2, 3, 8, 16, 32, 64, 255))
        offset, size = self._number(), self._number()
        self._syscall(
            _FALLOCATE, ctypes.c_int(self._fd()), ctypes.c_int(mode), ctypes.c_long(offset),
            ctypes.c_long(size),
        )  # fmt: skip

    def call_sync(self) -> None:
        self._rng.choice((os.fsync, os.fdatasync))(self._fd())

    def call_stat(self) -> None:
        if self._rng.random() < 0.5:
            os.stat(self._path(), follow_symlinks=self._rng.random() < 0.5)
        else:
            os.fstat(self._fd())

    def call_mkdir(self) -> None:
        os.mkdir(self._path(), self._mode() & 0o7777)

    def call_mknod(self) -> None:
        kind = self._rng.choice(
            (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFDIR,
             stat.S_IFLNK, 0o170000)
        )  # fmt: skip
        os.mknod(self._path(), kind | self._mode() & 0o7777, self._rng.choice((0, 1, 2**32 - 1)))

    def call_symlink(self) -> None:
        target = self._rng.choice((*NAMES, b"x" * 4095, b"x" * 4096, b"/", b"loop", b"link"))
        os.symlink(target, self._path())

    def call_readlink(self) -> None:
        os.readlink(self._path())

    def call_link(self) -> None:
        os.link(self._path(), self._path(), follow_symlinks=self._rng.random() < 0.5)

    def call_unlink(self) -> None:
        os.unlink(self._path())

    def call_rmdir(self) -> None:
        os.rmdir(self._path())

    def call_rename(self) -> None:
        flags = self._rng.choice((0, 0, 1, 2, 3, 4, 5, 6, 8, 1 << 31))
        old, new = self._path(), self._path()
        self.last = f"rename {old[:200]!r} {new[:200]!r} {flags}"
        self._syscall(_RENAMEAT2, _AT_FDCWD, old, _AT_FDCWD, new, ctypes.c_uint(flags))

    def call_chmod(self) -> None:
        os.chmod(self._path(), self._mode())

    def call_chown(self) -> None:
        ids = (-1, 0, 1, 65534, 2**31 - 1, 2**31, 2**32 - 2)
        os.chown(self._path(), self._rng.choice(ids), self._rng.choice(ids),
                 follow_symlinks=self._rng.random() < 0.5)  # fmt: skip

    def call_utimensat(self) -> None:
        nanoseconds = (0, 1, 999_999_999, 10**9, -1, (1 << 30) - 1, (1 << 30) - 2)
        times = (ctypes.c_long * 4)(
            self._number(), self._rng.choice(nanoseconds), self._number(),
            self._rng.choice(nanoseconds),
        )  # fmt: skip
        flags = self._rng.choice((0, 0x100, 1, 0x1000))
        self._syscall(_UTIMENSAT, _AT_FDCWD, self._path(), times, ctypes.c_int(flags))

    def call_access(self) -> None:
        self._syscall(
            _FACCESSAT2, _AT_FDCWD, self._path(), ctypes.c_int(self._rng.randrange(9)),
            ctypes.c_int(self._rng.choice((0, 0x200, 0x100))),
        )  # fmt: skip

    def call_setxattr(self) -> None:
        value = os.urandom(self._rng.choice((*SIZES, 65537)))
        flags = self._rng.choice((0, 1, 2, 3, 8))
        os.setxattr(self._path(), self._rng.choice(XATTRS), value, flags)

    def call_getxattr(self) -> None:
        os.getxattr(self._path(), self._rng.choice(XATTRS))

    def call_removexattr(self) -> None:
        os.removexattr(self._path(), self._rng.choice(XATTRS))

    def call_listxattr(self) -> None:
        os.listxattr(self._path())

    def call_listing(self) -> None:
        path = self._rng.choice((b"/", b"/d", b"/e", b"/a"))
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        buffer = ctypes.create_string_buffer(self._rng.choice((1, 24, 300, 32768)))
        try:
            for _ in range(3):
                self._syscall(_GETDENTS64, fd, buffer, ctypes.c_ulong(len(buffer)))
                os.lseek(fd, self._number(), self._rng.choice((0, 1, 2)))
        finally:
            os.close(fd)

    def call_statvfs(self) -> None:
        os.statvfs(self._path())


def run(seed: int, goes_on: Callable[[int], bool], *, huge: bool = False) -> Hostile:
    """Ask while the number of questions satisfies `goes_on`."""
    hostile = Hostile(seed, huge=huge)
    asked = 0
    try:
        while goes_on(asked):
            hostile.step()
            asked += 1
    finally:
        hostile.close()
    return hostile


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--questions", type=int, help="ask so many, however long it takes")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--huge", action="store_true", help="files of gigabytes, too")
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    questions: int | None = options.questions
    end: float = time.monotonic() + options.seconds

    def goes_on(asked: int) -> bool:
        return time.monotonic() < end if questions is None else asked < questions

    os.chdir(options.directory)
    os.chroot(".")
    try:
        done = run(options.seed, goes_on, huge=options.huge)
    except AssertionError as error:
        print("must not be:", error)
        return 1
    for (name, answer), count in sorted(done.answers.items()):
        print(f"{name:12} {answer:14} {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
