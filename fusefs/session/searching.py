"""Finding passages by meaning and by words, in what a session sees (contract section 9)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusefs.contract.chunks import Piece, line_range
from fusefs.contract.errors import InvalidArgument
from fusefs.contract.paths import Path, render
from fusefs.contract.ranking import fuse
from fusefs.index.batch import Why
from fusefs.index.best import best
from fusefs.index.embedder.models import EmbedderUnavailable
from fusefs.index.index import Index
from fusefs.index.library import Library, made_by
from fusefs.index.model import Model
from fusefs.index.snapshot import Mask, Snapshot, Visible
from fusefs.index.terms import query_terms
from fusefs.session import contents
from fusefs.session.answers import Completeness, Found, Hit, Mode
from fusefs.session.catalogue import Catalogue
from fusefs.session.known import KnownContents
from fusefs.session.search_places import PathFilter, Places, Texts, path_filter
from fusefs.session.session import Session
from fusefs.store.derived_kv import DerivedDamaged

DEFAULT_LIMIT = 10
MOST_HITS = 200
PATIENCE = 2.0
"""Seconds that a question waits at most for files that are not indexed yet."""

_DEPTH = 200
"""Pieces of each ranked list that count, at least."""
_ATTEMPTS = 5
_BATCH_BYTES = 1 << 20
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


class _Lists(NamedTuple):
    """What each piece scores: in words 0, in meaning -inf for those that are in no list."""

    words: NDArray[np.float64] | None
    meaning: NDArray[np.float64] | None


class Searcher:
    """Answers the questions of one session."""

    def __init__(
        self,
        session: Session,
        library: Library,
        model: Model,
        unavailable: str | None = None,
        *,
        model_of: Callable[[Index], Model | None] = lambda index: None,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            session: who asks.
            library: the instance's indexes.
            model: cuts and embeds.
            unavailable: why nothing can be found by meaning, if so.
            model_of: gives the model that an index of another one was made by, if it is there.
        """
        self._session = session
        self._library = library
        self._model = model
        self._unavailable = unavailable
        self._model_of = model_of
        self.catalogue = Catalogue(session.view)
        self._known = KnownContents()
        self._at: tuple[Index, int] | None = None
        self._visible: tuple[object, Visible] | None = None
        self._refused: str | None = None

    def search(
        self,
        query: str,
        path: str | bytes = ".",
        *,
        limit: int = DEFAULT_LIMIT,
        mode: Mode = Mode.HYBRID,
        include: str | Sequence[str] = (),
        patience: float = PATIENCE,
        tell: Callable[[str], None] = lambda step: None,
    ) -> Found:
        """Find the passages that answer `query` best.

        Args:
            query: words, or a question.
            path: the directory or file in which to search.
            limit: hits at most.
            mode: by what.
            include: which files count, as `fusefs.session.finding.Finder.grep` has it.
            patience: seconds to wait at most for files that are not indexed yet.
            tell: told what is waited for.

        Raises:
            ContractError: `path` cannot be searched, or an argument makes no sense.
        """
        if not query.strip():
            raise InvalidArgument("Empty query: say what to look for.")
        if not 1 <= limit <= MOST_HITS:
            raise InvalidArgument(f"limit must be from 1 to {MOST_HITS}.")
        root = self._session.searched(path)
        matches = path_filter(root, include)
        deadline = time.monotonic() + patience
        for _ in range(_ATTEMPTS):
            index = self._library.answering(self._model)
            try:
                self._catch_up(index, deadline, tell)
                found = self._attempt(index, query, root, limit, mode, matches)
            except DerivedDamaged as error:
                self._library.replace(index, self._model, error)
                continue
            if found is not None:
                return found
        raise InvalidArgument("The files change faster than they can be searched: try again.")

    # What the session sees.

    def _catch_up(self, index: Index, deadline: float, tell: Callable[[str], None]) -> None:
        """Follow what changed, and index what is not yet, until the deadline."""
        self.catalogue.refresh()
        at = (index, index.counters.dropped)
        if at != self._at:
            self._at = at
            self._known = KnownContents()
        self._refused = None
        pending = self._known.follow(self.catalogue, index)
        try:
            self._index_now(index, pending, deadline, tell)
        except DerivedDamaged:
            raise
        except OSError as error:
            self._refused = error.strerror or str(error)

    def _index_now(
        self, index: Index, pending: Sequence[bytes], deadline: float, tell: Callable[[str], None]
    ) -> None:
        """Index contents by their words, a little at a time, with others who are at it."""
        view = self._session.view
        for batch in contents.batches(view, self.catalogue, pending, _BATCH_BYTES):
            tell(f"indexing {self._known.pending:,} files first")
            if time.monotonic() >= deadline:
                return
            index.add(batch, self._model.cut, deadline)
            self._known.learn(index, [one.key for one in batch])

    # One question.

    def _attempt(
        self,
        index: Index,
        query: str,
        root: Path,
        limit: int,
        mode: Mode,
        matches: PathFilter | None,
    ) -> Found | None:
        """Answer; None where the index or a file has changed meanwhile."""
        snapshot = index.snapshot()
        visible = self._visible_in(snapshot)
        places = Places(self.catalogue, self._known, root, matches)
        within = visible.mask if places.is_all else visible.mask & snapshot.mask(places.documents)
        lists = self._lists(index, snapshot, visible, query, mode)
        if lists is None:
            return None
        depth = max(_DEPTH, 10 * limit)
        ranked = [
            _ranked(snapshot, places, scores, within & counted, depth)
            for scores, counted in _counted(lists)
        ]
        unknown: frozenset[int] = frozenset()
        if len(ranked) == 2:
            known = index.meanings(snapshot).known
            unknown = frozenset(piece for piece in ranked[0] if not known[piece])
        texts = Texts(self._session, index, places)
        hits = self._hits(snapshot, places, fuse(ranked, unknown=unknown), lists, limit, texts)
        if hits is None:
            return None
        completeness = self._completeness(index, snapshot, visible)
        if completeness.words_pending or completeness.vectors_pending:
            self._library.forget_complete()  # a folder of the host, say, has changed
        notes = self._notes(index, completeness, mode)
        if texts.unread:
            notes.append(f"{len(texts.unread):,} files cannot be read and are left out.")
        return Found(hits, completeness, notes)

    def _visible_in(self, snapshot: Snapshot) -> Visible:
        """Return the pieces that the session sees, worked out anew only when that changed."""
        at = (snapshot, self._known, self._known.changes)
        if self._visible is None or self._visible[0] != at:
            self._visible = at, snapshot.visible(self._known.keys)
        return self._visible[1]

    def _lists(
        self, index: Index, snapshot: Snapshot, visible: Visible, query: str, mode: Mode
    ) -> _Lists | None:
        words = meaning = None
        asking = None if mode == Mode.WORDS else self._asking(index)
        if asking is not None:
            try:
                question = asking.embed_question(query)
                meaning = index.meanings(snapshot).scores(question)
            except EmbedderUnavailable as error:
                self._unavailable = str(error)
        if mode != Mode.MEANING or meaning is None:
            words = index.word_scores(snapshot, visible, query_terms(query))
            if words is None:
                return None
        return _Lists(words, meaning)

    def _asking(self, index: Index) -> Model | None:
        """Return the model that the index has vectors of, None where there is none."""
        if index.made_by.get("by") == made_by(self._model):
            return self._model if self._unavailable is None else None
        return self._model_of(index)

    def _hits(
        self,
        snapshot: Snapshot,
        places: Places,
        fused: Mapping[int, float],
        lists: _Lists,
        limit: int,
        texts: Texts,
    ) -> list[Hit] | None:
        """Return the best passages, read now; None where one is not what was indexed any more."""
        found: dict[str, Hit] = {}
        for piece in _best_first(snapshot, places, fused):
            span = snapshot.span(piece)
            text = texts.of(span.document)
            if text is None:
                before = self.catalogue.changes
                self.catalogue.look_again(places.first(span.document))
                if self.catalogue.changes != before:
                    return None
                texts.unread.add(span.document)
                continue
            shown = _without_blank_ends(text, Piece(span.start, span.end))
            passage = text[shown.start : shown.end]
            if passage in found:
                found[passage] = _also(found[passage], places.all(span.document))
            elif len(found) < limit:
                lines = line_range(text, shown)
                paths = places.all(span.document)
                found[passage] = _hit(piece, lines, passage, paths, fused, lists)
            else:
                break
        return list(found.values())

    # How complete the answer is.

    def _completeness(self, index: Index, snapshot: Snapshot, visible: Visible) -> Completeness:
        lacking = 0
        if self._asking(index) is not None:
            lacking = snapshot.count_documents(visible.mask & ~index.meanings(snapshot).known)
        return Completeness(
            files=len(self.catalogue),
            words_pending=self._known.pending,
            vectors_pending=lacking,
            not_text=self._known.left_out[Why.NOT_TEXT],
            too_large=self._known.left_out[Why.TOO_LARGE],
        )

    def _notes(self, index: Index, completeness: Completeness, mode: Mode) -> list[str]:
        notes = []
        if completeness.words_pending:
            notes.append(
                f"{completeness.words_pending:,} of {completeness.files:,} files are not indexed "
                "yet: what is in them is not found."
            )
        if self._refused is not None:
            notes.append(f"Nothing can be indexed now: {self._refused}.")
        if mode == Mode.WORDS:
            return notes
        if self._asking(index) is None:
            why = self._unavailable or "the index of the new model is not complete yet."
            notes.append(f"By words alone: {why}")
        elif completeness.vectors_pending:
            notes.append(
                f"{completeness.vectors_pending:,} of {completeness.files:,} files are found by "
                "words alone yet."
            )
        return notes


def _counted(lists: _Lists) -> Iterator[tuple[NDArray[np.float64], Mask]]:
    if lists.words is not None:
        yield lists.words, lists.words > 0
    if lists.meaning is not None:
        yield lists.meaning, np.isfinite(lists.meaning)


def _ranked(
    snapshot: Snapshot, places: Places, scores: NDArray[np.float64], mask: Mask, depth: int
) -> list[int]:
    """Return the best pieces, best first; equal ones in path order."""
    pieces = best(scores, mask, depth)
    # By score first: paths are looked up for equal ones alone.
    values = scores[pieces]
    order = np.argsort(-values, kind="stable")
    ranked: list[int] = []
    for run in _runs(values[order]):
        equal = pieces[order[run]].tolist()
        if len(equal) > 1:
            equal.sort(key=lambda piece: places.order(snapshot, piece))
        ranked.extend(equal)
    return ranked[:depth]


def _best_first(
    snapshot: Snapshot, places: Places, scores: Mapping[int, float]
) -> Iterator[int]:
    """Yield pieces, those of equal score in path order; paths are looked up for those alone."""
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    for _, run in groupby(ranked, key=scores.__getitem__):
        equal = list(run)
        if len(equal) > 1:
            equal.sort(key=lambda piece: places.order(snapshot, piece))
        yield from equal


def _runs(values: NDArray[np.float64]) -> Iterator[slice]:
    """Yield the stretches of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield slice(begin, end)


def _without_blank_ends(text: str, piece: Piece) -> Piece:
    """Return a piece without the blank lines that it begins and ends with."""
    begin = _BLANK_LINES.match(text, piece.start, piece.end)
    end = piece.start + len(text[piece.start : piece.end].rstrip())
    start = piece.start if begin is None else begin.end()
    return Piece(start, end) if start < end else piece


def _hit(
    piece: int,
    lines: tuple[int, int],
    text: str,
    paths: Sequence[Path],
    fused: Mapping[int, float],
    lists: _Lists,
) -> Hit:
    rendered = tuple(map(render, paths))
    words = None if lists.words is None else float(lists.words[piece])
    meaning = None if lists.meaning is None else float(lists.meaning[piece])
    return Hit(
        rendered[0], rendered, *lines, text, fused[piece],
        words or None, meaning if meaning is not None and np.isfinite(meaning) else None,
    )  # fmt: skip


def _also(hit: Hit, paths: Sequence[Path]) -> Hit:
    """Return a hit that stands in another document, too."""
    return hit._replace(paths=tuple(dict.fromkeys((*hit.paths, *map(render, paths)))))
