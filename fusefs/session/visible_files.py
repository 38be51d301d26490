"""All files that a session sees, and what tells their contents, as cheaply as can be."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path, render
from fusefs.contract.view import Cursor
from fusefs.session.stat import DIRECTORY_KINDS
from fusefs.tree.backend import Node
from fusefs.tree.tree import Spot

if TYPE_CHECKING:
    from fusefs.session.view_reader import ViewReader

_log = logging.getLogger(__name__)

_PAGE = 1000
_STAMP_BYTES = 24


class VisibleFile(NamedTuple):
    """A regular file of a view.

    Attributes:
        path: where it is.
        key: tells its content: its SHA-256 (32 bytes), the id of a blob in git (20), or, where
            neither is known, what file it is and when it was changed (24).
        size: bytes.
        is_volatile: it may change without a word.
    """

    path: Path
    key: bytes
    size: int
    is_volatile: bool

    @property
    def is_settled(self) -> bool:
        """The key tells the content itself."""
        return len(self.key) != _STAMP_BYTES


def visible_files(view: ViewReader, path: Path = ()) -> Iterator[VisibleFile]:
    """Yield the visible files at and below a path, in no order; none where nothing is visible.

    What cannot be read is left out, and logged.
    """
    cursor = view.rules.cursor(path)
    if not cursor.visible:
        pending: list[tuple[Path, Cursor, Spot | None]] = [(path, cursor, None)]
    else:
        spot = _found(view, path)
        if spot is None:
            return
        if spot.node.kind not in DIRECTORY_KINDS:
            yield from _file(path, spot)
            return
        pending = [(path, cursor, spot)]
    while pending:
        at, above, spot = pending.pop()
        if spot is not None:
            for name, node in _entries(at, spot):
                child = above.child(name)
                if not child.visible or (not at and view.is_reserved(view.root, name)):
                    continue
                entry = _entry(view, at, spot, name, node)
                if entry is None:
                    continue
                if entry.node.kind in DIRECTORY_KINDS:
                    pending.append(((*at, name), child, entry))
                else:
                    yield from _file((*at, name), entry)
        for name, child in above.named():
            if child.passage:
                pending.append(((*at, name), child, None))
            elif child.visible and spot is None:
                pending.extend(_through(view, (*at, name), child))
                found = _found(view, (*at, name))
                if found is not None and found.node.kind not in DIRECTORY_KINDS:
                    yield from _file((*at, name), found)


def _through(
    view: ViewReader, path: Path, cursor: Cursor
) -> Iterator[tuple[Path, Cursor, Spot | None]]:
    """Yield a visible directory below a passage, to be walked."""
    spot = _found(view, path)
    if spot is not None and spot.node.kind in DIRECTORY_KINDS:
        yield path, cursor, spot


def _found(view: ViewReader, path: Path) -> Spot | None:
    try:
        return view.tree.resolve(path)
    except OSError:
        return None


def _entry(view: ViewReader, at: Path, spot: Spot, name: bytes, node: Node) -> Spot | None:
    bound = spot.bound
    if bound is None or name not in bound.below:
        return Spot(spot.backend, spot.tag, node, None)
    try:
        return view.tree.child(spot.backend, spot.tag, spot.node.key, bound, name)
    except OSError:
        return None


def _entries(path: Path, spot: Spot) -> Iterator[tuple[bytes, Node]]:
    try:
        directory = spot.backend.open_directory(spot.node.key)
        try:
            after = b""
            while page := directory.entries(after, _PAGE):
                yield from page
                after = page[-1].name
        finally:
            directory.close()
    except OSError as error:
        _log.warning("%s is left out: %s", render(path), error)


def _file(path: Path, spot: Spot) -> Iterator[VisibleFile]:
    node = spot.node
    if node.kind == Kind.FILE:
        yield VisibleFile(path, _key(spot, node), node.size, spot.backend.volatile)


def _key(spot: Spot, node: Node) -> bytes:
    known = node.sha256 or node.object_id
    if known is not None:
        return known
    stamp = b"%d %d %d" % (node.size, node.mtime, node.ctime)
    digest = blake2b(spot.tag, digest_size=_STAMP_BYTES)
    digest.update(b"\0%b\0%b" % (spot.backend.identity(node.key), stamp))
    return digest.digest()
