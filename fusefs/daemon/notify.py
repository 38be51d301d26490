"""Invalidations: telling the kernel to drop what it has cached.

A notification can wait inside the kernel for a request that only this process can answer, so
a dedicated thread sends them, in order, and nobody waits for it. Equal ones that are not sent
yet are sent once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable

import pyfuse3
import trio

log = logging.getLogger(__name__)

_CROWDED = 50_000
_PAUSE = 0.05
_PATIENCE = 2.0

_Notification = tuple[Callable[..., None], int, bytes | bool, int]


class Notifier:
    """A queue of invalidations and the thread that sends them."""

    def __init__(self) -> None:
        self._queue: dict[_Notification, None] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="fusefs-notify", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def attributes(self, inode: int) -> None:
        """Have the kernel drop the attributes of an inode."""
        self._add((_inode, inode, True, 0))

    def attributes_now(self, inode: int) -> None:
        """Have the kernel drop the attributes of an inode, at once: for that it waits for nothing,
        as it does for pages, so a handler may ask for it."""
        with contextlib.suppress(FileNotFoundError):  # the kernel has forgotten it
            pyfuse3.invalidate_inode(inode, attr_only=True)

    def content(self, inode: int) -> None:
        """Have the kernel drop the attributes and cached bytes of an inode."""
        self._add((_inode, inode, False, 0))

    def entry(self, parent: int, name: bytes) -> None:
        """Have the kernel drop what it knows of a name, be it there or not."""
        self._add((_entry, parent, name, 0))

    def removed(self, parent: int, name: bytes, inode: int) -> None:
        """Have the kernel drop a name whose node was removed; watchers are told."""
        self._add((_entry, parent, name, inode))

    def _add(self, notification: _Notification) -> None:
        with self._changed:
            self._queue[notification] = None
            self._changed.notify()

    async def room(self) -> None:
        """Wait while there is very much to send; for whoever can wait, which no handler can."""
        while True:
            if len(self._queue) < _CROWDED:
                return
            await trio.sleep(_PAUSE)

    async def stop(self) -> bool:
        """Drop what is not sent and end the thread; tell whether it ended."""
        with self._changed:
            self._stopped = True
            self._queue.clear()
            self._changed.notify()
        if self._thread.is_alive():
            await trio.to_thread.run_sync(self._thread.join, _PATIENCE)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                batch, self._queue = self._queue, {}
            for send, inode, what, deleted in batch:
                if self._stopped:
                    return
                try:
                    send(inode, what, deleted)
                except OSError as error:
                    # ENOENT: the kernel has forgotten it. ENOTEMPTY, EBUSY: a directory that
                    # is in use there; the name was dropped all the same.
                    if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY):
                        log.warning("the kernel refused an invalidation: %s", error)


def _inode(inode: int, attributes_only: bytes | bool, _deleted: int) -> None:
    pyfuse3.invalidate_inode(inode, attr_only=bool(attributes_only))


def _entry(parent: int, name: bytes | bool, deleted: int) -> None:
    assert isinstance(name, bytes)
    try:
        pyfuse3.invalidate_entry(parent, name, deleted)
    except OSError as error:
        if not deleted or error.errno not in (errno.ENOTEMPTY, errno.EBUSY):
            raise
        pyfuse3.invalidate_entry(parent, name)
