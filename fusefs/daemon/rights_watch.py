"""Asking forges now and then what the user may do, beside the requests."""

from __future__ import annotations

import logging
import math
from importlib import import_module
from typing import TYPE_CHECKING

import trio

from fusefs.session.caps import FRESH_SECONDS, due

if TYPE_CHECKING:
    from fusefs.daemon.background import Background
    from fusefs.daemon.coherence import Coherence
    from fusefs.store.instance import Instance

_PATIENCE_SECONDS = 30.0
_log = logging.getLogger(__name__)


class RightsWatch:
    """Keeps the rights on the forges of an instance's mounts fresh, on behalf of one mount.

    Of several daemons each asks only what no other has asked meanwhile.
    """

    def __init__(
        self,
        instance: Instance,
        background: Background,
        coherence: Coherence,
        *,
        every: float = FRESH_SECONDS,
    ) -> None:
        """Prepare; `every` is the pause between two rounds, in seconds."""
        self._instance = instance
        self._background = background
        self._coherence = coherence
        self._every = every

    async def follow(self) -> None:
        """Follow for ever. No request waits for this: forges are asked in threads."""
        while True:
            await trio.sleep(self._every)
            try:
                await self._round()
            except OSError as error:
                _log.warning("rights on forges could not be noted: %s", error)
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("asking for rights on forges failed")

    async def _round(self) -> None:
        specs = due(self._instance, self._every)
        if not specs:
            return
        # In a thread, since it takes long to load; and late, since few instances have mounts.
        rights = await trio.to_thread.run_sync(import_module, "fusefs.session.rights")
        answers = await trio.to_thread.run_sync(
            rights.ask_all, self._instance, specs, _PATIENCE_SECONDS, abandon_on_cancel=True
        )
        await self._background.lock_writer(math.inf)
        rights.note_all(self._instance, answers)
        self._coherence.refresh()
