"""Processes that need not load the program: they are forked from one that has it loaded.

A daemon takes half a second to load and some milliseconds to begin.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import reduction
from pathlib import Path
from typing import Any

_LOADED = [
    "fusefs.daemon.serve",
    "fusefs.session.repository",
    "fusefs.tools.cli.app",
    "fusefs.tools.cli.mounts",
    "tests.daemon.process",
]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*_LOADED, __name__])


class Descriptor:
    """An open file that is handed to a process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _number_there, (reduction.DupFd(self._number),)


def _number_there(duplicate: Any) -> int:
    number: int = duplicate.detach()
    return number


class Process:
    """A process that calls a function; for the rest like `subprocess.Popen`.

    It does not outlive the tests. Its standard streams are the null device, but for what is given.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *arguments: object,
        environment: dict[str, str] | None = None,
        streams: Sequence[int] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        """Call `function` with the arguments and the numbers that `descriptors` have there.

        Args:
            environment: variables to set.
            streams: descriptors that become standard input, output and error.
        """
        given = [[Descriptor(number) for number in numbers] for numbers in (streams, descriptors)]
        self._process = _context.Process(
            target=_call, args=(function, arguments, environment or {}, *given), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return how it ended, None if it did not."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Wait until it ends and return how: its exit status, or a signal's number below zero.

        Raises:
            subprocess.TimeoutExpired: it did not.
        """
        self._process.join(seconds)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(str(self._process), seconds or 0)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _call(
    function: Callable[..., object],
    arguments: Sequence[object],
    environment: dict[str, str],
    streams: Sequence[int],
    descriptors: Sequence[int],
) -> None:
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0)  # noqa: SIM115 - it stays open
    function(*arguments, *descriptors)


def mount(instance: Path, environment: dict[str, str], *words: str) -> str:
    """Run ``fusefs mount`` with `words`, the session first, as ``--background`` does.

    Returns:
        What it said, which is "READY" if it is mounted.
    """
    reading, writing = os.pipe()
    nowhere = os.open(os.devnull, os.O_RDWR)
    log = os.open(instance / "run" / f"{words[0]}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    variables = {"FUSEFS_INSTANCE": str(instance), **environment}
    streams = (nowhere, log, log)
    Process(_mount, words, environment=variables, streams=streams, descriptors=[writing])
    for number in (nowhere, log, writing):
        os.close(number)
    with os.fdopen(reading) as pipe:
        return pipe.readline().strip()


def _mount(words: Sequence[str], ready: int) -> None:
    from fusefs.tools.cli.app import run

    os.setsid()
    sys.exit(run(["mount", "--ready-fd", str(ready), *words]))
