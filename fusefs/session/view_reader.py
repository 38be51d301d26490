"""The tree as one session sees it: looking and reading.

The order of checks is the contract's (section 6): arguments, visibility, existence and type,
level, then the rest; the first that fails answers. Nothing above this room checks access, and
nothing below it does.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache, partial
from hashlib import blake2b
from weakref import WeakValueDictionary

from fusefs.contract.errors import (
    AlreadyExists,
    ContractError,
    DirectoryNotEmpty,
    IsADirectory,
    NameTooLong,
    NotADirectory,
    NotFound,
    NotPermitted,
    ReadOnly,
)
from fusefs.contract.kinds import Kind
from fusefs.contract.levels import Level
from fusefs.contract.links import check_target
from fusefs.contract.paths import NAME_MAX, Path, render
from fusefs.contract.sessions import OPERATOR, SessionSpec, World
from fusefs.contract.view import Cursor, Rules, View
from fusefs.session.caps import caps_in
from fusefs.session.handles import LinkText, ViewDirectory, ViewFile
from fusefs.session.moved import cursor_of
from fusefs.session.place import Place
from fusefs.session.stat import DIRECTORY_KINDS, Stat
from fusefs.store import definitions, keys, nodes
from fusefs.store.instance import Instance, InstanceError
from fusefs.store.keys import ROOT_ID
from fusefs.store.kv import Reader
from fusefs.tree.backend import Actor, Backend, File, Node
from fusefs.tree.tree import STORE_TAG, Spot, Tree

CONTROL_NAME = b".fusefs"
"""The one reserved name, at the root of a mount (contract section 5)."""
DIRECTORY_BYTES = 4096
"""The size of every visible directory."""

_log = logging.getLogger(__name__)

_WRITE_BITS = 0o222
_PASSAGE_MODE = 0o111
_PAGE = 500
_NO_RULES = SessionSpec(name="removed").rules()


class ViewReader:
    """The tree of an instance through the rules of one session: looking and reading.

    Attributes:
        instance: whose tree it is.
        spec: the session.
        tree: the whole tree, unfiltered.
        rules: the compiled view.
        epoch: grows when what a place knows of rules may be out of date.
    """

    def __init__(self, instance: Instance, spec: SessionSpec, *, capped: bool = True) -> None:
        """Compile the view.

        Args:
            instance: whose tree it is.
            spec: the session.
            capped: the user's rights on forges are maximums; for the owner of the instance they
                are not, whatever is said here.

        Raises:
            InstanceError: something bound into the tree cannot be opened.
        """
        self.instance = instance
        self.spec = spec
        self.tree = Tree(instance, spec.name)
        self._capped = capped and spec is not OPERATOR
        self.epoch = 0
        self.actor = Actor(spec.name)
        with instance.kv.read() as txn:
            self._generation = definitions.rules_generation(txn)
            self.rules = View(self._compiled(txn, spec))
        self._places: defaultdict[bytes, WeakValueDictionary[object, Place]] = defaultdict(
            WeakValueDictionary
        )
        spot = self.tree.root()
        self._top = spot
        self.root = self.intern(None, b"", self.rules.root, spot)

    @property
    def world(self) -> World:
        """The session's world."""
        return self.spec.world

    def refresh(self) -> bool:
        """Follow changed rules; tell whether they changed.

        A session that was removed sees nothing from then on.
        """
        with self.instance.kv.read() as txn:
            generation = definitions.rules_generation(txn)
            if generation == self._generation:
                return False
            self._generation = generation
            if self.spec is not OPERATOR:
                self.rules = View(self._rules_in(txn))
        # Before anything else can fail: what places know of the old rules is void.
        self.epoch += 1
        try:
            self.tree.rebind()
        except InstanceError as error:
            _log.error("%s What was bound before stays.", error)
        return True

    def _rules_in(self, txn: Reader) -> Rules:
        """Return the session's rules as they are now; another one of its name is another."""
        try:
            spec = definitions.session_in(txn, self.spec.name)
        except KeyError:
            return _NO_RULES
        if spec.secret != self.spec.secret:
            return _NO_RULES
        self.spec = spec
        return self._compiled(txn, spec)

    def _compiled(self, txn: Reader, spec: SessionSpec) -> Rules:
        return spec.rules(caps_in(txn)) if self._capped else spec.rules()

    def places_of(self, key: int) -> Place | None:
        """Return the place known for a node of the instance's own tree, if there is one."""
        return self._places[STORE_TAG].get(key)

    def passages(self) -> list[Place]:
        """Return the passages that somebody went through and holds yet."""
        return list(self._places[b"passage"].values())

    def is_in_tree(self, key: int) -> bool:
        """Tell whether a node of the instance's own tree is in it, and not in the trash."""
        with self.instance.kv.read() as txn:
            return nodes.ancestry(txn, key) is not None

    def relocate(self, key: int) -> Place | None:
        """Follow a node of the instance's own tree to where it stands now.

        Whatever is held of it, or of what is below it, answers by the rules of its new path.
        """
        place = self.places_of(key)
        if place is None:
            return None
        with self.instance.kv.read() as txn:
            top, way = nodes.ancestry(txn, key) or (ROOT_ID, [])
        at = self.root if top == ROOT_ID else self.places_of(top)
        if at is None:
            return place
        for node_id, name in way:
            known = self.places_of(node_id)
            if known is None:
                known = Place(
                    self, at, name, at.cursor.child(name), None, backend=at.backend,
                    tag=STORE_TAG, key=node_id, ino=self._ino(STORE_TAG, keys.number(node_id)),
                )  # fmt: skip
                self._places[STORE_TAG][node_id] = known
            known.move(at, name)
            at = known
        self.epoch += 1
        return place

    # Looking.

    def child(self, place: Place, name: bytes) -> tuple[Place, Stat]:
        """Look up `name` in the directory `place`.

        Raises:
            ContractError: it is not visible, is missing, or `place` is no directory.
        """
        if len(name) > NAME_MAX:
            raise NameTooLong(render((*place.path, name)))
        self.check_live(place)
        above = place.cursor
        if not (above.visible or above.passage):
            raise above.unseen(place.path)
        cursor = above.child(name)
        if cursor.visible:
            if self.is_reserved(place, name):
                raise NotFound(render((name,)))
            spot = self.look(place, name)
            child = self.intern(place, name, cursor, spot)
            return child, self.stat_node(child, cursor, spot.node)
        if cursor.passage:
            child = self._passage(place, name, cursor)
            return child, self._stat_passage(child)
        raise cursor.unseen((*place.path, name))

    def look(self, place: Place, name: bytes) -> Spot:
        try:
            if place.backend is not None and place.cursor.visible:
                return self.tree.child(place.backend, place.tag, place.key, place.bound, name)
            return self.tree.resolve((*place.path, name))
        except OSError as error:
            if error.errno == errno.ENOTDIR and place.cursor.visible:
                raise NotADirectory(render(place.path)) from None
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise NotFound(render((*place.path, name))) from None
            raise

    def intern(self, parent: Place | None, name: bytes, cursor: Cursor, spot: Spot) -> Place:
        """Return the one place for a node, wherever it was known before."""
        places = self._places[spot.tag]
        place = places.get(spot.node.key)
        if place is None:
            place = Place(
                self, parent, name, cursor, spot.bound, backend=spot.backend, tag=spot.tag,
                key=spot.node.key, ino=self._ino(spot.tag, spot.backend.identity(spot.node.key)),
            )  # fmt: skip
            places[spot.node.key] = place
        elif parent is not None and (place.name != name or place.parent is not parent):
            place.move(parent, name)
            self.note_move(spot.node.kind)
        return place

    def _passage(self, parent: Place, name: bytes, cursor: Cursor) -> Place:
        path = (*parent.path, name)
        places = self._places[b"passage"]
        place = places.get(path)
        if place is None or place.path != path:
            place = Place(
                self, parent, name, cursor, None, backend=None, tag=b"passage", key=path,
                ino=self._ino(b"passage", b"/".join(path)),
            )  # fmt: skip
            places[path] = place
        elif place.parent is not parent:
            place.move(parent, name)  # what is above it was taken away, and is there anew
        return place

    def _ino(self, tag: bytes, identity: bytes) -> int:
        digest = blake2b(identity, digest_size=8, key=self.spec.secret, person=_person(tag))
        return int.from_bytes(digest.digest(), "big") | 0x100

    def note_move(self, kind: Kind) -> None:
        """Note that places below a directory stand elsewhere now."""
        if kind == Kind.DIR:
            self.epoch += 1

    def stat(self, place: Place) -> Stat:
        """Return what the session is told about `place`.

        Raises:
            ContractError: it is not visible any more, or gone.
        """
        cursor = cursor_of(place)
        if cursor.visible:
            return self.stat_node(place, cursor, self.node_of(place))
        if cursor.passage:
            return self._stat_passage(place)
        raise cursor.unseen(place.path)

    def node_of(self, place: Place) -> Node:
        try:
            return self.backend_of(place).stat(place.key)
        except FileNotFoundError:
            raise NotFound(render(place.path)) from None

    def backend_of(self, place: Place) -> Backend:
        """Return the backend of a visible place, finding it if the place was a passage."""
        if place.backend is None:
            assert place.parent is not None
            spot = self.look(place.parent, place.name)
            place.backend, place.tag, place.key = spot.backend, spot.tag, spot.node.key
        return place.backend

    def stat_node(self, place: Place, cursor: Cursor, node: Node) -> Stat:
        mode, kind = node.mode, node.kind
        if kind == Kind.SYMLINK and self.world == World.CHAT:
            kind = Kind.FILE
        if cursor.level < Level.STAGE and kind != Kind.SYMLINK:
            mode &= ~_WRITE_BITS
        size, atime, mtime, ctime = node.size, node.atime, node.mtime, node.ctime
        if node.kind in DIRECTORY_KINDS:
            size = DIRECTORY_BYTES
            if cursor.mixed:
                atime = mtime = ctime = self._visible_time(place, node)
        volatile = place.backend is not None and place.backend.volatile
        return Stat(
            place.ino, kind, mode, node.uid, node.gid, size, atime, mtime, ctime,
            cursor.level, volatile,
        )  # fmt: skip

    def _stat_passage(self, place: Place) -> Stat:
        owner, group = os.geteuid(), os.getegid()
        return Stat(
            place.ino, Kind.DIR, _PASSAGE_MODE, owner, group, 0, 0, 0, 0, Level.NONE, False
        )

    def _visible_time(self, place: Place, node: Node) -> int:
        """Return when a directory with hidden names changed, as far as the session may know.

        That is when the newest of its visible entries came to its name; a backend that does
        not know counts by its files' own times.
        """
        latest = node.linked
        directory = self.backend_of(place).open_directory(node.key)
        try:
            after = b""
            while page := directory.entries(after, _PAGE):
                after = page[-1].name
                for entry in page:
                    if place.cursor.child(entry.name).visible:
                        seen = entry.node.linked
                        if not seen and entry.node.kind not in DIRECTORY_KINDS:
                            seen = entry.node.ctime
                        latest = max(latest, seen)
        finally:
            directory.close()
        return latest

    def open_directory(self, place: Place) -> ViewDirectory:
        """Open a directory for listing; a passage cannot be listed."""
        self.check_live(place)
        self.check_visible(place)
        node = self.node_of(place)
        if node.kind not in DIRECTORY_KINDS:
            raise NotADirectory(render(place.path))
        return ViewDirectory(self, place, self.backend_of(place).open_directory(place.key))

    def read_link(self, place: Place) -> bytes:
        """Return a symbolic link's target.

        Raises:
            ContractError: it is not visible, or no system call can follow it.
        """
        cursor = place.cursor
        if not cursor.visible:
            raise cursor.unseen(place.path)
        target = self.backend_of(place).read_link(place.key)
        check_target(target, place.path)
        return target

    # Files.

    def open_file(
        self, place: Place, *, write: bool, truncate: bool = False, append: bool = False
    ) -> ViewFile:
        """Open a regular file.

        Args:
            place: the file.
            write: also for writing, which needs ``stage``.
            truncate: empty it first.
            append: every write goes to the end as it is then.
        """
        if place.parent is not None:
            self.check_live(place.parent)
        self.check_visible(place)
        cursor = place.cursor
        node = self.node_of(place)
        if node.kind in DIRECTORY_KINDS:
            raise IsADirectory(render(place.path))
        if (write or truncate) and cursor.level < Level.STAGE:
            raise ReadOnly(render(place.path))
        try:
            opened = self._open(place, node, write=write or truncate)
        except OSError as error:
            raise self.translate(error, place.path) from None
        file = ViewFile(self, place, opened, append=append, found=node)
        if truncate:
            try:
                file.truncate(0)
            except BaseException:
                file.close()
                raise
        return file

    def _open(self, place: Place, node: Node, *, write: bool) -> File:
        backend = self.backend_of(place)
        if node.kind == Kind.SYMLINK and self.world == World.CHAT:
            return LinkText(render(place.path), node, backend.read_link(place.key))
        return backend.open_file(place.key, write=write, actor=self.actor)

    def is_directory(self, place: Place) -> bool:
        """Tell whether the node of a place is a directory, removed or not."""
        assert place.backend is not None
        try:
            return place.backend.stat(place.key).kind in DIRECTORY_KINDS
        except FileNotFoundError:
            return False

    def check_live(self, place: Place) -> None:
        """Refuse what is in a directory that was removed with all below it."""
        if not place.is_live:
            raise NotFound(render(place.path))

    def check_visible(self, place: Place) -> None:
        """Refuse what is not visible (any more)."""
        cursor = cursor_of(place)
        if not cursor.visible:
            raise cursor.unseen(place.path)

    def check_change(self, place: Place) -> None:
        cursor = cursor_of(place)
        if not cursor.visible:
            raise cursor.unseen(place.path)
        if cursor.level < Level.STAGE:
            raise ReadOnly(render(place.path))

    def translate(self, error: OSError, path: Path, *, parent: Path | None = None) -> Exception:
        """Return the contract's error for what a backend answered, or the error itself."""
        factory = _ERRORS.get(error.errno or 0)
        if factory is None:
            return error
        about = parent if parent is not None and error.errno in _ABOUT_PARENT else path
        return factory(render(about))

    def is_reserved(self, place: Place, name: bytes) -> bool:
        """Tell whether `name` in `place` is the control file's."""
        return place.parent is None and name == CONTROL_NAME


_ERRORS: dict[int, Callable[[str], ContractError]] = {
    errno.ENOENT: NotFound,
    errno.EEXIST: AlreadyExists,
    errno.ENOTDIR: NotADirectory,
    errno.EISDIR: IsADirectory,
    errno.ENOTEMPTY: DirectoryNotEmpty,
    # What a backend has reasons of its own to refuse: a name that git keeps, a submodule.
    errno.EPERM: partial(NotPermitted, what="made or changed"),
    errno.EROFS: ReadOnly,
}
_ABOUT_PARENT = (errno.ENOENT, errno.ENOTDIR)


@lru_cache(maxsize=256)
def _person(tag: bytes) -> bytes:
    return blake2b(tag, digest_size=16).digest()
