"""Keeping an index complete: words at once, vectors by one process that has time.

What is to be found is whatever somebody sees: all that the owner of the instance sees, and of each
session what it has staged in repositories, or shows of another commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fusefs.contract.paths import Path
from fusefs.contract.sessions import OPERATOR
from fusefs.index.batch import Content, Why
from fusefs.index.embedder.models import EmbedderUnavailable
from fusefs.index.index import Index, Lacking
from fusefs.index.library import Library
from fusefs.index.model import Model
from fusefs.index.vectors import Owned
from fusefs.session import contents
from fusefs.session.catalogue import Catalogue
from fusefs.session.known import KnownContents
from fusefs.session.view_reader import ViewReader
from fusefs.store.derived_kv import DerivedDamaged
from fusefs.store.instance import Instance
from fusefs.store.mounts import mounts_in
from fusefs.store.working_copies import all_working_copies

_log = logging.getLogger(__name__)

PIECES_AT_ONCE = 16
"""Pieces that are embedded and stored together: what a killed process has to do again."""
_WAIT_SECONDS = 5.0
"""How long others who add words are waited for, before it is seen whether to go on."""


@dataclass(slots=True)
class Pending:
    """What is left to be done.

    Attributes:
        files: files that somebody sees.
        contents: different contents of those.
        words_pending: contents whose words are not indexed.
        vectors_pending: contents that lack vectors, those without words among them.
        pieces_pending: pieces that lack vectors, of contents that have words.
        left_out: contents that are not text, or too large.
    """

    files: int = 0
    contents: int = 0
    words_pending: int = 0
    vectors_pending: int = 0
    pieces_pending: int = 0
    left_out: int = 0

    @property
    def is_complete(self) -> bool:
        """There is nothing left to be done."""
        return not (self.words_pending or self.vectors_pending)


class Viewer:
    """Someone who sees files that are to be found."""

    def __init__(self, view: ViewReader, roots: Iterable[Path]) -> None:
        self.view = view
        self.catalogue = Catalogue(view, roots)
        self.known = KnownContents()


class Everything:
    """All contents that somebody sees."""

    def __init__(self, instance: Instance) -> None:
        """Know of nothing yet."""
        self._instance = instance
        self._owner = Viewer(ViewReader(instance, OPERATOR), [()])
        self._sessions: dict[tuple[str, bytes, tuple[Path, ...]], Viewer] = {}

    def refresh(self) -> None:
        """Follow what has changed."""
        self._owner.catalogue.refresh()
        with self._instance.kv.read() as txn:
            paths = {spec.id: path for path, spec in mounts_in(txn).items()}
            roots: dict[str, list[Path]] = {}
            for mount, session, _ in all_working_copies(txn):
                if session != OPERATOR.name and mount in paths:
                    roots.setdefault(session, []).append(paths[mount])
        known, self._sessions = self._sessions, {}
        for name, found in roots.items():
            try:
                spec = self._instance.sessions.get(name)
            except KeyError:
                continue  # it has just been removed
            at = (name, spec.secret, tuple(found))
            viewer = known.get(at) or Viewer(ViewReader(self._instance, spec), found)
            viewer.catalogue.refresh()
            self._sessions[at] = viewer

    @property
    def viewers(self) -> list[Viewer]:
        """All who see something, the owner first."""
        return [self._owner, *self._sessions.values()]

    def keys(self) -> set[bytes]:
        """Return the keys of all contents."""
        return {key for viewer in self.viewers for key in viewer.catalogue.content_keys()}

    @property
    def files(self) -> int:
        """How many files the owner sees."""
        return len(self._owner.catalogue)


class Indexer:
    """Makes an index complete, step by step.

    Attributes:
        everything: what is to be found.
        added: how many contents and pieces were added so far.
        unavailable: why the model does not embed, once that has turned out.
    """

    def __init__(self, instance: Instance, library: Library, model: Model) -> None:
        """Prepare; nothing is read yet."""
        self._instance = instance
        self._library = library
        self._model = model
        self.everything = Everything(instance)
        self.added = 0
        self.unavailable: str | None = None
        self._at: tuple[Index, int] | None = None
        self._queue = _Queue()

    def refresh(self) -> Index:
        """Follow what has changed; return the index that is to be complete."""
        self.everything.refresh()
        index = self._library.wanted(self._model)
        try:
            at = (index, index.counters.dropped)
        except DerivedDamaged as error:
            self.replace(error)
            return self.refresh()
        if at != self._at:
            self._at = at
            self._queue = _Queue()
            for viewer in self.everything.viewers:
                viewer.known = KnownContents()
        return index

    def pending(self) -> Pending:
        """Return what is left to be done."""
        try:
            return self._pending(self.refresh())
        except DerivedDamaged as error:
            self.replace(error)
            return self._pending(self.refresh())

    def _pending(self, index: Index) -> Pending:
        found = Pending(files=self.everything.files)
        unknown: set[bytes] = set()
        known: dict[int, Why] = {}
        for viewer in self.everything.viewers:
            unknown.update(viewer.known.follow(viewer.catalogue, index))
            known.update((d.number, d.why) for d in viewer.known.documents.values())
        found.words_pending = len(unknown)
        found.contents = len(unknown) + len(known)
        found.left_out = sum(1 for why in known.values() if why)
        if self._model.dimensions:
            lacking = index.without_vectors(known)
            found.vectors_pending = len(lacking) + len(unknown)
            found.pieces_pending = sum(one.pieces - one.done for one in lacking)
        return found

    def replace(self, damaged: DerivedDamaged) -> None:
        """Begin the index anew that has turned out to be damaged."""
        self._library.replace(self._library.wanted(self._model), self._model, damaged)

    # Words.

    def add_words(self, may_go_on: Callable[[], bool]) -> bool:
        """Index all words that are not yet; tell whether all are.

        Raises:
            LeaseLost: another process makes the index complete.
        """
        index = self.refresh()
        for viewer in self.everything.viewers:
            pending = viewer.known.follow(viewer.catalogue, index)
            for batch in contents.batches(viewer.view, viewer.catalogue, pending):
                if not self._add(index, batch, may_go_on):
                    return False
                viewer.known.learn(index, [one.key for one in batch])
        return True

    def _add(
        self, index: Index, batch: Sequence[Content], may_go_on: Callable[[], bool]
    ) -> bool:
        while may_go_on():
            self._library.lease.beat(self._instance.process)
            if index.add(batch, self._model.cut, time.monotonic() + _WAIT_SECONDS):
                self.added += len(batch)
                with index.adding() as ours:
                    while ours and index.unite_segments():
                        pass
                return True
        return False

    # Vectors.

    def add_vectors(self) -> int:
        """Embed some pieces; return how many, 0 where all that can be have vectors.

        Raises:
            LeaseLost: another process makes the vectors.
        """
        index = self.refresh()
        if not self._model.dimensions or self.unavailable is not None:
            return 0
        jobs = self._next_jobs(index)
        if not jobs:
            return 0
        pieces = sum(len(job.pieces) for job in jobs)
        try:
            found = self._model.embed([job.pieces for job in jobs])
        except EmbedderUnavailable as error:
            _log.error("Nothing is embedded: %s", error)
            self.unavailable = str(error)
            return 0
        owned = [
            Owned(
                job.document, job.begin, job.begin + len(job.pieces),
                [job.begin + ordinal for ordinal in one.ordinals], one.vectors,
            )
            for job, one in zip(jobs, found, strict=True)
        ]  # fmt: skip
        # Under the lock of those who add words: they can tell when they would have to wait.
        with index.adding(), self._library.lease.held(self._instance.process):
            index.put_vectors(owned)
        self.added += pieces
        return pieces

    def _next_jobs(self, index: Index) -> list[_Job]:
        """Return what to embed next: newest contents first, some pieces of them."""
        snapshot = index.snapshot()
        self._queue.follow(self.everything.viewers, index)
        jobs: list[_Job] = []
        pieces = 0
        while self._queue.lacking and pieces < PIECES_AT_ONCE:
            document, done, count = self._queue.lacking.pop()
            text = self._text(index, document, *self._queue.seen[document])
            if text is None:
                continue
            until = min(count, done + PIECES_AT_ONCE)
            if until < count:
                self._queue.lacking.append(Lacking(document, until, count))
            spans = snapshot.pieces_of(document)[done:until]
            jobs.append(_Job(document, done, [text[start:end] for start, end in spans]))
            pieces += len(spans)
            if until < count:
                break  # the rest of it comes next
        return jobs

    @staticmethod
    def _text(index: Index, document: int, viewer: Viewer, key: bytes) -> str | None:
        """Return a document's text, None where it cannot be read (any more)."""
        for path in viewer.catalogue.paths(key):
            with contextlib.suppress(OSError):
                data = contents.read(viewer.view, path)
                if data is not None and hashlib.sha256(data).digest() == index.sha256(document):
                    return data.decode()  # it is what was indexed, and so text
        return None

    def take(self) -> bool:
        """Become the one process that makes the index complete, if there is no other."""
        return self._library.lease.take(self._instance.process, self._instance.live_processes())

    def give_back(self) -> None:
        """Let another process make it complete."""
        self._library.lease.give_back(self._instance.process)

    def finish(self) -> None:
        """Let the index answer, now that it is complete."""
        self._library.take_over(self._library.wanted(self._model))

    def forget(self) -> int:
        """Drop what nobody sees any more; return how many contents."""
        self.everything.refresh()
        live = self.everything.keys()
        gone = 0
        for index in self._library.all():
            with index.adding(time.monotonic() + _WAIT_SECONDS) as ours:
                gone += index.forget(live) if ours else 0
        return gone


class _Job(NamedTuple):
    """Pieces of a document, from its piece `begin` on, that are to be embedded."""

    document: int
    begin: int
    pieces: list[str]


class _Queue:
    """What lacks vectors.

    Attributes:
        lacking: documents, the next one last.
        seen: who sees each document, and under which key.
    """

    def __init__(self) -> None:
        self.lacking: list[Lacking] = []
        self.seen: dict[int, tuple[Viewer, bytes]] = {}
        self._at: object = None

    def follow(self, viewers: Sequence[Viewer], index: Index) -> None:
        """Find out anew what lacks vectors if anything changed."""
        for viewer in viewers:
            viewer.known.follow(viewer.catalogue, index)
        at = [(viewer, viewer.known.changes) for viewer in viewers]
        if at == self._at:
            return
        self._at = at
        self.seen = {
            number: (viewer, keys[0])
            for viewer in reversed(viewers)
            for number, keys in viewer.known.keys.items()
        }
        self.lacking = index.without_vectors(self.seen)
