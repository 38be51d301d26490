"""The running daemon of one mount: its tasks, its signals, and its end."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import resource
import shutil
import signal
from collections.abc import AsyncIterator, Callable

import pyfuse3
import trio

from fusefs.contract.errors import ContractError
from fusefs.daemon import mountpoint, probe, readiness, stacks
from fusefs.daemon.background import Background
from fusefs.daemon.coherence import Coherence
from fusefs.daemon.intake import Intake
from fusefs.daemon.logs import about
from fusefs.daemon.mountpoint import MountError
from fusefs.daemon.notify import Notifier
from fusefs.daemon.operations import Operations
from fusefs.daemon.options import MountOptions
from fusefs.daemon.readiness import ServiceManager
from fusefs.daemon.rights_watch import RightsWatch
from fusefs.session.view_tree import ViewTree
from fusefs.store.instance import Instance

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SYNC_SECONDS = 10.0
_READ_AHEAD_KIB = 1024
_MIN_TASKS = 8
_MAX_TASKS = 200
# Full collections would stop all requests for as long as a million inodes take to look at.
# What requests leave behind is freed without them.
_GC_THRESHOLDS = (20_000, 10, 50)


class Daemon:
    """Mounts a view at a checked mountpoint, in the main thread."""

    def __init__(
        self,
        instance: Instance,
        tree: ViewTree,
        point: str,
        options: MountOptions,
        ready_fd: int | None,
        on_ready: Callable[[], None],
    ) -> None:
        self._point = point
        self._source = mountpoint.source_of(tree.spec.name)
        self._options = options
        self._ready_fd = ready_fd
        self._on_ready = on_ready
        self._manager = ServiceManager()
        self._background = Background(tree, options.deadline)
        self._notifier = Notifier()
        self._operations = Operations(tree, self._background, self._notifier, options)
        self._coherence = Coherence(
            tree,
            self._operations.inodes,
            self._notifier,
            self._background,
            self._operations.learnt,
        )
        self._rights = RightsWatch(tree.instance, self._background, self._coherence)
        self._intake = Intake(lambda: self._background.waits > 0, self._background.pause)
        self._stopping = False

    def run(self) -> None:
        """Mount, and serve until unmounted.

        Raises:
            MountError: the system refuses the mount.
        """
        # A signal before there is somebody to receive it would leave a dead mount behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._mount()
            trio.run(self._main, restrict_keyboard_interrupt_to_checkpoints=True)
            log.info("unmounted", extra=about(mountpoint=self._point))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _mount(self) -> None:
        _raise_file_limit()
        options = {f"fsname={self._source}", "subtype=fusefs", *pyfuse3.default_options}
        if self._options.allow_other:
            options.add("allow_other")
        self._intake.install()
        try:
            pyfuse3.init(self._operations, self._point, options)
        except RuntimeError as error:
            raise MountError(
                f"Cannot mount at {self._point}: {_why(self._options) or error}. "
                "`fusefs doctor` looks for what is missing."
            ) from None

    async def _main(self) -> None:
        stacks.watch_tasks()
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            async with trio.open_nursery() as nursery:
                self._background.start(nursery)
                self._notifier.start()
                nursery.start_soon(self._coherence.follow)
                nursery.start_soon(self._rights.follow)
                nursery.start_soon(self._obey, signals, nursery)
                nursery.start_soon(self._announce, nursery)
                try:
                    await pyfuse3.main(min_tasks=_MIN_TASKS, max_tasks=_MAX_TASKS)
                except* OSError as errors:
                    log.error("the kernel ended the connection: %s", errors.exceptions[0])
                finally:
                    with trio.CancelScope(shield=True):
                        await self._finish()
                nursery.cancel_scope.cancel()
        self._operations.watches.close()

    async def _announce(self, nursery: trio.Nursery) -> None:
        """Say that the view is mounted, and go on saying that it is served."""
        await self._operations.initialised.wait()
        await trio.to_thread.run_sync(_set_read_ahead, self._point)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        self._manager.tell("READY=1")
        if self._ready_fd is not None and not readiness.write_ready(self._ready_fd):
            # Whoever started this was ended meanwhile: nobody knows of the mount.
            self._stopping = True
            nursery.start_soon(self._stop)
        self._on_ready()
        log.info("mounted", extra=about(mountpoint=self._point, pid=os.getpid()))
        pause = self._manager.watchdog_pause
        while pause is not None:
            # The kernel asks us this: it is answered only while requests are.
            if await trio.to_thread.run_sync(_is_answered, self._point, abandon_on_cancel=True):
                self._manager.tell("WATCHDOG=1")
            await trio.sleep(pause)

    # The end.

    async def _obey(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            log.info("told to end", extra=about(signal=signal.Signals(number).name))
            if self._stopping:
                pyfuse3.terminate()
            else:
                self._stopping = True
                nursery.start_soon(self._stop)

    async def _stop(self) -> None:
        """Unmount, so that the main loop ends; from under those who use it, if need be."""
        self._manager.tell("STOPPING=1")
        try:
            await trio.to_thread.run_sync(
                lambda: mountpoint.detach(self._point, lazy=False), abandon_on_cancel=True
            )
        except MountError:
            # Somebody has it in use. What they wrote through memory maps is still with the
            # kernel: it is asked for while there is somebody to take it.
            with trio.move_on_after(_SYNC_SECONDS), contextlib.suppress(OSError):
                await trio.run_process(
                    ["sync", "-f", self._point],
                    check=False,
                    capture_stdout=True,
                    capture_stderr=True,
                )
            pyfuse3.terminate()

    async def _finish(self) -> None:
        """Close what is open and make everything safe; nobody sends requests any more."""
        self._manager.tell("STOPPING=1")
        if await self._notifier.stop():
            pyfuse3.close()
        else:
            # The session cannot be freed under a thread that still uses it.
            with contextlib.suppress(MountError):
                await trio.to_thread.run_sync(mountpoint.detach, self._point)
        operations = self._operations
        for handle in operations.files.remove_all():
            handle.inode.closed(handle)
            try:
                self._background.close(handle)
            except (OSError, ContractError) as error:
                log.error(
                    "closing a file failed; what was flushed is safe: %s", error,
                    extra=about("close", error),
                )  # fmt: skip
        for directory in operations.directories.remove_all():
            directory.directory.close()
        try:
            await self._background.settle()
        except OSError as error:  # closing the instance tries again, and tells the caller
            log.error("the last commit failed: %s", error, extra=about("commit", error))


def _raise_file_limit() -> None:
    """Allow as many open files as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _is_answered(point: str) -> bool:
    """Ask the mount something that only the daemon can answer; waits until it does."""
    try:
        os.statvfs(point)
    except OSError as error:
        return error.errno not in probe.DEAD
    return True


def _set_read_ahead(point: str) -> None:
    """Let the kernel read further ahead, where it lets us say so."""
    mount = mountpoint.mounted_at(point)
    if mount is not None:
        with (
            contextlib.suppress(OSError),
            open(f"/sys/class/bdi/{mount.device}/read_ahead_kb", "w", encoding="ascii") as setting,
        ):
            setting.write(str(_READ_AHEAD_KIB))


def _why(options: MountOptions) -> str:
    """Return what keeps this user from mounting, as far as it can be told."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        hint = " (modprobe fuse; for a container: --device /dev/fuse)"
        return f"/dev/fuse: {error.strerror}{hint if error.errno != errno.EACCES else ''}"
    if os.geteuid() != 0:
        if shutil.which("fusermount3") is None:
            return "fusermount3 is not installed (package fuse3)"
        if options.allow_other:
            return "allow_other is for root, unless /etc/fuse.conf has user_allow_other"
    return ""
