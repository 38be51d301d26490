"""Where a running daemon is, for a person who finds it stuck.

SIGUSR1 has it write the stacks of all threads and what the tasks of its event loop wait for;
SIGABRT, with which a service manager's watchdog ends it, the stacks of all threads. Both go to
standard error: the log of a mount in the background, the journal of a service.

A thread of its own receives these signals. The main thread may be waiting in the kernel, for a
disk or another file system, where no handler would run. And since the C library's handler
writes the stacks (faulthandler), they come even while some extension keeps the interpreter.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import trio

_SIGNALS = (signal.SIGUSR1, signal.SIGABRT)
_root: trio.lowlevel.Task | None = None


@contextmanager
def told_on_request() -> Iterator[None]:
    """Answer SIGUSR1 and SIGABRT within the block. For the main thread, before others start."""
    if sys.stderr is None:  # closed; its number may be another file's by now
        yield
        return
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    # Threads inherit what is blocked: only the one below receives the two, and nothing else.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        threading.Thread(target=_receive, name="fusefs-stacks", daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before | set(_SIGNALS))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def watch_tasks() -> None:
    """Let the tasks of this event loop be told from now on."""
    global _root  # noqa: PLW0603 - a process has one loop
    _root = trio.lowlevel.current_root_task()


def _receive() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    while True:
        signal.pause()  # returns once the handler has written the stacks
        if _root is not None:
            os.write(sys.stderr.fileno(), _describe(_root).encode("utf-8", "backslashreplace"))


def _describe(root: trio.lowlevel.Task) -> str:
    """Describe the tasks, which run on meanwhile: what fails of that must not end the thread."""
    try:
        return describe(root)
    except Exception as error:  # noqa: BLE001
        return f"What the tasks wait for could not be told: {error!r}\n"


def describe(root: trio.lowlevel.Task) -> str:
    """Return what `root` and all tasks below it wait for, those that are alike once.

    It may be called from another thread: a task that goes on meanwhile is told of as it was.
    """
    alike = Counter(_lines(task) for task in _tasks(root))
    parts = [f"Tasks of the event loop ({alike.total()}), outermost call first:\n"]
    for (name, *lines), count in alike.most_common():
        parts.append(f"  {name}{f' ({count} alike)' if count > 1 else ''}\n")
        parts += [f"    {line}\n" for line in lines]
    return "".join(parts)


def _tasks(root: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    waiting = [root]
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in list(task.child_nurseries):
            waiting += list(nursery.child_tasks)


def _lines(task: trio.lowlevel.Task) -> tuple[str, ...]:
    """Return a task's name and its calls, down to what it waits for in the loop's library."""
    lines = [task.name.rstrip("-0123456789")]
    for frame in _frames(task.coro):
        code = frame.f_code
        lines.append(f'File "{code.co_filename}", line {frame.f_lineno} in {code.co_qualname}')
        if frame.f_globals.get("__name__", "").startswith("trio."):
            break
    return tuple(lines)


def _frames(awaited: Any) -> Iterator[FrameType]:
    """Yield the calls of a coroutine, also through those of pyfuse3, which are compiled.

    `trio.lowlevel.Task.iter_await_frames` ends there: a compiled coroutine holds an iterator
    over the next one, which does not say what it iterates over; the garbage collector does.
    """
    while awaited is not None:
        if hasattr(awaited, "cr_frame"):
            if awaited.cr_frame is not None:
                yield awaited.cr_frame
            awaited = awaited.cr_await
        elif hasattr(awaited, "gi_frame"):
            if awaited.gi_frame is not None:
                yield awaited.gi_frame
            awaited = awaited.gi_yieldfrom
        else:
            inner = (found for found in gc.get_referents(awaited) if hasattr(found, "cr_await"))
            awaited = next(inner, None)
