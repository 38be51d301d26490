"""Mounted repositories: what opening, looking, writing and committing costs, beside git.

    python -m bench.repositories                 # 10^3, 10^4 and 10^5 files
    python -m bench.repositories 1000

Each repository is made anew. ``git`` is a clone with a checkout on the same disk; its files are
listed from the page cache, since only root can make them cold.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import machine
from fusefs.contract.levels import Level
from fusefs.contract.sessions import SessionSpec
from fusefs.daemon.readiness import READY
from fusefs.daemon.serve import serve
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session import rights
from fusefs.session.committing import commit
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.store.mounts import MountSpec

_PER_DIRECTORY = 20
_SESSIONS = 100
_COMMITTED = 10


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def git(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, input=stdin, check=True, capture_output=True
    )
    return done.stdout


def name_of(number: int, *, flat: bool) -> str:
    """Return the path of a file."""
    if flat:
        return f"flat/f{number}"
    return f"s{number // 1000}/d{number // _PER_DIRECTORY}/f{number}"


def make_source(folder: Path, files: int, *, flat: bool) -> None:
    """Make a bare repository of that many files of some lines."""
    folder.mkdir()
    git(folder, "init", "-q", "--bare", "-b", "main")
    lines = [b"commit refs/heads/main\ncommitter b <b@localhost> 1700000000 +0000\ndata 1\nx\n"]
    for number in range(files):
        data = b"file number %d\n" % number * 20
        name = name_of(number, flat=False).encode()
        lines.append(b"M 644 inline %s\ndata %d\n%s\n" % (name, len(data), data))
    git(folder, "fast-import", "--quiet", stdin=b"".join(lines))
    if flat:  # fast-import itself takes the square of a directory's size
        listed = git(folder, "ls-tree", "-r", "main").splitlines()
        entries = b"".join(
            b"%s\tf%d\n" % (line.partition(b"\t")[0], at) for at, line in enumerate(listed)
        )
        below = git(folder, "mktree", stdin=entries).strip()
        top = git(folder, "mktree", stdin=b"040000 tree %s\tflat\n" % below).strip().decode()
        made = git(folder, "commit-tree", top, "-m", "flat").strip().decode()
        git(folder, "update-ref", "refs/heads/main", made)


def add_mount(instance: Instance, source: Path) -> None:
    """Mount a repository at ``/proj``."""
    spec = MountSpec(instance.mounts.new_id(), str(source), "main", "local")
    clone = Path(instance.mounts.folder(spec))
    clone.parent.mkdir(exist_ok=True)
    Transport(parse(spec.url)).clone(clone)
    rights.learn(instance, spec)
    instance.mounts.put((b"proj",), spec, "-")


def session(instance: Instance, name: str) -> Session:
    spec = SessionSpec(name=name, grants={(): Level.COMMIT})
    return Session(instance, instance.sessions.put(spec, "-"))


@contextlib.contextmanager
def mounted(folder: Path, name: str, top: Path) -> Iterator[Path]:
    """Mount a session in a process of its own."""
    top.mkdir(exist_ok=True)
    wait, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(wait)
            serve(folder, name, top, ready_fd=ready)
        os._exit(0)
    os.close(ready)
    with os.fdopen(wait, "rb") as pipe:
        assert pipe.read() == READY
    try:
        yield top / "proj"
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def measure(files: int, folder: Path) -> list[str]:
    """Return a row of figures of a repository with that many files in small directories."""
    source, instance_folder = folder / "source", folder / "instance"
    make_source(source, files, flat=False)
    clone = timed(lambda: git(folder, "clone", "-q", "--no-local", "-n", str(source), "plain"))
    checkout = timed(lambda: git(folder / "plain", "checkout", "-q", "main"))
    with Instance.init(instance_folder) as instance:
        add = timed(lambda: add_mount(instance, source))
        session(instance, "s")
    with mounted(instance_folder, "s", folder / "view") as top:
        ls = timed(lambda: os.listdir(top))
        cat = timed((top / name_of(0, flat=False)).read_bytes)
        find = timed(lambda: subprocess.run(["find", top, "-ls"], stdout=subprocess.DEVNULL,
                                            check=True))  # fmt: skip
    with Instance.open(instance_folder) as instance:
        work = Session(instance, instance.sessions.get("s"))
        for number in range(_COMMITTED):
            work.write(f"/proj/{name_of(number * files // _COMMITTED, flat=False)}", b"new\n")
        status = timed(lambda: Repository(work, "/proj").changes())
        done = timed(lambda: commit(Repository(work, "/proj"), "ten"))
    return [
        f"{files:,}", *map(machine.seconds, (clone, checkout, add, ls, cat, find)),
        machine.ratio(find / checkout), *map(machine.seconds, (status, done)),
    ]  # fmt: skip


def measure_flat(files: int, folder: Path) -> list[str]:
    """Return a row of figures of a repository with one directory."""
    make_source(folder / "source", files, flat=True)
    with Instance.init(folder / "instance") as instance:
        add_mount(instance, folder / "source")
        session(instance, "s")
    with mounted(folder / "instance", "s", folder / "view") as top:
        ls = timed(lambda: list(os.scandir(top / "flat")))
        again = timed(lambda: list(os.scandir(top / "flat")))
        write = timed(lambda: (top / "flat/f1").write_bytes(b"new\n"))
        second = timed(lambda: (top / "flat/f2").write_bytes(b"new\n"))
    return [f"{files:,}", *map(machine.seconds, (ls, again, write, second))]


def measure_sessions(files: int, folder: Path) -> str:
    """Return what a hundred sessions on one repository take."""
    make_source(folder / "source", files, flat=False)
    with Instance.init(folder / "instance") as instance:
        add_mount(instance, folder / "source")
        sessions = [session(instance, f"s{number}") for number in range(_SESSIONS)]
        before = instance.sizes()[0]
        look = timed(lambda: [work.listing("/proj") for work in sessions])
        looked = instance.sizes()[0]
        name = f"/proj/{name_of(1, flat=False)}"
        write = timed(lambda: write_each(sessions, name))
        written = instance.sizes()[0]
    return (
        f"{_SESSIONS} sessions on {files:,} files: the first look takes "
        f"{machine.seconds(look / _SESSIONS)} and {(looked - before) / _SESSIONS / 1024:.1f} KiB a "
        f"session, the first write {machine.seconds(write / _SESSIONS)} and "
        f"{(written - looked) / _SESSIONS / 1024:.1f} KiB."
    )


def write_each(sessions: list[Session], name: str) -> None:
    for work in sessions:
        work.write(name, b"new\n")


def main() -> int:
    sizes = [int(word) for word in sys.argv[1:]] or [1_000, 10_000, 100_000]
    folder = Path(tempfile.mkdtemp(prefix="fusefs-bench-"))
    try:
        print("\n".join(machine.describe(folder)))
        rows: list[list[str]] = []
        flat: list[list[str]] = []
        for files in sizes:
            for kind, measured in ((rows, measure), (flat, measure_flat)):
                place = folder / f"{measured.__name__}{files}"
                place.mkdir()
                kind.append(measured(files, place))
                shutil.rmtree(place)
        heading = ["files", "git clone", "git checkout", "add", "ls", "cat", "find -ls",
                   "find/checkout", "status", "commit of 10"]  # fmt: skip
        print(machine.table(heading, rows))
        print(machine.table(["in one directory", "ls", "again", "first write", "second"], flat))
        (folder / "sessions").mkdir()
        print(measure_sessions(min(sizes[-1], 10_000), folder / "sessions"))
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
