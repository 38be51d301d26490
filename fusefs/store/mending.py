"""Looking after an instance: what is wrong with the store is found, and mended."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb

from fusefs.store import orphans
from fusefs.store.findings import Fault, Finding, Verdict, human_size
from fusefs.store.inspection import PATIENCE, Condition, Left, grace, inspect
from fusefs.store.instance import Instance, InstanceError
from fusefs.store.lmdb_rebuild import rebuild
from fusefs.store.lmdb_soundness import first_damage
from fusefs.store.maintenance import QUIET, publish_abandoned, sweep_strays
from fusefs.store.reserve import ACKNOWLEDGED_BYTES, REMOVALS_BYTES
from fusefs.store.upgrades import InUse

FULL_BELOW = ACKNOWLEDGED_BYTES + REMOVALS_BYTES
"""Free bytes of a disk that is full: the reserves could not be had a second time."""

_ROOM_LEFT = 8
"""The store is given more room when less than this part of it is left."""

_MAKE_ROOM = "make room on the disk: fusefs trash empty, fusefs gc"
_NOT_KEPT = "this file system cannot keep space back; a full disk may refuse what was acknowledged"
_UNMOUNT = "unmount its views (fusefs mounts lists them), then do this again"
_RESTORE = "restore it from a backup: fusefs restore"
_SEE_WRITER = "see who keeps the writer lock"

Progress = Callable[[str], None]


def examine(
    folder: Path, *, dry_run: bool = False, progress: Progress = lambda step: None
) -> list[Finding]:
    """Look at the instance in `folder`, which this process does not have open, and mend it.

    Args:
        folder: the instance.
        dry_run: only look.
        progress: is told what is being done.

    Raises:
        InstanceError: it is none, or cannot be used.
    """
    progress("looking at the instance")
    pages = list(_mend_pages(folder, progress, dry_run=dry_run))
    try:
        return pages + _examine(folder, progress, dry_run=dry_run)
    except InstanceError:
        if all(finding.verdict.well for finding in pages):
            raise
        return pages  # that is why


def _examine(folder: Path, progress: Progress, *, dry_run: bool) -> list[Finding]:
    before = inspect(folder)
    faults = {fault.name: fault for fault in _faults(before)}
    if dry_run:
        return [fault.to_mend() for fault in faults.values()] + list(_others(before, faults))
    failed = _mend(folder, before, faults, progress) if faults else {}
    after = inspect(folder) if faults else before
    remaining = {fault.name: fault for fault in _faults(after)}
    findings = []
    for name, fault in faults.items():
        if name not in remaining:
            findings.append(fault.mended())
        elif name == "reserves" and all(after.lacking.values()):
            findings.append(Finding(name, Verdict.OPTIONAL, _NOT_KEPT, "another file system"))
        else:
            findings.append(remaining[name].remains(failed.get(name, ""), _remedy(name)))
    return findings + list(_others(after, faults))


def _mend_pages(folder: Path, progress: Progress, *, dry_run: bool) -> Iterator[Finding]:
    """Look at the pages of the store's file, without which nothing else can be looked at."""
    try:
        wrong = first_damage(folder / "data.mdb")
    except OSError:
        return  # `inspect` says what it is
    if wrong is None:
        return
    fault = Fault(
        "pages", f"the store's file data.mdb is damaged ({wrong})",
        "built anew, and nothing is lost; the old file is data.mdb.damaged"
    )  # fmt: skip
    if dry_run:
        yield fault.to_mend()
        return
    try:
        rebuild(folder, progress)
    except InUse:
        yield fault.remains("other programs have the instance open", _UNMOUNT)
    except OSError as error:
        remedy = _RESTORE if error.errno == errno.EIO else _MAKE_ROOM
        yield fault.remains(error.strerror or str(error), remedy)
    else:
        yield fault.mended()


def _faults(found: Condition) -> Iterator[Fault]:
    left = found.left or Left()
    if left.changes:
        what = f"{_many(left.changes, 'change')} of a process that died, not in the store yet"
        yield Fault("redo log", what, "replayed")
    if found.dead_readers:
        pids = ", ".join(map(str, found.dead_readers))
        what = f"dead processes ({pids}) keep old pages from being used again"
        yield Fault("readers", what, "cleared")
    if found.dead_files:
        what = f"{_many(len(found.dead_files), 'file')} in run/ of processes that died"
        yield Fault("processes", what, "removed")
    if left.scratches or left.drafts:
        yield Fault("files being written", _describe_unfinished(left), "kept as it was written")
    if left.strays:
        what = f"{_many(left.strays, 'file')} in scratch/ that nothing refers to"
        yield Fault("scratch files", what, "removed")
    if left.orphans:
        what = f"{_many(left.orphans, 'replaced file')} that processes had open which died"
        yield Fault("replaced files", what, "dropped")
    missing = [name for name, looks_whole in found.lacking.items() if not looks_whole]
    if missing or found.lacking:
        detail = f"space for a full disk is not kept back: {', '.join(missing or found.lacking)}"
        yield Fault("reserves", detail, "made again")
    if found.used > found.room - found.room // _ROOM_LEFT:
        what = f"the store has {human_size(found.used)} of {human_size(found.room)} it may have"
        yield Fault("store", what, "given twice the room")


def _describe_unfinished(left: Left) -> str:
    parts = []
    if left.scratches:
        size = human_size(left.scratch_bytes)
        parts.append(f"{_many(left.scratches, 'large file')} ({size})")
    if left.drafts:
        parts.append(_many(left.drafts, "small file"))
    return f"{' and '.join(parts)} left open by a process that died"


def _others(found: Condition, faults: dict[str, Fault]) -> Iterator[Finding]:
    """Yield what mending has nothing to do with, and the state of what needs no mending."""
    if found.left is None:
        who = f"process {found.writer}" if found.writer else "another process"
        yield Finding(
            "writer lock", Verdict.BROKEN,
            f"{who} has kept it for {PATIENCE:.0f} seconds: nothing can be changed, and what dead "
            "processes left was not looked for",
            _how_to_free(found.writer),
        )  # fmt: skip
    if "store" not in faults:
        users = _many(len(found.alive), "process")
        detail = f"{human_size(found.used)}, may grow to {human_size(found.room)}; open in {users}"
        yield Finding("store", Verdict.OK, detail)
    if found.free < FULL_BELOW:
        detail = f"only {human_size(found.free)} free: writing is or will soon be refused"
        yield Finding("disk", Verdict.BROKEN, detail, _MAKE_ROOM)
    else:
        yield Finding("disk", Verdict.OK, f"{human_size(found.free)} free")


def _how_to_free(pid: int) -> str:
    if not pid:
        return "end the process that has writer.lock open (fuser writer.lock)"
    return f"kill -USR1 {pid} has a mount write where it is stuck; ended, it loses nothing closed"


def _mend(
    folder: Path, found: Condition, faults: dict[str, Fault], progress: Progress
) -> dict[str, str]:
    """Mend what is wrong; return by name what failed, and why.

    Opening replays the redo log and clears dead readers.
    """
    failed = {}
    with Instance.open(folder) as instance:
        for name, mend in _steps(instance, found):
            if name not in faults:
                continue
            progress(f"mending: {name}")
            try:
                mend()
            except OSError as error:
                failed[name] = error.strerror or str(error)
            except lmdb.Error as error:
                failed[name] = str(error)
    return failed


def _steps(instance: Instance, found: Condition) -> list[tuple[str, Callable[[], object]]]:
    steps: list[tuple[str, Callable[[], object]]] = [
        ("processes", instance.live_processes),
        ("processes", instance.bell.sweep),
    ]
    if found.left is None:  # nothing can be written
        return steps
    alive = found.alive
    return [
        *steps,
        ("store", instance.make_room),
        ("reserves", instance.restore_reserves),
        ("files being written", lambda: publish_abandoned(instance, quiet=grace(alive, QUIET))),
        ("scratch files", lambda: sweep_strays(instance)),
        ("replaced files", lambda: orphans.collect(instance, grace=grace(alive, orphans.GRACE))),
    ]


def _remedy(name: str) -> str:
    if name in {"reserves", "store"}:
        return _MAKE_ROOM
    return "fusefs check says more" if name == "files being written" else _SEE_WRITER


def _many(count: int, what: str) -> str:
    return f"{count} {what if count == 1 else what + ('es' if what.endswith('s') else 's')}"
