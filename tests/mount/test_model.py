"""A mount against a plain directory: the same calls, the same answers, the same tree.

Intended differences, and there are no others:

- hard links and device nodes are refused (contract section 4), so none are made here;
- ``st_nlink`` of a directory is 1, its size is constant;
- access times are kept as they were set, and not brought up to date by reading (noatime).

In a repository there is no trash, and ``.git`` is refused; neither shows here.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusefs.store.instance import Instance
from tests.conftest import Quick, unmount
from tests.daemon.calls import EXCHANGE, NOREPLACE, renameat2
from tests.daemon.conftest import until
from tests.repositories.place import add_mount, make_source

_FEW = ["a", "b", "c", "a/a", "a/b", "a/c", "b/a", "b/b", "a/a/a", "a/a/b"]
PATHS = st.sampled_from([*_FEW, *_FEW, "e" * 255, "a/" + "f" * 256, "c/x"])
MODES = st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o4755, 0o2755, 0o1777, 0o000])
SIZES = st.sampled_from([0, 1, 100, 4096, 65535, 65536, 65537, 200_000])
TIMES = st.sampled_from([0, 1, 10**9 + 1, 1_700_000_000_123_456_789])

Step = Callable[[Path], object]


def _write(path: str, flags: int, offset: int, length: int) -> Step:
    def step(top: Path) -> object:
        fd = os.open(top / path, flags | os.O_NONBLOCK, 0o640)  # a FIFO must not make it wait
        try:
            count = os.pwrite(fd, b"w" * length, offset)
            return count, os.fstat(fd).st_size
        finally:
            os.close(fd)

    return step


def _held_open(path: str, length: int) -> Step:
    """Write to, cut and read a file that was removed while it is open."""

    def step(top: Path) -> object:
        fd = os.open(top / path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            os.unlink(top / path)
            os.write(fd, b"h" * length)
            os.ftruncate(fd, length // 2)
            return os.pread(fd, length + 1, 0), os.fstat(fd).st_size
        finally:
            os.close(fd)

    return step


def _rename(old: str, new: str, flags: int) -> Step:
    return lambda top: renameat2(top / old, top / new, flags)


FLAGS = st.sampled_from(
    [
        os.O_WRONLY,
        os.O_RDWR | os.O_CREAT,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL,
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
        os.O_WRONLY | os.O_APPEND,
        os.O_WRONLY | os.O_TRUNC,
        os.O_RDONLY,
        os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW,
    ]
)

STEPS = st.one_of(
    st.builds(lambda p, m: ("mkdir", p, lambda top: os.mkdir(top / p, m)), PATHS, MODES),
    st.builds(lambda p: ("rmdir", p, lambda top: os.rmdir(top / p)), PATHS),
    st.builds(lambda p: ("unlink", p, lambda top: os.unlink(top / p)), PATHS),
    st.builds(lambda p, q, f: ("rename", (p, q, f), _rename(p, q, f)), PATHS, PATHS,
              st.sampled_from([0, 0, 0, NOREPLACE, EXCHANGE])),
    st.builds(lambda p, q: ("symlink", (p, q), lambda top: os.symlink(q, top / p)), PATHS, PATHS),
    st.builds(lambda p: ("readlink", p, lambda top: os.readlink(top / p)), PATHS),
    st.builds(lambda p, m: ("chmod", (p, m), lambda top: os.chmod(top / p, m)), PATHS, MODES),
    st.builds(lambda p, u: ("chown", (p, u), lambda top: os.lchown(top / p, u, u)), PATHS,
              st.sampled_from([-1, 0, 1000])),
    st.builds(lambda p, a, m: ("utime", (p, a, m), lambda top: os.utime(top / p, ns=(a, m))),
              PATHS, TIMES, TIMES),
    st.builds(lambda p, s: ("truncate", (p, s), lambda top: os.truncate(top / p, s)), PATHS, SIZES),
    st.builds(lambda p, f, o, n: ("write", (p, f, o, n), _write(p, f, o, n)), PATHS, FLAGS,
              SIZES, SIZES),
    st.builds(lambda p: ("fifo", p, lambda top: os.mkfifo(top / p)), PATHS),
    st.builds(lambda p: ("list", p, lambda top: sorted(os.listdir(top / p))), PATHS),
    st.builds(lambda p, n: ("held", (p, n), _held_open(p, n)), PATHS, SIZES),
    st.builds(lambda p, v: ("setxattr", p, lambda top: os.setxattr(top / p, "user.t", v)), PATHS,
              st.binary(max_size=5)),
    st.builds(lambda p: ("getxattr", p, lambda top: os.getxattr(top / p, "user.t")), PATHS),
)  # fmt: skip


def _run(step: Step, top: Path) -> object:
    try:
        return step(top)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def _tree(top: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = Path(directory, name)
            status = path.lstat()
            kind = stat.S_IFMT(status.st_mode)
            seen: list[object] = [oct(status.st_mode), status.st_uid, status.st_gid]
            if kind != stat.S_IFDIR:
                seen += [status.st_size, status.st_nlink]
            if status.st_mtime_ns < 1_700_000_001 * 10**9:
                seen += [status.st_mtime_ns]
            if kind == stat.S_IFREG:
                seen += [path.read_bytes()]
                seen += [{n: os.getxattr(path, n) for n in os.listxattr(path)}]
            elif kind == stat.S_IFLNK:
                seen += [os.readlink(path)]
            found[str(path.relative_to(top))] = seen
    return found


def _fill(top: Path) -> None:
    """Begin with a bit of everything, so that most calls find something."""
    (top / "a" / "a").mkdir(parents=True)
    (top / "b").mkdir()
    (top / "c").write_bytes(b"c" * 5000)
    (top / "a" / "b").write_bytes(b"ab")
    (top / "a" / "a" / "a").write_bytes(b"a" * 70_000)
    (top / "b" / "b").symlink_to("../c")
    (top / "b" / "a").symlink_to("../a")


Place = Callable[[], Path]
"""Returns a folder of a mount that is filled, and nothing else."""


@pytest.fixture(scope="module", params=["tree", "bound", "repository"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A mount of a whole tree: of the instance's own, of a bound folder, of a repository."""
    folder = tmp_path_factory.mktemp("model")
    cli = Quick(folder / "instance")
    cli("init")
    top = folder / "view"
    top.mkdir()
    if request.param == "bound":
        (folder / "host").mkdir()
        cli("bind", folder / "host", "/work")
    else:
        cli("mkdir", "/work")
    cli("session", "create", "s", "--grant", "/=commit")
    cli.mount("s", top)
    if request.param == "repository":
        with Instance.open(cli.instance) as instance:
            yield _repositories(instance, folder, top / "work")
    else:
        yield lambda: _filled(top / "work" / "view")
    unmount(top)
    assert cli("check").status == 0


def _filled(top: Path) -> Path:
    shutil.rmtree(top, ignore_errors=True)
    _fill(top)
    return top


def _repositories(instance: Instance, folder: Path, work: Path) -> Place:
    """Return a function that mounts a repository that was never looked at."""
    source = make_source(folder / "source", _fill)
    numbers = count()

    def fresh() -> Path:
        name = f"r{next(numbers)}"
        add_mount(instance, source, (b"work", name.encode()))
        until((work / name).is_dir)
        return work / name

    return fresh


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=10, max_size=40))
def test_a_mount_answers_as_a_plain_directory(
    place: Place, tmp_path: Path, steps: list[tuple[str, object, Step]]
) -> None:
    plain, view = _filled(tmp_path / "plain"), place()
    for name, arguments, step in steps:
        expected, got = _run(step, plain), _run(step, view)
        assert got == expected, (name, arguments)
    assert _tree(view) == _tree(plain)
