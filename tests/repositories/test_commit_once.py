"""A commit that is sent twice with one key is done once, whatever happened to the first sender."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Quick
from tests.repositories.remote import Remote, git


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "forge", {"a": "a\n"})


@pytest.fixture
def project(tmp_path: Path, remote: Remote) -> Quick:
    cli = Quick(tmp_path / "instance")
    cli("init")
    cli("repo", "add", remote.url, "/p")
    cli("session", "create", "s", "--grant", "/p=commit")
    cli("write", "/p/a", "--session", "s", stdin=b"mine\n")
    return cli


COMMIT = ("commit", "-m", "mine", "/p", "--session", "s", "--key", "k1")


def subjects(remote: Remote) -> list[str]:
    return git(remote.url, "log", "--format=%s", "main").split()


def test_sent_again_it_says_the_same(project, remote):
    first = project(*COMMIT)
    project("write", "/p/a", "--session", "s", stdin=b"later\n")
    assert project(*COMMIT) == first
    assert project("status", "/p", "--session", "s").out == " M a\n"
    assert subjects(remote) == ["mine", "first"]
    other = project("commit", "-m", "other", "/p", "--session", "s", "--key", "k1", expect=1)
    assert "idempotency key was used for another commit" in other.err
    project("commit", "-m", "other", "/p", "--session", "s", "--key", "k2")
    assert subjects(remote) == ["other", "mine", "first"]


@pytest.mark.parametrize("hook", ["post-receive", "pre-receive"])
def test_a_sender_that_is_killed(project, remote, tmp_path, hook):
    """After the branch moved and before that is noted; or before the branch moved."""
    killer, pid = remote.url / "hooks" / hook, tmp_path / "pid"
    killer.parent.mkdir(exist_ok=True)
    killer.write_text(
        f"#!/bin/sh\nwhile [ ! -s {pid} ]; do sleep 0.01; done\nkill -9 $(cat {pid})\nexit 1\n"
    )
    killer.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "fusefs", *COMMIT],
        env={**os.environ, "FUSEFS_INSTANCE": str(project.instance)},
    )
    (tmp_path / "pid.new").write_text(str(process.pid))
    (tmp_path / "pid.new").rename(pid)
    assert process.wait(60) == -9
    killer.unlink()
    assert subjects(remote) == (["mine", "first"] if hook == "post-receive" else ["first"])
    # It goes on with what it was then: later changes are another commit's.
    project("write", "/p/a", "--session", "s", stdin=b"later\n")
    done = project(*COMMIT, "--json").json
    assert done == {"branch": "main", "commit": remote.tip(), "paths": ["/p/a"]}
    assert subjects(remote) == ["mine", "first"]
    assert git(remote.url, "show", "main:a") == "mine\n"
    assert project("status", "/p", "--session", "s").out == " M a\n"
    project("commit", "-m", "later", "/p", "--session", "s", "--key", "k2")
    assert project(*COMMIT, "--json").json == done
    assert subjects(remote) == ["later", "mine", "first"]
    assert git(remote.url, "fsck") == ""
    assert "No problems" in project("check").out


def test_a_killed_sender_whose_branch_went_on(project, remote, tmp_path):
    test_a_sender_that_is_killed(project, remote, tmp_path, "post-receive")
    remote.pull()
    remote.commit("others", {"b": "b\n"})
    assert project(*COMMIT, "--json").json["paths"] == ["/p/a"]
    assert subjects(remote) == ["others", "later", "mine", "first"]


@pytest.mark.parametrize("key", [["--key", "k1"], []])
def test_a_lock_that_a_killed_process_left_stops_nothing(project, remote, key):
    """The branch is sent; that it cannot be noted in the clone now makes no failure of it."""
    [clone] = (project.instance / "repositories").glob("*.git")
    lock = clone / "refs/remotes/origin/main.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    os.utime(lock, (1, 1))
    project("commit", "-m", "mine", "/p", "--session", "s", *key)
    assert subjects(remote) == ["mine", "first"]
    assert project("status", "/p", "--session", "s").out == ""
    remote.pull()
    remote.commit("others", {"b": "b\n"})
    project("sync", "/p", "--session", "s")
    assert project("cat", "/p/b", "--session", "s").out == "b\n"
    assert not lock.exists()
