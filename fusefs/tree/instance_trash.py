"""The instance's trash, for host directories: removed entries move to a folder of its own."""

from __future__ import annotations

import os

from fusefs.contract.paths import Path
from fusefs.store.instance import Instance
from fusefs.store.trash_can import TrashCan
from fusefs.tree.host_trash import MoveEntry, TrashOrigin

PAYLOAD = b"payload"
"""What a removed entry is called in its trash folder."""


class InstanceTrash:
    """Implements `HostTrash` for the folder bound at one path of the tree."""

    def __init__(self, instance: Instance, bound_at: Path) -> None:
        self._can = TrashCan(instance)
        self._bound_at = bound_at

    def add(self, origin: TrashOrigin, move: MoveEntry) -> None:
        """Record the removal, then move the entry."""
        entry = self._can.add_external(
            actor=origin.actor.session,
            path=(*self._bound_at, *origin.path),
            kind=origin.kind,
            size=origin.size,
        )
        folder = os.open(self._can.payload_folder(entry.id), os.O_RDONLY | os.O_DIRECTORY)
        try:
            move(folder, PAYLOAD)
        except BaseException:
            self._can.forget_external(entry)
            raise
        finally:
            os.close(folder)
