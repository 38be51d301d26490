"""Where a session stands in its view: a name below a place below ... the root."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from fusefs.contract.paths import Path
from fusefs.contract.view import Cursor
from fusefs.tree.backend import Backend
from fusefs.tree.tree import Bound

if TYPE_CHECKING:
    from fusefs.session.view_reader import ViewReader


class Place:
    """A node of the view. The mount's inodes and open files point to places.

    A place keeps its parent and name, so a directory's move costs nothing below it: what the
    rules say is derived again where it is asked for.

    Attributes:
        parent: the directory it is in; None for the root, or once it is removed.
        name: its name there.
        backend: who answers for the node; None for a passage, which is made of rules alone.
        tag: tells the backend's identities from others'.
        key: the node's key in the backend.
        ino: the inode number shown for it.
        gone: it was removed with all below it, which nobody may look into any more.
        face: what the face that serves the view keeps for it, if anything.
    """

    __slots__ = (
        "__weakref__", "_bound", "_cursor", "_epoch", "_view", "backend", "face", "gone", "ino",
        "key", "name", "parent", "tag",
    )  # fmt: skip

    def __init__(
        self,
        view: ViewReader,
        parent: Place | None,
        name: bytes,
        cursor: Cursor,
        bound: Bound | None,
        *,
        backend: Backend | None,
        tag: bytes,
        key: Hashable,
        ino: int,
    ) -> None:
        self._view = view
        self._cursor = cursor
        self._bound = bound
        self._epoch = view.epoch
        self.parent = parent
        self.name = name
        self.backend = backend
        self.tag = tag
        self.key = key
        self.ino = ino
        self.gone = False
        self.face: object = None

    @property
    def path(self) -> Path:
        """The absolute path; for a removed node the last one it had."""
        names = []
        at: Place | None = self
        while at is not None and at.parent is not None:
            names.append(at.name)
            at = at.parent
        return tuple(reversed(names))

    @property
    def cursor(self) -> Cursor:
        """What the rules say here, now."""
        if self._epoch != self._view.epoch:
            self._derive()
        return self._cursor

    @property
    def bound(self) -> Bound | None:
        """What is bound at and below this path."""
        if self._epoch != self._view.epoch:
            self._derive()
        return self._bound

    @property
    def is_live(self) -> bool:
        """Neither it nor a directory above it is gone."""
        at: Place | None = self
        while at is not None:
            if at.gone:
                return False
            at = at.parent
        return True

    def is_at_or_below(self, place: Place) -> bool:
        """Tell whether it is `place` or lies below it."""
        at: Place | None = self
        while at is not None:
            if at is place:
                return True
            at = at.parent
        return False

    def move(self, parent: Place, name: bytes) -> None:
        """Follow the node to another name."""
        self.parent = parent
        self.name = name
        self.gone = False
        self._epoch = -1

    def _derive(self) -> None:
        """Derive cursor and binds again, from the nearest place above that is up to date."""
        view = self._view
        stale = [self]
        at = self.parent
        while at is not None and at._epoch != view.epoch:
            stale.append(at)
            at = at.parent
        for place in reversed(stale):
            above = place.parent
            if above is None:
                place._cursor, place._bound = view.rules.root, view.tree.top
            else:
                place._cursor = above._cursor.child(place.name)
                place._bound = above._bound and above._bound.below.get(place.name)
            place._epoch = view.epoch
