"""Reading an LMDB transaction without trust in its file.

Every value is held against its seal. That a key is *not* there is an answer as well, and a turned
bit could bring it about: so the page where it would be must be sound, the keys on both sides must
be whole, in order, and each other's neighbours on a second way down the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import cast

import lmdb

from fusefs.store.lmdb_pages import BEHIND
from fusefs.store.lmdb_soundness import Soundness
from fusefs.store.seal import Damaged, check_key, describe, unseal

_SELF_PROVING = (b"c", b"b")
"""Prefixes of keys whose absence is no answer: something else says that they must be there."""

_Pair = tuple[memoryview, memoryview]


class SealedReader:
    """A reader (see `fusefs.store.kv.Reader`) over a transaction that gives buffers."""

    __slots__ = ("_failed", "_get", "_soundness", "_txn", "stamp")

    def __init__(
        self,
        txn: lmdb.Transaction,
        failed: Callable[[lmdb.Error], OSError],
        soundness: Soundness | None,
        stamp: Hashable = None,
    ) -> None:
        """Read `txn`.

        Args:
            txn: of a file that was looked at.
            failed: makes of LMDB's errors what is raised.
            soundness: what is known of the file's pages; None where all of them were verified.
            stamp: see `fusefs.store.kv.Reader`.
        """
        self.stamp = stamp
        self._txn = txn
        self._get = cast("Callable[[bytes], memoryview | None]", txn.get)
        self._failed = failed
        self._soundness = soundness

    def get(self, key: bytes) -> bytes | None:
        soundness = self._soundness
        if soundness is not None and not soundness.ways_are_sound:
            soundness.until(key, self._txn)
        try:
            stored = self._get(key)
            if stored is not None:
                return unseal(key, stored)
            if key[:1] not in _SELF_PROVING:
                self._sound_until(key)
                with self._txn.cursor() as cursor:
                    _seek(cursor, key, absent=True)
        except lmdb.Error as error:
            raise self._failed(error) from error
        return None

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if start >= end:
            return
        sound = self._sound_until(start)
        try:
            with self._txn.cursor() as cursor:
                before, found = _seek(cursor, start)
                if found:
                    for raw_key, stored in cast("Iterator[_Pair]", iter(cursor)):
                        key = bytes(raw_key)
                        if before is not None and key <= before:
                            raise Damaged(describe(key))
                        while sound <= key and sound < end:
                            sound = self._sound_until(sound)
                        if key >= end:
                            break
                        before = key
                        yield key, unseal(key, stored)
                while sound < end:
                    sound = self._sound_until(sound)
                if _seek(cursor, end)[0] != before:
                    raise Damaged(describe(end))
        except lmdb.Error as error:
            raise self._failed(error) from error

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        try:
            with self._txn.cursor() as cursor:
                before, _ = _seek(cursor, end)
                sound = self._sound_until(start if before is None else max(start, before))
                while sound < end:
                    sound = self._sound_until(sound)
                if before is None or before < start:
                    return None
                stored = self._get(before)
                if stored is None:
                    raise Damaged(describe(before))
                return before, unseal(before, stored)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def _sound_until(self, key: bytes) -> bytes:
        return BEHIND if self._soundness is None else self._soundness.until(key, self._txn)

    def damages(self) -> Iterator[str]:
        """Yield what is damaged of all that is stored, as far as it can be reached."""
        try:
            with self._txn.cursor() as cursor:
                last = b""
                for raw_key, stored in cast("Iterator[_Pair]", iter(cursor)):
                    key = bytes(raw_key)
                    if key <= last:
                        yield f"store: {describe(key)} is out of order"
                        return
                    last = key
                    try:
                        unseal(key, stored)
                    except Damaged:
                        yield f"store: {describe(key)} is damaged"
        except lmdb.Error as error:
            yield f"store: {self._failed(error).strerror}"


def _seek(
    cursor: lmdb.Cursor, key: bytes, *, absent: bool = False
) -> tuple[bytes | None, bool]:
    """Go to the first pair at or behind `key`, and check that the way there was right.

    Args:
        cursor: of a transaction with buffers.
        key: where to go.
        absent: the key itself is not there.

    Returns:
        The key before, or None; and whether there is a pair to stand on.
    """
    found = cursor.set_range(key)
    after = _here(cursor) if found else None
    before = _here(cursor) if (cursor.prev() if found else cursor.last()) else None
    if before is not None and before >= key:
        raise Damaged(describe(before))
    if after is not None and (after < key or (absent and after == key)):
        raise Damaged(describe(after))
    # From the top again, on the ways that lead to the key behind and to the one before.
    if after is not None:
        cursor.set_range(after)
        if (bytes(cursor.key()) if cursor.prev() else None) != before:
            raise Damaged(describe(key))
    found = cursor.set_range(b"\0" if before is None else before + b"\0")
    if (bytes(cursor.key()) if found else None) != after:
        raise Damaged(describe(key))
    return before, found


def _here(cursor: lmdb.Cursor) -> bytes:
    raw_key, stored = cast("_Pair", cursor.item())
    key = bytes(raw_key)
    check_key(key, stored)
    return key
