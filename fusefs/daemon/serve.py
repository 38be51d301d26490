"""Mounting a session's view and serving it until it is unmounted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fusefs.daemon import mountpoint, stacks
from fusefs.daemon.daemon import Daemon
from fusefs.daemon.mount_lock import MountLock, Served
from fusefs.daemon.mountpoint import MountError
from fusefs.daemon.options import MountOptions
from fusefs.session.caps import keep_fresh
from fusefs.session.view_tree import ViewTree
from fusefs.store.instance import Instance, InstanceError

__all__ = ["MountError", "MountOptions", "serve"]


def serve(
    folder: Path | str,
    session: str,
    where: Path | str,
    options: MountOptions | None = None,
    *,
    ready_fd: int | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Mount the view of a session of an instance and serve it until it is unmounted.

    For the main thread. SIGTERM, SIGINT and SIGHUP unmount; a second one does so at once, from
    under the programs that use the mount. Whatever was closed is kept in every case.

    Args:
        folder: the instance.
        session: name of one of its sessions.
        where: the mountpoint, a directory.
        options: how to mount.
        ready_fd: descriptor that is told (`readiness.READY`) when the view is mounted; when
            nobody waits at its other end any more, the view is unmounted again.
        on_ready: called when the view is mounted.

    Raises:
        InstanceError: the instance or the session cannot be used.
        MountError: it cannot be mounted there.
    """
    with stacks.told_on_request():
        _serve(folder, session, where, options or MountOptions(), ready_fd, on_ready)


def _serve(
    folder: Path | str, session: str, where: Path | str, options: MountOptions,
    ready_fd: int | None, on_ready: Callable[[], None],
) -> None:  # fmt: skip
    point = mountpoint.locate(where)
    instance = Instance.open(folder, deferred=True)
    lock = None
    try:
        try:
            spec = instance.sessions.get(session)
        except KeyError:
            raise InstanceError(f"No such session: {session}.") from None
        bound = (bind.source for bind in instance.binds.all().values())
        mountpoint.prepare(point, (str(instance.folder), *bound))
        lock = MountLock(instance.folder / "run", Served(os.getpid(), point, session))
        keep_fresh(instance)
        Daemon(instance, ViewTree(instance, spec), point, options, ready_fd, on_ready).run()
    finally:
        try:
            instance.close()
        finally:
            if lock is not None:
                lock.release()  # last: whoever waits for it knows then that all is safe
