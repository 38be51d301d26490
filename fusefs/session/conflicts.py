"""Conflicts that a sync left in files: both sides stand in them until somebody decides."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fusefs.contract.errors import ContractError
from fusefs.contract.paths import Path
from fusefs.session.repository import Repository
from fusefs.tree.repository_changes import Changed

_MOST_BYTES = 4 << 20
_BEGIN = re.compile(rb"^<<<<<<< staged\r?$", re.MULTILINE)
_END = re.compile(rb"^>>>>>>> origin/", re.MULTILINE)


def conflicting(repository: Repository, changes: Iterable[Changed]) -> list[Path]:
    """Return the paths of staged files that show both sides of a conflict."""
    return [
        changed.path
        for changed in changes
        if changed.node is not None
        and changed.node.size <= _MOST_BYTES
        and _shows_both(_read(repository, changed.path))
    ]


def _shows_both(data: bytes) -> bool:
    begin = _BEGIN.search(data)
    return begin is not None and _END.search(data, begin.end()) is not None


def _read(repository: Repository, path: Path) -> bytes:
    try:
        return repository.session.read(b"/" + b"/".join((*repository.mount, *path)))
    except ContractError:
        return b""  # a link that leads nowhere, a directory by now
