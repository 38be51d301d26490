"""The local forge: the whole workflow with no network and no server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.levels import Level
from fusefs.forge import errors
from fusefs.forge.forge import Forge
from fusefs.forge.ledger import Ledger
from fusefs.forge.local import LocalDriver
from fusefs.forge.model import Method, Release, Right, State, Tag
from fusefs.forge.records import Records

from .conftest import ALICE, Keys, commit, git


def tip(repository: Path, branch: str) -> str:
    return git(repository, "rev-parse", f"refs/heads/{branch}")


def test_branch_is_made_at_a_commit_and_never_twice(local: Forge, bare: Path, new_key: Keys):
    at = tip(bare, "main")
    branch = local.create_branch("feature/one", at, key=new_key())
    assert (branch.name, branch.commit) == ("feature/one", at)
    assert tip(bare, "feature/one") == at
    with pytest.raises(errors.AlreadyThere, match=r"branch feature/one already"):
        local.create_branch("feature/one", at, key=new_key())
    with pytest.raises(errors.AlreadyThere, match="folder of branches"):
        local.create_branch("feature", at, key=new_key())
    with pytest.raises(errors.AlreadyThere, match="folder of branches"):
        local.create_branch("feature/one/two", at, key=new_key())
    with pytest.raises(errors.Missing, match="no commit 1234"):
        local.create_branch("two", "1234" * 10, key=new_key())


@pytest.mark.parametrize(
    "name",
    ["", "-x", "a..b", "a b", "a~", "/a", "a/", "a//b", ".a", "a/.b", "a.lock", "@", "HEAD", "a\n",
     "a@{b", "x" * 300, "a\x07"],
)  # fmt: skip
def test_names_that_git_would_refuse_are_refused_at_once(local: Forge, name: str, new_key: Keys):
    with pytest.raises(InvalidArgument, match="Not a branch name"):
        local.create_branch(name, "0" * 40, key=new_key())


def test_pull_request_is_created_listed_updated_and_closed(local: Forge, bare: Path, new_key: Keys):
    made = local.create_pull_request("topic", "main", "Add topic", "Why", key=new_key())
    assert (made.number, made.state, made.author) == (1, State.OPEN, "Alice")
    assert made.commit == tip(bare, "topic")
    assert local.pull_requests() == [made] == [local.pull_request(1)]
    changed = local.update_pull_request(1, title="Add a topic", key=new_key())
    assert (changed.title, changed.body) == ("Add a topic", "Why")
    new = commit(bare, "topic", {"more.txt": "x"})
    assert local.pull_request(1).commit == new
    closed = local.close_pull_request(1, key=new_key())
    assert closed.state is State.CLOSED
    assert local.pull_requests() == []
    assert local.pull_requests(None) == [closed]
    with pytest.raises(errors.Refused, match="closed already"):
        local.close_pull_request(1, key=new_key())
    with pytest.raises(errors.Refused, match="closed already"):
        local.merge(1, key=new_key())
    again = local.create_pull_request("topic", "main", "Once more", key=new_key())
    assert again.number == 2
    assert [request.number for request in local.pull_requests(None)] == [2, 1]
    assert [r.number for r in local.pull_requests(None, limit=1)] == [2]
    assert local.pull_requests(base="other") == []


def test_pull_request_that_makes_no_sense_is_refused(local: Forge, bare: Path, new_key: Keys):
    local.create_pull_request("topic", "main", "Add topic", key=new_key())
    with pytest.raises(errors.AlreadyThere, match="#1"):
        local.create_pull_request("topic", "main", "Again", key=new_key())
    with pytest.raises(errors.Missing, match="branch nothing"):
        local.create_pull_request("nothing", "main", "T", key=new_key())
    with pytest.raises(errors.Refused, match="No commits between"):
        local.create_pull_request("main", "topic", "T", key=new_key())
    with pytest.raises(InvalidArgument, match="title"):
        local.create_pull_request("topic", "main", " ", key=new_key())
    with pytest.raises(InvalidArgument, match="Nothing to update"):
        local.update_pull_request(1, key=new_key())
    for number in (0, 7, -1, 1 << 70):
        with pytest.raises(errors.Missing, match="no pull request"):
            local.pull_request(number)


def diverged(bare: Path) -> None:
    commit(bare, "topic", {"topic.txt": "topic 2\n"}, "topic, second")
    commit(bare, "main", {"main.txt": "main\n"}, "meanwhile")


@pytest.mark.parametrize("method", list(Method))
def test_merge_brings_both_sides_together(
    local: Forge, bare: Path, new_key: Keys, method: Method
) -> None:
    diverged(bare)
    before, head = tip(bare, "main"), tip(bare, "topic")
    local.create_pull_request("topic", "main", "Add topic", "Why", key=new_key())
    done = local.merge(1, method, key=new_key())
    after = tip(bare, "main")
    assert (done.state, done.merge_commit, done.commit) == (State.MERGED, after, head)
    assert local.pull_request(1) == done
    files = git(bare, "ls-tree", "-r", "--name-only", after).split()
    assert files == ["a.txt", "b.txt", "main.txt", "topic.txt"]
    parents = git(bare, "rev-list", "--parents", "-n1", after).split()[1:]
    subjects = git(bare, "log", "--format=%s", f"{before}..{after}", "--no-merges").split("\n")
    if method is Method.MERGE:
        assert parents == [before, head]
    elif method is Method.SQUASH:
        assert parents == [before]
        assert subjects == ["Add topic (#1)"]
    else:
        assert subjects == ["topic, second", "topic"]
        people = git(bare, "log", "-n2", "--format=%an %cn", after).split("\n")
        assert people == ["Bob Alice", "Bob Alice"]
    git(bare, "fsck", "--strict")
    with pytest.raises(errors.Refused, match="merged already"):
        local.merge(1, method, key=new_key())


@pytest.mark.parametrize("method", list(Method))
def test_conflict_names_the_paths_and_changes_nothing(
    local: Forge, bare: Path, new_key: Keys, method: Method
) -> None:
    commit(bare, "topic", {"a.txt": "theirs\n", "sub/x": "1\n"})
    commit(bare, "main", {"a.txt": "ours\n", "sub/x": "2\n"})
    local.create_pull_request("topic", "main", "Clash", key=new_key())
    before = tip(bare, "main")
    with pytest.raises(errors.MergeConflict) as caught:
        local.merge(1, method, key=new_key())
    assert caught.value.paths == ("a.txt", "sub/x")
    assert "a.txt, sub/x" in caught.value.text
    assert tip(bare, "main") == before
    assert local.pull_request(1).state is State.OPEN


def test_rebase_refuses_merge_commits_and_drops_what_is_there_already(
    local: Forge, bare: Path, new_key: Keys
) -> None:
    commit(bare, "main", {"topic.txt": "topic\n"}, "the same, cherry-picked")
    commit(bare, "topic", {"new.txt": "new\n"}, "new")
    local.create_pull_request("topic", "main", "T", key=new_key())
    local.merge(1, Method.REBASE, key=new_key())
    assert git(bare, "log", "--format=%s", "main").split("\n")[0:2] == [
        "new",
        "the same, cherry-picked",
    ]
    tree = git(bare, "rev-parse", "main^{tree}")
    commit(bare, "side", {"side.txt": "1\n"}, start="main")
    merge = git(bare, "commit-tree", tree, "-p", "main", "-p", "side", "-m", "merge")
    git(bare, "update-ref", "refs/heads/side", merge)
    local.create_pull_request("side", "main", "T", key=new_key())
    with pytest.raises(errors.Refused, match="is a merge commit"):
        local.merge(2, Method.REBASE, key=new_key())


def test_merge_holds_the_head_to_what_the_caller_saw(local: Forge, bare: Path, new_key: Keys):
    seen = tip(bare, "topic")
    local.create_pull_request("topic", "main", "T", key=new_key())
    commit(bare, "topic", {"late.txt": "late\n"})
    with pytest.raises(errors.Moved, match="not at"):
        local.merge(1, commit=seen, key=new_key())
    git(bare, "update-ref", "-d", "refs/heads/topic")
    with pytest.raises(errors.Missing, match="no branch topic"):
        local.merge(1, key=new_key())
    commit(bare, "island", {"x": "x"})
    local.create_pull_request("island", "main", "No common history", key=new_key())
    with pytest.raises(errors.Refused, match="no common history"):
        local.merge(2, key=new_key())


def test_a_base_that_others_are_moving_is_said_so(local: Forge, bare: Path, new_key: Keys):
    local.create_pull_request("topic", "main", "T", key=new_key())
    lock = bare / "refs/heads/main.lock"
    lock.touch()
    with pytest.raises(errors.Moved, match="just been moved"):
        local.merge(1, key="k")
    lock.unlink()
    assert local.merge(1, key="k").merge_commit == tip(bare, "main")


def test_tags_are_annotated_and_never_moved(local: Forge, bare: Path, new_key: Keys):
    at = tip(bare, "main")
    assert local.create_tag("v1", at, "First", key=new_key()) == Tag("v1", at, "First")
    assert git(bare, "cat-file", "-t", "v1") == "tag"
    assert git(bare, "for-each-ref", "--format=%(taggername) %(contents)", "refs/tags") == (
        "Alice First"
    )
    with pytest.raises(errors.AlreadyThere, match="Tags are not moved"):
        local.create_tag("v1", tip(bare, "topic"), "Again", key=new_key())
    assert git(bare, "rev-parse", "v1^{}") == at


def test_release_needs_its_tag(local: Forge, bare: Path, new_key: Keys):
    with pytest.raises(errors.Missing, match="Make the tag first"):
        local.create_release("v1", key=new_key())
    git(bare, "tag", "v1", "main")
    made = local.create_release("v1", notes="All new", prerelease=True, key=new_key())
    assert made == Release("v1", "v1", "All new", False, True, made.created)
    with pytest.raises(errors.AlreadyThere, match="release of v1"):
        local.create_release("v1", key=new_key())


def test_what_is_no_repository_is_said_so(tmp_path: Path, records: Records, ledger: Ledger):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty"):
        driver = LocalDriver(path, records, ALICE)
        assert driver.access().right is Right.NONE
        with pytest.raises(errors.Missing, match="no git repository"):
            driver.find_branch("main")
        with pytest.raises(errors.Forbidden, match="no access"):
            Forge(driver, ledger).create_branch("x", "0" * 40, key="k")


def test_damaged_repository_is_said_so(local: Forge, bare: Path, new_key: Keys):
    objects = git(bare, "rev-list", "--objects", "--all").split()
    for pack in (bare / "objects" / "pack").glob("*"):
        pack.chmod(0o644)
        os.truncate(pack, 10)
    for loose in (path for path in (bare / "objects").rglob("*") if len(path.name) == 38):
        loose.chmod(0o644)
        loose.write_bytes(b"")
    assert objects
    with pytest.raises(errors.ForgeError, match=r"cannot be used|no branch"):
        local.create_pull_request("topic", "main", "T", key=new_key())


PROBE = """
import sys
from pathlib import Path
from fusefs.forge.local import LocalDriver
from fusefs.forge.local_git import Author
access = LocalDriver(Path(sys.argv[1]), None, Author("N", "n@example.org")).access()
print(access.right, access.reason)
"""


def as_nobody(path: Path) -> str:
    """Ask for the right to `path` as an ordinary user whom nothing belongs to."""
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run(
        [*(drop if os.geteuid() == 0 else []), sys.executable, "-c", PROBE, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return done.stdout.strip()


@pytest.fixture
def reachable(bare: Path) -> Iterator[Path]:
    """The repository in a folder that every user may enter; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(shutil.copytree(bare, Path(folder, "bare.git")))


def everything(path: Path, folders: int, files: int) -> None:
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            os.chmod(os.path.join(folder, name), files)
        os.chmod(folder, folders)


def test_right_follows_the_permissions_of_the_files(reachable: Path):
    try:
        everything(reachable, 0o777, 0o666)
        assert as_nobody(reachable) == "write"
        everything(reachable, 0o555, 0o444)
        assert as_nobody(reachable).startswith("read You may not write to")
        reachable.chmod(0o000)
        assert as_nobody(reachable).startswith("none There is no git repository")
    finally:
        reachable.chmod(0o755)
        everything(reachable, 0o755, 0o644)


def test_rights_cap_levels():
    assert [right.cap for right in Right] == [Level.NONE, Level.RO, Level.COMMIT]
