"""The drivers of forges on the network, end to end against the small forge: git, REST, faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.contract.errors import InvalidArgument
from fusefs.forge import errors
from fusefs.forge.forge import Forge
from fusefs.forge.model import Method, Right, State, Tag
from fusefs.forge.rights import RightsCache
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse

from .conftest import Keys, commit, git
from .remote_site import TOKEN, Site, credential
from .small_forge.server import Answer


def set_up_for(site: Site, method: Method) -> None:
    """GitLab decides by a project's setting how commits get into a branch."""
    site.repository.merge_method = "ff" if method is Method.REBASE else "merge"


@pytest.mark.parametrize("method", list(Method))
def test_whole_workflow(
    site: Site, kind: str, forge: Forge, method: Method, new_key: Keys, tmp_path: Path
) -> None:
    set_up_for(site, method)
    assert forge.access().right is Right.WRITE
    clone = tmp_path / "clone.git"
    way = Transport(parse(f"{site.small.url}/owner/project.git"), kind, credential(TOKEN))
    way.clone(clone)
    main = git(clone, "rev-parse", "refs/remotes/origin/main")
    assert forge.create_branch("work/one", main, key=new_key()).commit == main
    mine = commit(clone, "mine", {"mine.txt": "mine\n"}, "Mine", start=main)
    way.push(clone, mine, "work/one", main)
    commit(site.bare, "main", {"theirs.txt": "theirs\n"}, "Theirs")
    made = forge.create_pull_request("work/one", "main", "Add mine", "Because", key=new_key())
    assert (made.head, made.base, made.state, made.author) == (
        "work/one", "main", State.OPEN, "alice",
    )  # fmt: skip
    assert (made.commit, made.body, made.merge_commit) == (mine, "Because", "")
    assert [request.number for request in forge.pull_requests()] == [made.number]
    assert forge.pull_requests(head="topic") == []
    changed = forge.update_pull_request(made.number, title="Add what is mine", key=new_key())
    assert (changed.title, changed.body) == ("Add what is mine", "Because")
    done = forge.merge(made.number, method, commit=mine, key=new_key())
    assert (done.state, done.merge_commit) == (State.MERGED, site.tip("main"))
    assert forge.pull_requests() == []
    assert [r.state for r in forge.pull_requests(State.MERGED)] == [State.MERGED]
    assert forge.pull_requests(State.CLOSED) == []
    files = git(site.bare, "ls-tree", "--name-only", "main").split()
    assert {"mine.txt", "theirs.txt"} <= set(files)
    at = site.tip("main")
    tag = forge.create_tag("v1.0", at, "First", key=new_key())
    assert tag == Tag("v1.0", at, "First")
    assert git(site.bare, "cat-file", "-t", "v1.0") == "tag"
    release = forge.create_release("v1.0", "One", "Notes", key=new_key())
    assert (release.tag, release.name, release.notes) == ("v1.0", "One", "Notes")


def test_everything_twice_is_done_once(site: Site, kind: str, forge: Forge):
    at = site.tip("main")
    calls: list[Callable[[], object]] = [
        lambda: forge.create_branch("b", at, key="1"),
        lambda: forge.create_pull_request("topic", "main", "T", key="2"),
        lambda: forge.update_pull_request(1, body="B", key="3"),
        lambda: forge.merge(1, key="4"),
        lambda: forge.create_tag("v1", at, "M", key="5"),
        lambda: forge.create_release("v1", key="6"),
    ]
    for call in calls:
        first = call()
        changes = len([line for line in site.small.seen if not line.startswith("GET")])
        assert call() == first
        assert len([line for line in site.small.seen if not line.startswith("GET")]) == changes


def test_what_the_forge_refuses(site: Site, kind: str, forge: Forge, new_key: Keys):
    at = site.tip("main")
    with pytest.raises(errors.AlreadyThere, match="branch topic already"):
        forge.create_branch("topic", at, key=new_key())
    with pytest.raises(errors.Missing, match="no commit 123412341234"):
        forge.create_branch("x", "1234" * 10, key=new_key())
    with pytest.raises(errors.Missing, match="no branch nothing"):
        forge.create_pull_request("nothing", "main", "T", key=new_key())
    with pytest.raises(errors.Missing, match="no branch nothing"):
        forge.create_pull_request("topic", "nothing", "T", key=new_key())
    if kind == "github":
        with pytest.raises(errors.Refused, match="No commits between topic and main"):
            forge.create_pull_request("main", "topic", "T", key=new_key())
    forge.create_pull_request("topic", "main", "T", key=new_key())
    with pytest.raises(errors.AlreadyThere, match="#1"):
        forge.create_pull_request("topic", "main", "T", key=new_key())
    with pytest.raises(errors.Missing, match="no pull request #99"):
        forge.merge(99, key=new_key())
    forge.close_pull_request(1, key=new_key())
    with pytest.raises(errors.Refused, match="closed already"):
        forge.merge(1, key=new_key())
    with pytest.raises(errors.Missing, match="no commit 123412341234"):
        forge.create_tag("v1", "1234" * 10, "M", key=new_key())
    forge.create_tag("v1", at, "M", key=new_key())
    with pytest.raises(errors.AlreadyThere, match="Tags are not moved"):
        forge.create_tag("v1", site.tip("topic"), "M", key=new_key())
    forge.create_release("v1", key=new_key())
    with pytest.raises(errors.AlreadyThere, match="release of v1"):
        forge.create_release("v1", key=new_key())


def test_creation_that_lost_a_race_says_so(site: Site, kind: str):
    """The look before found nothing, and then somebody else was quicker."""
    driver = site.driver(kind)
    at = site.tip("main")
    with pytest.raises(errors.AlreadyThere):
        driver.create_branch("topic", at)
    driver.create_pull_request("topic", "main", "T", "")
    with pytest.raises(errors.AlreadyThere):
        driver.create_pull_request("topic", "main", "T", "")
    driver.create_tag("v1", at, "M")
    with pytest.raises(errors.AlreadyThere):
        driver.create_tag("v1", at, "M")


def test_merge_conflict(site: Site, kind: str, forge: Forge, new_key: Keys):
    commit(site.bare, "topic", {"a.txt": "theirs\n"})
    before = commit(site.bare, "main", {"a.txt": "ours\n"})
    forge.create_pull_request("topic", "main", "T", key=new_key())
    for method in Method:
        set_up_for(site, method)
        with pytest.raises(errors.MergeConflict, match="settle the conflicts"):
            forge.merge(1, method, key=new_key())
    assert site.tip("main") == before
    assert forge.pull_request(1).state is State.OPEN


def test_merge_of_a_moved_head_or_into_a_protected_base(
    site: Site, kind: str, forge: Forge, new_key: Keys
) -> None:
    forge.create_pull_request("topic", "main", "T", key=new_key())
    request = forge.pull_request(1)
    commit(site.bare, "topic", {"late": "late"})
    with pytest.raises(errors.Moved, match="not at"):
        forge.merge(1, commit=request.commit, key=new_key())
    with pytest.raises(errors.Moved, match="has moved"):
        site.driver(kind).merge(request, Method.MERGE, "")
    site.repository.protect("main")
    with pytest.raises((errors.Refused, errors.Forbidden)) as caught:
        forge.merge(1, key=new_key())
    assert len(caught.value.text) > 20
    assert forge.pull_request(1).state is State.OPEN


def test_message_of_a_merge(site: Site, kind: str, forge: Forge, new_key: Keys):
    forge.create_pull_request("topic", "main", "T", key=new_key())
    forge.merge(1, Method.SQUASH, message="Title\n\nMore words.", key=new_key())
    assert git(site.bare, "log", "-n1", "--format=%B", "main").strip() == "Title\n\nMore words."


def test_rights(site: Site, kind: str, new_key: Keys):
    assert site.driver(kind).access().right is Right.WRITE
    reader = site.driver(kind, "tok_reader").access()
    assert reader.right is Right.READ
    assert len(reader.reason) > 10
    assert site.driver(kind, "tok_nobody").access().right is Right.NONE
    assert site.driver(kind, name="owner/nothing").access().right is Right.NONE
    nobody = site.driver(kind, "").access()
    assert nobody.right is Right.NONE
    assert "_TOKEN and " in nobody.reason
    revoked = site.driver(kind, "tok_revoked").access()
    assert revoked.right is Right.NONE
    assert "does not take your credential" in revoked.reason
    site.repository.private = False
    public = site.driver(kind, "").access()
    assert public.right is Right.READ
    assert "no credential" in public.reason
    site.repository.archived = True
    archived = site.driver(kind).access()
    assert (archived.right, "archived" in archived.reason) == (Right.READ, True)
    with pytest.raises(errors.Forbidden, match=r"may read .* but not change it"):
        site.forge(kind).create_branch("x", site.tip("main"), key=new_key())


def test_right_is_remembered_for_a_while_and_asked_for_by_changes(site: Site, kind: str):
    now = [0.0]
    rights = RightsCache(ttl=60, clock=lambda: now[0])
    forge = Forge(site.driver(kind), site.ledger, rights)
    assert forge.access().right is Right.WRITE
    site.repository.rights["alice"] = "read"
    assert forge.access().right is Right.WRITE
    assert len(site.small.seen) == 1
    with pytest.raises(errors.Forbidden, match="not change it"):
        forge.create_pull_request("topic", "main", "T", key="k")
    assert forge.access().right is Right.READ
    site.repository.rights["alice"] = "write"
    assert forge.access(fresh=True).right is Right.WRITE
    del site.repository.rights["alice"]
    now[0] = 59
    assert forge.access().right is Right.WRITE
    now[0] = 61
    assert forge.access().right is Right.NONE
    site.fail("GET", Answer(503, {"message": "down"}), times=9)
    now[0] = 200
    with pytest.raises(errors.Unreachable):
        forge.access()


def test_refusal_on_the_way_drops_the_remembered_right(site: Site, kind: str):
    forge = site.forge(kind)
    site.fail("POST", Answer(403, {"message": "not today"}))
    with pytest.raises(errors.Forbidden, match="not today"):
        forge.create_branch("x", site.tip("main"), key="k")
    del site.repository.rights["alice"]
    assert forge.access().right is Right.NONE


def test_gitlab_merges_by_the_setting_of_the_project(site: Site, new_key: Keys):
    forge = site.forge("gitlab")
    forge.create_pull_request("topic", "main", "T", key=new_key())
    with pytest.raises(errors.Refused, match="'Fast-forward merge'"):
        forge.merge(1, Method.REBASE, key=new_key())
    site.repository.merge_method = "ff"
    with pytest.raises(errors.Refused, match="'Merge commit'"):
        forge.merge(1, Method.MERGE, key=new_key())
    site.repository.allowed = ("merge", "rebase")
    with pytest.raises(errors.Refused, match="does not allow squashing"):
        forge.merge(1, Method.SQUASH, key=new_key())
    git(site.bare, "tag", "v1", "main")
    with pytest.raises(InvalidArgument, match="no drafts"):
        forge.create_release("v1", draft=True, key=new_key())


def test_more_pull_requests_than_a_page(site: Site, kind: str, forge: Forge):
    for number in range(60):
        site.repository.open_request("topic", "main", f"T{number}", "", "alice").state = "closed"
    assert len(forge.pull_requests(None)) == 60
    assert [r.number for r in forge.pull_requests(None, limit=2)] == [60, 59]
