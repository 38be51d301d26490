"""What POSIX says about names of the store tree, as rename(2), rmdir(2) and others have it.

Refusals are raised as `OSError` with the errno of the system call.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping

from fusefs.contract.kinds import Kind
from fusefs.store import nodes
from fusefs.store.journal import describe
from fusefs.store.kv import Reader, Writer
from fusefs.store.nodes import Located
from fusefs.store.records import Record


def os_error(number: int) -> OSError:
    """Return the error that a system call gives with this errno."""
    return OSError(number, os.strerror(number))


def directory_in(txn: Reader, node_id: int) -> Located:
    """Return a directory; ENOTDIR for anything else."""
    located = nodes.locate(txn, node_id)
    if located.record.kind != Kind.DIR:
        raise os_error(errno.ENOTDIR)
    return located


def live_path(txn: Reader, directory: int) -> tuple[bytes, ...]:
    """Return a directory's path; one that was removed takes no new entries (as rmdir(2))."""
    path = nodes.path_of(txn, directory)
    if path is None:
        raise os_error(errno.ENOENT)
    return path


def entry_in(txn: Reader, directory: Located, name: bytes) -> Located:
    """Return an entry; ENOENT where there is none."""
    record = nodes.child(txn, directory.record.id, name)
    if record is None:
        raise os_error(errno.ENOENT)
    return Located(directory.record.id, name, record)


def touch(txn: Writer, directory: Located, now: int) -> None:
    """Note that the entries of a directory changed at `now` (nanoseconds)."""
    nodes.update(txn, directory, directory.record._replace(mtime=now, ctime=now))


def attribute_changes(record: Record, updates: Mapping[str, int]) -> bytes:
    """Return a journal record's detail: what each attribute was and is now."""
    changes: dict[str, list[int | str]] = {}
    for field, value in updates.items():
        before = getattr(record, field)
        if value != before:
            octal = field == "mode"
            changes[field] = [f"{before:o}", f"{value:o}"] if octal else [before, value]
    return describe(changes)


def value_hash(value: bytes | None) -> bytes:
    """Return what the journal says of an attribute's value: its hash, b"" where there is none."""
    return b"" if value is None else hashlib.sha256(value).digest()


def refuse_cycle(txn: Reader, moved: Record, new_directory: int) -> None:
    """Refuse, with EINVAL, to move a directory into itself."""
    if moved.kind == Kind.DIR and nodes.is_inside(txn, new_directory, moved.id):
        raise os_error(errno.EINVAL)


def check_replace(txn: Reader, source: Record, target: Record, replace: bool) -> None:
    """Refuse what rename(2) may not replace: EEXIST, EISDIR, ENOTDIR or ENOTEMPTY."""
    if not replace:
        raise os_error(errno.EEXIST)
    if target.kind == Kind.DIR:
        if source.kind != Kind.DIR:
            raise os_error(errno.EISDIR)
        if not nodes.is_empty(txn, target.id):
            raise os_error(errno.ENOTEMPTY)
    elif source.kind == Kind.DIR:
        raise os_error(errno.ENOTDIR)
