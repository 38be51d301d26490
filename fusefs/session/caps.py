"""The user's rights on forges as maximums inside mounts (contract section 3): the view's side.

A view goes by what the instance knows. Asking forges is `fusefs.session.rights`, which takes long
to load and is needed once a minute at most.
"""

from __future__ import annotations

import time

from fusefs.contract.levels import Level
from fusefs.contract.paths import Path
from fusefs.store.instance import Instance
from fusefs.store.kv import Reader
from fusefs.store.mounts import MountSpec, mounts_in
from fusefs.store.rights import right_in

FRESH_SECONDS = 60.0
"""How long an answer holds for reading and staging; commits and forge operations ask anew."""

_NEVER_KNOWN = Level.RO
"""The instance has a clone, so that the user could read it once."""


def caps_in(txn: Reader) -> dict[Path, Level]:
    """Return the maximum inside each mount, by path.

    What a forge said last holds while it cannot be asked.
    """
    caps = {}
    for path, spec in mounts_in(txn).items():
        level = right_in(txn, spec.id).level
        caps[path] = _NEVER_KNOWN if level is None else level
    return caps


def due(instance: Instance, seconds: float = FRESH_SECONDS) -> list[MountSpec]:
    """Return the mounts whose right was not asked for in so many seconds, by any process."""
    now = time.time()
    with instance.kv.read() as txn:
        # A clock that was set back must not make an answer hold for long.
        return [
            spec
            for spec in mounts_in(txn).values()
            if not 0 <= now - right_in(txn, spec.id).asked < seconds
        ]


def keep_fresh(instance: Instance) -> None:
    """Ask forges where the last answer is older than a minute; for whoever opens a view."""
    if specs := due(instance):
        from fusefs.session import rights  # noqa: PLC0415 - see above

        rights.refresh(instance, specs)
