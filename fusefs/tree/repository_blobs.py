"""The bytes of unchanged files, for handles that read them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from fusefs.store.kv import Writer
from fusefs.store.nodes import Located
from fusefs.tree.repository_objects import SMALL_BLOB, RepositoryObjects


class Blobs:
    """Gives out blobs for one file: small ones whole, large ones as files."""

    def __init__(
        self, objects: RepositoryObjects, folder: Path, store: Callable[[Writer], Located]
    ) -> None:
        """Keep large blobs in unnamed files of `folder` while they are read; `store` stores the
        file's node."""
        self._objects = objects
        self._folder = folder
        self.store = store

    def small(self, oid: bytes, size: int) -> bytes | None:
        """Return the bytes of a blob of `size` bytes, None where that would take long."""
        return self._objects.read(oid) if size <= SMALL_BLOB else None

    def open(self, oid: bytes) -> int:
        """Return a new descriptor to read a blob from. May block; in any thread."""
        with tempfile.TemporaryFile(dir=self._folder) as file:
            file.write(self._objects.read_large(oid))
            file.flush()
            return os.dup(file.fileno())
