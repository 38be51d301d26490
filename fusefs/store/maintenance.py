"""Keeping an instance tidy: what dead processes left, old trash, content nobody refers to."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from fusefs.contract.kinds import Kind
from fusefs.store import blocks, journal, keys, nodes, orphans, trash
from fusefs.store.findings import human_size
from fusefs.store.instance import Instance
from fusefs.store.kv import Reader, after_prefix
from fusefs.store.publish import Outcome, publish_draft, publish_scratch
from fusefs.store.records import State, unpack
from fusefs.store.retention import is_retained
from fusefs.store.scratch import ScratchFiles, scratch_record, scratch_records, sync_and_hash
from fusefs.store.trash_can import TrashCan

QUIET = 60 * 10**9
"""Nanoseconds without a change after which something is taken for left behind."""
_CHUNK = 500
_TOLD_EVERY = 16 << 20
"""Bytes that are hashed between two words about it: some 10 ms."""


@dataclass(slots=True)
class GcReport:
    """What a collection did. Sizes in bytes.

    Attributes:
        contents_left_to_backup: what could go, but not while a backup is being made.
        keys_forgotten: idempotency keys that are new again.
        unindexed: contents that nobody sees any more and the index has dropped.
    """

    published: int = 0
    trash_purged: int = 0
    orphans_dropped: int = 0
    contents_removed: int = 0
    bytes_removed: int = 0
    stray_files: int = 0
    contents_left_to_backup: int = 0
    clones_removed: int = 0
    keys_forgotten: int = 0
    unindexed: int = 0


Progress = Callable[[str], None]
"""Told what is being done, again and again; may raise, which ends it with nothing lost."""


def collect(instance: Instance, *, progress: Progress = lambda step: None) -> GcReport:
    """Tidy the instance; safe while sessions are mounted."""
    report = GcReport()
    progress("publishing what was left open")
    report.published = publish_abandoned(instance, progress=progress)
    progress("emptying old trash")
    report.trash_purged = TrashCan(instance).enforce_bounds()
    progress("dropping replaced files")
    report.orphans_dropped = orphans.collect(instance)
    progress("looking for content without a file")
    marks = _Marks(instance)
    _sweep_small(instance, marks, report)
    _sweep_large(instance, marks, report)
    report.stray_files = sweep_strays(instance)
    if any(asdict(report).values()):
        _record(instance, report)
    return report


def _record(instance: Instance, report: GcReport) -> None:
    with instance.kv.write(freeing=True) as txn:
        journal.append(
            txn, time=time.time_ns(), process=instance.process, actor=journal.UPKEEP,
            op=journal.Op.COLLECT, detail=journal.describe(asdict(report)),
        )  # fmt: skip
        instance.journalled()


def publish_abandoned(
    instance: Instance, *, quiet: int = QUIET, progress: Progress = lambda step: None
) -> int:
    """Make content of drafts and scratch files that nobody writes any more; return how many.

    What lies in the trash stays as it is until it is back.

    Args:
        instance: the instance.
        quiet: nanoseconds after which a draft is nobody's.
        progress: told of each.
    """
    published = 0
    quiet_since = time.time_ns() - quiet
    with instance.kv.read() as txn:
        drafts = _ids(txn, keys.DRAFTS)
        scratches = _ids(txn, keys.SCRATCHES)
    for node_id in drafts:
        with instance.kv.write(freeing=True) as txn, contextlib.suppress(FileNotFoundError):
            located = nodes.locate(txn, node_id)
            record = located.record
            if record.content_state == State.DRAFT and record.ctime < quiet_since:
                publish_draft(instance, txn, located, journal.UPKEEP)
                published += 1
    for number, node_id in enumerate(scratches, 1):
        which = f"{number} of {len(scratches)}"
        published += _publish_abandoned_scratch(instance, node_id, which, progress)
    return published


def _publish_abandoned_scratch(
    instance: Instance, node_id: int, which: str, progress: Progress
) -> bool:
    with instance.kv.read() as txn:
        found = scratch_record(txn, node_id)
        exists = txn.get(keys.node(node_id)) is not None
        is_removed = exists and nodes.path_of(txn, node_id) is None
    if found is None or is_removed:
        return False
    try:
        scratch = instance.scratches.join(found.serial)
    except (FileNotFoundError, BlockingIOError):
        return False

    def each(done: int) -> None:
        if done % _TOLD_EVERY == 0:
            size = os.fstat(scratch.fd).st_size
            progress(
                f"publishing what was left open: file {which}, "
                f"{human_size(done)} of {human_size(size)}"
            )

    try:
        hashed = None
        while True:
            outcome = publish_scratch(instance, node_id, scratch, journal.UPKEEP, hashed=hashed)
            if outcome != Outcome.STALE:
                return outcome == Outcome.DONE
            hashed = (scratch.alone_at, sync_and_hash(scratch.fd, each))
    finally:
        scratch.close()


def _ids(txn: Reader, prefix: bytes) -> list[int]:
    return [keys.to_number(key[1:]) for key, _ in txn.range(prefix, after_prefix(prefix))]


class _Marks:
    """Which content is referred to: a snapshot, brought up to date from the journal.

    Whatever refers to content anew says so in the journal (as the hash after), so holding the
    writer lock and reading the newest records is enough to know that nobody uses a hash.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        with instance.kv.read() as txn:
            self._seq = journal.last(txn)
            self._used = {
                record.tail
                for _, raw in txn.range(keys.ENTRIES, after_prefix(keys.ENTRIES))
                if (record := unpack(raw)).kind == Kind.FILE
            }

    def catch_up(self, txn: Reader) -> None:
        """Add what was referred to since, as `txn` sees it."""
        for record in journal.records_after(txn, self._seq):
            self._used.add(record.after)
            self._seq = record.seq

    def __contains__(self, sha256: bytes) -> bool:
        return sha256 in self._used


def _sweep_small(instance: Instance, marks: _Marks, report: GcReport) -> None:
    with instance.kv.read() as txn:
        pairs = txn.range(keys.CONTENT, after_prefix(keys.CONTENT))
        candidates = [(key, len(value)) for key, value in pairs if key[1:] not in marks]
    for at in range(0, len(candidates), _CHUNK):
        with instance.kv.write(freeing=True) as txn:
            marks.catch_up(txn)
            for key, size in candidates[at : at + _CHUNK]:
                if key[1:] not in marks:
                    txn.delete(key)
                    report.contents_removed += 1
                    report.bytes_removed += size


def _sweep_large(instance: Instance, marks: _Marks, report: GcReport) -> None:
    for sha256, file in instance.content.all_large():
        if sha256 in marks:
            continue
        with instance.kv.write(freeing=True) as txn:
            marks.catch_up(txn)
            if sha256 in marks:
                continue
            if is_retained(instance.folder):
                report.contents_left_to_backup += 1
            else:
                report.bytes_removed += file.stat().st_size
                blocks.forget(txn, sha256)
                file.unlink()
                report.contents_removed += 1


def sweep_strays(instance: Instance) -> int:
    """Remove what no record leads to in the folders of scratches and trash; return how many."""
    with instance.kv.write(freeing=True) as txn:
        stray = stray_scratches(txn, instance.scratches)
        for file in stray:
            file.unlink()
    removed = len(stray)
    if is_retained(instance.folder):
        return removed
    for entry in os.listdir(instance.folder / "trash"):
        with instance.kv.read() as txn:
            if trash.get(txn, int(entry, 16)) is None:
                TrashCan(instance).remove_payload(int(entry, 16))
                removed += 1
    return removed


def stray_scratches(txn: Reader, scratches: ScratchFiles) -> list[Path]:
    """Return scratch files without a record: copies that were never used, leftovers.

    The writer lock must be held: a scratch begins within a transaction.
    """
    known = {scratches.path(found.serial) for _, found in scratch_records(txn)}
    cutoff = time.time() - QUIET / 10**9
    return [
        file for file in scratches.files() if file not in known and file.stat().st_mtime < cutoff
    ]
