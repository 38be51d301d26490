"""What stands where a bound folder cannot be opened: an empty place that says so.

The rest of the tree goes on as it was.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Hashable, Sequence
from typing import NoReturn

from fusefs.contract.kinds import Kind
from fusefs.tree.backend import (
    PERSON,
    Actor,
    Change,
    Directory,
    File,
    Found,
    Node,
    Owner,
    Read,
    Scanned,
)

_RETRY_SECONDS = 1.0


class UnavailableTree:
    """A backend whose root is shown and everything else refused, with ENODEV."""

    volatile = True

    def __init__(self, source: str, error: OSError) -> None:
        self._text = f"{source} cannot be opened: {error.strerror}"
        self._made = time.monotonic()

    @property
    def may_be_back(self) -> bool:
        """It is time to try and open the folder again."""
        return time.monotonic() - self._made > _RETRY_SECONDS

    def _refuse(self) -> NoReturn:
        raise OSError(errno.ENODEV, self._text)

    def identity(self, key: Hashable) -> bytes:
        """Return the identity of the root, the only node."""
        return b"unavailable"

    def root(self) -> Node:
        """Return a directory that can be seen and not entered."""
        return Node(None, Kind.DIR, 0o555, 0, 0, 0, 0, 0, 0)

    def stat(self, key: Hashable) -> Node:
        """Return the root."""
        return self.root()

    def lookup(self, parent: Hashable, name: bytes) -> Node:
        """Refuse."""
        self._refuse()

    def open_directory(self, key: Hashable) -> Directory:
        """Refuse."""
        self._refuse()

    def scan(self, key: Hashable, after: bytes = b"") -> Sequence[Scanned]:
        """Refuse."""
        self._refuse()

    def read_files(self, files: Sequence[Found], limit: int) -> Sequence[Read]:
        """Refuse."""
        self._refuse()

    def open_file(self, key: Hashable, *, write: bool, actor: Actor = PERSON) -> File:
        """Refuse."""
        self._refuse()

    def read_link(self, key: Hashable) -> bytes:
        """Refuse."""
        self._refuse()

    def create(
        self,
        parent: Hashable,
        name: bytes,
        kind: Kind,
        mode: int,
        owner: Owner,
        actor: Actor,
        *,
        target: bytes = b"",
    ) -> Node:
        """Refuse."""
        self._refuse()

    def set_attributes(self, key: Hashable, change: Change, actor: Actor) -> Node:
        """Refuse."""
        self._refuse()

    def remove(
        self, parent: Hashable, name: bytes, actor: Actor, *, directory: bool | None
    ) -> None:
        """Refuse."""
        self._refuse()

    def rename(
        self,
        parent: Hashable,
        name: bytes,
        new_parent: Hashable,
        new_name: bytes,
        actor: Actor,
        *,
        replace: bool,
        exchange: bool = False,
    ) -> None:
        """Refuse."""
        self._refuse()

    def get_xattr(self, key: Hashable, name: bytes) -> bytes:
        """Refuse."""
        self._refuse()

    def list_xattrs(self, key: Hashable) -> Sequence[bytes]:
        """Return none."""
        return []

    def set_xattr(self, key: Hashable, name: bytes, value: bytes, actor: Actor) -> None:
        """Refuse."""
        self._refuse()

    def remove_xattr(self, key: Hashable, name: bytes, actor: Actor) -> None:
        """Refuse."""
        self._refuse()

    def sync(self) -> None:
        """Nothing was changed."""
