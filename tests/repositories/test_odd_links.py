"""Symbolic links as they can be committed and no system call can follow them."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from fusefs.contract.errors import UnusableLink
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from tests.conftest import Cli, Mount, Quick
from tests.repositories.remote import Remote, git

ODD = {
    "nul": (b"a\0b", errno.EINVAL, "has a NUL"),
    "empty": (b"", errno.ENOENT, "is empty"),
    "long": (b"x" * 5000, errno.ENAMETOOLONG, "is 5,000 bytes long"),
}


@pytest.fixture
def quick(cli: Cli, tmp_path: Path) -> Quick:
    remote = Remote(tmp_path / "forge", {"a": "a\n"})
    for name, (data, _, _) in ODD.items():
        made = subprocess.run(
            ["git", "-C", remote.clone, "hash-object", "-w", "--stdin"], input=data,
            capture_output=True, check=True,
        )  # fmt: skip
        oid = made.stdout.decode().strip()
        git(remote.clone, "update-index", "--add", "--cacheinfo", f"120000,{oid},{name}")
    git(remote.clone, "commit", "-q", "-m", "links")
    git(remote.clone, "push", "-q", "origin", "HEAD:main")
    command = Quick(cli.instance)
    command("repo", "add", remote.url, "/p")
    command("session", "create", "s", "--grant", "/=commit")
    command("session", "create", "c", "--world", "chat", "--grant", "/=commit")
    return command


def test_they_are_named_and_kept(quick: Quick, mount: Mount, tmp_path: Path) -> None:
    top, chat = mount("s") / "p", mount("c") / "p"
    for name, (data, number, why) in ODD.items():
        text = f"Not a usable link: the target of /p/{name} {why}.\n"
        assert os.lstat(top / name).st_size == len(data)
        for call in (os.readlink, os.stat, Path.read_bytes):
            with pytest.raises(OSError) as caught:
                call(top / name)
            assert caught.value.errno == number, (name, call)
        for words in (["cat"], ["write"]):
            refused = quick(*words, f"/p/{name}", "--session", "s", expect=1)
            assert refused.err == text
        assert (chat / name).read_bytes() == data
        shown = quick("cat", f"/p/{name}", "--session", "c").out
        assert shown.encode("utf-8", "surrogateescape") == data
        os.rename(top / name, top / f"{name}-2")
    assert len(quick("ls", "-l", "/p", "--session", "s").out.splitlines()) == 4
    skipped = quick("export", "/p", tmp_path / "out", expect=1).err
    assert skipped.count("Not a usable link") == 3
    cut_off = quick("repo", "worktree", "/p", "--materialise", "--session", "s", expect=4).err
    assert cut_off.startswith("git cannot write all files: ")
    quick("commit", "-m", "Move", "/p", "--session", "s")
    os.unlink(top / "nul-2")
    assert quick("status", "/p", "--session", "s").out == " D nul-2\n"
    quick("repo", "restore", "/p", "--session", "s")
    quick("check")


def test_none_can_be_made(tmp_path: Path) -> None:
    with Instance.init(tmp_path / "instance") as instance:
        for data, _, why in ODD.values():
            with pytest.raises(UnusableLink, match=why):
                Session(instance).symlink("/link", data)
