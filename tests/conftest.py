"""Fixtures for tests that work through the command line and on real mounts."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis
import pytest

import fusefs
from fusefs.daemon.unmount import umount
from fusefs.tools.cli.app import run
from tests import warm

# In CI the same examples come every time; at a desk new ones do.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

# No index is made beside tests that are about something else.
os.environ["FUSEFS_INDEX"] = "off"

TIMEOUT = 60
"""Seconds after which a command counts as hung."""


@dataclass(frozen=True)
class Result:
    """How a command ended; texts with ``surrogateescape``."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


@dataclass
class Cli:
    """Runs `fusefs` in a process of its own, on one instance."""

    instance: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, *arguments: str | os.PathLike[str], stdin: bytes = b"", expect: int | None = 0
    ) -> Result:
        """Run a command line and hold its exit status against `expect` (None: any)."""
        environment = {**os.environ, "FUSEFS_INSTANCE": str(self.instance), **self.environment}
        done = subprocess.run(
            [sys.executable, "-m", "fusefs", *(os.fspath(word) for word in arguments)],
            input=stdin,
            capture_output=True,
            env=environment,
            timeout=TIMEOUT,
            check=False,
        )
        result = Result(
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )
        assert expect is None or result.status == expect, result
        return result

    def mount(self, session: str, mountpoint: Path, *options: str) -> None:
        """Mount a session in the background."""
        words = [session, str(mountpoint.absolute()), *options]
        said = warm.mount(self.instance, self.environment, *words)
        assert said == "READY", said


class Quick(Cli):
    """Runs `fusefs` in this very process: the same command lines, ten times as fast.

    That both say the same is held by ``tests/tools/test_cli_process.py``.
    """

    def __call__(
        self, *arguments: str | os.PathLike[str], stdin: bytes = b"", expect: int | None = 0
    ) -> Result:
        environment = {"FUSEFS_INSTANCE": str(self.instance), **self.environment}
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape") for _ in "12")
        given = io.TextIOWrapper(io.BytesIO(stdin))
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.multiple(sys, stdin=given, stdout=out, stderr=err),
        ):
            try:
                status = run([os.fspath(word) for word in arguments])
            except SystemExit as end:  # completion ends the process by itself
                assert isinstance(end.code, int)
                status = end.code
            out.flush()
            err.flush()
        written = [stream.buffer.getvalue() for stream in (out, err)]
        result = Result(status, *(data.decode("utf-8", "surrogateescape") for data in written))
        assert expect is None or result.status == expect, result
        return result


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command line on a new, empty instance."""
    command = Quick(tmp_path / "instance")
    command("init")
    return command


@pytest.fixture
def process(cli: Cli) -> Cli:
    """The command line on the same instance, each command in a process of its own."""
    return Cli(cli.instance)


def on_terminal(
    command: Sequence[str | os.PathLike[str]],
    *,
    answer: bytes = b"",
    until: str | None = None,
    number: int = signal.SIGINT,
) -> tuple[int, str]:
    """Run a command on a terminal of its own; return its exit status and what it showed.

    Args:
        answer: what is typed.
        until: once it has shown this, it gets the signal `number`.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execvpe(command[0], list(command), {**os.environ, "TERM": "dumb"})
        finally:
            os._exit(127)
    shown = b""
    try:
        os.write(terminal, answer)
        while select.select([terminal], [], [], TIMEOUT)[0]:
            try:
                piece = os.read(terminal, 1 << 16)
            except OSError:  # EIO: the other end is closed
                break
            shown += piece
            if until is not None and until.encode() in shown:
                os.kill(pid, number)
                until = None
    finally:
        os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, shown.decode(errors="replace").replace("\r\n", "\n")


Mount = Callable[..., Path]


@pytest.fixture
def mount(cli: Cli, tmp_path: Path) -> Iterator[Mount]:
    """A function that mounts a session in the background and returns its mountpoint.

    Options of `fusefs mount` follow the name. Everything is unmounted at the end.
    """
    mounted: list[Path] = []

    def mount_session(name: str, *options: str) -> Path:
        mountpoint = tmp_path / f"view-{len(mounted)}-{name}"
        mountpoint.mkdir()
        cli.mount(name, mountpoint, *options)
        mounted.append(mountpoint)
        return mountpoint

    yield mount_session
    for mountpoint in mounted:
        unmount(mountpoint)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk of its own")
    image, top = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(96 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    top.mkdir()
    subprocess.run(["mount", "-o", "loop", image, top], check=True)
    yield top
    subprocess.run(["umount", top], check=True)


def unmount(mountpoint: Path) -> None:
    """Unmount `mountpoint` if it is still mounted, dead or alive."""
    if str(mountpoint) in mountpoints():
        umount(mountpoint)


def mountpoints() -> set[str]:
    """Return the mountpoints of all views of this program."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return {fields[1] for line in lines if (fields := line.split())[2].startswith("fuse")}


EXAMPLE = {
    "AGENTS.md": "Read this first.\n",
    "Dir1/FILE1.txt": "Not for everyone.\n",
    "Dir1/Dir3/plan.txt": "Open to both.\n",
    "Dir1/Dir3/notes/one.txt": "One\n",
    "Dir2/b.md": "Secret\n",
}
"""The tree of the contract's example: path to text."""


@pytest.fixture
def host_tree(tmp_path: Path) -> Path:
    """A folder of the host with the example's tree."""
    top = tmp_path / "host"
    for name, text in EXAMPLE.items():
        file = top / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return top


@pytest.fixture
def filled(cli: Cli) -> Cli:
    """The command line on an instance with the example's tree.

    Its sessions are ``narrow``, to which ``/`` and ``/Dir1`` are passages, and ``wide``, which
    reads everything.
    """
    with fusefs.Instance.open(cli.instance) as instance:
        owner = fusefs.Session(instance)
        for name, text in EXAMPLE.items():
            owner.write(f"/{name}", text.encode())
    cli("session", "create", "narrow", "--grant", "/AGENTS.md=ro", "--grant", "/Dir1/Dir3=stage")
    cli("session", "create", "wide", "--grant", "/=ro")
    return cli
