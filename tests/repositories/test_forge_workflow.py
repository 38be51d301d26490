"""Two agents work on one repository through mounts, from a branch each to a release."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli, Mount, Quick
from tests.daemon.conftest import until
from tests.repositories.place import looked
from tests.repositories.remote import Remote, git

FILES = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "test_calc.py": "import calc\n\nassert calc.add(1, 2) == 3\n",
    "CHANGES": "Nothing yet.\n",
}


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "forge", FILES)


@pytest.fixture
def quick(cli: Cli, remote: Remote) -> Quick:
    """An instance with the repository at /project and two sessions that may do all with it."""
    command = Quick(cli.instance)
    command("repo", "add", remote.url, "/project")
    for name in ("ada", "bob"):
        command("session", "create", name, "--grant", "/project=commit",
                "--user", f"{name.title()} <{name}@example.org>")  # fmt: skip
    return command


def own_tests(project: Path) -> int:
    """Run the project's tests in a mount of it."""
    # By its full path: what others merged makes the kernel look up the mount's name anew, and
    # until it has, getcwd(2) of who stands there fails.
    script = project / "test_calc.py"
    done = subprocess.run([sys.executable, script], cwd=project, check=False, timeout=60)
    return done.returncode


def test_from_branch_to_release(quick: Quick, mount: Mount, remote: Remote) -> None:
    first = remote.tip()
    ada, bob = mount("ada") / "project", mount("bob") / "project"

    def work(name: str, topic: str, edits: dict[str, str]) -> None:
        place = ada if name == "ada" else bob
        quick("branch", topic, "/project", "--session", name)
        for file, text in edits.items():
            (place / file).write_text(text)
        assert own_tests(place) == 0
        quick("commit", "-m", f"Work on {topic}", "/project", "--session", name)
        quick("pr", "create", "/project", "-t", f"Add {topic}", "--session", name)

    subtract = "\n\ndef sub(a, b):\n    return a - b\n"
    work("ada", "sub", {
        "calc.py": FILES["calc.py"] + subtract,
        "test_calc.py": FILES["test_calc.py"] + "assert calc.sub(3, 2) == 1\n",
        "CHANGES": "Subtraction.\n",
    })  # fmt: skip
    assert (bob / "calc.py").read_text() == FILES["calc.py"]
    work("bob", "docs", {"README": "Sums.\n", "CHANGES": "Documentation.\n"})
    assert quick("status", "/project", "--session", "bob").out == "## docs\n"
    assert remote.tip() == first  # nothing went to main

    quick("pr", "merge", "1", "/project", "--session", "ada")
    refused = quick("pr", "merge", "2", "/project", "--session", "bob", expect=1)
    assert "CHANGES" in refused.err
    assert "fusefs sync --session bob --from main /project" in refused.err

    conflict = quick("sync", "--from", "main", "/project", "--session", "bob", expect=1)
    assert conflict.err.startswith("Conflict: /project/CHANGES\n")
    assert (
        bob / "CHANGES"
    ).read_text() == "<<<<<<< staged\nDocumentation.\n=======\nSubtraction.\n>>>>>>> origin/main\n"
    assert "sub" in (bob / "calc.py").read_text()
    status = quick("status", "/project", "--session", "bob").out
    assert status.splitlines()[0] == f"## docs, merging {remote.tip()[:12]}"
    for words in (["switch", "main", "/project"], ["sync", "--from", "main", "/project"],
                  ["commit", "-m", "x", "/project/CHANGES"]):  # fmt: skip
        assert "merge is" in quick(*words, "--session", "bob", expect=1).err
    (bob / "CHANGES").write_text("Subtraction. Documentation.\n")
    assert own_tests(bob) == 0
    quick("commit", "-m", "Merge main", "/project", "--session", "bob")
    quick(
        "pr",
        "merge",
        "2",
        "/project",
        "--method",
        "squash",
        "-m",
        "Document",
        "--session",
        "bob",
    )
    assert quick("pr", "list", "/project").err == "None is open; --state all lists all.\n"

    quick("switch", "main", "/project", "--session", "ada")
    assert (ada / "README").read_text() == "Sums.\n"
    assert own_tests(ada) == 0
    assert quick("status", "/project", "--session", "ada").out == ""
    quick("tag", "v1.0", "/project", "-m", "Version 1.0", "--session", "ada")
    missing = quick("release", "v2.0", "/project", "--session", "ada", expect=1)
    assert "fusefs tag --session ada v2.0 /project" in missing.err
    released = ("release", "v1.0", "/project", "-t", "One", "-n", "Sums.", "--session", "ada")
    assert quick(*released, "--json").json["tag"] == "v1.0"
    assert "release of v1.0 already" in quick(*released, expect=1).err
    quick("tag", "v1.1", "/project", "-m", "Version 1.1", "--session", "ada")
    unnamed = quick("release", "v1.1", "/project", "--session", "ada").out
    assert unnamed.splitlines()[0] == "Released: v1.1"
    quick("switch", "main", "/project", "--session", "bob")
    changes = quick("log", "--json").json["changes"]
    recorded = [entry for entry in changes if entry["what"] == "forge"]
    told = [(entry["session"], *sorted(entry["detail"])) for entry in recorded]
    assert told == [
        ("ada", "at", "branch"),
        ("ada", "head", "into", "opened"),
        ("bob", "at", "branch"),
        ("bob", "head", "into", "opened"),
        ("ada", "as", "head", "into", "merged"),
        ("bob", "as", "head", "into", "merged"),
        *[("ada", "at", "tag"), ("ada", "release")] * 2,
    ]
    assert recorded[5]["detail"]["as"] == remote.tip()
    assert "(merged #2, as " in quick("log").out

    log = git(remote.url, "log", "--first-parent", "--format=%s|%an|%p", "main").splitlines()
    assert [line.split("|")[:2] for line in log] == [
        ["Document", "Bob"], ["Merge #1 from sub: Add sub", "Ada"], ["first", "Ann"],
    ]  # fmt: skip
    assert len(log[0].split("|")[2].split()) == 1
    merge = git(remote.url, "log", "-1", "--format=%s|%an|%P", "docs").strip().split("|")
    assert merge[:2] == ["Merge main", "Bob"]
    assert merge[2].split() == [remote.tip("docs~1"), remote.tip("main~1")]
    assert git(remote.url, "show", "main:CHANGES") == "Subtraction. Documentation.\n"
    assert git(remote.url, "fsck", "--strict") == ""
    assert remote.tip("v1.0^{commit}") == remote.tip()
    assert git(remote.url, "cat-file", "-t", "v1.0").strip() == "tag"
    tagged = git(remote.url, "for-each-ref", "--format=%(taggername)|%(contents)", "refs/tags/v1.0")
    assert tagged.strip() == "Ada|Version 1.0"
    assert "No problems" in quick("check").out
    # Whoever knows nothing of fusefs has what both agents see.
    plain = remote.clone.with_name("plain")
    git(remote.clone, "clone", "-q", "-b", "v1.0", remote.url, plain)
    assert own_tests(plain) == 0
    for place in (ada, bob, plain):
        shutil.rmtree(place / "__pycache__", ignore_errors=True)
    until(lambda: looked(ada) == looked(bob) == looked(plain))


def test_a_key_is_done_once_wherever_the_working_copy_is_by_then(quick, remote):
    ada = ("/project", "--session", "ada")
    made = quick("branch", "one", *ada, "--key", "1", "--json").json
    quick("write", "/project/new", "--session", "ada", stdin=b"new\n")
    quick("commit", "-m", "new", *ada)
    assert quick("branch", "one", *ada, "--key", "1", "--json").json == made
    opened = quick("pr", "create", *ada, "-t", "One", "--key", "2", "--json").json
    tagged = quick("tag", "t", *ada, "-m", "T", "--key", "3", "--json").json
    closed = [quick("pr", "close", "1", *ada, "--key", "4", "--json").json for _ in range(2)]
    assert closed[0] == closed[1]
    quick("switch", "main", *ada)
    assert quick("pr", "create", *ada, "-t", "One", "--key", "2", "--json").json == opened
    assert quick("tag", "t", *ada, "-m", "T", "--key", "3", "--json").json == tagged
    other = quick("tag", "u", *ada, "-m", "T", "--key", "3", "--json", expect=1).json
    assert other["error"]["code"] == "FS_FORGE_KEY_REUSED"
    assert git(remote.url, "tag").split() == ["t"]
    # Another session's key is another key.
    quick("tag", "u", "/project", "-m", "U", "--key", "3", "--session", "bob")
    assert [r["number"] for r in quick("pr", "list", "/project", "--state", "all", "--json").json[
        "pull_requests"
    ]] == [1]  # fmt: skip


def test_only_who_may_commit_everywhere_asks_the_forge(quick, remote):
    quick("session", "create", "part", "--grant", "/project=commit", "--grant", "/project/src=none")
    quick("session", "create", "stager", "--grant", "/project=stage")
    quick("session", "create", "reader", "--grant", "/project=commit", "--floor", "/project/src=ro")
    quick("session", "create", "outside", "--grant", "/other=commit")
    quick("branch", "topic", "/project", "--session", "ada")
    quick("write", "/project/new", "--session", "ada", stdin=b"new\n")
    quick("commit", "-m", "new", "/project", "--session", "ada")
    quick("pr", "create", "/project", "-t", "New", "--session", "ada")
    before = git(remote.url, "show-ref")
    asked = (
        ["branch", "b", "/project"], ["switch", "topic", "/project"],
        ["sync", "--from", "topic", "/project"], ["tag", "t", "/project", "-m", "T"],
        ["pr", "list", "/project"], ["pr", "show", "1", "/project"],
        ["pr", "create", "/project", "-t", "T", "--head", "topic"],
        ["pr", "update", "1", "/project", "-t", "U"], ["pr", "close", "1", "/project"],
        ["pr", "merge", "1", "/project"], ["pr", "merge", "99", "/project"],
        ["release", "t", "/project"],
    )  # fmt: skip
    texts = {
        "part": "Access denied: /project/src is not open to this session.\n",
        "stager": "Not committed: this session may change /project but not commit it; "
        "the change stays staged.\n",
        "reader": "Read-only: /project/src can be read in this session but not changed.\n",
        "outside": "Access denied: /project is not open to this session.\n",
    }
    for name, text in texts.items():
        for words in asked:
            assert quick(*words, "--session", name, expect=1).err == text, (name, words)
    for words in (["branch", "b", "/", "--session", "ada"], ["pr", "list", "/"]):
        assert quick(*words, expect=1).err.startswith("Not in a repository: /. Give a path")
    assert git(remote.url, "show-ref") == before
    assert quick("pr", "show", "1", "/project", "--json").json["state"] == "open"
    shown = quick("pr", "merge", "1", "/project", "--json").json  # the person in charge may
    assert shown["state"] == "merged"


def test_giving_up_a_merge(quick, remote):
    ada, bob = ("/project", "--session", "ada"), ("/project", "--session", "bob")
    remote.commit("ignored", {".gitignore": "*.log\n", "kept.log": "kept\n"}, branch="main")
    remote.commit("topic", {"CHANGES": "Theirs.\n"}, branch="topic")
    git(remote.clone, "add", "-f", "kept.log")
    remote.commit("forced", {"calc.py": "x = 1\n"}, branch="topic")
    quick("write", "/project/own", "--session", "ada", stdin=b"own\n")
    quick("sync", "--from", "topic", *ada)
    assert quick("status", *ada, "--json").json["merging"] == remote.tip("topic")
    assert quick("cat", "/project/kept.log", "--session", "ada").out == "kept\n"
    quick("repo", "restore", "--new", *ada)
    assert quick("status", *ada).out == "## main [behind 1]\n"
    assert "Up to date" not in quick("sync", "--from", "topic", *bob).out
    quick("commit", "-m", "Merge topic", *bob)
    tree = git(remote.url, "ls-tree", "--name-only", "main").split()
    assert "kept.log" in tree
    assert git(remote.url, "rev-parse", "main^2").strip() == remote.tip("topic")
    assert git(remote.url, "diff", "main", "topic") == ""


def test_a_call_that_died_half_way_is_finished_by_its_key(quick, remote, monkeypatch):
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    ada = ("/project", "--session", "ada")
    monkeypatch.setattr("fusefs.session.forging.follow", die)
    quick("branch", "one", *ada, "--key", "1", expect=130)  # the branch is made, nothing else
    monkeypatch.undo()
    monkeypatch.setattr("fusefs.forge.ledger.Ledger._finish", die)
    quick("branch", "two", *ada, "--key", "2", expect=130)  # and not even that is noted
    monkeypatch.undo()
    assert [remote.tip("one"), remote.tip("two")] == [remote.tip()] * 2
    assert quick("status", *ada).out == ""
    for name, key in (("one", "1"), ("two", "2")):
        quick("branch", name, *ada, "--key", key)
        assert quick("status", *ada).out == f"## {name}\n"
