"""The file systems that are compared: how each is filled, mounted, made cold and taken away.

All of them keep their bytes in folders of one workshop, so on one host file system.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import ClassVar, Self, TypeVar

_MOUNT_SECONDS = 30.0
_BUSY_SECONDS = 5.0
_STORE_SECONDS = 120.0
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_PROJECT = Path(__file__).resolve().parent.parent


class BenchError(Exception):
    """A peer cannot be set up."""


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command that must succeed, without its output.

    Raises:
        BenchError: it failed; with what it said.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip()
        raise BenchError(f"{' '.join(map(str, command))}: {words or done.returncode}")


def drop_caches() -> bool:
    """Have the kernel forget names and inodes it can ask for again; tell whether it let us.

    File contents stay in the page cache: what is measured is the file system, not the disk.
    """
    os.sync()
    try:
        _DROP_CACHES.write_text("2")
    except OSError:
        return False
    return True


class Peer:
    """One of the file systems.

    Attributes:
        name: what it is called on the command line and in tables.
        top: the directory to work in; None while it is not mounted.
    """

    name: ClassVar[str]
    about: ClassVar[str]

    def __init__(self, folder: Path, beside: Self | None = None) -> None:
        """Prepare in `folder`, which is new and this peer's own.

        Args:
            folder: where.
            beside: another of this kind, whose tree this one shows too.
        """
        self.folder = folder
        folder.mkdir(parents=True)
        self.backing: Path = folder / "backing" if beside is None else beside.backing
        self.backing.mkdir(exist_ok=True)

    @classmethod
    def missing(cls) -> str | None:
        """Return what would have to be installed, or None."""
        return None

    @property
    def top(self) -> Path:
        return self.backing

    def mount(self) -> None:
        """Start serving."""

    def unmount(self) -> None:
        """Stop serving, and wait until all that was written is stored.

        Raises:
            BenchError: it is in use.
        """

    def abandon(self) -> None:
        """Stop serving, also where something is still open in it."""

    def fill(self, tree: Path, name: str) -> None:
        """Put a copy of the host folder `tree` in as `name`, past the mount. While unmounted."""
        run("cp", "-a", tree, self.backing / name)

    def fresh(self) -> None:
        """Make everything cold that can be: the mount is new, the host's names are forgotten."""
        self.unmount()
        drop_caches()
        self.mount()


class Plain(Peer):
    """The host's own file system."""

    name = "plain"
    about = "a directory of the host file system"


class Mounted(Peer, ABC):
    """A file system with a process that serves it."""

    # Its own process group: Ctrl-C is for this program, which then unmounts in good order.
    _process: subprocess.Popen[bytes] | None = None

    def __init__(self, folder: Path, beside: Self | None = None) -> None:
        super().__init__(folder, beside)
        self.mountpoint = folder / "mount"
        self.mountpoint.mkdir()

    @property
    def top(self) -> Path:
        return self.mountpoint

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Return the command that serves in the foreground."""

    @property
    def pid(self) -> int:
        """The process that serves."""
        assert self._process is not None
        return self._process.pid

    def mount(self) -> None:
        before = os.stat(self.mountpoint).st_dev
        log = self.folder / "log"
        with log.open("ab") as output:
            process = self._process = subprocess.Popen(
                [str(word) for word in self.command()],
                cwd=_PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        end = time.monotonic() + _MOUNT_SECONDS
        while os.stat(self.mountpoint).st_dev == before:
            if process.poll() is not None or time.monotonic() > end:
                words = log.read_text("utf-8", "replace").strip()
                raise BenchError(f"{self.name} cannot be mounted: {words}")
            time.sleep(0.005)

    def unmount(self) -> None:
        process = self._process
        if process is None:
            return
        end = time.monotonic() + _BUSY_SECONDS
        while process.poll() is None and is_mounted(self.mountpoint):
            done = _umount(self.mountpoint)
            if done.returncode == 0:
                break
            if time.monotonic() > end:
                raise BenchError(done.stderr.decode("utf-8", "replace").strip())
            time.sleep(0.05)
        process.wait(_STORE_SECONDS)
        self._process = None

    def abandon(self) -> None:
        try:
            self.unmount()
        except BenchError:
            # An interrupt came between opening a file there and closing it.
            _umount(self.mountpoint, "-l" if os.geteuid() == 0 else "-z")
            if self._process is not None:
                self._process.terminate()
                self._process.wait(_STORE_SECONDS)
                self._process = None


class Bindfs(Mounted):
    name = "bindfs"
    about = "bindfs, written in C, with its defaults"

    @classmethod
    def missing(cls) -> str | None:
        return None if shutil.which("bindfs") else "bindfs"

    def command(self) -> Sequence[str | Path]:
        return ["bindfs", "-f", self.backing, self.mountpoint]


class PyfusePassthrough(Mounted):
    name = "pyfuse3"
    about = "bench/passthrough.py, plain pyfuse3"

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "bench.passthrough", self.backing, self.mountpoint]


class _Fusefs(Mounted):
    def __init__(self, folder: Path, beside: Self | None = None) -> None:
        super().__init__(folder, beside)
        self.session = folder.name
        if beside is None:
            self.instance = folder / "instance"
            run(*self.fusefs("init"))
        else:
            self.instance = beside.instance
        run(*self.fusefs("session", "create", self.session, "--grant", "/=stage"))

    def fusefs(self, *words: str | Path) -> list[str | Path]:
        """Return a command line for this peer's instance."""
        return [sys.executable, "-m", "fusefs", "--instance", self.instance, *words]

    def command(self) -> Sequence[str | Path]:
        return self.fusefs("mount", self.session, self.mountpoint)


class FusefsStore(_Fusefs):
    name = "fusefs"
    about = "fusefs, the instance's own tree"

    def fill(self, tree: Path, name: str) -> None:
        run(*self.fusefs("import", tree, f"/{name}"))


class FusefsBound(_Fusefs):
    name = "bound"
    about = "fusefs, a host folder bound into the tree"

    def __init__(self, folder: Path, beside: Self | None = None) -> None:
        super().__init__(folder, beside)
        if beside is None:
            run(*self.fusefs("bind", self.backing, "/host"))

    @property
    def top(self) -> Path:
        return self.mountpoint / "host"


PEERS: tuple[type[Peer], ...] = (Plain, Bindfs, PyfusePassthrough, FusefsStore, FusefsBound)


_Kind = TypeVar("_Kind", bound=Peer)


class Workshop:
    """A temporary folder with peers in it; leaving it unmounts and removes everything."""

    def __init__(self, base: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fusefs-bench-", dir=base))
        self._peers: list[Peer] = []

    def peer(
        self, kind: type[_Kind], name: str | None = None, beside: _Kind | None = None
    ) -> _Kind:
        """Set a peer up, not mounted yet."""
        peer = kind(self.folder / (name or kind.name), beside)
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        """Unmount what is mounted and remove the folder."""
        for peer in self._peers:
            try:
                peer.abandon()
            except (BenchError, subprocess.TimeoutExpired) as error:
                print(f"{peer.name}: {error}", file=sys.stderr)
        left = mounts_below(self.folder)
        if left:
            # Removing what a mount shows would remove it from where it really is.
            print(f"Still mounted, not removed: {', '.join(map(str, left))}", file=sys.stderr)
            return
        shutil.rmtree(self.folder)


@contextmanager
def workshop(base: Path) -> Iterator[Workshop]:
    """Open a workshop in `base`; it is cleaned up however the block ends, also by a signal."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    shop = Workshop(base)
    try:
        yield shop
    finally:
        # A second Ctrl-C would leave mounts behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        shop.close()


def is_mounted(path: Path) -> bool:
    """Tell whether something is mounted at `path`, also where nobody serves it any more."""
    return path in mounts_below(path)


def mounts_below(folder: Path) -> list[Path]:
    """Return the mountpoints at and below `folder`."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        path = Path(line.split()[4].replace("\\040", " "))
        if path == folder or folder in path.parents:
            found.append(path)
    return found


def _umount(mountpoint: Path, *flags: str) -> subprocess.CompletedProcess[bytes]:
    command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    return subprocess.run(
        [*command, *flags, str(mountpoint)], stderr=subprocess.PIPE, check=False
    )
