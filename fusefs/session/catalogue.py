"""Which contents a session sees, and where: walked once, then kept up from the journal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fusefs.contract.paths import Path, is_at_or_below
from fusefs.session.content_keys import keyed_files
from fusefs.store.journal import JournalRecord, Op
from fusefs.store.mounts import mounts_in
from fusefs.store.working_copies import WorkingCopy, working_copy
from fusefs.tree.tree import HOST

if TYPE_CHECKING:
    from fusefs.session.view_reader import ViewReader

_MOST_RECORDS = 2_000
"""After so many changes all is walked anew."""
_HOST_SECONDS = 1.0
"""Folders of the host, which tell nobody of changes, are looked through at most so often."""
_Tree = dict[bytes, "_Tree | bytes"]
"""The entries of a directory: further ones, and keys of files."""
_NAMES = {Op.CREATE, Op.WRITE, Op.REMOVE, Op.RENAME, Op.EXCHANGE, Op.RESTORE}


class Catalogue:
    """The files that a session sees, and the keys of their contents.

    Attributes:
        changes: grows with every change.
    """

    def __init__(self, view: ViewReader, roots: Iterable[Path] = ((),)) -> None:
        """Know of no file yet; `roots` are the paths below which files count."""
        self._view = view
        self._roots = list(roots)
        self._instance = view.instance
        self._tree: _Tree = {}
        self._paths: dict[bytes, set[Path]] = {}
        self._count = 0
        self._unsettled: set[Path] = set()
        self._walked: tuple[object, object] | None = None
        self._seen = 0
        self._copies: dict[Path, WorkingCopy | None] = {}
        self._host_at = 0.0
        self.changes = 0

    def __len__(self) -> int:
        return self._count

    def content_keys(self) -> Iterable[bytes]:
        """Return the keys of all contents that are seen."""
        return self._paths.keys()

    def paths(self, key: bytes) -> Iterable[Path]:
        """Return where a content is seen."""
        return self._paths.get(key, ())

    def below(self, path: Path) -> Iterator[tuple[Path, bytes]]:
        """Yield the files at and below a path, each with the key of its content, in no order."""
        found: _Tree | bytes | None = self._tree
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        pending = [(path, found)]
        while pending:
            at, known = pending.pop()
            if isinstance(known, bytes):
                yield at, known
            elif known is not None:
                pending.extend(((*at, name), below) for name, below in known.items())

    def refresh(self) -> None:
        """Follow what has changed since the last time."""
        view = self._view
        view.refresh()
        with self._instance.kv.read() as txn:
            mounts = mounts_in(txn)
            copies = {
                path: working_copy(txn, mount.id, view.spec.name) for path, mount in mounts.items()
            }
        if self._walked != (view.rules, view.tree.top):
            self._walk_all()
        else:
            self._follow_journal()
            for path, copy in copies.items():
                if self._moved(self._copies.get(path), copy):
                    self.look_again(path)
        self._copies = copies
        self._look_at_host()
        for path in list(self._unsettled):
            self.look_again(path)

    @staticmethod
    def _moved(before: WorkingCopy | None, now: WorkingCopy | None) -> bool:
        """Tell whether a working copy shows another commit than before."""
        return before is not None and (now is None or now[:2] != before[:2])

    def _walk_all(self) -> None:
        view = self._view
        self._seen = self._instance.journal.last()
        self._walked = view.rules, view.tree.top
        self._tree.clear()
        self._paths.clear()
        self._count = 0
        self._unsettled.clear()
        self._host_at = time.monotonic()
        self.changes += 1
        for root in self._roots:
            self._add_below(root)

    def _follow_journal(self) -> None:
        if self._instance.journal.last() == self._seen:
            return
        records = self._instance.journal.since(self._seen, _MOST_RECORDS)
        if len(records) == _MOST_RECORDS:
            self._walk_all()
            return
        for path in dict.fromkeys(path for record in records for path in _touched(record)):
            self.look_again(path)
        if records:
            self._seen = records[-1].seq

    def _look_at_host(self) -> None:
        now = time.monotonic()
        if now - self._host_at < _HOST_SECONDS:
            return
        for path, bind in self._instance.binds.all().items():
            if bind.backend == HOST:
                self.look_again(path)
        self._host_at = time.monotonic()

    def look_again(self, path: Path) -> None:
        """Look anew at what is at and below a path."""
        if any(is_at_or_below(path, root) for root in self._roots):
            before = set(self.below(path))
            self._drop(path, before)
            self._add_below(path)
            if before != set(self.below(path)):
                self.changes += 1

    def _add_below(self, path: Path) -> None:
        for file in keyed_files(self._view, path):
            directory = self._tree
            for name in file.path[:-1]:
                below = directory.get(name)
                if not isinstance(below, dict):
                    below = directory[name] = {}
                directory = below
            directory[file.path[-1]] = file.key
            places = self._paths.setdefault(file.key, set())
            self._count += file.path not in places
            places.add(file.path)
            if file.is_unsettled:
                self._unsettled.add(file.path)

    def _drop(self, path: Path, files: Iterable[tuple[Path, bytes]]) -> None:
        """Forget `files`, which are all at and below `path`."""
        for known, key in files:
            places = self._paths[key]
            self._count -= known in places
            places.discard(known)
            if not places:
                del self._paths[key]
            self._unsettled.discard(known)
        directory: _Tree | bytes | None = self._tree
        for name in path[:-1]:
            directory = directory.get(name) if isinstance(directory, dict) else None
        if not path:
            self._tree.clear()
        elif isinstance(directory, dict):
            directory.pop(path[-1], None)


def _touched(record: JournalRecord) -> Iterator[Path]:
    """Yield the paths at which a record may have changed what files there are."""
    if record.op in _NAMES:
        for path in record.path.split(b"\0"):
            yield tuple(name for name in path.split(b"/") if name)
