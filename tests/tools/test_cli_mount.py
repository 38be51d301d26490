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

from tests.conftest import TIMEOUT, Quick, mountpoints, on_terminal, unmount


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


def test_the_log_in_json(filled, mount):
    view = mount("narrow", "--log-format", "json", "--log-level", "debug")
    with pytest.raises(PermissionError):
        os.listdir(view / "Dir1")
    unmount(view)
    lines = [json.loads(x) for x in (filled.instance / "run/narrow.log").read_text().splitlines()]
    assert {line["session"] for line in lines} == {"narrow"}
    assert [line["msg"] for line in lines if line["level"] == "info"] == ["mounted", "unmounted"]
    refused = [line for line in lines if line.get("op") == "opendir"]
    assert (refused[0]["path"], refused[0]["errno"]) == ("/Dir1", "EACCES")


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


def test_a_command_sees_all_that_was_done_on_a_mount_before(filled, mount):
    view = mount("narrow")
    quick = Quick(filled.instance)
    for number in range(20):
        (view / f"Dir1/Dir3/{number}").write_text("new")
        assert quick("cat", f"/Dir1/Dir3/{number}").out == "new"


def test_a_view_cannot_be_bound(filled, mount):
    view = mount("narrow")
    refused = filled("bind", view / "Dir1/Dir3", "/loop", expect=2)
    assert "is in a mounted view" in refused.err
    assert filled("bind", "--json").json["binds"] == []


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_conformance_leaves_nothing_when_terminated(tmp_path, number):
    command = [sys.executable, "-m", "fusefs", "conformance", "--face", "mount"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    try:
        wait_until(lambda: any(point.startswith(str(tmp_path)) for point in mountpoints()))
        process.send_signal(number)
        assert process.communicate(timeout=TIMEOUT)[1].strip() == "Cancelled."
        assert process.returncode == 143
    finally:
        process.kill()
        process.wait()
    assert os.listdir(tmp_path) == []
    assert not any(point.startswith(str(tmp_path)) for point in mountpoints())


def test_a_mount_whose_starter_is_gone_ends_itself(filled, tmp_path):
    view = tmp_path / "view"
    view.mkdir()
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "fusefs", "--instance", filled.instance, "mount", "narrow",
               view, "--ready-fd", str(writing)]  # fmt: skip
    process = subprocess.Popen(command, pass_fds=[writing])
    try:
        assert process.wait(TIMEOUT) == 0
    finally:
        os.close(writing)
        process.kill()
        process.wait()
        assert str(view) not in mountpoints()


def test_a_foreground_mount_speaks_to_a_terminal(filled, tmp_path):
    view = tmp_path / "view"
    view.mkdir()
    (view / "own").touch()
    command = [sys.executable, "-m", "fusefs", "--instance", filled.instance, "mount", "narrow",
               view]  # fmt: skip
    status, shown = on_terminal(command, until="hidden until")
    assert status == 0
    assert shown.splitlines() == [
        f"Mounted: narrow at {view}; Ctrl-C unmounts it.",
        f"What {view} holds itself is hidden until the unmount.",
    ]
    assert os.listdir(view) == ["own"]
    background = filled("mount", "narrow", view, "--background")
    try:
        assert "hidden until" in background.err
    finally:
        unmount(view)


def test_mounts(filled, mount):
    assert filled("mounts", "--json").json == {"mounts": []}
    first, second = mount("narrow"), mount("wide")
    found = {live["mountpoint"]: live for live in filled("mounts", "--json").json["mounts"]}
    assert {point: live["session"] for point, live in found.items()} == {
        str(first): "narrow", str(second): "wide"
    }  # fmt: skip
    assert Path(f"/proc/{found[str(first)]['pid']}").exists()
    assert str(second) in filled("mounts").out
    table = Path("/proc/self/mounts").read_text()
    assert f"fusefs:narrow {first} fuse.fusefs " in table


def test_umount_from_within_by_a_relative_path(filled, mount):
    view = mount("wide")
    command = [sys.executable, "-m", "fusefs", "umount", "--lazy", f"../{view.name}"]
    done = subprocess.run(
        command, cwd=view, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Unmounted: {view}\n", "")


def test_umount_names_the_view_below(filled, mount, tmp_path):
    filled("session", "grant", "wide", "/=stage")
    view = mount("wide")
    below = view / "Dir1"
    filled("mount", "narrow", below, "--background")
    try:
        assert f"{below} is mounted below it" in filled("umount", view, expect=3).err
    finally:
        unmount(below)


def test_failures_of_mounting_have_a_code(filled, process, tmp_path):
    failed = process("mount", "narrow", tmp_path / "missing", "--json", expect=3).json
    assert failed["error"]["code"] == "FS_MOUNT"
    assert filled("umount", tmp_path, "--json", expect=3).json["error"]["code"] == "FS_MOUNT"


def test_a_refusal_of_the_system_points_to_the_doctor(filled, tmp_path):
    view = tmp_path / "view"
    view.mkdir()
    command = ["unshare", "--mount", "sh", "-c",
               'mount --bind /dev/null /dev/fuse && exec "$@"', "sh",
               sys.executable, "-m", "fusefs", "--instance", filled.instance, "mount", "narrow",
               view, "--json"]  # fmt: skip
    if os.geteuid() != 0 or subprocess.run([*command[:2], "true"], check=False).returncode:
        pytest.skip("needs a mount namespace")
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 3, done
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "FS_MOUNT"
    assert "`fusefs doctor`" in error["text"]


def test_rules_without_a_name_hint_at_bind(filled, tmp_path):
    assert "--bind HOST_DIR" in filled("mount", "--grant", "/=ro", tmp_path, expect=2).err


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
