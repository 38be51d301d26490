"""What is held open answers by the rules of where it is now, whoever moved or removed it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import fusefs
from tests.conftest import Cli, Mount
from tests.daemon.calls import EXCHANGE, renameat2

_PATIENCE = 10.0


def refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError as error:
        assert error.errno in (errno.EACCES, errno.ENOENT, errno.ESTALE), error
        return True
    return False


def becomes(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.005)


@pytest.fixture
def view(cli: Cli, mount: Mount) -> Path:
    with fusefs.Instance.open(cli.instance) as instance:
        owner = fusefs.Session(instance)
        for path in ("/pub/d/sub/deep", "/pub/d/f", "/pub/top", "/pub/file", "/secret/x"):
            owner.write(path, b"before")
    cli("session", "create", "v", "--grant", "/pub=stage")
    return mount("v") / "pub"


@pytest.mark.parametrize("how", ["mv", "exchange"])
def test_a_move_into_the_hidden_takes_what_is_held(
    cli: Cli, mount: Mount, view: Path, how: str
) -> None:
    directory = os.open(view / "d", os.O_RDONLY)
    inner = os.open(view / "d/sub", os.O_PATH)
    files = [os.open(view / name, os.O_RDWR) for name in ("d/f", "top")]
    for fd in files:
        assert os.pread(fd, 10, 0) == b"before"
    if how == "mv":
        cli("mv", "/pub/d", "/secret/d")
        cli("mv", "/pub/top", "/secret/top")
    else:
        cli("session", "create", "all", "--grant", "/=stage")
        everything = mount("all")
        (everything / "secret/d").mkdir()
        (everything / "secret/top").touch()
        for name in ("d", "top"):
            renameat2(everything / "pub" / name, everything / "secret" / name, EXCHANGE)
    becomes(lambda: refused(lambda: os.listdir(directory)))
    for fd in files:
        becomes(lambda: refused(partial(os.pread, fd, 10, 0)))  # noqa: B023
        assert refused(partial(os.pwrite, fd, b"after", 0))
    for action in (
        lambda: os.stat("f", dir_fd=directory),
        lambda: os.listdir(f"/proc/self/fd/{inner}"),
        lambda: os.mkdir("new", dir_fd=inner),
        lambda: os.unlink("deep", dir_fd=inner),
        lambda: os.rename("deep", view / "stolen", src_dir_fd=inner),
        lambda: os.open("deep", os.O_RDWR, dir_fd=inner),
    ):
        assert refused(action)
    for fd in (*files, inner, directory):
        os.close(fd)
    assert cli("cat", "/secret/d/sub/deep").out == "before"


def test_the_trash_is_not_reached_through_what_is_held(cli: Cli, view: Path) -> None:
    inner = os.open(view / "d/sub", os.O_PATH)
    held = os.open(view / "d/f", os.O_RDWR)
    cli("rm", "/pub/d")
    becomes(lambda: refused(lambda: os.stat("deep", dir_fd=inner)))
    assert refused(lambda: os.listdir(f"/proc/self/fd/{inner}"))
    assert refused(lambda: os.open("deep", os.O_WRONLY | os.O_TRUNC, dir_fd=inner))
    assert os.pread(held, 10, 0) == b"before"  # as POSIX has it for what is open
    os.close(held)
    cli("trash", "restore", "/pub/d")
    becomes(lambda: not refused(lambda: os.stat(view / "d/sub/deep")))
    assert (view / "d/sub/deep").read_bytes() == b"before"
    becomes(lambda: not refused(lambda: os.stat("deep", dir_fd=inner)))
    os.close(inner)


def test_an_exchange_obeys_the_rules_below_either_place(cli: Cli, mount: Mount) -> None:
    with fusefs.Instance.open(cli.instance) as instance:
        owner = fusefs.Session(instance)
        owner.write("/p", b"file")
        owner.write("/t/x", b"inner")
    cli("session", "create", "s", "--grant", "/=stage", "--grant", "/p/x=none")
    top = mount("s")
    with pytest.raises(PermissionError):
        renameat2(top / "p", top / "t", EXCHANGE)
    assert (top / "t/x").read_bytes() == b"inner"


@pytest.mark.parametrize("how", ["host", "session"])
def test_what_is_moved_in_a_bound_folder_is_held_to_where_it_is(
    cli: Cli, mount: Mount, tmp_path: Path, how: str
) -> None:
    host = tmp_path / "host"
    for directory in ("pub/d", "ro", "sec"):
        (host / directory).mkdir(parents=True)
    for name in ("pub/d/f", "pub/top", "pub/seen", "pub/stays"):
        (host / name).write_bytes(b"before")
    cli("bind", host, "/h")
    cli("session", "create", "v", "--grant", "/h=stage", "--grant", "/h/sec=none",
        "--grant", "/h/ro=ro")  # fmt: skip
    cli("session", "create", "all", "--grant", "/=commit")
    view = mount("v") / "h"
    mover = host if how == "host" else mount("all") / "h"
    names = ("d/f", "top", "seen", "stays")
    inside, top, seen, stays = (os.open(view / "pub" / name, os.O_RDWR) for name in names)
    bare = os.open(view / "pub/top", os.O_PATH)
    os.rename(mover / "pub/d", mover / "sec/d")
    os.rename(mover / "pub/top", mover / "sec/top")
    os.rename(mover / "pub/seen", mover / "ro/seen")
    for name in ("sec/d/f", "sec/top", "ro/seen"):
        (mover / name).write_bytes(b"SECRET")
    for fd in (inside, top):
        assert refused(partial(os.pwrite, fd, b"after", 0))
        assert refused(partial(os.ftruncate, fd, 1))
        assert refused(partial(os.setxattr, fd, "user.a", b"x"))
        assert refused(partial(os.open, f"/proc/self/fd/{fd}", os.O_RDWR))
        becomes(lambda: refused(partial(_new_bytes, fd)))  # noqa: B023
    assert refused(partial(os.open, f"/proc/self/fd/{bare}", os.O_RDONLY))
    # Where it may still be seen it goes on, as far as it may be there.
    becomes(lambda: os.pread(seen, 10, 0) == b"SECRET")
    with pytest.raises(OSError) as caught:
        os.pwrite(seen, b"after", 0)
    assert caught.value.errno == errno.EROFS
    os.pwrite(stays, b"after!", 0)
    assert (host / "pub/stays").read_bytes() == b"after!"
    assert (host / "sec/top").read_bytes() == (host / "sec/d/f").read_bytes() == b"SECRET"
    for fd in (inside, top, seen, stays, bare):
        os.close(fd)


def _new_bytes(fd: int) -> None:
    assert os.pread(fd, 10, 0) != b"SECRET"
