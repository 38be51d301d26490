"""The transactions of the ordered store on LMDB: snapshots, and writes collected over a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import merge
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fusefs.store.sealed_reader import SealedReader

if TYPE_CHECKING:
    import lmdb

    from fusefs.store.lmdb_kv import LmdbKV


class ReadTransaction:
    """Context manager of one snapshot, or of the open batch where there is one."""

    __slots__ = ("_kv", "_own")

    def __init__(self, kv: LmdbKV) -> None:
        self._kv = kv
        self._own: lmdb.Transaction | None = None

    def __enter__(self) -> SealedReader:
        batch = self._kv.batch
        if batch is not None:
            return SealedReader(
                batch, self._kv.reading_failed, self._kv.soundness, (batch.id(), self._kv.changes)
            )
        self._own = self._kv.begin(write=False)
        return SealedReader(
            self._own, self._kv.reading_failed, self._kv.soundness, (self._own.id(), 0)
        )

    def __exit__(self, *exc: object) -> None:
        if self._own is not None:
            self._own.abort()


class WriteTransaction:
    """Context manager that collects writes over the batch, then applies them together."""

    __slots__ = ("_freeing", "_kv", "_lazy", "_reader", "stamp", "writes")

    def __init__(self, kv: LmdbKV, *, freeing: bool, lazy: bool) -> None:
        self._kv = kv
        self._freeing = freeing
        self._lazy = lazy
        self.writes: dict[bytes, bytes | None] = {}
        self.stamp = None

    def __enter__(self) -> Self:
        kv = self._kv
        self._reader = SealedReader(kv.enter_batch(), kv.reading_failed, kv.soundness)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is None:
            self._kv.leave(self.writes, freeing=self._freeing, lazy=self._lazy)
        else:
            self._kv.leave({}, freeing=True)

    def get(self, key: bytes) -> bytes | None:
        if key in self.writes:
            return self.writes[key]
        return self._reader.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.writes[key] = value

    def delete(self, key: bytes) -> None:
        self.writes[key] = None

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        base = self._reader.range(start, end)
        written = {key: value for key, value in self.writes.items() if start <= key < end}
        if not written:
            return base
        kept = ((key, value) for key, value in base if key not in written)
        new = [(key, value) for key, value in sorted(written.items()) if value is not None]
        return merge(kept, new)

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        if not any(start <= key < end for key in self.writes):
            return self._reader.last(start, end)
        return next(iter(deque(self.range(start, end), maxlen=1)), None)
