"""Pages of the store that were read do not stay part of the process for good."""

from __future__ import annotations

import mmap
from pathlib import Path

from fusefs.store import residency

_SIZE = 64 << 20


def _resident(file: Path) -> int:
    """Return how much of a file is mapped and resident here, in KiB (proc_pid_smaps(5))."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *rest = line.split()
        if not key.endswith(":"):
            inside = line.endswith(str(file))
        elif inside and key == "Rss:":
            total += int(rest[0])
    return total


def test_many_mapped_pages_are_given_back(tmp_path: Path) -> None:
    file, other = tmp_path / "data", tmp_path / "other"
    for path in (file, other):
        with path.open("wb") as made:
            made.truncate(_SIZE)
    with (
        file.open("rb") as opened,
        other.open("rb") as second,
        mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped,
        mmap.mmap(second.fileno(), 0, prot=mmap.PROT_READ) as kept,
    ):
        assert not any(mapped[::4096])
        assert not any(kept[::4096])
        assert _resident(file) == _resident(other) == _SIZE >> 10
        residency.give_back(file)
        assert _resident(file) == 0
        assert _resident(other) == _SIZE >> 10
        assert mapped[-1] == 0
