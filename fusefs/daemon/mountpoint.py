"""Mountpoints: which may be used, what is mounted there, and how it is taken away again."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fusefs.daemon.probe import Answer, ask
from fusefs.store.instance import InstanceError

FS_TYPE = "fuse.fusefs"
"""Type of our mounts in ``/proc/self/mountinfo``."""

_UNMOUNT_SECONDS = 20.0
_ESCAPE = re.compile(r"\\([0-7]{3})")


class MountError(InstanceError):
    """A view cannot be mounted or unmounted as asked; the message is for people."""


class Mount(NamedTuple):
    """What is mounted somewhere (proc_pid_mountinfo(5))."""

    point: str
    type: str
    device: str
    source: str


def source_of(session: str) -> str:
    """Return what the mount of a session shows as its source."""
    return f"fusefs:{session}"


def locate(mountpoint: Path | str) -> str:
    """Return the absolute path of a mountpoint without its symbolic links.

    The mountpoint itself is not looked at: a dead mount answers nothing.
    """
    path = os.path.abspath(mountpoint)
    if os.path.dirname(path) == path:
        return path
    within = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if mounted_at(within) is None and os.path.islink(within):
        return os.path.realpath(within)
    return within


def mounted_at(point: str) -> Mount | None:
    """Return the topmost mount at exactly `point`."""
    found = None
    for mount in mounts():
        if mount.point == point:
            found = mount
    return found


def mounts() -> Iterator[Mount]:
    """Yield all mounts that this process sees, in mount order."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            fields = line.split(" ")
            kind, source = fields[(dash := fields.index("-", 6)) + 1 : dash + 3]
            yield Mount(_unescape(fields[4]), kind, fields[2], _unescape(source))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def prepare(point: str, keep_out: Iterable[str]) -> None:
    """Check that a view can be mounted at `point`, and clear away a dead one of ours.

    Args:
        point: the mountpoint, as from `locate`.
        keep_out: host directories the daemon itself reads: the instance, and what is bound.

    Raises:
        MountError: it cannot be mounted there.
    """
    mount = mounted_at(point)
    if mount is not None and mount.type == FS_TYPE and is_dead(point):
        detach(point)
        mount = mounted_at(point)
    if mount is not None:
        what = "a view" if mount.type == FS_TYPE else f"a file system ({mount.type})"
        raise MountError(f"{point} has {what} mounted on it already: use another directory.")
    if not os.path.isdir(point):
        raise MountError(
            f"{point} is not a directory." if os.path.exists(point)
            else f"{point} does not exist: make the directory first."
        )  # fmt: skip
    for needed in keep_out:
        real = os.path.realpath(needed)
        # Serving a request would then wait for itself.
        refused = f"{point} cannot be the mountpoint"
        if real == point:
            raise MountError(f"{refused}: it is itself what the view is served from.")
        if _is_inside(point, real):
            raise MountError(f"{refused}: it lies in {needed}, which the view is served from.")
        if _is_inside(real, point):
            raise MountError(f"{refused}: it contains {needed}, which the view is served from.")


def _is_inside(path: str, directory: str) -> bool:
    return os.path.commonpath((path, directory)) == directory


def _is_below(path: str, directory: str) -> bool:
    return path != directory and _is_inside(path, directory)


def is_dead(point: str) -> bool:
    """Tell whether nobody serves the mount at `point` any more."""
    return ask(point) is Answer.DEAD


def nested_in(point: str) -> str | None:
    """Return where something is mounted below `point`, None if nothing is."""
    return next((mount.point for mount in mounts() if _is_below(mount.point, point)), None)


def detach(point: str, *, lazy: bool = True) -> None:
    """Unmount `point`; lazily: also while it is in use, for whom it then goes on.

    Raises:
        MountError: it is in use (not lazily), or the system refused.
    """
    words = []
    for command in (["umount"], ["fusermount3", "-u"]):
        if lazy:
            command.append("-l" if command[0] == "umount" else "-z")
        try:
            done = subprocess.run(
                [*command, "--", point], capture_output=True, text=True, check=False,
                timeout=_UNMOUNT_SECONDS,
            )  # fmt: skip
        except FileNotFoundError:
            continue
        except subprocess.TimeoutExpired:
            raise MountError(
                f"Unmounting {point} takes too long: `fusefs doctor` says why; "
                f"`fusefs umount --lazy {point}` does not wait."
            ) from None
        if done.returncode == 0:
            return
        words.append(done.stderr.strip())
    if any("busy" in word for word in words):
        nested = nested_in(point)
        if nested is not None:
            raise MountError(
                f"{point} is in use: {nested} is mounted below it; unmount that first."
            )
        raise MountError(
            f"{point} is in use: end the programs that use it (`fuser -vm {point}` lists them), "
            "or unmount it lazily."
        )
    raise MountError(f"Cannot unmount {point}: {'; '.join(words) or 'no umount or fusermount3'}")
