"""Having the index made complete in the background: a process of its own, started when needed.

Nothing here loads what an index is made with: a mount and each command call it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from fusefs.index.upkeep import Upkeep
from fusefs.store.instance import Instance
from fusefs.store.journal import Op

_AGAIN_SECONDS = 60.0
"""After a process failed none is started for so long."""
_LOG_BYTES = 1 << 20
_PAGE = 1000
_BRINGS_CONTENT = {Op.CREATE, Op.WRITE, Op.RESTORE, Op.BIND, Op.COMMIT, Op.FORGE}
"""After which there may be contents that were not there before; all else moves or hides some."""


def is_off() -> bool:
    """Tell whether `$FUSEFS_INDEX` keeps this process from starting one."""
    return os.environ.get("FUSEFS_INDEX") == "off"


class IndexStarter:
    """Starts the process when there is something to do and none at it.

    Attributes:
        process: the one that was started last, until it is known to have ended.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._upkeep = Upkeep(instance.folder)
        self.process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self._looked_at = 0

    def start(self) -> None:
        """Start a process that makes the index complete, if need be. It ends by itself.

        None is started where the index is paused, or `$FUSEFS_INDEX` is ``off``.
        """
        if is_off() or self._is_starting():
            return
        upkeep = self._upkeep
        if upkeep.is_paused or not self._is_behind():
            return
        if upkeep.lease.holder(self._instance.live_processes()) is None:
            self.process = self._started()

    def _is_behind(self) -> bool:
        """Tell whether there may be contents that are not indexed."""
        complete_at = self._upkeep.complete_at
        if complete_at < 0:
            return True
        since = max(complete_at, self._looked_at)
        while records := self._instance.journal.since(since, _PAGE):
            if any(record.op in _BRINGS_CONTENT for record in records):
                return True
            self._looked_at = since = records[-1].seq
        return False

    def _is_starting(self) -> bool:
        process = self.process
        if process is not None and process.poll() is not None:
            if process.returncode:
                self._not_before = time.monotonic() + _AGAIN_SECONDS
            self.process = None
        return self.process is not None or time.monotonic() < self._not_before

    def _started(self) -> subprocess.Popen[bytes]:
        folder = self._instance.folder
        log = folder / "run" / "index.log"
        is_long = log.exists() and log.stat().st_size > _LOG_BYTES
        with log.open("wb" if is_long else "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "fusefs", "--instance", str(folder), "index", "work"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                cwd="/",
            )  # fmt: skip
