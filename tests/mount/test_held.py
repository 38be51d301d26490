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
