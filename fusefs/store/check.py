"""Verifying a whole instance: what it holds must agree with itself, byte by byte."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import render
from fusefs.store import blocks, journal_chain, keys, nodes, trash
from fusefs.store.instance import Instance
from fusefs.store.kv import Reader, after_prefix
from fusefs.store.nodes import Located
from fusefs.store.records import EMPTY_SHA256, Record, State, unpack
from fusefs.store.redo import damaged_log
from fusefs.store.scratch import scratch_record
from fusefs.store.seal import Damaged

Progress = Callable[[str], None]
_TOPS = (keys.ROOT_ID, keys.TRASH_ID, keys.ORPHANS_ID, keys.WORKING_ID)


@dataclass(slots=True)
class CheckReport:
    """What a check found. Sizes in bytes.

    Attributes:
        problems: one line each; empty when the instance is whole.
    """

    problems: list[str] = field(default_factory=list)
    nodes: int = 0
    directories: int = 0
    files: int = 0
    contents: int = 0
    bytes: int = 0
    journal_records: int = 0


def check(instance: Instance, *, progress: Progress = lambda step: None) -> CheckReport:
    """Verify everything in the instance as one snapshot has it."""
    report = CheckReport()
    # Replays what a process that died left behind, so that it is checked as well.
    try:
        with instance.kv.write(freeing=True):
            pass
    except OSError as error:
        report.problems.append(f"store: it cannot be written now: {error.strerror or error}")
    if damaged_log(instance.folder).exists():
        report.problems.append(
            "redo.damaged: the last changes of a process that died could not be stored; this "
            "file is what is left of them, and is not needed any more"
        )
    progress("checking the store's file")
    report.problems += instance.damages()
    with instance.kv.read() as txn:
        _check_all(instance, txn, report, progress)
    return report


def _check_all(instance: Instance, txn: Reader, report: CheckReport, progress: Progress) -> None:
    directories: dict[int, int] = {}
    bad: set[bytes] = set()
    steps: tuple[tuple[str, Callable[[], Iterable[str]]], ...] = (
        ("content", lambda: _check_large(instance, txn, report, bad)),
        ("entries", lambda: _check_entries(instance, txn, report, directories, bad)),
        ("directories", lambda: _check_directories(txn, directories)),
        ("nodes", lambda: _check_places(txn, report)),
        ("small content", lambda: _check_small(txn, report)),
        ("the journal", lambda: _check_journal(txn, report)),
        ("the trash", lambda: _check_trash(instance, txn)),
    )
    for what, step in steps:
        progress(f"checking {what}")
        try:
            report.problems += step()
        except (Damaged, ValueError) as error:
            # What is damaged was named already.
            report.problems.append(f"{what} could not be checked to the end: {error}")


def _check_journal(txn: Reader, report: CheckReport) -> Iterator[str]:
    verdict = journal_chain.Verdict()
    yield from journal_chain.verify(txn, verdict)
    report.journal_records = verdict.records


def _check_entries(
    instance: Instance,
    txn: Reader,
    report: CheckReport,
    directories: dict[int, int],
    bad: set[bytes],
) -> Iterator[str]:
    """Check every entry; note the directories with their parents in `directories`."""
    current_parent, parent_is_directory = -1, True
    for key, raw in txn.range(keys.ENTRIES, after_prefix(keys.ENTRIES)):
        parent, name = keys.to_number(key[1:]), key[9:]
        try:
            record = unpack(raw)
        except ValueError:
            yield f"entry {name!r} of node {parent}: its record is damaged"
            continue
        located = Located(parent, name, record)
        report.nodes += 1
        if parent != current_parent:
            current_parent, parent_is_directory = parent, parent == 0 or _is_directory(txn, parent)
        if not parent_is_directory:
            yield f"{_name(txn, located)}: its parent is no directory"
        if txn.get(keys.node(record.id)) != key[1:]:
            yield f"{_name(txn, located)}: node {record.id} stands elsewhere"
        if record.kind == Kind.DIR:
            directories[record.id] = parent
            report.directories += 1
        elif record.kind == Kind.FILE:
            report.files += 1
            if record.tail in bad:
                yield f"{_name(txn, located)}: its content is damaged"
            else:
                yield from _check_file(instance, txn, located)
        elif record.kind not in (Kind.SYMLINK, Kind.FIFO, Kind.SOCKET, Kind.MOUNT):
            yield f"{_name(txn, located)}: unknown kind {record.kind}"


def _is_directory(txn: Reader, node_id: int) -> bool:
    try:
        return nodes.locate(txn, node_id).record.kind in (Kind.DIR, Kind.MOUNT)
    except (FileNotFoundError, ValueError):
        return False


def _check_file(instance: Instance, txn: Reader, located: Located) -> Iterator[str]:
    record = located.record
    state = record.content_state
    if state == State.OBJECT:
        return  # it is the repository's to keep
    if len(record.tail) != len(EMPTY_SHA256):
        yield f"{_name(txn, located)}: its content has no hash"
    elif state == State.DRAFT:
        draft = txn.get(keys.draft(record.id))
        if draft is None or len(draft) != record.size:
            yield f"{_name(txn, located)}: its draft is missing or of another size"
    elif state == State.SCRATCH:
        found = scratch_record(txn, record.id)
        is_there = found is not None and instance.scratches.path(found.serial).exists()
        if not (is_there or _is_stored_by_now(instance, located)):
            yield f"{_name(txn, located)}: its scratch file is missing"
    else:
        try:
            size = _content_size(instance, txn, record)
        except Damaged:
            yield f"{_name(txn, located)}: its content is damaged"
            return
        if size is None and not _is_stored_by_now(instance, located):
            yield f"{_name(txn, located)}: its content is missing"
        elif size not in (None, record.size):
            yield f"{_name(txn, located)}: it has {size} bytes, not {record.size}"


def _is_stored_by_now(instance: Instance, located: Located) -> bool:
    """Tell whether a file was stored anew, or removed, since the snapshot was taken."""
    with instance.kv.read() as txn:
        try:
            return nodes.locate(txn, located.record.id).record != located.record
        except FileNotFoundError:
            return True


def _content_size(instance: Instance, txn: Reader, record: Record) -> int | None:
    small = instance.content.small(txn, record.tail)
    if small is not None:
        return len(small)
    try:
        return os.stat(instance.content.path(record.tail)).st_size
    except FileNotFoundError:
        return None


def _check_directories(txn: Reader, parents: dict[int, int]) -> Iterator[str]:
    """Check that every directory hangs below one of the tops."""
    connected = set(_TOPS)
    for start in parents:
        way = []
        at = start
        while at not in connected and at not in way:
            way.append(at)
            at = parents.get(at, 0)
            if at == 0:
                break
        if at in connected:
            connected.update(way)
        elif at in (start, 0):
            yield f"directory {start}: no way leads to it from the root"


def _check_places(txn: Reader, report: CheckReport) -> Iterator[str]:
    count = 0
    for key, place in txn.range(keys.NODES, after_prefix(keys.NODES)):
        count += 1
        if txn.get(keys.ENTRIES + place) is None:
            yield f"node {keys.to_number(key[1:])}: it is in no directory"
    if count != report.nodes:
        yield f"there are {report.nodes} entries, but {count} nodes"
    belong = (
        (keys.DRAFTS, "draft"), (keys.XATTRS, "attribute"), (keys.SUPERSEDED, "superseded name")
    )
    for prefix, what in belong:
        for key, _ in txn.range(prefix, after_prefix(prefix)):
            if txn.get(keys.node(keys.to_number(key[1:]))) is None:
                yield f"{what} of node {keys.to_number(key[1:])}: there is no such node"


def _check_small(txn: Reader, report: CheckReport) -> Iterator[str]:
    for key, value in txn.range(keys.CONTENT, after_prefix(keys.CONTENT)):
        report.contents += 1
        report.bytes += len(value)
        if hashlib.sha256(value).digest() != key[1:]:
            yield f"content {key[1:].hex()}: its bytes are damaged"


def _check_large(
    instance: Instance, txn: Reader, report: CheckReport, bad: set[bytes]
) -> Iterator[str]:
    """Check all large content; note what is damaged in `bad`."""
    for sha256, file in instance.content.all_large():
        report.contents += 1
        with file.open("rb") as reader:
            size = os.fstat(reader.fileno()).st_size
            report.bytes += size
            found = blocks.digest(reader.fileno())
        if found.sha256 != sha256:
            bad.add(sha256)
            yield f"content {sha256.hex()}: its bytes are damaged"
            continue
        if txn.get(blocks.first_key(sha256)) is None:
            # Whoever stored it died before saying so: no fault, unless an entry refers to it.
            bad.add(sha256)
            continue
        try:
            whole = blocks.stored(txn, sha256, size) == found.sums
        except Damaged:
            whole = False
        if not whole:
            bad.add(sha256)
            yield f"content {sha256.hex()}: its checksums are damaged"


def _check_trash(instance: Instance, txn: Reader) -> Iterator[str]:
    for entry in trash.records(txn):
        if entry.node:
            try:
                in_trash = nodes.locate(txn, entry.node).parent == keys.TRASH_ID
            except FileNotFoundError:
                in_trash = False
            if not in_trash:
                yield f"trash entry {entry.id}: what it removed is not there"
        elif not (instance.folder / "trash" / f"{entry.id:016x}").is_dir():
            yield f"trash entry {entry.id}: its folder is missing"


def _name(txn: Reader, located: Located) -> str:
    path = nodes.path_of(txn, located.record.id)
    return f"node {located.record.id}" if path is None else render(path)
