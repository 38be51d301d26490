"""Remotes that refuse, hang, break off or lose what they had: what a session is told, and keeps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusefs.forge import transport
from fusefs.forge.git_process import Limits
from tests.conftest import Quick
from tests.forge.small_forge import github
from tests.forge.small_forge.server import Fault, SmallForge, running
from tests.forge.small_forge.world import Repository
from tests.repositories.remote import Remote, git

TOKEN = "tok_alice_0123456789abcdef"
S = ("/p", "--session", "s")
COMMIT = ("commit", "-m", "mine", *S, "--key", "k")
KEPT = "Not committed: the changes stay staged.\n"


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "forge", {"a": "a\n", "b": "b\n"})


@pytest.fixture
def small(remote: Remote) -> Iterator[SmallForge]:
    """GitHub with the repository, which alice may change."""
    repository = Repository.make(remote.url, "owner/project")
    repository.rights = {"alice": "write"}
    forge = SmallForge({"owner/project": repository}, {TOKEN: "alice"}, {github.ROOT: github.face})
    with running(forge):
        yield forge


@pytest.fixture
def local(tmp_path: Path, remote: Remote) -> Quick:
    """A session with a change of the repository, which is on this disk."""
    return begun(Quick(tmp_path / "instance"), str(remote.url))


@pytest.fixture
def http(tmp_path: Path, small: SmallForge, monkeypatch: pytest.MonkeyPatch) -> Quick:
    """The same over HTTP, by somebody who does not wait long."""
    monkeypatch.setattr(Limits.__init__, "__defaults__", (1.0, 5.0))
    monkeypatch.setattr(transport, "_LOOK", Limits(1.0, 2.0))
    environment = {"GH_TOKEN": TOKEN, "GH_HOST": f"127.0.0.1:{small.port}"}
    url = f"{small.url}/owner/project.git"
    return begun(Quick(tmp_path / "instance", environment), url, "--forge", "github")


def begun(cli: Quick, *where: str) -> Quick:
    cli("init")
    cli("repo", "add", where[0], "/p", *where[1:])
    cli("session", "create", "s", "--grant", "/p=commit")
    cli("write", "/p/a", "--session", "s", stdin=b"mine\n")
    return cli


def subjects(remote: Remote, branch: str = "main") -> list[str]:
    return git(remote.url, "log", "--format=%s", branch).splitlines()


def is_kept(cli: Quick) -> None:
    assert cli("status", *S).out.splitlines()[-1] == " M a"
    assert cli("cat", "/p/a", "--session", "s").out == "mine\n"
    assert "No problems" in cli("check").out


def is_done_later(cli: Quick, remote: Remote) -> None:
    done = cli(*COMMIT)
    assert cli(*COMMIT) == done
    assert subjects(remote) == ["mine", "first"]
    assert cli("status", *S).out == ""


@pytest.mark.parametrize("over", ["local", "http"])
def test_a_protected_branch(
    request: pytest.FixtureRequest, remote: Remote, small: SmallForge, over: str
) -> None:
    cli: Quick = request.getfixturevalue(over)
    small.repositories["owner/project"].protect("main")
    said = cli(*COMMIT, expect=1).err
    assert "GH006: Protected branch update failed" in said
    assert said.startswith("Not committed: ")
    assert "fusefs branch --session s NAME /p, commit, fusefs pr create --session s /p\n" in said
    is_kept(cli)
    cli("branch", "topic", *S)
    cli("commit", "-m", "mine", *S)
    assert cli("pr", "create", *S, "-t", "Mine", "--json").json["state"] == "open"
    assert (subjects(remote), subjects(remote, "topic")) == (["first"], ["mine", "first"])


def test_a_hook_that_refuses_once(local: Quick, remote: Remote) -> None:
    hook = remote.url / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'not on a Friday' >&2\nexit 1\n")
    hook.chmod(0o755)
    said = local(*COMMIT, expect=1).err
    assert "pre-receive hook declined" in said
    assert "not on a Friday\n" in said
    is_kept(local)
    hook.unlink()
    is_done_later(local, remote)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("POST .*receive-pack", "hang"), "has been silent for 1 seconds"),
        (Fault("POST .*receive-pack", "close", times=9), "cannot be reached, or broke off"),
        (Fault(r"\.git/", "hang", times=99), "cannot be told whether the push arrived"),
    ],
)
def test_a_remote_that_hangs_or_breaks_off(
    http: Quick, remote: Remote, small: SmallForge, fault: Fault, words: str
) -> None:
    small.faults.append(fault)
    said = http(*COMMIT, expect=1).err
    assert words in said
    assert "stay staged" in said
    small.faults.clear()
    is_kept(http)
    is_done_later(http, remote)


@pytest.mark.parametrize("key", [["--key", "k"], []])
def test_a_push_that_arrived_and_nobody_can_tell(
    http: Quick, remote: Remote, small: SmallForge, key: list[str]
) -> None:
    small.faults += [
        Fault("POST .*receive-pack", "cut"), Fault("upload-pack", "close", times=99),
    ]  # fmt: skip
    commit = ("commit", "-m", "mine", *S, *key)
    said = http(*commit, expect=1).err
    assert said.endswith(
        "If this had a key: give it again, with the same key. "
        "Else: fusefs sync --session s /p, then commit what is still staged.\n"
    )
    assert subjects(remote) == ["mine", "first"]
    small.faults.clear()
    is_kept(http)
    if key:
        return is_done_later(http, remote)
    http("sync", *S)
    assert http("status", *S).out == ""
    assert subjects(remote) == ["mine", "first"]
    return None


def test_a_sync_that_breaks_off_changes_nothing(
    http: Quick, remote: Remote, small: SmallForge
) -> None:
    remote.commit("theirs", {"b": "theirs\n"})
    for how, words in (("hang", "silent for 1 seconds"), ("close", "broke off")):
        small.faults[:] = [Fault("POST .*upload-pack", how, times=9)]
        assert words in http("sync", *S, expect=1).err
        is_kept(http)
        assert http("cat", "/p/b", "--session", "s").out == "b\n"
    small.faults.clear()
    http("sync", *S)
    assert http("cat", "/p/b", "--session", "s").out == "theirs\n"
    assert http("status", *S).out == " M a\n"


def delete_branch(remote: Remote) -> None:
    git(remote.clone, "push", "-q", "origin", "HEAD:other")
    git(remote.url, "update-ref", "-d", "refs/heads/main")


def replace_by_an_empty_one(remote: Remote) -> None:
    shutil.rmtree(remote.url)
    git(remote.clone, "init", "-q", "--bare", "-b", "main", remote.url)


@pytest.mark.parametrize("lose", [delete_branch, replace_by_an_empty_one])
@pytest.mark.parametrize("over", ["local", "http"])
def test_a_branch_that_is_gone(
    request: pytest.FixtureRequest, remote: Remote, lose: Callable[[Remote], None], over: str
) -> None:
    cli: Quick = request.getfixturevalue(over)
    first = remote.tip()
    lose(remote)
    said = cli(*COMMIT, expect=1).err
    assert said.startswith("The branch main is gone from ")
    assert said.endswith(
        "To go on with another one: fusefs switch --session s BRANCH /p. To make one: "
        "fusefs branch --session s NAME /p\n"
        + KEPT
    )
    assert "To make it: fusefs branch --session s main /p" in cli("sync", *S, expect=1).err
    is_kept(cli)
    listed = cli("repo", "list")
    assert listed.err == "/p: the repository has no branch main any more\n"
    assert " 1 by s " in listed.out
    cli("session", "create", "late", "--grant", "/p=commit")
    assert "fusefs repo fetch" in cli("status", "/p", "--session", "late", expect=4).err
    # What the forge has lost is here, and comes back with the branch.
    cli("branch", "main", *S)
    is_done_later(cli, remote)
    assert remote.tip("main~1") == first
    assert git(remote.url, "fsck", "--strict") == ""
    assert cli("cat", "/p/a", "--session", "late").out == "mine\n"


def test_a_branch_that_is_gone_after_a_commit_that_was_cut_off(
    local: Quick, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fusefs.session.committing.note", die)
    local(*COMMIT, expect=130)
    monkeypatch.undo()
    assert subjects(remote) == ["mine", "first"]
    delete_branch(remote)
    assert local(*COMMIT, expect=1).err.startswith("The branch main is gone")
    is_kept(local)
    local("switch", "other", *S)
    local(*COMMIT)
    assert subjects(remote, "other") == ["mine", "first"]


def test_a_repository_that_is_away(local: Quick, remote: Remote, tmp_path: Path) -> None:
    remote.url.rename(tmp_path / "away")
    for words in (COMMIT, ("sync", *S), ("branch", "b", *S), ("tag", "t", *S, "-m", "T")):
        assert local(*words, expect=1).err.startswith("There is no git repository at ")
    is_kept(local)
    (tmp_path / "away").rename(remote.url)
    is_done_later(local, remote)


def test_history_that_was_pushed_away(local: Quick, remote: Remote) -> None:
    git(remote.clone, "checkout", "-q", "--orphan", "anew")
    (remote.clone / "a").write_text("new\n")
    git(remote.clone, "add", "-A")
    git(remote.clone, "commit", "-q", "-m", "anew")
    git(remote.clone, "push", "-q", "-f", "origin", "HEAD:main")
    git(remote.url, "gc", "-q", "--prune=now")
    assert "fusefs sync --session s /p" in local(*COMMIT, expect=1).err
    is_kept(local)
    assert local("sync", *S, expect=1).err.startswith("Conflict: /p/a\n")
    assert "mine\n" in local("cat", "/p/a", "--session", "s").out
    local("write", "/p/a", "--session", "s", stdin=b"mine\n")
    local(*COMMIT)
    assert subjects(remote) == ["mine", "anew"]
    assert git(remote.url, "show", "main:a") == "mine\n"
