"""From mounting to unmounting, and every way in which it can end."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fusefs.contract.levels import Level
from fusefs.daemon import mount_lock
from fusefs.daemon.mountpoint import MountError, is_dead, locate, mounted_at, prepare
from fusefs.daemon.unmount import umount
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance
from fusefs.tree.tree import HOST
from tests.daemon.conftest import ROOT, Mounted, World, is_mounted, until


def kept(world: World, path: str) -> bytes:
    with world.opened() as other:
        return other.read(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(world: World, number: signal.Signals) -> None:
    mounted = world.mount()
    (mounted.point / "f").write_bytes(b"kept")
    assert mounted.stop(number) == 0
    assert not is_mounted(mounted.point)
    assert kept(world, "/f") == b"kept"
    assert os.listdir(mounted.folder / "run") == []


def test_a_mount_in_use_is_ended_and_loses_nothing(world: World) -> None:
    mounted = world.mount()
    large = os.urandom(2_000_000)
    fd = os.open(mounted.point / "open", os.O_CREAT | os.O_WRONLY)
    os.write(fd, large)
    (mounted.point / "mapped").write_bytes(bytes(100_000))
    mapped = os.open(mounted.point / "mapped", os.O_RDWR)
    area = mmap.mmap(mapped, 100_000)
    area[:4] = b"mmap"
    assert mounted.stop() == 0
    for call in (lambda: os.write(fd, b"more"), lambda: os.close(fd), lambda: os.close(mapped)):
        with pytest.raises(OSError):
            call()
    assert not is_mounted(mounted.point)
    assert kept(world, "/open") == large
    assert kept(world, "/mapped")[:4] == b"mmap"


def test_two_signals_lose_nothing_that_was_closed(world: World) -> None:
    mounted = world.mount()
    (mounted.point / "small").write_bytes(b"small")
    (mounted.point / "large").write_bytes(b"x" * 5_000_000)
    cwd = os.open(mounted.point, os.O_RDONLY)
    mounted.process.send_signal(signal.SIGINT)
    mounted.process.send_signal(signal.SIGINT)
    assert mounted.process.wait(30) == 0
    os.close(cwd)
    assert kept(world, "/small") == b"small"
    assert kept(world, "/large") == b"x" * 5_000_000


def test_umount_by_hand_ends_the_daemon(world: World) -> None:
    mounted = world.mount()
    (mounted.point / "f").write_bytes(b"x" * 3_000_000)
    subprocess.run(["umount", mounted.point], check=True)
    assert mounted.process.wait(30) == 0
    assert kept(world, "/f") == b"x" * 3_000_000


def test_umount_waits_until_all_is_safe(world: World) -> None:
    mounted = world.mount()
    (mounted.point / "f").write_bytes(b"x" * 3_000_000)
    assert [s.session for s in mount_lock.served(world.folder / "run")] == ["all"]
    umount(mounted.point)
    assert list(mount_lock.served(world.folder / "run")) == []
    assert kept(world, "/f") == b"x" * 3_000_000
    with pytest.raises(MountError, match="not a mounted view"):
        umount(mounted.point)


def test_umount_of_a_mount_in_use(world: World) -> None:
    mounted = world.mount()
    with (mounted.point / "f").open("wb") as file:
        with pytest.raises(MountError, match="in use"):
            umount(mounted.point)
        file.write(b"still there")
        umount(mounted.point, lazy=True)
        assert not is_mounted(mounted.point)
        file.write(b", and more")
    assert mounted.process.wait(30) == 0
    assert kept(world, "/f") == b"still there, and more"


def test_a_killed_daemon_loses_nothing_that_was_closed(world: World) -> None:
    mounted = world.mount()
    (mounted.point / "small").write_bytes(b"small")
    (mounted.point / "large").write_bytes(b"y" * 1_000_000)
    (mounted.point / "dir").mkdir()
    mounted.stop(signal.SIGKILL)
    assert is_mounted(mounted.point)
    assert is_dead(str(mounted.point))
    mounted.start()
    assert (mounted.point / "small").read_bytes() == b"small"
    assert (mounted.point / "large").read_bytes() == b"y" * 1_000_000
    assert (mounted.point / "dir").is_dir()
    lines = Path("/proc/self/mounts").read_text().splitlines()
    assert sum(line.split()[1] == str(mounted.point) for line in lines) == 1


@pytest.mark.parametrize("used", [False, True], ids=["unused", "in use"])
def test_umount_takes_a_dead_mount_away(world: World, used: bool) -> None:
    mounted = world.mount()
    users = [os.open(mounted.point, os.O_RDONLY)] if used else []
    mounted.stop(signal.SIGKILL)
    umount(mounted.point)
    assert not is_mounted(mounted.point)
    for user in users:
        os.close(user)


def test_a_session_keeps_its_inode_numbers(world: World) -> None:
    mounted = world.mount()
    (mounted.point / "f").write_bytes(b"")
    before = (mounted.point / "f").stat().st_ino
    mounted.stop()
    mounted.start()
    assert (mounted.point / "f").stat().st_ino == before


def failure(mounted: Mounted) -> str:
    mounted.start(wait=False)
    assert mounted.process.wait(30) != 0
    return mounted.words


def test_mountpoints_that_are_refused(world: World, tmp_path: Path) -> None:
    keep_out = [str(world.folder)]
    with pytest.raises(MountError, match="does not exist"):
        prepare(str(tmp_path / "none"), keep_out)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(MountError, match="not a directory"):
        prepare(str(tmp_path / "file"), keep_out)
    (world.folder / "inside").mkdir()
    with pytest.raises(MountError, match="it lies in"):
        prepare(str(world.folder / "inside"), keep_out)
    with pytest.raises(MountError, match="it contains"):
        prepare(str(tmp_path), keep_out)
    with pytest.raises(MountError, match=r"has a file system \(proc\) mounted"):
        prepare("/proc", keep_out)
    (tmp_path / "instance-2").mkdir()
    prepare(str(tmp_path / "instance-2"), keep_out)


def test_a_bound_folder_is_kept_out_of_its_own_view(world: World, tmp_path: Path) -> None:
    bound = tmp_path / "bound"
    (bound / "view").mkdir(parents=True)
    with Instance.open(world.folder) as instance:
        instance.binds.put((b"host",), BindSpec(HOST, str(bound)), "-")
    mounted = world.mount()
    mounted.stop()
    mounted.point = bound / "view"
    assert f"it lies in {bound}, which the view is served from" in failure(mounted)
    mounted.point = bound
    assert "it is itself what the view is served from" in failure(mounted)


def test_a_mountpoint_is_served_once(world: World) -> None:
    first = world.mount()
    second = Mounted.__new__(Mounted)
    second.__dict__.update(first.__dict__)
    assert "has a view mounted on it already" in failure(second)
    (first.point / "lives").write_bytes(b"on")


def test_mountpoints_with_odd_names_and_through_links(world: World, tmp_path: Path) -> None:
    odd = tmp_path / "with space\tand \\ and\nline"
    odd.mkdir()
    (tmp_path / "link").symlink_to(odd)
    world.define("s", {})
    mounted = Mounted(world.folder, "s", tmp_path / "link")
    found = mounted_at(str(odd))
    assert found is not None
    assert found.type == "fuse.fusefs"
    umount(tmp_path / "link")
    assert mounted.process.wait(30) == 0
    assert mounted_at(str(odd)) is None
    mounted.clear()


def test_locating_does_not_touch_the_mount(tmp_path: Path) -> None:
    assert locate("/") == "/"
    assert locate(tmp_path / "a" / ".." / "b") == str(tmp_path / "b")


def test_the_service_manager_is_told(world: World, tmp_path: Path) -> None:
    mounted = world.mount()
    mounted.stop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(20)
        address = f"\0fusefs-test-{os.getpid()}"
        manager.bind(address)
        mounted.start(environment={"NOTIFY_SOCKET": "@" + address[1:], "WATCHDOG_USEC": "100000"})
        assert manager.recv(100) == b"READY=1"
        assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert mounted.stop() == 0
        until(lambda: manager.recv(100) == b"STOPPING=1")


def test_stacks_on_demand(world: World) -> None:
    mounted = world.mount()
    mounted.process.send_signal(signal.SIGUSR1)
    until(lambda: "in EntryQueue.task" in mounted.words)
    assert "Thread 0x" in mounted.words
    assert "in Background._commit_forever" in mounted.words
    (mounted.point / "lives").write_bytes(b"on")


def test_the_owner_can_be_set(world: World) -> None:
    mounted = world.mount(owner=(1234, 5678), allow_other=True)
    file = mounted.point / "f"
    file.write_bytes(b"")
    os.mkdir(mounted.point / "d")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 5678)
    os.chown(file, 1234, -1)
    with pytest.raises(PermissionError):
        os.chown(file, 0, 0)
    mounted.stop()
    plain = world.mount()
    assert (plain.point / "d").stat().st_uid == 1234


def test_without_extended_attributes(world: World) -> None:
    file = world.mount(xattrs=False).point / "f"
    file.write_bytes(b"")
    with pytest.raises(OSError):
        os.setxattr(file, "user.x", b"")


def test_in_a_user_namespace(world: World, tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    probe = subprocess.run(["unshare", "-Urm", "true"], check=False)
    if probe.returncode:
        pytest.skip("no user namespaces here")
    world.define("all", {(): Level.COMMIT})
    point = tmp_path / "inner"
    point.mkdir()
    script = """
        set -e
        "$1" -m tests.daemon.process "$2" all "$3" - "$4" < /dev/null > /dev/null &
        until grep -q "$3 fuse.fusefs" /proc/mounts; do kill -0 $!; sleep 0.05; done
        echo inside > "$3/f"; cat "$3/f"; stat -c %u "$3/f"
        kill $!; wait $!
    """
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, "sh", sys.executable, world.folder, point,
         json.dumps({})],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["inside", "0"], done.stderr
    assert kept(world, "/f") == b"inside\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="root makes a device that others may open")
def test_as_an_ordinary_user() -> None:
    """In a mount namespace of its own, where /dev/fuse is open to everybody."""
    make = """
import sys
from fusefs.contract.levels import Level
from fusefs.contract.sessions import SessionSpec
from fusefs.store.instance import Instance
with Instance.init(sys.argv[1]) as instance:
    instance.sessions.put(SessionSpec("all", grants={(): Level.COMMIT}), "-")
"""
    serve = """
        set -e
        "$1" -c "$3" "$2/instance"
        mkdir "$2/view"
        "$1" -m tests.daemon.process "$2/instance" all "$2/view" - "{}" > "$2/out" < "$2/out" &
        until grep -q "$2/view fuse.fusefs" /proc/mounts; do kill -0 $!; sleep 0.05; done
        echo inside > "$2/view/f"; cat "$2/view/f"; stat -c %u "$2/view/f"
        cd "$2/view"; kill $!; wait $!; cd /; ! grep -q "$2/view" /proc/mounts
    """
    become = """
        set -e
        mknod -m 666 "$2/fuse" c 10 229; mount --bind "$2/fuse" /dev/fuse
        : > "$2/out"; chown -R 65534:65534 "$2"; chmod 755 "$2"
        serve="$4"; set -- "$1" "$2" "$3"
        exec setpriv --reuid=65534 --regid=65534 --clear-groups \\
            --inh-caps=+dac_read_search --ambient-caps=+dac_read_search \\
            sh -c "$serve" sh "$@"
    """
    if shutil.which("fusermount3") is None:
        pytest.skip("needs fusermount3")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", become, "sh", sys.executable, folder, make, serve],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stdout.split() == ["inside", "65534"], done.stderr
        assert done.returncode == 0, done.stderr
