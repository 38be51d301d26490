"""A clone that is damaged, or a remote with no usable branch: one mount less, and nothing more."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Cli, Mount, Quick
from tests.repositories.remote import Remote

FILES = {"a": "a\n", "d/b": "b\n"}


def write(name: str, data: str) -> Callable[[Path], object]:
    return lambda clone: (clone / name).write_text(data)


def lose(*names: str) -> Callable[[Path], None]:
    def remove(clone: Path) -> None:
        for name in names:
            if (clone / name).is_dir():
                shutil.rmtree(clone / name)
            else:
                (clone / name).unlink()

    return remove


DAMAGE = {
    "head": lose("HEAD"),
    "objects": lose("objects"),
    "refs": lose("refs", "packed-refs"),
    "config": write("config", "[core\nbroken = ="),
    "version": write("config", "[core]\n\trepositoryformatversion = 99\n"),
}


def clone_of(cli: Cli) -> Path:
    return next((cli.instance / "repositories").glob("*.git"))


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "forge", FILES)


@pytest.fixture
def quick(tmp_path: Path, remote: Remote) -> Quick:
    """An instance with the repository at /g, of which a session has a change, and a file."""
    cli = Quick(tmp_path / "instance")
    cli("init")
    cli("write", "/file", stdin=b"beside\n")
    cli("repo", "add", remote.url, "/g")
    cli("session", "create", "s", "--grant", "/=ro", "--grant", "/g=commit")
    cli("write", "/g/a", "--session", "s", stdin=b"mine\n")
    return cli


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_clone_is_one_mount_less(
    quick: Quick, damage: Callable[[Path], object]
) -> None:
    damage(clone_of(quick))
    assert quick("ls", "/").out == "g/\nfile\n"
    assert quick("cat", "/file", "--session", "s").out == "beside\n"
    assert "cannot be opened" in quick("ls", "/g", "--session", "s", expect=4).err
    assert "/g: the clone of " in quick("check", expect=1).out
    assert "/g: its clone cannot be read" in quick("repo", "list").err
    quick("doctor", expect=None)
    quick("gc")
    quick("session", "list")
    assert "staged changes of s" in quick("repo", "rm", "/g", expect=1).err
    quick("repo", "rm", "--force", "/g")
    assert quick("ls", "/").out == "g/\nfile\n"
    assert "No problems" in quick("check").out


@pytest.mark.parametrize(
    "damage", [write("packed-refs", "garbage\n"), lose("objects/pack")], ids=["refs", "pack"]
)
def test_a_clone_is_damaged_that_opens(quick: Quick, damage: Callable[[Path], object]) -> None:
    damage(clone_of(quick))
    quick("session", "create", "late", "--grant", "/=ro")
    for words in (["ls", "/"], ["ls", "/", "--session", "late"]):
        assert quick(*words).out == "g/\nfile\n"
    assert "cannot be opened" in quick("ls", "/g", "--session", "late", expect=4).err
    assert "/g: the clone of " in quick("check", expect=1).out
    assert "/g: " in quick("repo", "list").err
    quick("gc")
    quick("repo", "rm", "/g", expect=1)
    quick("repo", "rm", "--force", "/g")
    assert "No problems" in quick("check").out


def test_a_session_is_mounted_beside_a_damaged_clone(
    cli: Cli, mount: Mount, remote: Remote
) -> None:
    cli("repo", "add", remote.url, "/g")
    cli("write", "/file", stdin=b"beside\n")
    cli("session", "create", "s", "--grant", "/=ro")
    lose("HEAD")(clone_of(cli))
    top = mount("s")
    assert sorted(os.listdir(top)) == ["file", "g"]
    assert (top / "file").read_text() == "beside\n"
    with pytest.raises(OSError, match="No such device") as caught:
        os.listdir(top / "g")
    assert caught.value.errno == errno.ENODEV


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_works_in_a_clone_of_the_instances_user(quick: Quick, remote: Remote) -> None:
    def give(top: Path) -> None:
        for folder, names, files in os.walk(top):
            for name in (".", *names, *files):
                os.chown(os.path.join(folder, name), 65534, 65534, follow_symlinks=False)

    give(clone_of(quick))
    assert quick("ls", "/g").out == "d/\na\n"
    quick("repo", "fetch", "/g")
    assert "No problems" in quick("check").out
    top = quick("repo", "worktree", "--materialise", "/g", "--session", "s").out.strip()
    assert (Path(top.splitlines()[-1].split(" ")[-1]) / "a").read_text() == "mine\n"
    quick("commit", "-m", "mine", "/g", "--session", "s", "--key", "k")
    # What lies elsewhere is not the instance's: it may be a trap.
    give(remote.url)
    refused = quick("tag", "-m", "one", "v1", "/g", "--session", "s", expect=1).err
    assert "belongs to another user" in refused
