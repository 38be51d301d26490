"""Whatever is asked, on a mount or by a kernel gone mad: an answer, and a daemon that lives."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyfuse3 import FUSEError, RequestContext

from fusefs.contract.levels import Level
from fusefs.contract.sessions import SessionSpec
from fusefs.daemon.background import Background
from fusefs.daemon.notify import Notifier
from fusefs.daemon.operations import Operations
from fusefs.daemon.options import MountOptions
from fusefs.session.view_tree import ViewTree
from fusefs.store.check import check
from fusefs.store.instance import Instance
from tests.daemon.conftest import ROOT, World, settle

_QUESTIONS = 2500
_MEMORY_KIB = 300 << 10


def _resident(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def test_hostile_programs(world: World) -> None:
    mounted = world.mount(allow_other=True, deadline=20.0)
    (mounted.point / "top").mkdir()
    seed = 7 if os.environ.get("CI") else random.randrange(10**6)
    print("seed", seed)  # shown where it fails
    done = subprocess.run(
        [sys.executable, "-m", "tests.daemon.hostile", mounted.point / "top",
         "--questions", str(_QUESTIONS), "--seed", str(seed)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(line.split()[1] == "done" for line in done.stdout.splitlines()) > 15
    (mounted.point / "lives").write_bytes(b"on")
    settle(mounted.point)
    assert "Traceback" not in mounted.words
    assert _resident(mounted.process.pid) < _MEMORY_KIB
    assert mounted.stop() == 0
    with Instance.open(world.folder) as instance:
        assert check(instance).problems == []


def test_a_huge_file_takes_neither_memory_nor_disk(world: World) -> None:
    mounted = world.mount()
    file = mounted.point / "huge"
    with file.open("w+b") as opened:
        for size in (1 << 40, (1 << 63) - 1, 1 << 62):
            try:
                os.ftruncate(opened.fileno(), size)
            except OSError as error:
                assert error.errno in (errno.EFBIG, errno.EINVAL)
            else:
                assert os.fstat(opened.fileno()).st_size == size
        assert os.pread(opened.fileno(), 10, 1 << 33) in (b"", bytes(10))
        os.ftruncate(opened.fileno(), 10)
    assert file.read_bytes() == bytes(10)
    assert _resident(mounted.process.pid) < _MEMORY_KIB


# What a kernel never sends: any handler with any inode, handle, name and number.

_INODES = st.just(1) | st.sampled_from((0, 1, 2, 3, 2**63, 2**64 - 1)) | st.integers(0, 2**64 - 1)
_HANDLES = st.integers(0, 3) | st.sampled_from((2**32, 2**64 - 1))
_NUMBERS = st.sampled_from((0, 1, 4096, 65537, 1 << 20)) | st.integers(0, 1 << 24)
_NAMES = st.sampled_from((b"a", b"b", b"", b".", b"..", b"a/b", b"\0", b"n" * 256, b".fusefs"))
_NAMES |= st.binary(max_size=300)
_ATTRIBUTES = st.sampled_from((b"user.a", b"user.", b"", b"security.x")) | st.binary(max_size=20)
_DATA = st.binary(max_size=100)
_FLAGS = st.integers(0, 2**32 - 1)
_CALLS = st.one_of(
    st.tuples(st.sampled_from(("lookup", "unlink", "rmdir")), _INODES, _NAMES),
    st.tuples(st.sampled_from(("getattr", "readlink", "opendir", "listxattr")), _INODES),
    st.tuples(st.sampled_from(("open", "access")), _INODES, _FLAGS),
    st.tuples(st.just("create"), _INODES, _NAMES, _FLAGS, _FLAGS),
    st.tuples(st.just("mkdir"), _INODES, _NAMES, _FLAGS),
    st.tuples(st.just("mknod"), _INODES, _NAMES, _FLAGS, _FLAGS),
    st.tuples(st.just("symlink"), _INODES, _NAMES, _DATA),
    st.tuples(st.just("link"), _INODES, _INODES, _NAMES),
    st.tuples(st.just("rename"), _INODES, _NAMES, _INODES, _NAMES, _FLAGS | st.integers(0, 4)),
    st.tuples(st.just("setxattr"), _INODES, _ATTRIBUTES, _DATA),
    st.tuples(st.sampled_from(("getxattr", "removexattr")), _INODES, _ATTRIBUTES),
    st.tuples(st.just("read"), _HANDLES, _NUMBERS, _NUMBERS),
    st.tuples(st.just("write"), _HANDLES, _NUMBERS, _DATA),
    st.tuples(st.sampled_from(("flush", "release", "releasedir")), _HANDLES),
    st.tuples(st.sampled_from(("fsync", "fsyncdir")), _HANDLES, st.booleans()),
    st.tuples(st.just("forget"), st.lists(st.tuples(_INODES, st.integers(0, 9)), max_size=3)),
)
_WITHOUT_CONTEXT = (
    "read", "write", "flush", "release", "releasedir", "fsync", "fsyncdir", "forget",
)  # fmt: skip


class _NoKernel(Notifier):
    """Nobody is there to be told."""

    def content(self, inode: int) -> None: ...


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mad") / "i"
    Instance.init(folder).close()
    return folder


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=st.lists(_CALLS, min_size=10, max_size=60))
def test_a_kernel_gone_mad(place: Path, calls: list[tuple[Any, ...]], caplog: Any) -> None:
    answers: list[int] = []

    async def ask() -> None:
        tree = ViewTree(instance, SessionSpec("all", grants={(): Level.COMMIT}))
        background = Background(tree, 5.0)
        operations = Operations(tree, background, _NoKernel(), MountOptions())
        async with trio.open_nursery() as nursery:
            background.start(nursery)
            for name, *arguments in calls:
                context = () if name in _WITHOUT_CONTEXT else (RequestContext(),)
                handler = getattr(operations, name, None)
                if handler is None:
                    continue
                with trio.fail_after(30):
                    try:
                        await handler(*arguments, *context)
                    except FUSEError as error:
                        answers.append(error.errno)
            await background.settle()
            nursery.cancel_scope.cancel()

    caplog.clear()
    with Instance.open(place, deferred=True) as instance:
        trio.run(ask)
    assert errno.EIO not in answers, (caplog.text, calls)
    with Instance.open(place) as instance:
        assert check(instance).problems == []
