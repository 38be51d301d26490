"""The instance's store of ordered keys, as forges keep their records in it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fusefs.store.instance import Instance
from fusefs.store.kv import Reader, Writer


class ForgeRecords:
    """What an instance is to `fusefs.forge.records.Records`. For the instance's thread."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def read(self) -> AbstractContextManager[Reader]:
        """Open a snapshot."""
        return self._instance.kv.read()

    def write(self) -> AbstractContextManager[Writer]:
        """Open the write transaction."""
        return self._instance.kv.write()

    def commit(self) -> None:
        """Make durable what was written."""
        self._instance.commit()
