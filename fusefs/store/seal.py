"""Checksums of what stands in the ordered store.

LMDB keeps none: a bit that the disk turned would be served as it is. So a value is stored with
twelve bytes behind it, four over its key and eight over key and value. Those over the key alone
tell, of a neighbour whose value is of no interest, that it stands where it belongs.
"""

from __future__ import annotations

import errno
import os

from xxhash import xxh3_64_digest, xxh3_64_intdigest

LONGEST = 4 << 20
"""The longest value in bytes, without its seal. What claims to be longer is not looked at."""
SEAL_BYTES = 12
_LONGEST_SEALED = LONGEST + SEAL_BYTES
_LOW = 0xFFFFFFFF

_NAMES = {
    b"m": "a setting of the instance",
    b"e": "a directory entry",
    b"n": "the place of a node",
    b"c": "the content of a small file",
    b"b": "the checksums of a large file",
    b"d": "a small file that was being written",
    b"s": "the record of a file that was being written",
    b"x": "an extended attribute",
    b"t": "a trash record",
    b"p": "a trash record",
    b"r": "a trash record",
    b"o": "the record of a removed file that was open",
    b"j": "a journal record",
    b"S": "a session",
}


class Damaged(OSError):
    """What is stored is not what was written. `errno` is EIO; the text says where."""

    def __init__(self, what: str, remedy: str = "`fusefs check` says what else is") -> None:
        super().__init__(errno.EIO, f"{what} is damaged ({remedy})")


def describe(key: bytes) -> str:
    """Return what stands at `key`, for people."""
    what = _NAMES.get(key[:1], "a key that nobody knows")
    number = int.from_bytes(key[1:9], "big")
    match key[:1]:
        case b"m" | b"S":
            return f"{what} ({os.fsdecode(key[1:])!r})"
        case b"e":
            return f"{what} ({os.fsdecode(key[9:])!r} in node {number})"
        case b"c" | b"b":
            return f"{what} ({key[1:33].hex()})"
        case _:
            return f"{what} ({number})"


def seal(key: bytes, value: bytes) -> bytes:
    """Return `value` as it is stored at `key`.

    Raises:
        OSError: EFBIG; it is longer than `LONGEST`.
    """
    if len(value) > LONGEST:
        raise OSError(errno.EFBIG, f"{describe(key)} is too large")
    key_sum = xxh3_64_intdigest(key)
    return b"%b%b%b" % (
        value, (key_sum & _LOW).to_bytes(4, "little"), xxh3_64_digest(value, key_sum)
    )  # fmt: skip


def unseal(key: bytes, stored: memoryview) -> bytes:
    """Return the value that `stored` holds at `key`.

    Raises:
        Damaged: it is not what was stored there.
    """
    # The length first: one that is damaged may reach past the end of the file.
    if len(stored) <= _LONGEST_SEALED:
        raw = bytes(stored)
        value = raw[:-SEAL_BYTES]
        if xxh3_64_digest(value, xxh3_64_intdigest(key)) == raw[-8:]:
            return value
    raise Damaged(describe(key))


def check_key(key: bytes, stored: memoryview) -> None:
    """Check that `stored` is of `key`, whatever became of the value.

    Raises:
        Damaged: it is not.
    """
    if SEAL_BYTES <= len(stored) <= _LONGEST_SEALED:
        found = stored[-SEAL_BYTES:-8]
        if found == (xxh3_64_intdigest(key) & _LOW).to_bytes(4, "little"):
            return
    raise Damaged(describe(key))
