"""Where the contents stand that a question is about, and their texts as they are now."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

from fusefs.contract.globs import Selection, compile_include
from fusefs.contract.paths import Path, is_at_or_below
from fusefs.index.index import Index
from fusefs.index.snapshot import Snapshot
from fusefs.session import contents
from fusefs.session.catalogue import Catalogue
from fusefs.session.known import KnownContents
from fusefs.session.session import Session

PathFilter = Callable[[Path], bool]
"""Tells which paths count."""


class Places:
    """Where documents are seen, as far as a question is about them."""

    def __init__(
        self, catalogue: Catalogue, known: KnownContents, root: Path, matches: PathFilter | None
    ) -> None:
        """Take the contents of a catalogue that stand at or below `root`, and match."""
        self._catalogue = catalogue
        self._root = root
        self._matches = matches
        self.is_all = not root and matches is None
        self._keys = known.keys
        if not self.is_all:
            below = {key for path, key in catalogue.below(root) if matches is None or matches(path)}
            self._keys = {}
            for key in below & known.documents.keys():
                self._keys.setdefault(known.documents[key].number, []).append(key)
        self._paths: dict[int, list[Path]] = {}

    @property
    def documents(self) -> Iterator[int]:
        """The documents that are meant."""
        return iter(self._keys)

    def all(self, document: int) -> list[Path]:
        """Return where a document is seen, in path order."""
        paths = self._paths.get(document)
        if paths is None:
            paths = self._paths[document] = sorted(
                path
                for key in self._keys[document]
                for path in self._catalogue.paths(key)
                if is_at_or_below(path, self._root)
                and (self._matches is None or self._matches(path))
            )
        return paths

    def first(self, document: int) -> Path:
        """Return the first path at which a document is seen."""
        return self.all(document)[0]

    def order(self, snapshot: Snapshot, piece: int) -> tuple[Path, int]:
        """Return by what pieces of equal score are ordered."""
        span = snapshot.span(piece)
        return self.first(span.document), span.ordinal


class Texts:
    """The texts of documents as the session would read them now, each verified.

    Attributes:
        unread: documents that cannot be read though nothing says that they have changed.
    """

    def __init__(self, session: Session, index: Index, places: Places) -> None:
        """Read for a session, on demand."""
        self._session = session
        self._index = index
        self._places = places
        self.unread: set[int] = set()
        self._known: dict[int, str | None] = {}

    def of(self, document: int) -> str | None:
        """Return a document's text, None where its first path has another content now."""
        if document not in self._known:
            self._known[document] = self._read(document)
        return self._known[document]

    def _read(self, document: int) -> str | None:
        try:
            data = contents.read(self._session.view, self._places.first(document))
        except OSError:
            return None
        if data is None or hashlib.sha256(data).digest() != self._index.sha256(document):
            return None
        return data.decode()  # it is what was indexed, and so text


def path_filter(root: Path, include: str | Sequence[str]) -> PathFilter | None:
    """Return what tells whether a path at or below `root` is included; None where all are."""
    if not include:
        return None
    selection = compile_include([include] if isinstance(include, str) else include)

    def matches(path: Path) -> bool:
        here: Selection | None = selection
        for name in path[len(root) : -1]:
            here = here and here.enter(name)
        return path == root or (here is not None and here.wants(path[-1]))

    return matches
