"""Random operations answer as the same system calls on a plain directory do."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fusefs.contract.kinds import Kind
from fusefs.tree.backend import Change, Node
from fusefs.tree.host_calls import RENAME_EXCHANGE, renameat2
from fusefs.tree.host_files import HostFile
from tests.tree.host_folder import ME, US, Bound

NAMES = st.sampled_from([b"a", b"b", b"\xff"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
MODES = st.sampled_from([0o600, 0o644, 0o700, 0o755, 0o1777, 0o4711])
KINDS = st.sampled_from([Kind.FILE, Kind.DIR, Kind.DIR, Kind.SYMLINK, Kind.FIFO])

Path_ = tuple[bytes, ...]


def outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except OSError as error:
        assert error.errno is not None
        return errno.errorcode[error.errno]


class HostMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="host-random-"))
        self.bound = Bound(self.base)
        self.plain = os.fsencode(self.base / "plain")
        os.mkdir(self.plain)
        self.files: list[tuple[HostFile, int]] = []
        self.held: dict[object, Path_] = {}

    def teardown(self) -> None:
        for file, fd in self.files:
            file.close()
            os.close(fd)
        self.bound.tree.close()
        shutil.rmtree(self.base)

    def at(self, path: Path_) -> Node:
        node = self.bound.root
        for name in path:
            node = self.bound.tree.lookup(node.key, name)
        return node

    def full(self, path: Path_) -> bytes:
        """The plain directory's path; a link on the way must answer ENOTDIR, as a key does."""
        full = self.plain
        for name in path[:-1]:
            full = os.path.join(full, name)
            if os.path.islink(full):
                raise NotADirectoryError(errno.ENOTDIR, "link")
        return os.path.join(self.plain, *path)

    def same(self, ours: Callable[[], object], theirs: Callable[[], object]) -> object:
        mine, plain = outcome(ours), outcome(theirs)
        assert mine == plain
        return mine

    @rule(path=PATHS, kind=KINDS, mode=MODES)
    def create(self, path: Path_, kind: Kind, mode: int) -> None:
        def theirs() -> None:
            full = self.full(path)
            if kind == Kind.FILE:
                os.close(os.open(full, os.O_CREAT | os.O_EXCL))
            elif kind == Kind.DIR:
                os.mkdir(full)
            elif kind == Kind.SYMLINK:
                os.symlink(b"target", full)
                return
            else:
                os.mkfifo(full)
            os.chmod(full, mode)

        def ours() -> None:
            self.bound.tree.create(
                self.at(path[:-1]).key, path[-1], kind, mode, US, ME, target=b"target"
            )

        self.same(ours, theirs)

    @rule(path=PATHS, directory=st.booleans())
    def remove(self, path: Path_, directory: bool) -> None:
        action = os.rmdir if directory else os.unlink
        self.same(
            lambda: self.bound.tree.remove(
                self.at(path[:-1]).key, path[-1], ME, directory=directory
            ),
            lambda: action(self.full(path)),
        )

    @rule(path=PATHS)
    def remove_whole(self, path: Path_) -> None:
        def theirs() -> None:
            full = self.full(path)
            if stat.S_ISDIR(os.lstat(full).st_mode):
                shutil.rmtree(full)
            else:
                os.unlink(full)

        self.same(
            lambda: self.bound.tree.remove(self.at(path[:-1]).key, path[-1], ME, directory=None),
            theirs,
        )

    @rule(old=PATHS, new=PATHS, how=st.sampled_from(["replace", "new", "exchange"]))
    def rename(self, old: Path_, new: Path_, how: str) -> None:
        nodes: dict[str, Any] = {}

        def ours() -> None:
            parent, new_parent = self.at(old[:-1]).key, self.at(new[:-1]).key
            nodes["old"] = self.bound.tree.lookup(parent, old[-1]).key
            self.bound.tree.rename(
                parent, old[-1], new_parent, new[-1], ME,
                replace=how != "new", exchange=how == "exchange",
            )  # fmt: skip

        def theirs() -> None:
            source, target = self.full(old), self.full(new)
            flags = {"replace": 0, "new": 1, "exchange": RENAME_EXCHANGE}[how]
            renameat2(-100, source, -100, target, flags)

        mine, plain = outcome(ours), outcome(theirs)
        # Where both paths lead nowhere, which of them is met first is nobody's promise.
        nowhere = ("ENOENT", "ENOTDIR")
        assert mine == plain or (mine in nowhere and plain in nowhere)
        if mine is None:
            assert self.at(new).key is nodes["old"]

    @rule(path=PATHS, new=PATHS)
    def link(self, path: Path_, new: Path_) -> None:
        """A host program makes a hard link."""
        inside = os.fsencode(self.bound.folder)
        full = [os.path.join(inside, *path), os.path.join(inside, *new)]
        result = outcome(lambda: os.link(*full, follow_symlinks=False))
        plain = [os.path.join(self.plain, *path), os.path.join(self.plain, *new)]
        assert result == outcome(lambda: os.link(*plain, follow_symlinks=False))

    @rule(path=PATHS, new=PATHS)
    def rename_on_the_host(self, path: Path_, new: Path_) -> None:
        inside = os.fsencode(self.bound.folder)
        result = outcome(lambda: os.rename(os.path.join(inside, *path), os.path.join(inside, *new)))
        assert result == outcome(
            lambda: os.rename(os.path.join(self.plain, *path), os.path.join(self.plain, *new))
        )

    @rule(path=PATHS, mode=st.none() | MODES, size=st.none() | st.integers(0, 9))
    def set_attributes(self, path: Path_, mode: int | None, size: int | None) -> None:
        if outcome(lambda: stat.S_ISLNK(os.lstat(self.full(path)).st_mode)) is True:
            return

        def theirs() -> None:
            full = self.full(path)
            info = os.lstat(full)
            if size is not None:
                os.truncate(full, size) if not stat.S_ISFIFO(info.st_mode) else fail()
            if mode is not None:
                os.chmod(full, mode)
            os.utime(full, ns=(os.stat(full).st_atime_ns, 77))

        def fail() -> None:
            raise OSError(errno.EINVAL, "a pipe has no size")

        def ours() -> None:
            self.bound.tree.set_attributes(
                self.at(path).key, Change(mode=mode, size=size, mtime=77), ME
            )

        self.same(ours, theirs)

    @rule(path=PATHS)
    def open(self, path: Path_) -> None:
        def theirs() -> int:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
            info = os.lstat(self.full(path))
            if stat.S_ISFIFO(info.st_mode):
                raise OSError(errno.ENXIO, "not a regular file")
            return os.open(self.full(path), flags)

        ours = outcome(lambda: self.bound.tree.open_file(self.at(path).key, write=True))
        plain = outcome(theirs)
        if isinstance(plain, int):
            assert isinstance(ours, HostFile)
            self.files.append((ours, plain))
        else:
            assert ours == plain

    @rule(index=st.integers(0, 9), offset=st.integers(0, 20), data=st.binary(max_size=5),
          append=st.booleans())  # fmt: skip
    def write(self, index: int, offset: int, data: bytes, append: bool) -> None:
        if not self.files:
            return
        file, fd = self.files[index % len(self.files)]
        assert file.write(offset, data, append=append) == len(data)
        os.pwrite(fd, data, os.fstat(fd).st_size if append else offset)

    @rule(index=st.integers(0, 9))
    def close(self, index: int) -> None:
        if self.files:
            file, fd = self.files.pop(index % len(self.files))
            file.close()
            os.close(fd)

    @invariant()
    def files_have_the_same_bytes(self) -> None:
        for file, fd in self.files:
            assert file.read(0, 100) == os.pread(fd, 100, 0)
            assert file.node().size == os.fstat(fd).st_size

    @invariant()
    def trees_are_the_same(self) -> None:
        pending: list[Path_] = [()]
        while pending:
            path = pending.pop()
            full = os.path.join(self.plain, *path)
            listed = self.bound.tree.open_directory(self.at(path).key).entries(b"", 100)
            assert [entry.name for entry in listed] == sorted(os.listdir(full))
            for name, node in listed:
                info = os.lstat(os.path.join(full, name))
                assert node.mode == stat.S_IMODE(info.st_mode)
                assert self.bound.tree.stat(node.key) == node
                if node.kind == Kind.DIR:
                    pending.append((*path, name))
                elif node.kind == Kind.FILE:
                    assert node.size == info.st_size
                    if info.st_mtime_ns == 77:
                        assert node.mtime == 77
                self.held[node.key] = (*path, name)
        # Names of one inode are nodes of their own, and no two nodes share an identity.
        identities = [self.bound.tree.identity(key) for key in self.held]
        assert len(set(identities)) == len(identities)


HostMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
TestHostMachine = HostMachine.TestCase
