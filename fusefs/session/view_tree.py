"""The tree as one session sees it: changing it."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator

from fusefs.contract.errors import (
    AccessDenied,
    AlreadyExists,
    CrossMount,
    InvalidArgument,
    IsADirectory,
    MountBusy,
    NameTooLong,
    NotADirectory,
    NotFound,
    NotPermitted,
    ReadOnly,
)
from fusefs.contract.kinds import Kind
from fusefs.contract.levels import Level
from fusefs.contract.links import check_target
from fusefs.contract.paths import NAME_MAX, render
from fusefs.contract.sessions import World
from fusefs.contract.view import Cursor
from fusefs.session import xattrs
from fusefs.session.handles import ViewFile
from fusefs.session.place import Place
from fusefs.session.stat import DIRECTORY_KINDS, Stat
from fusefs.session.view_reader import ViewReader
from fusefs.tree.backend import Change, Owner
from fusefs.tree.tree import Spot

_SPECIAL = {
    Kind.SYMLINK: "a symbolic link",
    Kind.FIFO: "a FIFO",
    Kind.SOCKET: "a socket",
    Kind.MOUNT: "a mount",
}


class ViewTree(ViewReader):
    """The tree of an instance through the rules of one session."""

    # Changing names.

    def create(
        self,
        place: Place,
        name: bytes,
        kind: Kind,
        mode: int,
        owner: Owner,
        *,
        target: bytes = b"",
    ) -> tuple[Place, Stat]:
        """Make a node called `name` in the directory `place`."""
        self._check_name(place, name)
        cursor = self._check_new(place, name)
        if kind in _SPECIAL and self.world == World.CHAT:
            raise NotPermitted(render((*place.path, name)), _SPECIAL[kind])
        if kind == Kind.SYMLINK:
            check_target(target, (*place.path, name))
        try:
            node = self.backend_of(place).create(
                place.key, name, kind, mode, owner, self.actor, target=target
            )
        except OSError as error:
            raise self.translate(error, (*place.path, name), parent=place.path) from None
        below = None if place.bound is None else place.bound.below.get(name)
        spot = Spot(self.backend_of(place), place.tag, node, below)
        child = self.intern(place, name, cursor, spot)
        return child, self.stat_node(child, cursor, node)

    def create_file(
        self, place: Place, name: bytes, mode: int, owner: Owner, *, append: bool = False
    ) -> tuple[Place, Stat, ViewFile]:
        """Make a regular file and open it for writing, whatever its mode."""
        child, stat = self.create(place, name, Kind.FILE, mode, owner)
        opened = self.backend_of(child).open_file(child.key, write=True, actor=self.actor)
        return child, stat, ViewFile(self, child, opened, append=append)

    def _check_name(self, place: Place, name: bytes) -> None:
        if len(name) > NAME_MAX:
            raise NameTooLong(render((*place.path, name)))
        if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
            raise InvalidArgument(f"Not a name: {os.fsdecode(name)!r}")
        if self.is_reserved(place, name):
            raise NotPermitted(render((*place.path, name)), "anything but the control file")

    def _check_new(self, place: Place, name: bytes) -> Cursor:
        """Check that an entry `name` may be made in `place`.

        Whether the name is free is left to the backend, which knows when it makes the entry,
        but for where the rules refuse anyway: what is there answers before them.
        """
        self.check_live(place)
        above = place.cursor
        if not (above.visible or above.passage):
            raise above.unseen(place.path)
        cursor = above.child(name)
        if cursor.level == Level.NONE:
            raise AccessDenied(render((*place.path, name)))
        bound = place.bound
        if cursor.level >= Level.STAGE and above.visible and not (bound and name in bound.below):
            return cursor
        path = (*place.path, name)
        if above.visible and self.node_of(place).kind not in DIRECTORY_KINDS:
            raise NotADirectory(render(place.path))
        try:
            self.look(place, name)
        except NotFound:
            if not above.visible:
                raise AccessDenied(render(place.path)) from None
        else:
            raise AlreadyExists(render(path))
        if cursor.level < Level.STAGE:
            raise ReadOnly(render(path))
        return cursor

    def remove(self, place: Place, name: bytes, *, directory: bool | None) -> Place:
        """Remove an entry as `Backend.remove` does, and return the place that it was."""
        child, stat = self.child(place, name)
        path = (*place.path, name)
        if directory is False and stat.kind in DIRECTORY_KINDS:
            raise IsADirectory(render(path))
        if directory is True and stat.kind not in DIRECTORY_KINDS:
            raise NotADirectory(render(path))
        self._check_removable(place, child, stat.kind)
        try:
            self.backend_of(place).remove(place.key, name, self.actor, directory=directory)
        except OSError as error:
            raise self.translate(error, path) from None
        child.gone = directory is None
        return child

    def _check_removable(self, place: Place, child: Place, kind: Kind) -> None:
        """Check what the rules, and mounts, say to taking `child` out of `place`."""
        path = (*place.path, child.name)
        if not child.cursor.visible:
            raise AccessDenied(render(path))
        if not place.cursor.visible:
            raise AccessDenied(render(place.path))
        if kind in DIRECTORY_KINDS:
            refusal = child.cursor.removal_refusal(path)
            if refusal is not None:
                raise refusal
        elif child.cursor.level < Level.STAGE:
            raise ReadOnly(render(path))
        bound = child.bound
        busy = path if kind == Kind.MOUNT else (bound.first(path) if bound is not None else None)
        if busy is not None:
            raise MountBusy(render(busy))

    def rename(
        self,
        place: Place,
        name: bytes,
        new_place: Place,
        new_name: bytes,
        *,
        replace: bool,
        exchange: bool = False,
    ) -> Place | None:
        """Move an entry as renameat2(2) does; without `replace` a taken name is refused.

        Returns:
            The place of the node that was replaced, if there was one.
        """
        path, target = (*place.path, name), (*new_place.path, new_name)
        self._check_name(new_place, new_name)
        child, stat = self.child(place, name)
        taken = self._taken(new_place, new_name)
        if exchange and taken is None:
            raise NotFound(render(target))
        if taken is not None and not (replace or exchange):
            raise AlreadyExists(render(target))
        if new_place.cursor.child(new_name).level == Level.NONE:
            raise AccessDenied(render(target))
        self._check_removable(place, child, stat.kind)
        self._check_target(new_place, new_name, stat.kind)
        if taken is not None:
            self._check_removable(new_place, taken[0], taken[1].kind)
            if exchange:
                self._check_target(place, name, taken[1].kind)
        backend = self.backend_of(place)
        if self.backend_of(new_place) is not backend or place.tag != new_place.tag:
            raise CrossMount(render(path), render(target))
        try:
            backend.rename(
                place.key, name, new_place.key, new_name, self.actor,
                replace=replace, exchange=exchange,
            )  # fmt: skip
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise InvalidArgument(
                    f"Not moved: {render(path)} cannot be moved into itself."
                ) from None
            about = path if error.errno == errno.ENOENT else target
            raise self.translate(error, about) from None
        if taken is not None and taken[0] is child:
            return None
        if exchange and taken is not None:
            taken[0].move(place, name)
            self.note_move(taken[1].kind)
        child.move(new_place, new_name)
        self.note_move(stat.kind)
        return None if taken is None or exchange else taken[0]

    def _taken(self, place: Place, name: bytes) -> tuple[Place, Stat] | None:
        """Return what stands at the target of a move, if that is visible."""
        above = place.cursor
        if not above.child(name).visible:
            if not (above.visible or above.passage):
                raise above.unseen(place.path)
            return None
        try:
            return self.child(place, name)
        except NotFound:
            return None

    def _check_target(self, place: Place, name: bytes, kind: Kind) -> None:
        """Check that a node of `kind` may come to be called `name` in `place`."""
        if not place.cursor.visible:
            raise AccessDenied(render(place.path))
        if self.node_of(place).kind not in DIRECTORY_KINDS:
            raise NotADirectory(render(place.path))
        if place.cursor.level < Level.STAGE:
            raise ReadOnly(render(place.path))
        path, cursor = (*place.path, name), place.cursor.child(name)
        if cursor.level < Level.STAGE:
            raise ReadOnly(render(path))
        # A directory brings names along that a rule below the target may not let be made.
        refusal = cursor.removal_refusal(path) if kind in DIRECTORY_KINDS else None
        if refusal is not None:
            raise refusal

    # Changing nodes.

    def set_attributes(self, place: Place, change: Change) -> Stat:
        """Apply `change`, which needs ``stage``."""
        self.check_change(place)
        try:
            node = self.backend_of(place).set_attributes(place.key, change, self.actor)
        except OSError as error:
            raise self.translate(error, place.path) from None
        return self.stat_node(place, place.cursor, node)

    def sync(self) -> None:
        """Make every change made so far survive the loss of power."""
        self.instance.commit()

    # Extended attributes.

    def get_xattr(self, place: Place, name: bytes) -> bytes:
        """Return an extended attribute; ``user.fusefs.*`` are made on demand."""
        steps = self.get_xattr_in_steps(place, name)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return bytes(done.value)

    def get_xattr_in_steps(self, place: Place, name: bytes) -> Generator[None, None, bytes]:
        """Return an extended attribute like `get_xattr`, pausing before others wait too long."""
        self.check_visible(place)
        return xattrs.get(self, place, name)

    def list_xattrs(self, place: Place) -> list[bytes]:
        """Return the names of the attributes that are kept (not the virtual ones)."""
        self.check_visible(place)
        return xattrs.names(self, place)

    def set_xattr(self, place: Place, name: bytes, value: bytes) -> None:
        """Set a ``user.*`` attribute, which needs ``stage``."""
        self.check_change(place)
        xattrs.check_settable(place, name)
        self.backend_of(place).set_xattr(place.key, name, value, self.actor)

    def remove_xattr(self, place: Place, name: bytes) -> None:
        """Remove a ``user.*`` attribute, which needs ``stage``."""
        self.check_change(place)
        xattrs.check_settable(place, name)
        self.backend_of(place).remove_xattr(place.key, name, self.actor)
