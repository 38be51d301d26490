"""What goes on beside the requests: commits, copies, publications, and waiting.

Handlers answer inline wherever that takes microseconds. Only when they must wait do they come
here, and only here are deadlines set: a trio deadline costs as much as a whole request.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import trio

from fusefs.contract.errors import ContractError
from fusefs.daemon.handles import FileHandle
from fusefs.daemon.inodes import Copying, Inode
from fusefs.daemon.logs import about
from fusefs.session.index_starter import IndexStarter

if TYPE_CHECKING:
    from fusefs.session.handles import ViewFile
    from fusefs.session.view_tree import ViewTree
    from fusefs.tree.backend import Publication

log = logging.getLogger(__name__)

_QUANTUM = 0.01
_RETRY_COMMIT = 1.0
_THREADS = 8
_HASHERS = 2
"""How many closed files are hashed at a time: each takes a core."""
_HASH_PATIENCE = 2.0
"""Seconds that files closed just before the end are hashed for: enough for all but huge ones."""
_CLOSE_PATIENCE = 30.0
_TEND_EVERY = 60.0
_TIDY_EVERY = 0.5
_COLLECT_EVERY = 3600.0

_Answer = TypeVar("_Answer")


class Background:
    """The tasks of one mount that are no request handlers."""

    def __init__(self, tree: ViewTree, deadline: float) -> None:
        """Prepare; `deadline` is the longest a handler waits for anything, in seconds."""
        instance = tree.instance
        self._instance = instance
        self._store = tree.tree.store
        self._writer_lock = instance.writer_lock
        self._writer_lock.on_take = self._arm
        self._index = IndexStarter(instance)
        self._deadline = deadline
        self._threads = trio.CapacityLimiter(_THREADS)
        self._hashers = trio.CapacityLimiter(_HASHERS)
        self._publications: set[Publication] = set()
        self._nursery: trio.Nursery | None = None
        self._armed = False
        self._hurried = False
        self._turn: trio.Event | None = None
        self._wake = trio.Event()
        self._unpublished = 0
        self.waits = 0
        """How many handlers wait for something at this moment."""
        self._all_published = trio.Event()

    def start(self, nursery: trio.Nursery) -> None:
        """Run in `nursery`, which must outlive every handler."""
        self._nursery = nursery
        self.spawn(self._commit_forever)
        self.spawn(self._tend_forever)
        self.spawn(self._tidy_forever)

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run an async function beside the requests; its failure is logged and ends nothing."""
        assert self._nursery is not None
        self._nursery.start_soon(_logged, function, arguments)

    # Commits.

    def try_lock_writer(self) -> bool:
        """Take the writer lock if it is free; what is then changed is committed soon."""
        lock = self._writer_lock
        return lock.held or lock.try_acquire()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._wake.set()

    def hurry(self) -> None:
        """Commit soon: another process waits for the writer lock.

        Not at once: handing the lock over costs a commit, and with one for each mutation many
        writers would get less done than one.
        """
        left = self._writer_lock.held_since + _QUANTUM - time.monotonic()
        if left <= 0:
            self.commit_now()
        elif not self._hurried:
            self._hurried = True
            self.spawn(self._commit_in, left)

    async def _commit_in(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self._hurried = False
        self.commit_now()

    async def _commit_forever(self) -> None:
        while True:
            await self._wake.wait()
            await trio.sleep(self._instance.commit_after())
            if self._instance.may_wait:
                continue
            self._wake = trio.Event()
            self._armed = False
            try:
                self.commit_now()
            except Exception as error:
                log.exception("the store cannot commit, trying again", extra=about("commit", error))
                self._armed = True
                self._wake.set()
                await trio.sleep(_RETRY_COMMIT)

    def commit_now(self) -> None:
        """Commit, if there is anything to commit.

        Raises:
            OSError: the disk refused.
        """
        if self._instance.pending or self._instance.touched:
            self._instance.commit()

    def pause(self) -> None:
        """Commit now if others may want to see it: no request came for a moment."""
        instance = self._instance
        is_open = instance.pending or instance.touched
        if is_open and not instance.may_wait and not instance.bell.is_alone():
            with contextlib.suppress(OSError):  # it is tried again, and told, by the timer
                self.commit_now()

    # Tending.

    async def _tend_forever(self) -> None:
        """Keep the instance within its bounds while it is used.

        Collecting goes through the whole store, so a process of its own does it, once an hour
        for all mounts.
        """
        stamp = self._instance.folder / "run" / "gc.stamp"
        while True:
            await trio.sleep(_TEND_EVERY)
            try:
                await self.pin_orphans()
            except (OSError, trio.TooSlowError) as error:
                log.warning(
                    "tending the instance is put off: %s", error, extra=about("tend", error)
                )
            if _age(stamp) > _COLLECT_EVERY:
                stamp.touch()
                folder = str(self._instance.folder)
                command = [sys.executable, "-m", "fusefs", "--instance", folder, "gc"]
                command += ["--parent", str(os.getpid())]
                done = await trio.run_process(
                    command, check=False, stdout=subprocess.DEVNULL, capture_stderr=True
                )
                if done.returncode:
                    words = os.fsdecode(done.stderr).strip()
                    log.warning("collecting failed: %s", words, extra=about("gc"))

    async def _tidy_forever(self) -> None:
        """Stay small; see to it that what a dead process did is seen here and by all others."""
        while True:
            await trio.sleep(_TIDY_EVERY)
            self._instance.give_back_memory()
            self._start_indexing()
            for publication in self._publications:
                if not publication.is_wanted():
                    publication.give_up()
            if self._instance.bury():
                try:
                    await self.lock_writer()
                    self._instance.recover()
                except (OSError, trio.TooSlowError) as error:
                    log.warning(
                        "what a dead process left is put off: %s", error,
                        extra=about("recover", error),
                    )  # fmt: skip

    def _start_indexing(self) -> None:
        try:
            self._index.start()
        except OSError as error:
            log.warning("the index is not made now: %s", error, extra=about("index", error))

    async def pin_orphans(self) -> None:
        """Keep alive what is in no directory any more but open here."""
        await self.lock_writer()
        self._store.pin_orphans()

    # Waiting, each time for as long as a handler may.

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Note that something is waited for, which other tasks bring."""
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1

    async def lock_writer(self, within: float | None = None) -> None:
        """Wait until this process may write.

        Raises:
            trio.TooSlowError: another process kept the lock all the time.
        """
        with self._waiting(), trio.fail_after(self._deadline if within is None else within):
            while not self.try_lock_writer():
                if self._turn is None:
                    self._turn = trio.Event()
                    # Now: once the task runs, another one may have the lock already.
                    self._writer_lock.begin_waiting()
                    self.spawn(self._wait_for_turn, self._turn)
                await self._turn.wait()

    async def _wait_for_turn(self, turn: trio.Event) -> None:
        """Wait until this process may write, for all its tasks that want to."""
        try:
            await trio.to_thread.run_sync(
                self._writer_lock.wait, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
            self._writer_lock.end_waiting()
        finally:
            self._turn = None
            turn.set()

    async def in_steps(self, steps: Generator[None, None, _Answer]) -> _Answer:
        """Return what `steps` come to, with other requests answered between them.

        Raises:
            trio.TooSlowError: it took too long.
        """
        try:
            next(steps)
            with trio.fail_after(self._deadline):
                while True:
                    await trio.lowlevel.checkpoint()
                    next(steps)
        except StopIteration as done:
            return cast("_Answer", done.value)

    async def in_thread(
        self, handle: FileHandle, function: Callable[..., _Answer], *arguments: object
    ) -> _Answer:
        """Run a blocking call on an open file; the handle is not closed meanwhile.

        Raises:
            trio.TooSlowError: it took too long; it goes on, and its result is dropped.
        """
        began = False
        job = object()

        def run() -> _Answer:
            nonlocal began
            began = True
            try:
                return function(*arguments)
            finally:
                handle.jobs.discard(job)

        handle.jobs.add(job)
        try:
            with self._waiting(), trio.fail_after(self._deadline):
                return await trio.to_thread.run_sync(
                    run, abandon_on_cancel=True, limiter=self._threads
                )
        finally:
            if not began:  # no thread was free
                handle.jobs.discard(job)

    async def prepare_write(self, inode: Inode, file: ViewFile) -> None:
        """Wait for one thing that keeps `file` from being written: its base being copied, or
        the writer lock. The caller looks again.

        Raises:
            OSError: the copy failed.
            trio.TooSlowError: it took too long; the copying goes on.
        """
        copying = inode.copying
        if copying is None:
            copy = file.pending_copy()
            if copy is None:
                await self.lock_writer()
                return
            copying = inode.copying = Copying()
            self.spawn(self._copy, inode, copying, copy)
        with self._waiting(), trio.fail_after(self._deadline):
            await copying.done.wait()
        if copying.error is not None:
            raise copying.error

    async def _copy(self, inode: Inode, copying: Copying, copy: Callable[[], None]) -> None:
        try:
            await trio.to_thread.run_sync(copy, limiter=self._threads)
        except OSError as error:
            copying.error = error
        except Exception as error:
            log.exception("copying before a write failed", extra=about("copy"))
            copying.error = OSError(errno.EIO, str(error))
        finally:
            inode.copying = None
            copying.done.set()

    # Closing.

    def close(self, handle: FileHandle) -> None:
        """Close a handle that is in no table any more, now or as soon as it can be."""
        inode = handle.inode
        if (
            handle.jobs
            or inode.copying is not None
            or (inode.changed and not self.try_lock_writer())
        ):
            # What was only read has nothing that the end of the mount must wait for.
            publishes = inode.changed
            if publishes:
                self._begin_publication()
            self.spawn(self._close_later, handle, publishes)
        else:
            self._close_now(handle)

    def _close_now(self, handle: FileHandle) -> None:
        inode = handle.inode
        self.finish(handle.file.close())
        if not inode.files:
            inode.changed = False

    def finish(self, publication: Publication | None) -> None:
        """Do what a closed file has left to be done."""
        if publication is not None:
            self._begin_publication()
            self.spawn(self._publish, publication)

    async def _close_later(self, handle: FileHandle, publishes: bool) -> None:
        try:
            if handle.inode.copying is not None:
                await handle.inode.copying.done.wait()
            await handle.idle()
            await self.lock_writer(math.inf)
            self._close_now(handle)
        except (OSError, ContractError) as error:
            log.error(
                "closing a file failed; what was flushed is safe: %s", error,
                extra=about("close", error),
            )  # fmt: skip
        finally:
            if publishes:
                self._end_publication()

    async def _publish(self, publication: Publication) -> None:
        self._publications.add(publication)
        try:
            done = False
            while not done:
                await trio.to_thread.run_sync(
                    publication.prepare, abandon_on_cancel=True, limiter=self._hashers
                )
                await self.lock_writer(math.inf)
                done = publication.finish()
        except (OSError, ContractError) as error:
            log.error(
                "publishing a file failed; its bytes are kept: %s", error,
                extra=about("publish", error),
            )  # fmt: skip
        finally:
            self._publications.discard(publication)
            self._end_publication()

    def _begin_publication(self) -> None:
        if not self._unpublished:
            self._all_published = trio.Event()
        self._unpublished += 1

    def _end_publication(self) -> None:
        self._unpublished -= 1
        if not self._unpublished:
            self._all_published.set()

    async def settle(self) -> None:
        """Wait until closed files are published, but not for ever, then commit.

        What is not published is safe as it is, and is published when the instance is tidied.

        Raises:
            OSError: the disk refused the commit.
        """
        if self._unpublished:
            with trio.move_on_after(_CLOSE_PATIENCE):
                with trio.move_on_after(_HASH_PATIENCE):
                    await self._all_published.wait()
                for publication in self._publications:
                    publication.give_up()
                await self._all_published.wait()
        self.commit_now()


def _age(file: Path) -> float:
    """Return how long ago a file was touched, in seconds; for ever if it never was."""
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return math.inf


async def _logged(
    function: Callable[..., Awaitable[object]], arguments: tuple[object, ...]
) -> None:
    try:
        await function(*arguments)
    except Exception:
        log.exception("%s failed", function.__name__)
