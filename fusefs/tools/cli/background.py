"""A mount in a process of its own: started, waited for, and its failure told.

The child gets a pipe. It writes ``READY`` once mounted, or what failed as JSON; when it dies
without a word, the end of the pipe says so.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from fusefs.tools.cli.output import CommandFailed, Failure, Status, classify

_log = logging.getLogger(__name__)

_LAST_WORDS = 4096
"""Bytes of the log's end that are shown of a child which died without a word."""


def start(arguments: Callable[[int], Sequence[str]], log: Path) -> None:
    """Run `fusefs` detached and return when it is ready.

    Args:
        arguments: gives its command line, from the descriptor that it writes to.
        log: where its output goes.

    Raises:
        CommandFailed: it failed; with its own status.
    """
    reading, writing = os.pipe()
    with log.open("ab") as output:
        before = output.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            [sys.executable, "-m", "fusefs", *arguments(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[writing],
            start_new_session=True,
        )
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.readline()
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise
    from fusefs.daemon.readiness import READY

    if said == READY:
        return
    status = child.wait()
    if said:
        raise CommandFailed(Failure(**json.loads(said)))
    with log.open("rb") as output:
        output.seek(max(before, output.seek(0, os.SEEK_END) - _LAST_WORDS))
        words = output.read().decode("utf-8", "backslashreplace").strip()
    text = f"The mount's process ended ({status}) before it was ready.\n{words}".strip()
    raise CommandFailed(Failure("FS_IO", text, status if status > 0 else Status.FAILED))


@contextmanager
def failures_to(fd: int | None) -> Iterator[None]:
    """Tell the process that waits at `fd`, if any, why the block failed."""
    # A descriptor of our own: serving closes the other once it has said that it is ready.
    pipe = os.dup(fd) if fd is not None else None
    try:
        yield
    except BaseException as error:
        failure = classify(error)
        if pipe is None or failure is None:
            raise
        words = {"code": failure.code, "text": failure.text, "status": int(failure.status)}
        try:
            os.write(pipe, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:  # it was ready, and nobody waits any more
            _log.error("%s", failure.text)
        # What is written to standard error would stand in the log as it is.
        raise click.exceptions.Exit(failure.status) from None
    finally:
        if pipe is not None:
            os.close(pipe)
