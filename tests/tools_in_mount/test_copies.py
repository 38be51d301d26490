"""`tar` and `rsync`: what goes in comes out, with modes and times."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.tools_in_mount.place import Place

# Archives of equal trees are equal, byte for byte.
TAR = ("tar", "--sort=name", "--format=posix", "--pax-option=delete=atime,delete=ctime")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree outside, with modes, times to the nanosecond, links, a FIFO and a sparse file."""
    top = tmp_path_factory.mktemp("source") / "source"
    chance = random.Random(1)
    for number in range(60):
        folder = top / f"d{number % 7}" / f"e{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"f{number}"
        file.write_bytes(chance.randbytes(chance.choice([0, 1, 4096, 70_000])))
        file.chmod(chance.choice([0o644, 0o600, 0o755, 0o4755, 0o444]))
    (top / "näme\n \udcff").write_text("odd")
    (top / "link").symlink_to("d1/e1")
    (top / "dangling").symlink_to("/nowhere/at/all")
    os.mkfifo(top / "fifo", 0o640)
    with open(top / "sparse", "wb") as file_with_holes:
        file_with_holes.truncate(3_000_000)
        file_with_holes.seek(1_500_000)
        file_with_holes.write(b"middle")
    (top / "d1").chmod(0o2750)
    (top / "d2").chmod(0o1777)
    (top / "d3").chmod(0o555)
    for path in [*top.rglob("*"), top]:
        moment = chance.randrange(10**18, 17 * 10**17)
        os.utime(path, ns=(moment, moment + 12345), follow_symlinks=False)
    return top


def test_tar(source: Path, place: Place, tmp_path: Path) -> None:
    before, after = tmp_path / "before.tar", tmp_path / "after.tar"
    place.run(*TAR, "-cf", before, "-C", source, ".")
    copy = place.below("copy")
    copy.run("tar", "-xpf", before)
    place.run(*TAR, "-cf", after, "-C", copy.folder, ".")
    assert after.read_bytes() == before.read_bytes()
    # With the archive in the mount, too.
    place.run(*TAR, "-czf", "copy.tar.gz", "-C", "copy", ".")
    place.run("tar", "-xpzf", "copy.tar.gz", "-C", place.below("again").folder)
    place.run(*TAR, "-cf", after, "-C", "again", ".")
    assert after.read_bytes() == before.read_bytes()


def test_rsync(source: Path, place: Place, tmp_path: Path) -> None:
    rsync = ("rsync", "-a", "--itemize-changes")
    assert place.run(*rsync, f"{source}/", "copy/") != ""
    assert place.run(*rsync, f"{source}/", "copy/") == ""
    assert place.run(*rsync, "--checksum", "--dry-run", "copy/", f"{source}/") == ""
    (place.folder / "copy/d0/e0/f0").write_text("changed in the mount")
    (place.folder / "copy/extra").write_text("only in the mount")
    changes = place.run(*rsync, "--delete", f"{source}/", "copy/")
    assert [line.split()[-1] for line in changes.splitlines()] == ["extra", "./", "d0/e0/f0"]
    # In place, and with blocks that are there already.
    (place.folder / "copy/sparse").write_bytes(b"x" * 100_000)
    place.run(*rsync, "--inplace", "--no-whole-file", f"{source}/", "copy/")
    back = tmp_path / "back"
    place.run(*rsync, "copy/", f"{back}/")
    assert place.run(*rsync, "--checksum", "--dry-run", f"{back}/", f"{source}/") == ""
