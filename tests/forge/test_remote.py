"""The drivers of forges on the network, end to end against the small forge: git, REST, faults."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusefs.contract.errors import InvalidArgument
from fusefs.forge import errors
from fusefs.forge.credentials import Credential
from fusefs.forge.forge import Forge
from fusefs.forge.gitea import GiteaDriver
from fusefs.forge.github import GitHubDriver
from fusefs.forge.gitlab import GitLabDriver
from fusefs.forge.ledger import Ledger
from fusefs.forge.model import Method, Right, State, Tag
from fusefs.forge.rest import Patience
from fusefs.forge.rights import RightsCache
from fusefs.forge.secrets import Secret
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse

from .conftest import Keys, Memory, commit, git
from .small_forge import gitea, github, gitlab, openapi
from .small_forge.server import Answer, Call, Fault, SmallForge, running
from .small_forge.world import Repository

TOKEN = "tok_alice_0123456789abcdef"
KINDS = ("github", "gitlab", "gitea")
QUICK = Patience(connect=5, silence=20, total=30, pause=0.001)


def credential(token: str) -> Credential | None:
    return Credential("x", Secret(token, "x"), "test") if token else None


@dataclass
class Site:
    """A small forge and ways to it."""

    small: SmallForge
    ledger: Ledger

    @property
    def repository(self) -> Repository:
        return self.small.repositories["owner/project"]

    @property
    def bare(self) -> Path:
        return self.repository.path

    def driver(
        self,
        kind: str,
        token: str = TOKEN,
        name: str = "owner/project",
        patience: Patience = QUICK,
    ) -> GitHubDriver | GitLabDriver | GiteaDriver:
        remote = parse(f"{self.small.url}/{name}.git")
        who = credential(token)
        if kind == "github":
            return GitHubDriver(remote, who, user="alice", patience=patience)
        if kind == "gitlab":
            return GitLabDriver(remote, who, user="alice", patience=patience, pause=0.001)
        return GiteaDriver(remote, who, user="alice", patience=patience, wait=0.2, pause=0.001)

    def forge(self, kind: str, token: str = TOKEN, name: str = "owner/project") -> Forge:
        return Forge(self.driver(kind, token, name), self.ledger)

    def fail(self, pattern: str, answer: Answer | str, *, times: int = 1, skip: int = 0) -> None:
        self.small.faults.append(Fault(pattern, answer, times, skip))

    def asked(self, pattern: str) -> int:
        return sum(pattern in line for line in self.small.seen)

    def tip(self, branch: str) -> str:
        return git(self.bare, "rev-parse", f"refs/heads/{branch}")


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def site(bare: Path, memory: Memory, tmp_path: Path) -> Iterator[Site]:
    """The small forge; at the end, every call to GitHub's face must have been as described."""
    repository = Repository.make(bare, "owner/project")
    repository.rights = {"alice": "write", "reader": "read"}
    small = SmallForge(
        {"owner/project": repository},
        {TOKEN: "alice", "tok_reader": "reader", "tok_nobody": "nobody"},
        {github.ROOT: github.face, gitlab.ROOT: gitlab.face, gitea.ROOT: gitea.face},
    )
    wrong: list[str] = []

    def hold_against_the_description(root: str, call: Call, answer: Answer) -> None:
        if root == github.ROOT:
            wrong.extend(openapi.violations(call, answer))

    small.watchers.append(hold_against_the_description)
    with running(small):
        yield Site(small, Ledger(memory, tmp_path / "forge.lock"))
    assert small.crashes == []
    assert wrong == []


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def forge(site: Site, kind: str) -> Forge:
    return site.forge(kind)


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


CHANGES: dict[str, Callable[[Forge, str], object]] = {
    "branch": lambda forge, at: forge.create_branch("new", at, key="k"),
    "pull request": lambda forge, at: forge.create_pull_request("topic", "main", "T", key="k"),
    "update": lambda forge, at: forge.update_pull_request(1, title="New", key="k"),
    "merge": lambda forge, at: forge.merge(1, key="k"),
    "tag": lambda forge, at: forge.create_tag("v1", at, "M", key="k"),
    "release": lambda forge, at: forge.create_release("v0", key="k"),
}
"""Each change, as a call under one key."""

PATTERNS = {
    "branch": r"POST .*(/git/refs|branches)",
    "pull request": r"POST .*(pulls|merge_requests)$",
    "update": r"(PATCH|PUT) .*(pulls|merge_requests)/1$",
    "merge": r"(POST|PUT) .*/merge$",
    "tag": r"POST .*(/git/refs|repository/tags|project/tags)$",
    "release": r"POST .*/releases$",
}
"""The request that makes the change."""


def state_of(site: Site) -> object:
    repository = site.repository
    return (
        git(site.bare, "for-each-ref", "--format=%(refname)"),
        [(r.number, r.title, r.state) for r in repository.requests],
        [r["tag_name"] for r in repository.releases],
    )


def test_change_whose_answer_was_lost_is_found(site: Site, kind: str, forge: Forge):
    """The forge did it, the connection broke: nobody notices, and nothing is done twice."""
    git(site.bare, "tag", "v0", "main")
    for what in ("branch", "pull request", "update", "tag", "release", "merge"):
        # The first time Gitea is still busy with checking.
        site.fail(PATTERNS[what], "cut", skip=int((kind, what) == ("gitea", "merge")))
        at = site.tip("topic")
        first = CHANGES[what](forge, at)
        after = state_of(site)
        assert CHANGES[what](forge, at) == first
        assert state_of(site) == after
        assert site.small.faults.pop().times == 0


def test_change_that_nobody_can_tell_of_is_found_by_its_replay(
    site: Site, kind: str, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the change every question fails too: the forge is gone for a while."""
    git(site.bare, "tag", "v0", "main")
    gone = Fault("GET", Answer(503, {"message": "gone"}), times=0)
    take_fault = site.small.take_fault

    def take(line: str) -> Fault | None:
        fault = take_fault(line)
        gone.times += 99 if fault is not None and fault.answer == "cut" else 0
        return fault

    monkeypatch.setattr(site.small, "take_fault", take)
    for what in ("branch", "pull request", "release", "merge"):
        skip = int((kind, what) == ("gitea", "merge"))
        site.small.faults[:] = [gone, Fault(PATTERNS[what], "cut", skip=skip)]
        at = site.tip("topic")
        with pytest.raises(errors.Unreachable) as caught:
            CHANGES[what](forge, at)
        assert caught.value.maybe_done
        gone.times = 0
        after = state_of(site)
        CHANGES[what](forge, at)
        assert state_of(site) == after


def test_change_that_never_arrived_is_done_by_its_replay(site: Site, kind: str, forge: Forge):
    for what, state in (("pull request", "open"), ("merge", "merged")):
        site.fail(PATTERNS[what], Answer(502, {"message": "Bad gateway"}))
        with pytest.raises(errors.Unreachable, match=r"in trouble \(502\)"):
            CHANGES[what](forge, site.tip("topic"))
        CHANGES[what](forge, site.tip("topic"))
        assert site.repository.requests[-1].state == state


def test_threads_with_one_key_make_one(site: Site, kind: str):
    forges = [site.forge(kind) for _ in range(4)]
    made: list[int] = []

    def create(forge: Forge) -> None:
        made.append(forge.create_pull_request("topic", "main", "T", key="k").number)

    threads = [threading.Thread(target=create, args=(forge,)) for forge in forges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1, 1, 1, 1]
    assert len(site.repository.requests) == 1


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


def test_questions_are_repeated_when_the_forge_stumbles(site: Site, kind: str, forge: Forge):
    for answer in ("close", Answer(500, "oops"), Answer(502, {"message": "gateway"})):
        site.fail("GET", answer)
    assert forge.pull_requests() == []
    site.fail("GET", Answer(503, "<html>down</html>"), times=4)
    with pytest.raises(errors.Unreachable, match="down"):
        forge.pull_requests()


def test_changes_are_not_repeated_by_the_client(site: Site, kind: str):
    driver = site.driver(kind)
    site.fail("POST", Answer(500, "oops"))
    with pytest.raises(errors.Unreachable) as caught:
        driver.create_pull_request("topic", "main", "T", "")
    assert caught.value.maybe_done
    assert sum(line.startswith("POST") for line in site.small.seen) == 1


def limited(**headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(429, {"message": "slow down"}, names)


def test_rate_limits_are_waited_for_when_short(site: Site, kind: str):
    site.fail("GET|POST", limited(Retry_After="0"), times=2)
    driver = site.driver(kind)
    assert driver.pull_requests(None) == []
    site.fail("POST", limited(Retry_After="0"))
    assert driver.create_pull_request("topic", "main", "T", "").number == 1


@pytest.mark.parametrize(
    "answer",
    [
        limited(Retry_After="3600"),
        limited(RateLimit_Reset="99999999999"),
        Answer(403, {"message": "API rate limit exceeded"},
               {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999999999"}),
        Answer(403, {"message": "You have exceeded a secondary rate limit."},
               {"Retry-After": "3600"}),
        limited(Retry_After="Wed, 21 Oct 2099 07:28:00 GMT"),
    ],
)  # fmt: skip
def test_long_rate_limits_are_said_at_once(site: Site, answer: Answer):
    site.fail("GET", answer)
    with pytest.raises(errors.RateLimited, match=r"Try again in \d+ seconds") as caught:
        site.driver("github").pull_requests(None)
    assert caught.value.wait is not None
    assert caught.value.wait > 1000
    assert len(site.small.seen) == 1


def test_forge_that_hangs_or_drips_ends_at_the_deadline(site: Site, kind: str):
    hurried = Patience(connect=1, silence=0.2, total=0.5, pause=0.001)
    driver = site.driver(kind, patience=hurried)
    site.fail("GET", "hang", times=9)
    with pytest.raises(errors.TimedOut, match="did not answer in time"):
        driver.find_branch("main")
    site.small.faults.clear()
    site.fail("POST", "hang")
    with pytest.raises(errors.TimedOut) as caught:
        driver.create_pull_request("topic", "main", "T", "")
    assert caught.value.maybe_done
    site.small.faults.clear()
    site.fail("GET", "drip", times=9)
    with pytest.raises(errors.TimedOut):
        driver.access()


def test_what_is_no_forge_is_told_apart(site: Site, kind: str):
    site.fail("GET", Answer(200, "<html>Welcome</html>"), times=9)
    with pytest.raises(errors.Unreachable, match=f"not answer like the API of {kind}"):
        site.driver(kind).pull_requests(None)
    nowhere = GitHubDriver(parse("http://127.0.0.1:1/o/r"), None, patience=QUICK)
    with pytest.raises(errors.Unreachable, match="cannot be reached"):
        nowhere.find_branch("main")


def test_renamed_repository_is_followed_on_its_own_site_only(site: Site, new_key: Keys):
    forge = site.forge("github", name="owner/old-name")
    assert forge.access().right is Right.WRITE
    assert forge.create_pull_request("topic", "main", "T", key=new_key()).number == 1
    other = SmallForge()
    with running(other):
        site.fail("GET", Answer(301, {}, {"Location": f"{other.url}/api/v3/repos/owner/project"}))
        with pytest.raises(errors.Missing, match="has moved"):
            site.driver("github").pull_requests(None)
        assert other.seen == []


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


@pytest.mark.parametrize("kind", ["github", "gitea"])
def test_draft_release_is_found_again(site: Site, kind: str):
    forge = site.forge(kind)
    git(site.bare, "tag", "v1", "main")
    site.fail("POST .*/releases", "cut")
    made = forge.create_release("v1", "One", draft=True, prerelease=True, key="k")
    assert (made.draft, made.prerelease) == (True, True)
    assert len(site.repository.releases) == 1


def test_more_pull_requests_than_a_page(site: Site, kind: str, forge: Forge):
    for number in range(60):
        site.repository.open_request("topic", "main", f"T{number}", "", "alice").state = "closed"
    assert len(forge.pull_requests(None)) == 60
    assert [r.number for r in forge.pull_requests(None, limit=2)] == [60, 59]


def test_token_shows_up_nowhere(
    site: Site,
    kind: str,
    memory: Memory,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    forge = site.forge(kind)
    forge.create_pull_request("topic", "main", "T", key="k")
    # A forge that repeats in its answer what it was sent.
    said: list[str] = []
    for status in (400, 403, 404, 409, 422, 500):
        echo = Answer(status, {"message": f"bad Authorization: Bearer {TOKEN}"})
        site.fail("GET", echo, times=4)
        with pytest.raises(errors.ForgeError) as caught:
            forge.pull_request(1)
        said += [caught.value.text, repr(caught.value), str(caught.getrepr(style="long"))]
        site.small.faults.clear()
    said += [caplog.text, *capfd.readouterr(), repr(site.driver(kind).__dict__)]
    assert f"Bearer {TOKEN}" in site.small.authorizations
    ours = [text for text in said if "small_forge" not in text]
    assert all(TOKEN not in text for text in ours)
    kept = list(memory.range(b"", b"\xff"))
    assert kept
    assert all(TOKEN.encode() not in value for _, value in kept)
