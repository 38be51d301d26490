"""Looking after the mounts of an instance: dead ones are taken away, stuck ones are told of.

A mount belongs to the instance if a lock file in its ``run`` folder says so. Only what is dead
and ours is touched: a mount at that place that somebody serves, or of another kind, stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from fusefs.daemon import mountpoint
from fusefs.daemon.mount_lock import Held, Served, dead_lock, locks, read
from fusefs.daemon.mountpoint import FS_TYPE, MountError
from fusefs.daemon.probe import PATIENCE, Answer, ask
from fusefs.store.findings import Fault, Finding, Verdict

Progress = Callable[[str], None]

_STATES = {
    "T": "it is stopped",
    "t": "a debugger holds it",
    "D": "it waits in the kernel for a disk or another file system",
    "R": "it is computing",
    "Z": "it has ended",
}


def examine(
    run: Path, session: str | None = None, *, dry_run: bool = False,
    progress: Progress = lambda step: None,
) -> Iterator[Finding]:  # fmt: skip
    """Look at the mounts of the instance whose ``run`` folder this is, and mend them.

    Args:
        run: the folder.
        session: only mounts of this one.
        dry_run: only look.
        progress: is told what is being done.
    """
    for path in locks(run):
        served = read(path)
        if session is not None and (served is None or served.session != session):
            continue
        if served is not None:
            progress(f"asking {served.mountpoint}")
        lock = dead_lock(path)
        if lock is not None:
            with lock:
                yield _of_a_dead_process(served, lock, dry_run=dry_run)
        elif served is not None:
            yield _of_a_living_process(served)


def _of_a_dead_process(served: Served | None, lock: Held, *, dry_run: bool) -> Finding:
    """Deal with a mount whose process died; `lock` keeps a new one from coming meanwhile."""
    if served is None:
        fault = Fault("mount", "a lock of a process that died while it was starting", "removed")
        return fault.to_mend() if dry_run else _remove_lock(fault, lock)
    point = served.mountpoint
    name = _name(served)
    gone = f"process {served.pid} at {point} died"
    ours, on_top = _mounts_at(point, served.session)
    if not ours:
        fault = Fault(name, f"{gone}; its lock is left", "removed")
        return fault.to_mend() if dry_run else _remove_lock(fault, lock)
    if on_top is not None:
        return Finding(
            name, Verdict.BROKEN, f"{gone}; its mount lies below another one ({on_top})",
            f"umount {point}, then look again",
        )  # fmt: skip
    answer = ask(point)
    if answer in {Answer.SERVED, Answer.NO_LISTING}:
        gone = f"{gone}; a live view of another instance is there now"
        fault = Fault(name, f"{gone}; its lock is left", "removed")
        return fault.to_mend() if dry_run else _remove_lock(fault, lock)
    if answer is not Answer.DEAD:
        return Finding(
            name, Verdict.BROKEN, f"{gone}, but something holds its connection: {answer.value}",
            f"fusefs umount --lazy {point}",
        )  # fmt: skip
    nested = mountpoint.nested_in(point)
    if nested is not None:
        return Finding(
            name, Verdict.BROKEN, f"{gone}; {nested} is mounted below it and would go with it",
            f"umount {nested} and look again, or fusefs umount --lazy {point}",
        )  # fmt: skip
    fault = Fault(name, f"{gone}: every use fails with ENOTCONN", "unmounted")
    if dry_run:
        return fault.to_mend()
    try:
        mountpoint.detach(point)
    except MountError as error:
        return fault.remains(str(error), f"fusefs umount --lazy {point}")
    return _remove_lock(fault, lock)


def _mounts_at(point: str, session: str) -> tuple[bool, str | None]:
    """Tell whether a view of `session` is mounted at `point`, and what lies on top of it."""
    there = [mount for mount in mountpoint.mounts() if mount.point == point]
    ours = [m.type == FS_TYPE and m.source == mountpoint.source_of(session) for m in there]
    return any(ours), None if not there or ours[-1] else there[-1].type


def _remove_lock(fault: Fault, lock: Held) -> Finding:
    lock.remove()
    return fault.mended()


def _of_a_living_process(served: Served) -> Finding:
    point, name = served.mountpoint, _name(served)
    who = f"process {served.pid} at {point}"
    ours, on_top = _mounts_at(point, served.session)
    if not ours and not _same_namespace(served.pid):
        return Finding(name, Verdict.OK, f"{who} serves another namespace")
    if not ours:
        detail = f"{who} is unmounted and has not ended yet"
        if _state(served.pid) == "T":
            return Finding(name, Verdict.BROKEN, f"{detail}: it is stopped", _go_on(served.pid))
        return Finding(name, Verdict.OK, detail)
    if on_top is not None:
        return Finding(
            name, Verdict.OPTIONAL, f"{who} lives, below another mount ({on_top})",
            f"umount {point} uncovers it",
        )  # fmt: skip
    answer = ask(point)
    if answer is Answer.SERVED:
        return Finding(name, Verdict.OK, f"{who} answers")
    if answer is Answer.UNTOLD:
        return Finding(
            name, Verdict.OPTIONAL, f"{who} lives; whether it answers is not told to this user",
            "look as the user who mounted it",
        )  # fmt: skip
    if answer is Answer.DEAD:
        return Finding(
            name, Verdict.BROKEN, f"{who} lives, but its connection has ended",
            f"wait until it has stored everything; {_stacks(served.pid)}",
        )  # fmt: skip
    state = _state(served.pid)
    said = "does not answer" if answer is Answer.NONE else "does not list its root"
    words = _STATES.get(state, "it is waiting")
    detail = f"{who} {said} within {PATIENCE:.0f} seconds: {words}"
    goes_on = f"{_go_on(served.pid)}; " if state == "T" else ""
    return Finding(
        name, Verdict.BROKEN, detail,
        f"{goes_on}{_stacks(served.pid)}; to end it: kill -KILL {served.pid}, then fusefs doctor "
        "(what was closed is kept)",
    )  # fmt: skip


def _name(served: Served) -> str:
    return f"mount of {served.session}"


def _go_on(pid: int) -> str:
    return f"kill -CONT {pid} lets it go on"


def _stacks(pid: int) -> str:
    return f"kill -USR1 {pid} has it write where it is to {_standard_error(pid)}"


def _standard_error(pid: int) -> str:
    """Say where what a process writes to standard error can be read."""
    try:
        target = os.readlink(f"/proc/{pid}/fd/2")
    except OSError:
        return "its standard error"
    if target.startswith("socket:"):
        return f"the journal (journalctl _PID={pid})"
    return target if target.startswith("/") else "its standard error"


def _state(pid: int) -> str:
    """Return the letter of a process's state (proc_pid_stat(5)), empty where it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return words.rpartition(")")[2].split()[0]


def _same_namespace(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
    except FileNotFoundError:  # its number is one of another process namespace
        return False
    except OSError:
        return True
