"""Bringing back what was removed."""

from __future__ import annotations

import errno
import os

from fusefs.contract.errors import AlreadyExists, InvalidArgument, NotADirectory, NotFound
from fusefs.contract.paths import Path, is_at_or_below, render
from fusefs.session.session import Session
from fusefs.session.stat import DIRECTORY_KINDS
from fusefs.store.trash import TrashRecord
from fusefs.store.trash_can import TrashCan
from fusefs.tree.host_tree import HostTree
from fusefs.tree.instance_trash import PAYLOAD


def restore(session: Session, trash_id: int, to: str | None = None) -> Path:
    """Put a trash entry back where it was, or at the path `to`, and return that path.

    Raises:
        KeyError: there is no such entry.
        ContractError: the place is taken, or the directory it belongs in is gone.
    """
    can = TrashCan(session.view.instance)
    entry = can.get(trash_id)
    path = can.old_place(entry) if to is None else session.resolve(to)
    if not path:
        raise AlreadyExists(render(path))
    place = session.place(path[:-1])
    if session.view.stat(place).kind not in DIRECTORY_KINDS:
        raise NotADirectory(render(path[:-1]))
    try:
        if entry.node and place.backend is session.view.tree.store:
            assert isinstance(place.key, int)
            can.restore(entry, place.key, path[-1], path, session.spec.name)
        elif entry.node == 0:
            _restore_external(session, can, entry, path)
        else:
            raise InvalidArgument(
                f"Not restored: {render(path)} is in a bound folder, the entry is of the tree."
            )
    except FileExistsError:
        raise AlreadyExists(render(path)) from None
    except FileNotFoundError:
        raise NotFound(render(path[:-1])) from None
    return path


def _restore_external(session: Session, can: TrashCan, entry: TrashRecord, path: Path) -> None:
    """Move a payload back into the bound folder that `path` lies in."""
    binds = [where for where in session.view.instance.binds.all() if is_at_or_below(path, where)]
    if not binds:
        raise InvalidArgument(
            f"Not restored: {render(path)} is in no bound folder, where the entry came from."
        )
    where = max(binds, key=len)
    backend = session.view.tree.resolve(where).backend
    if not isinstance(backend, HostTree):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    folder = os.open(can.payload_folder(entry.id), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        backend.put_back(path[len(where) :], folder, PAYLOAD)
    finally:
        os.close(folder)
    can.restored_external(entry, path, session.spec.name)
