"""`fusefs doctor` on real mounts whose processes were killed or stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.contract.levels import Level
from fusefs.contract.sessions import SessionSpec
from fusefs.daemon import mending, mount_lock, probe
from fusefs.daemon.mountpoint import mounted_at
from fusefs.daemon.probe import Answer, ask
from fusefs.store.findings import Finding, Verdict
from fusefs.store.instance import Instance
from tests.conftest import Cli, Mount, Quick, mountpoints, unmount


@pytest.fixture
def work(cli: Cli, mount: Mount) -> Path:
    define(cli.instance, "work")
    return mount("work")


def define(folder: Path, name: str) -> None:
    with Instance.open(folder) as instance:
        instance.sessions.put(SessionSpec(name, grants={(): Level.COMMIT}), "-")


def daemon_of(cli: Cli, point: Path) -> int:
    (pid,) = [s.pid for s in mount_lock.served(cli.instance / "run") if s.mountpoint == str(point)]
    return pid


def kill(cli: Cli, point: Path) -> None:
    """Kill the daemon and wait until the kernel has noticed."""
    pid = daemon_of(cli, point)
    lock = mount_lock.find(str(point))
    assert lock is not None
    os.kill(pid, signal.SIGKILL)
    assert mount_lock.wait(lock, 20)
    os.close(lock)
    while ask(str(point)) is not Answer.DEAD:
        time.sleep(0.01)


@pytest.fixture
def stopped(cli: Cli, work: Path) -> Iterator[int]:
    pid = daemon_of(cli, work)
    os.kill(pid, signal.SIGSTOP)
    yield pid
    os.kill(pid, signal.SIGCONT)


def mounts_of(cli: Cli, *, dry_run: bool = False) -> list[Finding]:
    """What there is to be said of the mounts of the session "work"."""
    return list(mending.examine(cli.instance / "run", "work", dry_run=dry_run))


def test_a_live_mount_is_left_alone(cli: Cli, work: Path) -> None:
    with (work / "open").open("w") as file:
        (finding,) = mounts_of(cli)
        assert finding.verdict is Verdict.OK
        assert f"process {daemon_of(cli, work)} at {work} answers" in finding.detail
        file.write("goes on")
    assert (work / "open").read_text() == "goes on"


def test_a_dead_mount_is_taken_away(cli: Cli, work: Path, mount: Mount) -> None:
    define(cli.instance, "other")
    other = mount("other")
    (work / "f").write_text("kept")
    kill(cli, work)
    kill(cli, other)
    found = cli("doctor", "--session", "work", "--dry-run", "--json", expect=1).json
    assert not found["healthy"]
    assert ["mount of work", "to mend"] in [[f["name"], f["verdict"]] for f in found["findings"]]
    assert str(work) in mountpoints()
    said = cli("doctor", "--session", "work").out
    assert f"at {work} died: every use fails with ENOTCONN: unmounted" in said
    assert str(work) not in mountpoints()
    assert str(other) in mountpoints()  # of a session that was not asked for
    said = cli("doctor").out
    assert "mended    mount of other" in said
    assert said.endswith("All is well.\n")
    assert not {m for m in mountpoints() if m.startswith(str(work.parent))}
    assert list((cli.instance / "run").glob("mount-*.lock")) == []
    assert cli("cat", "/f").out == "kept"


def test_a_mount_that_does_not_answer(cli: Cli, work: Path, stopped: int) -> None:
    said = cli("doctor", "--session", "work", expect=1).out
    assert "does not answer within 5 seconds: it is stopped" in said
    assert f"→ kill -CONT {stopped} lets it go on" in said
    log = cli.instance / "run" / "work.log"
    assert f"kill -USR1 {stopped} has it write where it is to {log}" in said
    assert said.endswith("Something remains to be done: see the arrows above.\n")
    os.kill(stopped, signal.SIGCONT)
    (work / "f").write_text("lives")
    # Nobody but the owner of the lock ends it.
    assert daemon_of(cli, work) == stopped


def test_a_stuck_mount_holds_up_no_command(cli: Cli, work: Path, stopped: int) -> None:
    assert ask(str(work), 0.1) is Answer.NONE
    cli("umount", "--lazy", work)
    assert str(work) not in mountpoints()
    assert "it is stopped" in mounts_of(cli)[0].detail


@pytest.fixture
def covered(work: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root mounts a tmpfs")
    subprocess.run(["mount", "-t", "tmpfs", "foreign", work], check=True)
    (work / "theirs").write_text("foreign")
    yield work
    if mounted_at(str(work)) is not None and "foreign" in Path("/proc/self/mounts").read_text():
        subprocess.run(["umount", work], check=True)


def test_a_foreign_mount_is_never_touched(cli: Cli, covered: Path) -> None:
    (finding,) = mounts_of(cli)
    assert finding.verdict is Verdict.OPTIONAL
    assert "below another mount (tmpfs)" in finding.detail
    pid, lock = daemon_of(cli, covered), mount_lock.find(str(covered))
    assert lock is not None
    os.kill(pid, signal.SIGKILL)
    assert mount_lock.wait(lock, 20)
    os.close(lock)
    (finding,) = mounts_of(cli)
    assert finding.verdict is Verdict.BROKEN
    assert f"umount {covered}" in finding.remedy
    assert (covered / "theirs").read_text() == "foreign"
    # Ours goes away from below it (and its lock is still there).
    subprocess.run(["umount", covered], check=True)
    subprocess.run(["umount", covered], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "foreign", covered], check=True)
    (finding,) = mounts_of(cli)
    assert "its lock is left: removed" in finding.detail
    assert mounts_of(cli) == []
    assert "foreign" in Path("/proc/self/mounts").read_text()


def test_what_is_mounted_below_a_dead_mount_does_not_go_with_it(cli: Cli, work: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root mounts a tmpfs")
    (work / "inner").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "foreign", work / "inner"], check=True)
    try:
        kill(cli, work)
        (finding,) = mounts_of(cli)
        assert finding.verdict is Verdict.BROKEN
        assert f"{work}/inner is mounted below it" in finding.detail
        assert f"{work}/inner" in Path("/proc/self/mounts").read_text()
    finally:
        cli("umount", "--lazy", work)
    assert f"{work}/inner" not in Path("/proc/self/mounts").read_text()
    assert mounts_of(cli)[0].verdict is Verdict.MENDED


def test_a_live_view_of_another_instance_at_the_place(cli: Cli, work: Path, tmp_path: Path) -> None:
    kill(cli, work)
    other = Quick(tmp_path / "other")
    Instance.init(other.instance).close()
    define(other.instance, "work")
    other.mount("work", work)
    (finding,) = mounts_of(cli)
    assert "a live view of another instance" in finding.detail
    (work / "f").write_text("theirs")
    assert other("cat", "/f").out == "theirs"
    assert mounts_of(cli) == []


def test_a_lock_of_a_process_that_died_while_starting(cli: Cli) -> None:
    lock = cli.instance / "run" / "mount-0123456789abcdef.lock"
    lock.touch()
    run = cli.instance / "run"
    assert [f.verdict for f in mending.examine(run, dry_run=True)] == [Verdict.TO_MEND]
    (finding,) = mending.examine(run)
    assert finding == Finding(
        "mount", Verdict.MENDED, "a lock of a process that died while it was starting: removed"
    )
    assert not lock.exists()


def test_sessions_that_are_not_known(cli: Cli, work: Path) -> None:
    cli("doctor", "--session", "nobody", expect=3)
    with Instance.open(cli.instance) as instance:
        instance.sessions.remove("work", "-")
    cli("doctor", "--session", "work")
    assert mounts_of(cli)[0].verdict is Verdict.OK  # removed, but still mounted


def test_probing_what_is_no_mount(tmp_path: Path) -> None:
    assert ask(str(tmp_path)) is Answer.SERVED
    assert probe.ask(str(tmp_path / "none")) is Answer.SERVED  # it is answered that there is none


def test_a_bound_folder_that_is_lost(cli: Cli, tmp_path: Path) -> None:
    bound = tmp_path / "bound"
    bound.mkdir()
    cli("bind", bound, "/bound")
    bound.rmdir()
    assert "bound folders cannot be opened: /bound" in cli("doctor", expect=1).out


def test_a_lock_file_that_was_removed_under_a_mount(cli: Cli, work: Path) -> None:
    (work / "before").write_bytes(b"kept")
    (cli.instance / "lock.mdb").unlink()
    for words in (["ls", "/"], ["doctor"], ["check"]):
        said = cli(*words, expect=None)
        assert "lock.mdb was removed while the instance is in use" in said.out + said.err
    (work / "after").write_bytes(b"kept, too")
    unmount(work)
    assert cli("cat", "/after").out == "kept, too"
    cli("check")
