"""The pages of an LMDB file by kind, for those who damage them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

PAGE = 4096
_HEADER = 16
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIG_DATA = 0x01
_ROOTS = {"free": 80, "main": 128}
"""Where the root page of each tree stands in a meta page."""
_TRANSACTION = 144
_META_BYTES = 152


class Pages:
    """A file as its newest meta page has it."""

    def __init__(self, file: Path) -> None:
        self._raw = file.read_bytes()
        self._meta = max((0, PAGE), key=lambda at: self._number(at + _TRANSACTION))
        self.used: dict[str, list[range]] = {
            kind: [] for kind in ("meta", "branch", "leaf", "overflow", "free")
        }
        self.used["meta"] = [range(at, at + _META_BYTES) for at in (0, PAGE)]
        for tree, at in _ROOTS.items():
            root = self._number(self._meta + at)
            if root != 2**64 - 1:
                self._walk(root, "free" if tree == "free" else "")

    def _number(self, at: int, form: str = "<Q") -> int:
        return int(struct.unpack_from(form, self._raw, at)[0])

    def _walk(self, number: int, kind: str) -> None:
        at = number * PAGE
        flags, lower, upper = struct.unpack_from("<HHH", self._raw, at + 10)
        name = kind or ("branch" if flags & _BRANCH else "leaf")
        self.used[name] += [range(at, at + lower), range(at + upper, at + PAGE)]
        for node in self._nodes(at, lower):
            low, high, node_flags, key_size = struct.unpack_from("<HHHH", self._raw, node)
            if flags & _BRANCH:
                self._walk(low | high << 16 | node_flags << 32, kind)
            elif node_flags & _BIG_DATA:
                big = self._number(node + 8 + key_size) * PAGE
                size = _HEADER + (low | high << 16)
                self.used[kind or "overflow"].append(range(big, big + size))

    def _nodes(self, at: int, lower: int) -> Iterator[int]:
        for index in range((lower - _HEADER) // 2):
            yield at + self._number(at + _HEADER + 2 * index, "<H")
