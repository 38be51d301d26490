"""Contents that a session sees, on their way into an index."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fusefs.contract.paths import Path, render
from fusefs.index.batch import LARGEST_TEXT, Content

if TYPE_CHECKING:
    from fusefs.session.catalogue import Catalogue
    from fusefs.session.view_reader import ViewReader

_log = logging.getLogger(__name__)

BATCH_BYTES = 8 << 20
BATCH_FILES = 2_000


def read(view: ViewReader, path: Path) -> bytes | None:
    """Return a visible file's bytes as they are now, None for one that is too large to index.

    Raises:
        OSError: it is gone, hidden, or cannot be read.
    """
    if not view.rules.cursor(path).visible:
        raise FileNotFoundError(render(path))
    spot = view.tree.resolve(path)
    if spot.node.size > LARGEST_TEXT:
        return None
    file = spot.backend.open_file(spot.node.key, write=False)
    try:
        data = file.read_nowait(0, LARGEST_TEXT + 1)
        return file.read(0, LARGEST_TEXT + 1) if data is None else data
    finally:
        file.close()


def batches(
    view: ViewReader, catalogue: Catalogue, keys: Iterable[bytes], most_bytes: int = BATCH_BYTES
) -> Iterator[list[Content]]:
    """Yield contents, about `most_bytes` at a time; what cannot be read is left out."""
    batch: list[Content] = []
    size = 0
    for key in keys:
        content = _content(view, catalogue, key)
        if content is not None:
            batch.append(content)
            size += len(content.data or b"")
        if size >= most_bytes or len(batch) >= BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _content(view: ViewReader, catalogue: Catalogue, key: bytes) -> Content | None:
    for path in catalogue.paths(key):
        try:
            return Content(key, read(view, path))
        except OSError as error:
            _log.info("%s is not indexed now: %s", render(path), error)
    return None
