"""`fusefs mount` and `fusefs umount` on real mounts."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TIMEOUT, mountpoints, unmount


def test_background_returns_when_mounted_and_umount_ends_it(filled, tmp_path):
    view = tmp_path / "view"
    view.mkdir()
    mounted = filled("mount", "narrow", view, "--background", "--json")
    try:
        assert mounted.json == {"session": "narrow", "mountpoint": str(view)}
        assert str(view) in mountpoints()
        assert (view / "AGENTS.md").read_text() == "Read this first.\n"
        assert (filled.instance / "run/narrow.log").exists()
        (view / "Dir1/Dir3/new").write_text("kept")
    finally:
        assert filled("umount", view, "--json").json == {"mountpoint": str(view)}
    assert str(view) not in mountpoints()
    assert os.listdir(view) == []
    assert filled("cat", "/Dir1/Dir3/new").out == "kept"
    filled("check")


def test_passages_hold_on_the_mount(filled, mount):
    view = mount("narrow")
    assert os.stat(view / "Dir1").st_mode & 0o7777 == 0o111
    for path in (view, view / "Dir1"):
        with pytest.raises(PermissionError):
            os.listdir(path)
    for name in ("Dir1/FILE1.txt", "Dir2", "Nope.md"):
        with pytest.raises(PermissionError):
            os.stat(view / name)
    assert sorted(os.listdir(view / "Dir1/Dir3")) == ["notes", "plan.txt"]


def test_passage_errno(filled, mount):
    view = mount("narrow", "--passage-errno", "ENOENT")
    with pytest.raises(FileNotFoundError):
        os.stat(view / "Nope.md")
    assert (view / "AGENTS.md").exists()


def test_set_owner(filled, mount):
    view = mount("narrow", "--set-owner", "1234:5678")
    status = os.stat(view / "Dir1/Dir3/plan.txt")
    assert (status.st_uid, status.st_gid) == (1234, 5678)


def test_changes_cross_between_mounts_and_the_command_line(filled, mount):
    filled("session", "grant", "wide", "/=stage")
    narrow, wide = mount("narrow"), mount("wide")
    (narrow / "Dir1/Dir3/plan.txt").write_text("by narrow")
    wait_until(lambda: (wide / "Dir1/Dir3/plan.txt").read_text() == "by narrow")
    assert filled("cat", "/Dir1/Dir3/plan.txt").out == "by narrow"
    filled("rm", "/Dir1/Dir3/plan.txt")
    wait_until(lambda: not (wide / "Dir1/Dir3/plan.txt").exists())
    filled("session", "grant", "wide", "/=none")
    wait_until(lambda: not os.access(wide / "AGENTS.md", os.F_OK))


def test_a_failure_in_the_background_is_told(filled, tmp_path):
    missing = filled("mount", "narrow", tmp_path / "missing", "--background", expect=3)
    assert "missing" in missing.err
    in_json = filled("mount", "narrow", tmp_path / "missing", "--background", "--json", expect=3)
    assert in_json.json["error"]["text"] == missing.err.strip()
    file = tmp_path / "file"
    file.touch()
    filled("mount", "narrow", file, "--background", expect=3)


def test_umount_of_what_is_not_mounted(filled, tmp_path):
    assert str(tmp_path) in filled("umount", tmp_path, expect=3).err


def test_umount_of_what_is_in_use(filled, mount):
    view = mount("narrow")
    with open(view / "Dir1/Dir3/plan.txt") as file:
        assert "in use" in filled("umount", view, expect=3).err
        assert str(view) in mountpoints()
        filled("umount", view, "--lazy")
        assert str(view) not in mountpoints()
        assert file.read() == "Open to both.\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_unmount_cleanly(filled, tmp_path, number):
    view = tmp_path / "view"
    view.mkdir()
    command = [sys.executable, "-m", "fusefs", "--instance", filled.instance, "mount", "narrow",
               view]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: str(view) in mountpoints())
        (view / "Dir1/Dir3/new").write_text("kept")
        process.send_signal(number)
        assert process.wait(TIMEOUT) in {0, 130}
    finally:
        process.kill()
        process.wait()
        unmount(view)
    assert filled("cat", "/Dir1/Dir3/new").out == "kept"


def test_the_next_mount_mends_a_killed_one(filled, tmp_path):
    view = tmp_path / "view"
    view.mkdir()
    command = [sys.executable, "-m", "fusefs", "--instance", filled.instance, "mount", "narrow",
               view]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: str(view) in mountpoints())
        (view / "Dir1/Dir3/new").write_text("kept")
        process.kill()
        process.wait()
        with pytest.raises(OSError) as broken:
            os.listdir(view / "Dir1/Dir3")
        assert broken.value.errno in {errno.ENOTCONN, errno.ECONNABORTED}
        filled("mount", "narrow", view, "--background")
        assert (view / "Dir1/Dir3/new").read_text() == "kept"
    finally:
        process.kill()
        process.wait()
        unmount(view)
    filled("check")


def test_ad_hoc(cli, tmp_path, host_tree):
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    cli.environment["XDG_RUNTIME_DIR"] = str(runtime)
    view = tmp_path / "view"
    view.mkdir()
    # What a killed one left is swept up by the next.
    (runtime / "fusefs-adhoc-left").mkdir()
    cli("mount", "--background", "--bind", host_tree, "--bind", f"{tmp_path / 'more'}=/more",
        "--grant", "/=ro", view, expect=2)  # fmt: skip
    assert os.listdir(runtime) == []
    try:
        cli("mount", "--background", "--bind", host_tree, "--grant", "/=ro", "--grant",
            "/Dir2=stage", "--grant", "/Dir1/FILE1.txt=none", view)  # fmt: skip
        assert sorted(os.listdir(view)) == ["AGENTS.md", "Dir1", "Dir2"]
        assert os.listdir(view / "Dir1") == ["Dir3"]
        (view / "Dir2/new").write_text("on the host")
        assert (host_tree / "Dir2/new").read_text() == "on the host"
        with pytest.raises(OSError) as refused:
            (view / "new").write_text("x")
        assert refused.value.errno in {errno.EROFS, errno.EACCES}
        assert len(os.listdir(runtime)) == 1
    finally:
        unmount(view)
    wait_until(lambda: os.listdir(runtime) == [])


def test_session_file(filled, tmp_path):
    file = tmp_path / "reader.toml"
    file.write_text('grants = { "/Dir2" = "ro" }\n')
    view = tmp_path / "view"
    view.mkdir()
    for content in ("Dir2", "Dir1"):
        file.write_text(f'grants = {{ "/{content}" = "ro" }}\n')
        try:
            filled("mount", "--session-file", file, view, "--background")
            assert os.listdir(view / content)
        finally:
            unmount(view)
    assert filled("session", "show", "reader", "--json").json["grants"] == {"/Dir1": "ro"}


def test_bubblewrap_below_a_passage(filled, mount):
    view = mount("narrow")
    script = "cat Dir3/plan.txt && echo new > Dir3/new && ! ls . && ! cat FILE1.txt"
    done = subprocess.run(
        ["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
         "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc",
         "--dev", "/dev", "--unshare-all", "--bind", view / "Dir1", "/workspace",
         "--chdir", "/workspace", "bash", "-c", script],
        capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert done.stdout == "Open to both.\n"
    assert done.stderr.count("Permission denied") == 2
    assert filled("cat", "/Dir1/Dir3/new").out == "new\n"


def test_conformance(cli, tmp_path):
    file = tmp_path / "vectors.json"
    scenario: dict[str, Any] = {
        "name": "one",
        "tree": {"/a/b": "text"},
        "session": {"grants": {"/a": "ro"}},
        "cases": [{"op": "read", "path": "/a/b", "expect": {"ok": "text"}}],
    }
    file.write_text(json.dumps({"scenarios": [scenario]}))
    assert cli("conformance", file).out == "2 passed, 0 failed\n"
    scenario["cases"][0]["expect"] = {"ok": "another"}
    file.write_text(json.dumps({"scenarios": [scenario]}))
    wrong = cli("conformance", "--face", "api", file, "--json", expect=1).json
    assert (wrong["passed"], wrong["failed"]) == (0, 1)
    file.write_text("{}")
    cli("conformance", file, expect=2)


def wait_until(condition, seconds: float = 10.0) -> None:
    """Wait for `condition`; what it raises counts as not yet."""
    import time

    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def test_the_mountpoint_may_be_relative(filled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("view").mkdir()
    try:
        filled("mount", "narrow", "view", "--background")
        assert Path("view/AGENTS.md").exists()
    finally:
        filled("umount", "view", expect=None)
    assert str(tmp_path / "view") not in mountpoints()
