"""Fixtures: real mounts in processes of their own, always unmounted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from fusefs.contract.levels import Level
from fusefs.contract.sessions import SessionSpec
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from tests import warm
from tests.daemon import process

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 20.0

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="needs /dev/fuse")


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until `condition` holds and return what it says."""
    give_up = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < give_up, "the condition never came to hold"
        time.sleep(0.002)
    return found


class Mounted:
    """One mount, its process and its log."""

    def __init__(self, folder: Path, session: str, point: Path, **options: Any) -> None:
        self.folder = folder
        self.session = session
        self.point = point
        self.log = point.with_name(point.name + ".log")
        self._options = options
        self._pipes: tuple[IO[bytes], ...] = ()
        self.start()

    def start(self, *, environment: dict[str, str] | None = None, wait: bool = True) -> None:
        reading, writing = os.pipe()
        questions, asking = os.pipe()
        hearing, answers = os.pipe()
        self._close_pipes()
        self._pipes = os.fdopen(asking, "wb", 0), os.fdopen(hearing, "rb")
        with self.log.open("ab") as log:
            self.process = warm.Process(
                process.serve_one,
                str(self.folder),
                self.session,
                str(self.point),
                json.dumps(self._options),
                environment=environment,
                streams=(questions, answers, log.fileno()),
                descriptors=[writing],
            )
        for number in (questions, answers, writing):
            os.close(number)
        with os.fdopen(reading, "rb") as pipe:
            if wait:
                assert pipe.readline() == b"READY\n", self.words

    @property
    def words(self) -> str:
        return self.log.read_text()

    def ask(self, question: str) -> int:
        asking, hearing = self._pipes
        asking.write(question.encode() + b"\n")
        return int(hearing.readline())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def clear(self) -> None:
        """Take everything away, whatever a test has made of it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._close_pipes()
        if is_mounted(self.point):
            subprocess.run(["umount", "-l", self.point], check=True)

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()


def settle(path: Path) -> None:
    """Commit what a mount has done, so that other processes see it."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def is_mounted(point: Path) -> bool:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return any(line.split()[1] == str(point) for line in lines)


class World:
    """An instance, its sessions, and mounts of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "instance"
        self._top = folder
        self._stack = ExitStack()
        self.mounts: list[Mounted] = []
        Instance.init(self.folder).close()

    @contextmanager
    def opened(self) -> Iterator[Session]:
        """The whole tree, from a process other than the mount's."""
        with Instance.open(self.folder) as instance:
            yield Session(instance)

    def define(self, name: str, levels: dict[tuple[bytes, ...], Level], **other: Any) -> None:
        with Instance.open(self.folder) as instance:
            secret = b""
            if name in instance.sessions.names():
                secret = instance.sessions.get(name).secret
            spec = SessionSpec(name, grants=levels, secret=secret, **other)
            instance.sessions.put(spec, "-")

    def mount(
        self, name: str = "all", levels: dict[tuple[bytes, ...], Level] | None = None, **how: Any
    ) -> Mounted:
        if levels is not None or name == "all":
            self.define(name, levels or {(): Level.COMMIT})
        point = self._top / f"view{len(self.mounts)}"
        point.mkdir()
        mounted = Mounted(self.folder, name, point, **how)
        self.mounts.append(mounted)
        return mounted

    def clear(self) -> None:
        for mounted in self.mounts:
            mounted.clear()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.clear()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """One mount of everything, for the tests of a module."""
    made = World(tmp_path_factory.mktemp("shared"))
    yield made.mount(allow_other=True, deadline=5.0)
    made.clear()


@pytest.fixture
def view(shared: Mounted, request: pytest.FixtureRequest) -> Path:
    """A directory of its own in the shared mount."""
    directory = shared.point / f"{request.node.name[:100].replace('/', '_')}"
    directory.mkdir()
    return directory
