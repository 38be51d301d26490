"""From an address to the right forge, with the right credential."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusefs.contract.errors import InvalidArgument
from fusefs.forge.connect import Connection, Home, connect
from fusefs.forge.model import Right, State
from fusefs.forge.records import Records
from fusefs.forge.rights import RightsCache

from .conftest import ALICE, commit, git


@pytest.fixture
def home(records: Records, tmp_path: Path) -> Home:
    return Home(records, tmp_path / "forge.lock", RightsCache())


def to(url: str, home: Home, kind: str = "") -> Connection:
    return connect(url, home, ALICE, user="alice", kind=kind, environ={})


@pytest.mark.parametrize(
    ("url", "kind", "repository"),
    [
        ("https://github.com/o/r.git", "github", "github:https://github.com/o/r"),
        ("git@github.com:o/r", "github", "github:https://github.com/o/r"),
        ("https://gitlab.com/a/b/c", "gitlab", "gitlab:https://gitlab.com/a/b/c"),
        ("https://codeberg.org/o/r", "gitea", "gitea:https://codeberg.org/o/r"),
    ],
)
def test_well_known_hosts(home: Home, url: str, kind: str, repository: str):
    connection = to(url, home)
    assert connection.forge.kind == connection.transport.kind == kind
    assert connection.forge.repository == repository


def test_kind_is_asked_for_where_it_cannot_be_known(home: Home, tmp_path: Path):
    with pytest.raises(InvalidArgument, match=r"What kind of forge is git\.example"):
        to("https://git.example/o/r", home)
    assert to("https://git.example/o/r", home, kind="gitea").forge.kind == "gitea"
    with pytest.raises(InvalidArgument, match="Unknown kind"):
        to("https://git.example/o/r", home, kind="sourceforge")
    for url, kind in ((str(tmp_path), "github"), ("https://github.com/o/r", "local")):
        with pytest.raises(InvalidArgument, match="local ones are at a path"):
            to(url, home, kind=kind)


def test_token_is_not_sent_to_an_api_over_plain_http(home: Home):
    token = {"GH_TOKEN": "ghp_0123456789abcdef"}
    with pytest.raises(InvalidArgument, match="plain http"):
        connect("https://github.com/o/r", home, ALICE, user="a", environ=token,
                api="http://api.example/v3")  # fmt: skip


def test_whole_workflow_with_no_network(home: Home, bare: Path, tmp_path: Path):
    there = to(str(bare), home)
    assert there.forge.access().right is Right.WRITE
    clone = tmp_path / "clone.git"
    there.transport.clone(clone)
    main = git(clone, "rev-parse", "refs/remotes/origin/main")
    mine = commit(clone, "mine", {"mine": "mine"}, start=main)
    there.transport.push(clone, mine, "mine", None)
    made = there.forge.create_pull_request("mine", "main", "Mine", key="1")
    done = there.forge.merge(made.number, key="2")
    assert done.state is State.MERGED
    moves = there.transport.fetch(clone)
    assert moves.refs["refs/remotes/origin/main"] == (main, done.merge_commit)
