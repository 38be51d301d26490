"""`fusefs session` and `fusefs explain`."""

from __future__ import annotations

import pytest


def grants(cli, name):
    return cli("session", "show", name, "--json").json["grants"]


def test_create_show_list_rm(cli):
    made = cli("session", "create", "work", "--world", "chat", "--boundary", "/p", "--start",
               "/p/q", "--grant", "/p=ro", "--grant", "/p/q=stage", "--floor", "/p/x=none",
               "--json").json  # fmt: skip
    assert made == {
        "name": "work",
        "world": "chat",
        "boundary": "/p",
        "start": "/p/q",
        "grants": {"/p": "ro", "/p/q": "stage"},
        "floors": {"/p/x": "none"},
        "user": "",
    }
    assert cli("session", "show", "work", "--json").json == made
    assert cli("session", "list", "--json").json == {"sessions": [made]}
    assert "/p/q=stage" in cli("session", "show", "work").out
    assert "/p=ro" in cli("session", "list").out
    cli("session", "rm", "work")
    assert cli("session", "list", "--json").json == {"sessions": []}


def test_a_taken_name_is_refused(cli):
    cli("session", "create", "work", "--grant", "/=ro")
    result = cli("session", "create", "work", "--grant", "/=commit", "--json", expect=3)
    assert result.json["error"]["code"] == "FS_EXISTS"
    assert grants(cli, "work") == {"/": "ro"}


def test_the_secret_is_never_shown(cli):
    cli("session", "create", "work", "--grant", "/=ro")
    for words in (["session", "show", "work"], ["session", "list"]):
        assert "secret" not in cli(*words).out
        assert "secret" not in cli(*words, "--json").out


def test_grant_and_revoke(cli):
    cli("session", "create", "work")
    cli("session", "grant", "work", "/a=ro", "/a/b=stage")
    cli("session", "grant", "work", "/a=stage", "--floor")
    assert grants(cli, "work") == {"/a": "ro", "/a/b": "stage"}
    cli("session", "grant", "work", "/a/b=none")
    assert grants(cli, "work") == {"/a": "ro", "/a/b": "none"}
    cli("session", "revoke", "work", "/a/b/")
    assert grants(cli, "work") == {"/a": "ro"}
    assert "/a/b" in cli("session", "revoke", "work", "/a/b", expect=1).err
    cli("session", "revoke", "work", "/a", "--floor")
    assert cli("session", "show", "work", "--json").json["floors"] == {}


def test_from_a_file(cli, tmp_path):
    file = tmp_path / "work.toml"
    file.write_text('name = "other"\nboundary = "/p"\n[grants]\n"/p" = "ro"\n')
    made = cli("session", "create", "work", "--from", file, "--grant", "/p/q=stage", "--json").json
    assert made["name"] == "work"
    assert made["boundary"] == "/p"
    assert made["grants"] == {"/p": "ro", "/p/q": "stage"}


@pytest.mark.parametrize("text", ["grants = 3", "colour = 'red'", "not toml", 'world = "moon"'])
def test_a_wrong_file_is_status_2(cli, tmp_path, text):
    file = tmp_path / "work.toml"
    file.write_text(text)
    assert cli("session", "create", "work", "--from", file, expect=2).err
    assert cli("session", "list", "--json").json == {"sessions": []}


def test_explain(cli):
    cli("session", "create", "work", "--grant", "/a/b=stage", "--floor", "/a/b/c=ro")
    passage = cli("explain", "/a", "--session", "work", "--json").json
    assert passage["passage"] and not passage["visible"] and passage["level"] == "none"
    lowered = cli("explain", "/a/b/c/d", "--session", "work", "--json").json
    assert lowered["level"] == "ro"
    assert lowered["grant"] == {"path": "/a/b", "level": "stage"}
    assert lowered["floor"] == {"path": "/a/b/c", "level": "ro"}
    text = cli("explain", "/a", "--session", "work").out
    assert text.splitlines()[0] == "/a is at none: it is a passage."
    assert "Access denied: /a is not open to this session." in text
