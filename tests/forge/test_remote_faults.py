"""The drivers of forges on the network when it goes wrong: lost answers, limits, hangs, tokens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from fusefs.forge import errors
from fusefs.forge.forge import Forge
from fusefs.forge.github import GitHubDriver
from fusefs.forge.model import Right
from fusefs.forge.rest import Patience
from fusefs.forge.urls import parse

from .conftest import Keys, Memory, git
from .remote_site import QUICK, TOKEN, Site
from .small_forge.server import Answer, Fault, SmallForge, running

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


@pytest.mark.parametrize("kind", ["github", "gitea"])
def test_draft_release_is_found_again(site: Site, kind: str):
    forge = site.forge(kind)
    git(site.bare, "tag", "v1", "main")
    site.fail("POST .*/releases", "cut")
    made = forge.create_release("v1", "One", draft=True, prerelease=True, key="k")
    assert (made.draft, made.prerelease) == (True, True)
    assert len(site.repository.releases) == 1


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
