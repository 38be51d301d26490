"""A clone that is damaged, or a remote with no usable branch: one mount less, and nothing more."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Cli, Mount, Quick
from tests.repositories import place
from tests.repositories.remote import Remote, git

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


def unparsable(remote: Path) -> str:
    """Return a commit that git takes for one and libgit2 does not."""
    tree = git(remote, "rev-parse", "main^{tree}").strip()
    return made(remote, "commit", f"tree {tree}\nauthor \ncommitter \n\nmsg\n".encode())


def too_late(remote: Path) -> str:
    """Return a commit of a time that does not fit into 63 bits."""
    return dated(remote, f"{2**64 - 1} +0000")


def dated(remote: Path, date: str) -> str:
    """Return a commit of the branch's files with that date."""
    tree, who = git(remote, "rev-parse", "main^{tree}").strip(), f"A <a@b>{date and ' ' + date}"
    return made(remote, "commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\nmsg\n".encode())


def made(remote: Path, kind: str, data: bytes) -> str:
    """Write an object as it is into a repository, and return its id."""
    return place.git(
        remote, "hash-object", "-w", "--literally", "--stdin", "-t", kind, stdin=data
    ).decode().strip()


BAD = {
    "blob": lambda remote: git(remote, "rev-parse", "main:a").strip(),
    "tree": lambda remote: git(remote, "rev-parse", "main^{tree}").strip(),
    "author": unparsable,
    "time": too_late,
}
everything_bad = pytest.mark.parametrize("bad", BAD.values(), ids=BAD)


def point(remote: Remote, branch: str, oid: str) -> None:
    """Have a branch be at any object, which git itself refuses."""
    (remote.url / "refs/heads" / branch).write_text(oid + "\n")


@everything_bad
def test_a_branch_at_no_commit_is_not_mounted(
    quick: Quick, remote: Remote, bad: Callable[[Path], str]
) -> None:
    point(remote, "odd", bad(remote.url))
    clones = os.listdir(quick.instance / "repositories")
    refused = quick("repo", "add", "--branch", "odd", remote.url, "/odd", expect=1)
    assert "at no commit that can be read" in refused.err
    assert os.listdir(quick.instance / "repositories") == clones
    assert quick("ls", "/").out == "g/\nfile\n"
    quick("repo", "add", remote.url, "/again")  # another branch of it does no harm


@everything_bad
def test_a_branch_that_turns_bad_spoils_its_mount_alone(
    quick: Quick, remote: Remote, bad: Callable[[Path], str]
) -> None:
    point(remote, "main", bad(remote.url))
    quick("repo", "fetch", "/g")
    quick("session", "create", "late", "--grant", "/=ro", "--grant", "/g=commit")
    assert quick("ls", "/", "--session", "late").out == "g/\nfile\n"
    for words in (["ls", "/g"], ["status", "/g"], ["repo", "log", "/g"]):
        quick(*words, "--session", "late", expect=None)
    listed = quick("ls", "/g", "--session", "late", expect=4).err
    assert "at no commit that can be read" in listed
    assert "/g: the repository's branch main is at no commit" in quick("repo", "list").err
    # Who has a working copy goes on with it.
    assert quick("cat", "/g/a", "--session", "s").out == "mine\n"
    assert quick("status", "/g", "--session", "s").out == " M a\n"
    quick("sync", "/g", "--session", "s", expect=4)
    quick("commit", "-m", "x", "/g", "--session", "s", "--key", "k", expect=None)
    assert quick("status", "/g", "--session", "s").out == " M a\n"
    assert "No problems" in quick("check").out
    quick("session", "rm", "late")
    # It comes back with the branch.
    (remote.url / "refs/heads/main").write_text(git(remote.clone, "rev-parse", "HEAD"))
    quick("repo", "fetch", "/g")
    assert quick("ls", "/g").out == "d/\na\n"
    quick("sync", "/g", "--session", "s")


EPOCH = "Thu Jan 1 00:00:00 1970 +0000"
DATES = {
    "99999999999999999 +0000": (99999999999999999, EPOCH, EPOCH),
    "253402300800 +0000": (253402300800, *["Sat Jan 1 00:00:00 10000 +0000"] * 2),
    "951782400 -0330": (951782400, *["Mon Feb 28 20:30:00 2000 -0330"] * 2),
    "1700000000 +9999": (
        1700000000, "Sun Nov 19 02:52:20 2023 +9999", "Tue Nov 14 22:13:20 2023 +0000"
    ),
    "1700 -0100": (1700, "1700 -0100", "Wed Dec 31 23:28:20 1969 -0100"),
    "17000 -9959": (17000, "17000 -9959", "Thu Jan 1 04:43:20 1970 +0000"),
    "": (0, EPOCH, EPOCH),
    "-5 +0000": (0, EPOCH, EPOCH),
}  # fmt: skip
"""Dates of commits: what is shown to whom sees all of a repository, and a part."""


@pytest.mark.parametrize("date", DATES)
def test_dates_that_git_takes_are_shown(tmp_path: Path, remote: Remote, date: str) -> None:
    seconds, whole, part = DATES[date]
    point(remote, "main", dated(remote.url, date))
    quick = Quick(tmp_path / "instance")
    quick("init")
    quick("repo", "add", remote.url, "/g")
    quick("session", "create", "part", "--grant", "/g/d=ro")
    for words, shown in (["/g"], whole), (["/g/d", "--session", "part"], part):
        assert f"\nDate:   {shown}\n\n    msg\n" in quick("repo", "log", *words).out
        (commit,) = quick("repo", "log", "--json", *words).json["commits"]
        assert commit["time"] == seconds
    assert f"\nDate:   {whole}\n" in quick("repo", "show", "/g").out


@pytest.mark.parametrize("odd", [unparsable, too_late])
def test_a_part_has_its_history_past_commits_that_only_git_takes(
    tmp_path: Path, remote: Remote, odd: Callable[[Path], str]
) -> None:
    tree = git(remote.url, "rev-parse", "main^{tree}").strip()
    above = git(remote.url, "commit-tree", tree, "-p", odd(remote.url), "-m", "above").strip()
    point(remote, "main", above)
    quick = Quick(tmp_path / "instance")
    quick("init")
    quick("repo", "add", remote.url, "/g")
    quick("session", "create", "part", "--grant", "/g/d=ro")
    log = quick("repo", "log", "/g/d", "--session", "part").out  # the odd one brought all files
    assert f"\nDate:   {EPOCH}\n\n    msg\n" in log
    assert "above" not in log


def test_a_worktree_that_cannot_be_made_whole_is_not_left(quick: Quick, remote: Remote) -> None:
    blob, below = (bytes.fromhex(git(remote.url, "rev-parse", f"main:{name}")) for name in "ad")
    data = b"40000 ..\0" + below + b"100644 z\0" + blob
    tree = made(remote.url, "tree", data)
    point(remote, "odd", git(remote.url, "commit-tree", tree, "-m", "odd").strip())
    quick("repo", "add", "--branch", "odd", remote.url, "/odd")
    assert quick("ls", "/odd").out == "z\n"
    failed = quick("repo", "worktree", "--materialise", "/odd", expect=4)
    assert failed.err.startswith("git cannot write all files: ")
    assert not list((quick.instance / "worktrees").glob("*/*"))
    for clone in (quick.instance / "repositories").glob("*.git"):
        assert git(clone, "for-each-ref", "refs/heads", "refs/fusefs/worktree") == ""
        assert len(git(clone, "worktree", "list").splitlines()) == 1
