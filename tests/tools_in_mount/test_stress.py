"""Programs made to find faults of file systems, each for a short while."""

from __future__ import annotations

import pytest

from tests.tools_in_mount.place import Place

SECONDS = "1"

# All that work with files, but for `link`: there are no hard links.
STRESSORS = [
    "access", "chmod", "chown", "copy-file", "dentry", "dir", "dirdeep", "dirmany", "filename",
    "fstat", "hdd", "mknod", "mmap", "msync", "open", "readahead", "rename", "revio", "seek",
    "sendfile", "symlink", "touch", "utime", "xattr",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ["write", "randrw"])
@pytest.mark.parametrize("engine", ["psync", "mmap"])
def test_fio(place: Place, engine: str, pattern: str) -> None:
    smallest = 4096 if engine == "mmap" else 512
    place.run(
        "fio", "--name=job", f"--rw={pattern}", f"--ioengine={engine}", "--size=4M",
        f"--bsrange={smallest}-64k", "--verify=crc32c", "--verify_fatal=1", "--fsync=64",
        "--fallocate=none", "--numjobs=2",
    )  # fmt: skip


def test_stress_ng(place: Place) -> None:
    words = [word for name in STRESSORS for word in (f"--{name}", "1")]
    place.run("stress-ng", "--verify", "--timeout", SECONDS, "--temp-path", ".",
              *words, "--dentries", "256")  # fmt: skip
    assert list(place.folder.iterdir()) == []


def test_dbench(place: Place) -> None:
    said = place.run("dbench", "-t", SECONDS, "-D", ".", "2")
    assert "Throughput" in said


def test_fs_mark(place: Place) -> None:
    # Names, sizes and contents are checked as it goes.
    place.run("fs_mark", "-d", ".", "-n", "200", "-s", "10240", "-t", "2", "-S", "1", "-D", "10")
    assert "fs_log.txt" in {file.name for file in place.folder.iterdir()}
