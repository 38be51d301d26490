"""Runs git for the transport: with a deadline, progress, and a way to stop it.

The transport is git itself, not libgit2, which was tried and cannot: keep its hands off a branch
that moved between two pushes (``--force-with-lease``), run the hooks of a repository on the same
disk, be stopped while the other side is silent, use git's credential helpers, proxies and the
user's ssh configuration. A hung git is killed with all its children.

Credentials go to git through its environment (``GIT_CONFIG_COUNT``, git 2.31), as a credential
helper for one site alone: never on a command line, in a file, or to a host that a redirect names.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fusefs.contract.errors import Cancelled
from fusefs.forge.credentials import Credential
from fusefs.forge.errors import TimedOut, ToolMissing
from fusefs.forge.urls import Remote

_TICK = 0.1
"""Seconds between two looks at the deadline and the caller's wish to stop."""

_GRACE = 2.0
"""Seconds that a stopped git has to clean up after itself."""

_KEPT_LINES = 200

_PROGRESS = re.compile(r"(?:remote: )?([A-Z][A-Za-z ]+):\s+(?:\d+% \()?(\d+)(?:/(\d+))?")


@dataclass(frozen=True)
class Progress:
    """How far git has come: `done` of `total` (0: unknown) in what it calls `phase`."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True)
class Limits:
    """How long a transfer may take, in seconds.

    Attributes:
        idle: without a sign of life from git or the other side.
        total: in all.
    """

    idle: float = 60
    total: float = 3600


@dataclass(frozen=True)
class Watch:
    """What the caller wants to know and to say meanwhile; called in the caller's thread.

    Attributes:
        progress: told how far it has come. What it raises stops git.
        cancelled: asked ten times a second; True stops git.
    """

    progress: Callable[[Progress], None] | None = None
    cancelled: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Output:
    """What git said: exit status, standard output, and standard error without progress.

    Names in `out` that are not UTF-8 have lone surrogates, as `os.fsdecode` makes them.
    """

    status: int
    out: str
    err: str


def run(
    arguments: list[str],
    *,
    repository: Path | None = None,
    remote: Remote | None = None,
    credential: Credential | None = None,
    limits: Limits | None = None,
    watch: Watch | None = None,
    stdin: str = "",
) -> Output:
    """Run git to its end.

    Args:
        remote: the only site that `credential` is for.
        stdin: a short text; names as in `Output.out`.

    Raises:
        ToolMissing: git is not installed.
        TimedOut: past a limit; git was killed.
        Cancelled: the caller wished so; git was killed.
    """
    git = shutil.which("git")
    if git is None:
        raise ToolMissing(
            "git is not installed, and repositories are fetched with it. Install git."
        )
    where = [] if repository is None else [f"--git-dir={repository}"]
    process = subprocess.Popen(
        [git, *where, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(remote, credential),
        start_new_session=True,
    )
    try:
        return _Run(process, limits or Limits(), watch or Watch()).to_its_end(os.fsencode(stdin))
    finally:
        _end(process)


def _environment(remote: Remote | None, credential: Credential | None) -> dict[str, str]:
    """Return git's environment: the user's configuration, but no questions, hooks or side jobs."""
    environment = {
        name: value
        for name, value in os.environ.items()
        # A surrounding repository's, and what prints requests with their tokens.
        if not name.startswith(("GIT_DIR", "GIT_WORK", "GIT_INDEX", "GIT_OBJECT", "GIT_ALTERNATE",
                                "GIT_NAMESPACE", "GIT_COMMON", "GIT_PREFIX", "GIT_TRACE",
                                "GIT_CURL_VERBOSE", "GIT_CONFIG_"))
        or name in {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}
    }  # fmt: skip
    settings = [
        ("core.askPass", ""),
        ("core.hooksPath", "/dev/null"),
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("fetch.recurseSubmodules", "false"),
        ("push.recurseSubmodules", "no"),
        ("push.gpgSign", "false"),
        ("fetch.writeCommitGraph", "false"),
    ]
    if remote is not None and credential is not None and remote.is_private:
        settings += [
            ("credential.helper", ""),
            (f"credential.{remote.site}.helper", ""),
            (f"credential.{remote.site}.helper", _HELPER),
            (f"credential.{remote.site}.username", credential.user),
        ]
        environment["FUSEFS_GIT_USER"] = credential.user
        environment["FUSEFS_GIT_TOKEN"] = credential.secret.reveal()
    environment["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (name, value) in enumerate(settings):
        environment[f"GIT_CONFIG_KEY_{number}"] = name
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
        "LC_ALL": "C",
    }


_HELPER = (
    '!f() { test "$1" = get || exit 0; '
    'echo "username=$FUSEFS_GIT_USER"; echo "password=$FUSEFS_GIT_TOKEN"; }; f'
)


class _Run:
    """One run of git: its streams, its clock."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits, watch: Watch) -> None:
        self._process = process
        self._limits = limits
        self._watch = watch
        self._out = bytearray()
        self._line = bytearray()
        self._lines: list[str] = []
        self._started = self._heard = time.monotonic()

    def to_its_end(self, stdin: bytes) -> Output:
        process = self._process
        assert process.stdin and process.stdout and process.stderr
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, self._out.extend)
            selector.register(process.stderr, selectors.EVENT_READ, self._hear)
            while selector.get_map():
                for key, _ in selector.select(_TICK):
                    stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
                    piece = os.read(stream.fileno(), 1 << 16)
                    if piece:
                        self._heard = time.monotonic()
                        key.data(piece)
                    else:
                        selector.unregister(stream)
                self._check()
        while process.poll() is None:
            self._check()
            time.sleep(0.002)
        self._hear(b"\n")
        return Output(
            process.returncode,
            os.fsdecode(bytes(self._out)),
            "\n".join(self._lines),
        )

    def _check(self) -> None:
        if self._watch.cancelled is not None and self._watch.cancelled():
            raise Cancelled
        now = time.monotonic()
        if now - self._heard > self._limits.idle:
            raise TimedOut(
                f"The other side has been silent for {self._limits.idle:g} seconds. "
                "Try again; if it stays so, look whether the forge is up."
            )
        if now - self._started > self._limits.total:
            raise TimedOut(f"Not done within {self._limits.total:g} seconds. Try again.")

    def _hear(self, piece: bytes) -> None:
        """Take standard error: lines end with a newline, progress with a carriage return."""
        for part in re.split(rb"(?<=[\r\n])", piece):
            self._line += part
            if not self._line.endswith((b"\r", b"\n")):
                continue
            text = self._line.decode("utf-8", "replace").rstrip()
            self._line.clear()
            progress = _PROGRESS.match(text)
            if progress is None:
                self._lines = [*self._lines, text][-_KEPT_LINES:] if text else self._lines
            elif self._watch.progress is not None:
                phase, done, total = progress.groups()
                self._watch.progress(Progress(phase, int(done), int(total or 0)))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing behind of a git that is still running: nor of its helpers, in its group."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGTERM)
        give_up = time.monotonic() + _GRACE
        # Not reaped yet, so that the number of the group stays its own.
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, process.pid, look) is None and time.monotonic() < give_up:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
