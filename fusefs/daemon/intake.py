"""How requests are taken from the kernel: without a turn of trio's loop for each of them.

pyfuse3 takes a lock and waits for its descriptor before every request. With trio's own both are
checkpoints: two looks at all other tasks and descriptors, and one descriptor registered, a
request. A program that uses a mount sends its next request some microseconds after the last
answer, so this waits for it in place first, for a moment, and lets the other tasks run when the
requests pause, or have run for long enough.

pyfuse3 finds trio by a name of its module, which its asyncio mode replaces, too.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from types import SimpleNamespace

import pyfuse3
import trio

_PATIENCE = 1
"""Milliseconds to wait in place for the next request."""

_AWAKE = 0.00006
"""Seconds to look for the next request without sleep: to wake up takes as long as to answer."""

_TURN = 0.004
"""Seconds after which other tasks run, however many requests there are."""


class Intake:
    """Waits for requests on behalf of pyfuse3.

    Args:
        is_busy: tells whether a handler waits for something that trio must bring; then it is
            not kept waiting.
        on_pause: called when no request came for a moment.
    """

    def __init__(self, is_busy: Callable[[], bool], on_pause: Callable[[], None]) -> None:
        self._is_busy = is_busy
        self._on_pause = on_pause
        self._poll = select.poll()
        self._polled = -1
        # On one processor who is to send it could not run meanwhile.
        self._awake = _AWAKE if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._turn_ends = 0.0

    def install(self) -> None:
        """Have pyfuse3 wait for requests here."""
        lowlevel = SimpleNamespace(
            current_task=trio.lowlevel.current_task,
            current_trio_token=trio.lowlevel.current_trio_token,
            notify_closing=trio.lowlevel.notify_closing,
            wait_readable=self.wait_readable,
        )
        pyfuse3.trio = SimpleNamespace(  # type: ignore[attr-defined]
            ClosedResourceError=trio.ClosedResourceError,
            Lock=Turnstile,
            lowlevel=lowlevel,
            open_nursery=trio.open_nursery,
        )

    async def wait_readable(self, fd: int) -> None:
        """Wait until a request can be read from `fd`, as `trio.lowlevel.wait_readable` does.

        Raises:
            trio.ClosedResourceError: the main loop is to end.
        """
        now = time.monotonic()
        if now < self._turn_ends:
            poll, awake = self._poll.poll, now + self._awake
            while time.monotonic() < awake:
                if poll(0):
                    return
            if poll(0 if self._is_busy() else _PATIENCE):
                return
            self._on_pause()
        elif fd != self._polled:
            self._poll.register(fd, select.POLLIN)
            self._polled = fd
        await trio.lowlevel.wait_readable(fd)
        self._turn_ends = time.monotonic() + _TURN


class Turnstile:
    """A lock whose holder may take it again at once, without a checkpoint.

    Of the tasks that wait for requests one goes on as long as its handlers need not wait;
    another is woken beside it, and takes over when they do.
    """

    def __init__(self) -> None:
        self._held = False
        self._waiting = trio.lowlevel.ParkingLot()
        self._one_is_woken = False

    async def __aenter__(self) -> None:
        """Take the lock."""
        while self._held:
            try:
                await self._waiting.park()
            finally:
                self._one_is_woken = False
        self._held = True

    async def __aexit__(self, *_: object) -> None:
        """Give the lock back."""
        self._held = False
        if not self._one_is_woken and self._waiting:
            self._one_is_woken = True
            self._waiting.unpark()
