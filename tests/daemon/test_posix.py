"""What POSIX and ext4 have, on a real mount of everything."""

from __future__ import annotations

import errno
import mmap
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.calls import EXCHANGE, NOREPLACE, WHITEOUT, renameat2

NOBODY = 65534


def refused(number: int, call: Callable[..., object], *arguments: object, **named: object) -> None:
    with pytest.raises(OSError) as caught:
        call(*arguments, **named)
    assert errno.errorcode[caught.value.errno or 0] == errno.errorcode[number]


def as_nobody(command: str, directory: Path, *arguments: str) -> str:
    """Run a shell command as an ordinary user, to whom the folders above may be closed."""
    done = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "sh", "-ec",
         command, "sh", *arguments],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else done.stderr


def test_errnos(view: Path) -> None:
    (view / "file").write_bytes(b"x")
    (view / "dir").mkdir()
    (view / "dir" / "inner").write_bytes(b"")
    refused(errno.ENOENT, os.stat, view / "missing")
    refused(errno.ENOENT, os.stat, view / "missing" / "deeper")
    refused(errno.ENOTDIR, os.stat, view / "file" / "deeper")
    refused(errno.ENOTDIR, os.listdir, view / "file")
    refused(errno.EISDIR, os.open, view / "dir", os.O_WRONLY)
    refused(errno.EISDIR, os.unlink, view / "dir")
    refused(errno.ENOTDIR, os.rmdir, view / "file")
    refused(errno.ENOTEMPTY, os.rmdir, view / "dir")
    refused(errno.EEXIST, os.mkdir, view / "dir")
    refused(errno.EEXIST, os.open, view / "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    refused(errno.EINVAL, os.readlink, view / "file")
    refused(errno.EINVAL, os.rename, view / "dir", view / "dir" / "below")
    refused(errno.ENOTDIR, os.rename, view / "dir", view / "file")
    refused(errno.EISDIR, os.rename, view / "file", view / "dir")
    refused(errno.EPERM, os.link, view / "file", view / "hard")


def test_names_may_have_255_bytes(view: Path) -> None:
    long = "n" * 255
    (view / long).write_bytes(b"1")
    assert os.listdir(view) == [long]
    for call in (os.stat, os.mkdir, os.unlink, os.rmdir, lambda p: os.symlink("t", p)):
        refused(errno.ENAMETOOLONG, call, view / (long + "n"))
    refused(errno.ENAMETOOLONG, os.rename, view / long, view / (long + "n"))


def test_names_are_bytes(view: Path) -> None:
    name = os.fsencode(view) + b"/\xff\xfe \n"
    os.mkdir(name)
    assert os.listdir(os.fsencode(view)) == [b"\xff\xfe \n"]


def test_reserved_name(shared_root: Path) -> None:
    for call in (os.mkdir, lambda p: os.symlink("t", p), lambda p: p.write_bytes(b"")):
        refused(errno.EPERM, call, shared_root / ".fusefs")


@pytest.fixture
def shared_root(view: Path) -> Path:
    return view.parent


def test_append_goes_to_the_end(view: Path) -> None:
    file = view / "log"
    one = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    two = os.open(file, os.O_WRONLY | os.O_APPEND)
    for _ in range(50):
        os.write(one, b"one\n")
        os.write(two, b"two\n")
    os.lseek(one, 0, os.SEEK_SET)
    os.write(one, b"end\n")
    os.close(one)
    os.close(two)
    assert file.read_bytes() == b"one\ntwo\n" * 50 + b"end\n"


def test_truncating_open(view: Path) -> None:
    file = view / "f"
    file.write_bytes(b"x" * 100_000)
    fd = os.open(file, os.O_WRONLY | os.O_TRUNC)
    assert os.fstat(fd).st_size == 0
    os.close(fd)
    assert file.read_bytes() == b""


@pytest.mark.parametrize("size", [10, 300_000])
def test_truncate_by_path_and_by_handle(view: Path, size: int) -> None:
    file = view / "f"
    data = os.urandom(size)
    file.write_bytes(data)
    os.truncate(file, size // 2)
    assert file.read_bytes() == data[: size // 2]
    with file.open("r+b") as handle:
        os.ftruncate(handle.fileno(), size + 5)
        assert os.fstat(handle.fileno()).st_size == size + 5
    assert file.read_bytes() == data[: size // 2] + bytes(size + 5 - size // 2)
    os.truncate(file, 3)
    os.truncate(file, 0)
    assert file.stat().st_size == 0


def test_each_time_stands_on_its_own(view: Path) -> None:
    file = view / "f"
    file.write_bytes(b"")
    os.utime(file, ns=(1_000_000_001, 2_000_000_002))
    status = file.stat()
    assert (status.st_atime_ns, status.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    subprocess.run(["touch", "-a", "-d", "@5.5", file], check=True)
    status = file.stat()
    assert (status.st_atime_ns, status.st_mtime_ns) == (5_500_000_000, 2_000_000_002)
    subprocess.run(["touch", "-m", "-d", "@7.25", file], check=True)
    status = file.stat()
    assert (status.st_atime_ns, status.st_mtime_ns) == (5_500_000_000, 7_250_000_000)
    before = file.stat().st_ctime_ns
    os.utime(file)
    assert file.stat().st_mtime_ns > before - 10**9


@pytest.mark.parametrize("size", [5, 200_000])
def test_an_unlinked_open_file_lives_on(view: Path, size: int) -> None:
    file = view / "f"
    data = os.urandom(size)
    file.write_bytes(data)
    fd = os.open(file, os.O_RDWR)
    os.unlink(file)
    refused(errno.ENOENT, os.stat, file)
    assert os.fstat(fd).st_size == size
    assert os.fstat(fd).st_nlink == 0
    os.pwrite(fd, b"new", 0)
    os.ftruncate(fd, size + 1)
    os.fchmod(fd, 0o600)
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
    assert os.pread(fd, size + 1, 0) == b"new" + data[3:] + b"\0"
    file.write_bytes(b"another")
    assert os.fstat(fd).st_ino != file.stat().st_ino
    assert os.pread(fd, 3, 0) == b"new"
    os.fsync(fd)
    os.close(fd)
    assert file.read_bytes() == b"another"


def test_a_replaced_open_file_lives_on(view: Path) -> None:
    (view / "old").write_bytes(b"old")
    (view / "new").write_bytes(b"new")
    fd = os.open(view / "old", os.O_RDWR)
    os.rename(view / "new", view / "old")
    assert os.pread(fd, 9, 0) == b"old"
    os.pwrite(fd, b"OLD!", 0)
    assert os.pread(fd, 9, 0) == b"OLD!"
    assert (view / "old").read_bytes() == b"new"
    os.close(fd)
    assert (view / "old").read_bytes() == b"new"


def test_a_name_made_again_is_another_inode(view: Path) -> None:
    file = view / "f"
    numbers = set()
    for _ in range(5):
        file.write_bytes(b"")
        numbers.add(file.stat().st_ino)
        file.unlink()
    assert len(numbers) == 5


def test_rename_flags(view: Path) -> None:
    (view / "a").write_bytes(b"a")
    (view / "b").mkdir()
    (view / "b" / "in").write_bytes(b"in")
    refused(errno.EEXIST, renameat2, view / "a", view / "b", NOREPLACE)
    renameat2(view / "a", view / "c", NOREPLACE)
    renameat2(view / "c", view / "b", EXCHANGE)
    assert (view / "b").read_bytes() == b"a"
    assert (view / "c" / "in").read_bytes() == b"in"
    refused(errno.ENOENT, renameat2, view / "c", view / "missing", EXCHANGE)
    refused(errno.EINVAL, renameat2, view / "b", view / "d", WHITEOUT)


def test_a_moved_directory_takes_its_children_along(view: Path) -> None:
    deep = view / "one" / "two" / "three"
    deep.mkdir(parents=True)
    (deep / "f").write_bytes(b"deep")
    fd = os.open(deep, os.O_RDONLY)
    number = (deep / "f").stat().st_ino
    os.rename(view / "one", view / "uno")
    moved = view / "uno" / "two" / "three" / "f"
    assert moved.read_bytes() == b"deep"
    assert moved.stat().st_ino == number
    assert os.listdir(fd) == ["f"]
    assert os.stat("f", dir_fd=fd).st_ino == number
    os.close(fd)
    refused(errno.ENOENT, os.stat, deep)


def test_kinds_of_nodes(view: Path) -> None:
    os.mknod(view / "plain", stat.S_IFREG | 0o640)
    os.mkfifo(view / "fifo", 0o600)
    os.mknod(view / "socket", stat.S_IFSOCK | 0o600)
    os.symlink("plain", view / "link")
    assert stat.S_ISREG((view / "plain").stat().st_mode)
    assert stat.S_ISFIFO((view / "fifo").stat().st_mode)
    assert stat.S_ISSOCK((view / "socket").stat().st_mode)
    assert os.readlink(view / "link") == "plain"
    assert (view / "link").lstat().st_size == len("plain")
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        refused(errno.EPERM, os.mknod, view / "device", kind | 0o600, os.makedev(1, 3))


def test_a_fifo_works(view: Path) -> None:
    os.mkfifo(view / "fifo")
    writer = threading.Thread(target=lambda: (view / "fifo").write_bytes(b"through"))
    writer.start()
    assert (view / "fifo").read_bytes() == b"through"
    writer.join()


def test_a_socket_works(view: Path) -> None:
    path = str(view / "s")
    os.chdir(view)
    try:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("s")
            server.listen()
            client.connect("s")
    finally:
        os.chdir("/")
    assert stat.S_ISSOCK(os.stat(path).st_mode)


def test_a_file_made_with_mode_0_can_be_written(view: Path) -> None:
    os.chmod(view, 0o777)
    as_nobody("umask 0; exec 3> f", view)
    fd = os.open(view / "g", os.O_CREAT | os.O_WRONLY, 0)
    os.write(fd, b"yes")
    os.close(fd)
    assert stat.S_IMODE((view / "g").stat().st_mode) == 0
    assert (view / "g").read_bytes() == b"yes"
    assert (view / "f").stat().st_uid == NOBODY


def test_umask_and_owner(view: Path) -> None:
    os.chmod(view, 0o777)
    out = as_nobody(
        'umask 027; mkdir d; : > f; ln -s x l; mkfifo p; stat -c "%n %a %u %g" d f l p', view
    )
    assert out.split() == [
        word
        for node in ("d 750", "f 640", "l 777", "p 640")
        for word in (*node.split(), str(NOBODY), str(NOBODY))
    ]


def test_set_group_id_directories_pass_on_their_group(view: Path) -> None:
    os.chown(view, 0, 1234)
    os.chmod(view, 0o2777)
    out = as_nobody('umask 022; mkdir d; : > f; stat -c "%n %a %g" d f', view)
    assert out == "d 2755 1234\nf 644 1234\n"


def test_set_user_id_is_dropped_by_a_write_of_others(view: Path) -> None:
    for name, change in {
        "write": 'echo x >> "$1"',
        "truncate": 'truncate -s 1 "$1"',
        "cut": ': > "$1"',
    }.items():
        file = view / name
        file.write_bytes(b"program")
        os.chmod(file, 0o6777)
        assert as_nobody(change, view, name) == ""
        assert stat.S_IMODE(file.stat().st_mode) == 0o777, name
    file = view / "chown"
    file.write_bytes(b"")
    os.chown(file, NOBODY, NOBODY)
    os.chmod(file, 0o6777)
    os.chown(file, NOBODY, 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o777


def test_the_sticky_bit_protects(view: Path) -> None:
    os.chmod(view, 0o1777)
    (view / "mine").write_bytes(b"")
    assert "not permitted" in as_nobody("rm -f mine", view)


def test_permissions_hold(view: Path) -> None:
    (view / "secret").write_bytes(b"s")
    os.chmod(view / "secret", 0o600)
    assert "Permission denied" in as_nobody("cat secret", view)
    assert "ermission denied" in as_nobody("mkdir d", view)


def test_extended_attributes(view: Path) -> None:
    file = view / "f"
    file.write_bytes(b"")
    assert os.listxattr(file) == []
    refused(errno.ENODATA, os.getxattr, file, "user.x")
    os.setxattr(file, "user.x", b"1", os.XATTR_CREATE)
    refused(errno.EEXIST, os.setxattr, file, "user.x", b"2", os.XATTR_CREATE)
    os.setxattr(file, "user.x", b"\0" * 1000, os.XATTR_REPLACE)
    refused(errno.ENODATA, os.setxattr, file, "user.y", b"2", os.XATTR_REPLACE)
    os.setxattr(file, "user.empty", b"")
    assert sorted(os.listxattr(file)) == ["user.empty", "user.x"]
    assert os.getxattr(file, "user.x") == b"\0" * 1000
    assert os.getxattr(file, "user.empty") == b""
    os.removexattr(file, "user.x")
    refused(errno.ENODATA, os.removexattr, file, "user.x")
    assert os.getxattr(file, "user.fusefs.level") == b"commit"
    refused(errno.EOPNOTSUPP, os.setxattr, file, "user.fusefs.level", b"ro")
    refused(errno.EOPNOTSUPP, os.removexattr, file, "user.fusefs.level")
    refused(errno.ENODATA, os.getxattr, file, "security.capability")
    refused(errno.EOPNOTSUPP, os.setxattr, file, "security.x", b"")
    refused(errno.EOPNOTSUPP, os.getxattr, file, "system.posix_acl_access")


def test_statfs_tells_nothing(view: Path) -> None:
    before = os.statvfs(view)
    (view / "f").write_bytes(b"x" * 1_000_000)
    after = os.statvfs(view)
    assert before == after
    assert after.f_namemax == 255


def test_blocks_follow_the_size(view: Path) -> None:
    (view / "f").write_bytes(b"x" * 5000)
    assert (view / "f").stat().st_blocks == 10
    assert view.stat().st_nlink == 1


@pytest.mark.parametrize("flags", [os.O_DIRECT, os.O_SYNC, os.O_DSYNC, os.O_NOATIME, 0])
def test_flags_of_open(view: Path, flags: int) -> None:
    file = view / "f"
    area = mmap.mmap(-1, 8192)
    area.write(b"z" * 8192)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | flags, 0o644)
    assert os.pwritev(fd, [area], 0) == 8192
    assert os.preadv(fd, [area], 0) == 8192
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)
    assert file.read_bytes() == b"z" * 8192


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_memory_maps(view: Path, size: int) -> None:
    file = view / "f"
    file.write_bytes(bytes(size))
    with file.open("r+b") as handle, mmap.mmap(handle.fileno(), size) as area:
        area[:5] = b"hello"
        area[-5:] = b"world"
        area.flush()
    assert file.read_bytes() == b"hello" + bytes(size - 10) + b"world"


def test_sync_calls(view: Path) -> None:
    fd = os.open(view, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    (view / "f").write_bytes(b"")
    subprocess.run(["sync", "-f", view], check=True)


def test_a_large_file_is_changed_in_place(view: Path) -> None:
    file = view / "large"
    data = bytearray(os.urandom(3_000_000))
    file.write_bytes(data)
    with file.open("r+b", buffering=0) as one, file.open("r+b", buffering=0) as two:
        one.seek(1_000_000)
        one.write(b"A" * 1000)
        two.seek(1_000_500)
        two.write(b"B" * 1000)
    data[1_000_000:1_000_500] = b"A" * 500
    data[1_000_500:1_001_500] = b"B" * 1000
    assert file.read_bytes() == data


def test_others_see_names_and_times_change(view: Path) -> None:
    before = view.stat().st_mtime_ns
    (view / "f").write_bytes(b"")
    assert view.stat().st_mtime_ns > before
    before, changed = view.stat().st_mtime_ns, (view / "f").stat().st_ctime_ns
    os.rename(view / "f", view / "g")
    assert view.stat().st_mtime_ns > before
    assert (view / "g").stat().st_ctime_ns > changed
    before = view.stat().st_mtime_ns
    os.unlink(view / "g")
    assert view.stat().st_mtime_ns > before


def test_a_directory_that_is_gone_still_answers(view: Path) -> None:
    (view / "d").mkdir()
    fd = os.open(view / "d", os.O_RDONLY)
    os.rmdir(view / "d")
    assert stat.S_ISDIR(os.fstat(fd).st_mode)
    refused(errno.ENOENT, os.open, "f", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    os.close(fd)


def test_a_mapping_of_an_append_handle_is_refused_and_not_garbled(view: Path) -> None:
    fd = os.open(view / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(fd, b"x" * 5000)
    with pytest.raises(OSError, match="No such device"):
        mmap.mmap(fd, 5000)
    os.close(fd)
    assert (view / "log").read_bytes() == b"x" * 5000
