"""What tells the contents of visible files, without reading them where that can be."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from fusefs.contract.errors import ContractError
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path
from fusefs.session.place import Place
from fusefs.session.stat import DIRECTORY_KINDS
from fusefs.session.view_reader import ViewReader
from fusefs.session.visible_files import Visible, VisibleFiles
from fusefs.tree.backend import Node

_log = logging.getLogger(__name__)

_STAMP_BYTES = 24


class Keyed(NamedTuple):
    """A visible file, and what tells its content.

    Attributes:
        path: where it is.
        key: its SHA-256 (32 bytes) or the id of a blob in git (20); where neither is known, what
            file it is and when it was changed (24).
        is_unsettled: the key may be another one soon, without a word in the journal.
    """

    path: Path
    key: bytes
    is_unsettled: bool


def keyed_files(view: ViewReader, path: Path = ()) -> Iterator[Keyed]:
    """Yield the visible files at and below a path, in no order; none where nothing is visible.

    Symbolic links are left out. Directories that cannot be listed are, too, and are logged.
    """
    try:
        place = _place(view, path)
        if not (place.cursor.visible or place.cursor.passage):
            return
        node = view.node_of(place) if place.cursor.visible else None
    except ContractError:
        return  # it is not there (any more)
    if node is not None and node.kind not in DIRECTORY_KINDS:
        if node.kind == Kind.FILE:
            yield Keyed(path, *_key_of(node, path, view.backend_of(place).volatile))
        return
    files = VisibleFiles(view, place)
    for file in files:
        if file.entry.kind == Kind.FILE:
            yield from _keyed(file)
    for unread in files.unread:
        _log.warning("%s is left out: %s", unread.path, unread.reason)


def _place(view: ViewReader, path: Path) -> Place:
    place = view.root
    for name in path:
        place, _ = view.child(place, name)
    return place


def _keyed(file: Visible) -> Iterator[Keyed]:
    path = tuple(file.path.split(b"/")[1:])
    if file.entry.content is not None:
        yield Keyed(path, file.entry.content, False)
        return
    try:
        node = file.backend.lookup(file.directory, file.entry.name)
    except OSError:
        return  # gone meanwhile
    yield Keyed(path, *_key_of(node, path, file.backend.volatile))


def _key_of(node: Node, path: Path, volatile: bool) -> tuple[bytes, bool]:
    known = node.sha256 or node.object_id
    if known is not None:
        return known, False
    stamp = b"%d %d %d\0" % (node.size, node.mtime, node.ctime)
    return blake2b(stamp + b"/".join(path), digest_size=_STAMP_BYTES).digest(), not volatile
