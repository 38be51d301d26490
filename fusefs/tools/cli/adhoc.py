"""Throw-away instances, for mounts that need none of their own.

Such an instance lives in a folder of its own below `$XDG_RUNTIME_DIR` or the folder for
temporary files. Whoever uses it holds a shared lock on the folder; one that nobody holds was
left by a process that was killed, and the next ad hoc mount removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fusefs.contract.paths import resolve
from fusefs.contract.sessions import OPERATOR, SessionSpec
from fusefs.index.upkeep import Upkeep
from fusefs.session.binding import bind
from fusefs.store.flocks import try_lock
from fusefs.store.instance import Instance
from fusefs.tools.cli.binds import parse_bind

_PREFIX = "fusefs-adhoc-"


def make(spec: SessionSpec, binds: Sequence[str]) -> Path:
    """Make a throw-away instance with this session and these binds and return its folder."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    _sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    try:
        with Instance.init(folder) as instance:
            for text in binds:
                host_dir, tree_path = parse_bind(text)
                bind(instance, host_dir, resolve(tree_path))
            instance.sessions.put(spec, OPERATOR.name)
        # Most are thrown away before anybody searches in them.
        Upkeep(folder).pause()
    except BaseException:
        shutil.rmtree(folder)
        raise
    return folder


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep the throw-away instance from being swept up."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


@contextmanager
def thrown_away(folder: Path) -> Iterator[None]:
    """Use the throw-away instance and remove it afterwards."""
    with in_use(folder):
        try:
            yield
        finally:
            shutil.rmtree(folder)


def _sweep(base: Path) -> None:
    """Remove what was left in `base` by processes of this user that were killed."""
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            if folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # another sweeper was faster
        try:
            if try_lock(lock):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
