"""Keeping the kernel's caches true: what others change is invalidated here.

Other processes of the instance ring a bell after each commit. The journal then says what they
changed; what this kernel knows of that is dropped, by the notifying thread. What this mount
itself changed went through its kernel and needs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from pyfuse3 import ROOT_INODE

from fusefs.contract.paths import Path, is_at_or_below, resolve
from fusefs.contract.view import Cursor, View
from fusefs.daemon.inodes import Inode
from fusefs.store import bell as bells
from fusefs.store.journal import JournalRecord, Op
from fusefs.store.keys import to_number
from fusefs.store.seal import Damaged
from fusefs.tree.tree import STORE_TAG

if TYPE_CHECKING:
    from fusefs.daemon.background import Background
    from fusefs.daemon.inodes import InodeTable
    from fusefs.daemon.notify import Notifier
    from fusefs.session.place import Place
    from fusefs.session.view_tree import ViewTree

log = logging.getLogger(__name__)

_PAGE = 1000
_PAUSE_AFTER_FAILURE = 1.0
_ID = 8


class Coherence:
    """Follows the journal of an instance on behalf of one mount."""

    def __init__(
        self,
        tree: ViewTree,
        inodes: InodeTable,
        notifier: Notifier,
        background: Background,
        changed: Callable[[], None],
    ) -> None:
        """Begin at the journal's present end; `changed` is called for each thing learnt."""
        self._tree = tree
        self._instance = tree.instance
        self._inodes = inodes
        self._notifier = notifier
        self._background = background
        self._changed = changed
        self._seen = self._instance.journal.last()

    async def follow(self) -> None:
        """Follow for ever."""
        while True:
            await trio.lowlevel.wait_readable(self._instance.bell.fileno())
            try:
                await self._answer(self._instance.bell.drain())
            except Damaged as error:
                log.error("%s; all that the kernel keeps is dropped", error)
                self._forget_all()
            except Exception:
                log.exception("following the journal failed; going on behind it")
                await trio.sleep(_PAUSE_AFTER_FAILURE)

    async def _answer(self, messages: list[bytes]) -> None:
        kinds = {message[:1] for message in messages}
        if bells.HURRY in kinds:
            self._background.hurry()
        # First, so that nothing is shown by old rules once a change is heard of.
        self.refresh()
        for message in messages:
            if message[:1] == bells.TOUCHED:
                for at in range(1, len(message), _ID):
                    self._content_changed(to_number(message[at : at + _ID]))
        if bells.JOURNAL in kinds:
            await self._read_journal()

    async def _read_journal(self) -> None:
        while True:
            records = self._instance.journal.since(self._seen, _PAGE)
            for record in records:
                self._seen = record.seq
                if record.process != self._instance.process:
                    self._apply(record)
            if len(records) < _PAGE:
                return
            await trio.lowlevel.checkpoint()
            await self._notifier.room()

    def _forget_all(self) -> None:
        """Drop all names, attributes and contents: it cannot be told what was changed."""
        self._changed()
        self._seen = self._instance.journal.last()
        for inode in self._inodes:
            self._notifier.content(inode.number)
            parent = self._inodes.at(inode.place.parent)
            if parent is not None:
                self._notifier.entry(parent.number, inode.place.name)
        for name in self._inodes.absent_at_top:
            self._notifier.entry(ROOT_INODE, name)

    def _inode(self, node: int) -> Inode | None:
        return self._inodes.at(self._tree.places_of(node))

    def _content_changed(self, node: int) -> None:
        inode = self._inode(node)
        if inode is not None:
            self._changed()
            self._notifier.content(inode.number)

    def _apply(self, record: JournalRecord) -> None:
        self._changed()
        match record.op:
            case Op.WRITE:
                self._content_changed(record.node)
            case Op.ATTRIBUTES | Op.XATTR:
                self._attributes(self._inode(record.node))
            case Op.CREATE | Op.REMOVE | Op.RENAME | Op.EXCHANGE | Op.RESTORE:
                self._entries(record)
            case Op.BIND:
                self._bound(resolve(record.path))
            case Op.PURGE:
                self._pin_orphans()
            case Op.SESSION | Op.RIGHT | Op.COMMIT | Op.FORGE:
                pass  # rules are followed in `refresh`

    def _attributes(self, inode: Inode | None) -> None:
        if inode is not None:
            self._notifier.attributes(inode.number)

    def _entries(self, record: JournalRecord) -> None:
        """Drop the names that a record is about, and what the nodes' attributes were."""
        node, replaced = self._inode(record.node), self._inode(record.replaced)
        if record.op == Op.REMOVE:
            self._removed(record, node)
        else:
            self._name(record.parent, record.name)
        self._name(record.new_parent, record.new_name)
        self._below_passages(record)
        if record.op in (Op.RENAME, Op.EXCHANGE, Op.RESTORE):
            self._moved(record.node)
        if record.op == Op.EXCHANGE:
            self._moved(record.replaced)
        if record.op == Op.RESTORE and node is not None:
            node.removed = False
        if record.op == Op.RENAME and replaced is not None:
            replaced.removed = True
            self._pin_orphans()
        self._attributes(node)
        self._attributes(replaced)

    def _name(self, directory: int, name: bytes) -> None:
        """Drop a name that the view shows; of others the kernel must not even hear."""
        parent = self._inode(directory)
        if parent is not None and parent.place.cursor.child(name).visible:
            self._notifier.entry(parent.number, name)
            self._notifier.attributes(parent.number)

    def _below_passages(self, record: JournalRecord) -> None:
        """Drop names in passages: those are known by their paths, not by a node.

        What came to be seen through a passage goes with the directory that really is there.
        """
        passages = self._tree.passages()
        if not passages:
            return
        changed = [resolve(path) for path in record.path.split(b"\0")]
        through = set()
        for passage in passages:
            inode = self._inodes.at(passage)
            if inode is None:
                continue
            at = passage.path
            names = {path[-1] for path in changed if path and at == path[:-1]}
            if any(is_at_or_below(at, path) for path in changed):
                through.add(passage)
                names |= {name for name, _ in passage.cursor.named()}
            for name in names:
                if passage.cursor.child(name).visible:
                    self._notifier.entry(inode.number, name)
        if not through or record.op == Op.CREATE:
            return
        for inode in self._inodes:
            place = inode.place
            key = place.key
            if place.parent in through and place.tag == STORE_TAG and isinstance(key, int):
                self._moved(key)
                place.gone = not self._tree.is_in_tree(key)

    def _removed(self, record: JournalRecord, node: Inode | None) -> None:
        place = self._tree.places_of(record.node)
        if place is not None:
            place.gone = self._tree.is_directory(place)
        if node is not None:
            node.removed = True
            if node.files or self._tree.is_directory(node.place):
                self._pin_orphans()
        parent = self._inode(record.parent)
        if node is None or parent is None:
            self._name(record.parent, record.name)
            return
        if node.place.cursor.visible:
            self._notifier.removed(parent.number, record.name, node.number)
            self._notifier.attributes(parent.number)

    def _moved(self, node: int) -> None:
        """Have what is held of a node, and of what is below it, answer by its new path."""
        place = self._tree.places_of(node)
        if place is None:
            return
        before = place.cursor
        self._tree.relocate(node)
        after = place.cursor
        if before is after and after.uniform:
            return
        for inode in self._inodes:
            if inode.place.is_at_or_below(place):
                self._notifier.content(inode.number)

    def _pin_orphans(self) -> None:
        """Keep alive what others replaced or dropped while it is open here."""
        self._background.spawn(self._background.pin_orphans)

    def _bound(self, path: Path) -> None:
        """Drop the name at which something was bound, or is not any more.

        Nobody looks any further into what is not bound any more, also not who stands in it.
        """
        for inode in self._inodes:
            place = inode.place
            if path and place.path == path[:-1]:
                self._notifier.entry(inode.number, path[-1])
                self._notifier.attributes(inode.number)
            if place.backend in (None, self._tree.tree.store):
                continue
            if not is_at_or_below(place.path, path):
                continue
            above = place.parent
            if place.path != path and above is not None and above.backend is place.backend:
                continue  # it goes with that
            place.gone = not _is_bound(place)
            self._below_bound(place)

    def _below_bound(self, top: Place) -> None:
        """Drop what the kernel knows at and below a place that was or is bound."""
        below = [inode for inode in self._inodes if inode.place.is_at_or_below(top)]
        for inode in reversed(below):
            self._notifier.content(inode.number)
        for inode in below:
            parent = self._inodes.at(inode.place.parent)
            if parent is not None:
                self._notifier.entry(parent.number, inode.place.name)

    # Rules.

    def refresh(self) -> None:
        """Follow changed rules: drop every name and attribute that they show otherwise now."""
        before = self._tree.rules
        if not self._tree.refresh():
            return
        self._changed()
        if before.root is not self._tree.rules.root:
            for name in self._inodes.absent_at_top:
                self._notifier.entry(ROOT_INODE, name)
            self._inodes.absent_at_top.clear()
        change = _RulesChange(before, self._tree.rules)
        changed = [
            (inode, old, new)
            for inode in self._inodes
            for old, new in (change.at(inode.place),)
            if old is not new
        ]
        # Cached bytes first, and what is below (it came to be known later) before what is above:
        # they are what this kernel would still show of what is refused by now.
        for inode, _, _ in reversed(changed):
            self._notifier.content(inode.number)
        for inode, old, new in changed:
            if old.visible != new.visible or old.passage != new.passage:
                parent = self._inodes.at(inode.place.parent)
                if parent is not None:
                    self._notifier.entry(parent.number, inode.place.name)
            # Names that were hidden may be cached as not there.
            for name, child in old.named():
                if not child.visible:
                    self._notifier.entry(inode.number, name)


def _is_bound(place: Place) -> bool:
    """Tell whether the backend of a place is one that is bound at or above it."""
    at: Place | None = place
    while at is not None:
        if at.bound is not None and at.bound.backend is place.backend:
            return True
        at = at.parent
    return False


class _RulesChange:
    """The cursors of places in an old and a new view.

    Places off both tries share a handful of cursors, so comparing by identity tells nearly
    all that did not change.
    """

    def __init__(self, old: View, new: View) -> None:
        self._root = (old.root, new.root)
        self._known: dict[Place, tuple[Cursor, Cursor]] = {}

    def at(self, place: Place) -> tuple[Cursor, Cursor]:
        """Return the old and the new cursor of a place."""
        pending = []
        at: Place | None = place
        while at is not None and at.parent is not None and at not in self._known:
            pending.append(at)
            at = at.parent
        cursors = self._root if at is None else self._known.get(at, self._root)
        for below in reversed(pending):
            cursors = (cursors[0].child(below.name), cursors[1].child(below.name))
            self._known[below] = cursors
        return cursors
