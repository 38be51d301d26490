"""What a mounted repository's forge last said that the user may do in it."""

from __future__ import annotations

import json
import time
from typing import NamedTuple

from fusefs.contract.levels import Level
from fusefs.contract.paths import render
from fusefs.store import keys
from fusefs.store.definitions import define
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from fusefs.store.kv import Reader
from fusefs.store.mounts import MountSpec, mounts_in


class KnownRight(NamedTuple):
    """What is known of a right.

    Attributes:
        level: the maximum that follows from it; None where the forge never said.
        asked: when it was asked last, answered or not, in seconds since the epoch.
    """

    level: Level | None
    asked: float


def right_in(txn: Reader, mount: int) -> KnownRight:
    """Return what is known of the right in a mount."""
    raw = txn.get(_key(mount))
    if raw is None:
        return KnownRight(None, 0)
    level, asked = json.loads(raw)
    return KnownRight(None if level is None else Level.parse(level), asked)


def note_right(instance: Instance, spec: MountSpec, level: Level | None, actor: str) -> bool:
    """Note what a forge said, or that it did not (None); all processes follow a change.

    The caller commits.

    Returns:
        Whether the right is another one now.
    """
    with instance.kv.write() as txn:
        known = right_in(txn, spec.id)
        new = known.level if level is None else level
        text = None if new is None else str(new)
        txn.put(_key(spec.id), json.dumps([text, time.time()]).encode())
        if new == known.level:
            return False
        where = next((path for path, at in mounts_in(txn).items() if at.id == spec.id), None)
        if where is not None:
            before, after = _definition(known.level), _definition(new)
            define(instance, txn, Op.RIGHT, render(where), actor, before=before, after=after)
    return True


def forget_right(instance: Instance, spec: MountSpec) -> None:
    """Drop what is known of the right in a mount. The caller commits."""
    with instance.kv.write() as txn:
        txn.delete(_key(spec.id))


def _definition(level: Level | None) -> dict[str, object] | None:
    return None if level is None else {"level": str(level)}


def _key(mount: int) -> bytes:
    return keys.RIGHTS + keys.number(mount)
