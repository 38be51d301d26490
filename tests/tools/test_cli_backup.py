"""`fusefs backup` and `restore` as a person at a shell and a program have them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.conftest import Cli, Mount, Quick

BIG = os.urandom(300_000)


def test_there_and_back(cli: Cli, tmp_path: Path) -> None:
    cli("write", "/d/big", stdin=BIG)
    (tmp_path / "host").mkdir()
    cli("bind", tmp_path / "host", "/host")
    made = cli("backup", tmp_path / "b")
    assert f"Backed up to {tmp_path / 'b'}: 1 files, 293.0 KiB" in made.out
    assert f"Not in the backup (a bound host folder): {tmp_path / 'host'}" in made.err
    report = cli("backup", tmp_path / "b", "--json").json
    assert (report["objects_copied"], report["objects_kept"], report["missing"]) == (0, 1, [])
    assert report["bound"] == [{"path": "/host", "source": str(tmp_path / "host")}]
    assert "No problems" in Quick(tmp_path / "b")("check").out
    other = Quick(tmp_path / "new" / "instance")
    assert "No problems" in other("restore", tmp_path / "b").out
    assert other("cat", "/d/big").out.encode("utf-8", "surrogateescape") == BIG
    assert other("log", "--json").json == cli("log", "--json").json
    assert other("--json", "restore", tmp_path / "b", expect=3).json["error"]["code"] == (
        "FS_INSTANCE"
    )


def test_a_damaged_backup_is_status_1(cli: Cli, tmp_path: Path) -> None:
    cli("write", "/big", stdin=BIG)
    cli("backup", tmp_path / "b")
    (damaged,) = (tmp_path / "b" / "objects").glob("*/*")
    damaged.unlink()
    other = Quick(tmp_path / "r")
    assert "/big: its content is missing" in other("restore", tmp_path / "b", expect=1).err
    assert other("restore", tmp_path / "b", "--json", expect=1).json["error"]["problems"]
    assert not (tmp_path / "r").exists()


def test_what_the_instance_lost_is_status_1(cli: Cli, tmp_path: Path) -> None:
    cli("write", "/big", stdin=BIG)
    shutil.rmtree(cli.instance / "objects")
    (cli.instance / "objects").mkdir()
    assert "Missing: /big" in cli("backup", tmp_path / "b", expect=1).err


def test_a_backup_does_not_go_into_a_view(cli: Cli, mount: Mount, tmp_path: Path) -> None:
    cli("session", "create", "s", "--grant", "/=stage")
    view = mount("s")
    (view / "d").mkdir()
    (tmp_path / "link").symlink_to(view / "d")
    for place in (view / "b", tmp_path / "link" / "b"):
        assert "a mount of the instance itself" in cli("backup", place, expect=3).err
    assert os.listdir(view / "d") == []


def test_a_full_disk(cli: Cli, small_disk: Path, tmp_path: Path) -> None:
    cli("write", "/first", stdin=os.urandom(4 << 20))
    cli("backup", small_disk / "b")
    free = shutil.disk_usage(small_disk).free
    with (small_disk / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, free - (3 << 20))
    cli("write", "/second", stdin=os.urandom(4 << 20))
    failed = cli("backup", small_disk / "b", expect=4)
    assert "No space left on device" in failed.err
    assert "earlier backup" in failed.err
    assert sorted(path.name for path in small_disk.iterdir()) == ["b", "filler", "lost+found"]
    restored = Quick(small_disk / "r")
    assert "No space" in restored("restore", small_disk / "b", expect=4).err
    assert not restored.instance.exists()
    (small_disk / "filler").unlink()
    copy = Quick(small_disk / "b")
    assert "No problems" in copy("check").out
    assert copy("ls", "/").out == "first\n"
