"""Addresses, where tokens come from, and that they stay out of every text."""

from __future__ import annotations

import base64
import copy
import pickle
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.contract.errors import InvalidArgument
from fusefs.forge import credentials, errors
from fusefs.forge.git_errors import from_git, from_push
from fusefs.forge.secrets import MASK, Secret, mask
from fusefs.forge.urls import parse


@pytest.mark.parametrize(
    ("url", "site", "path"),
    [
        ("https://github.com/o/r", "https://github.com", "o/r"),
        ("https://GitHub.com/o/r.git/", "https://github.com", "o/r"),
        ("http://127.0.0.1:3000/o/r.git", "http://127.0.0.1:3000", "o/r"),
        ("http://[::1]:3000/o/r.git", "http://[::1]:3000", "o/r"),
        ("https://gitlab.com/a/b/c.git", "https://gitlab.com", "a/b/c"),
        ("ssh://git@host:2222/o/r.git", "ssh://host:2222", "o/r"),
        ("git@github.com:o/r.git", "ssh://github.com", "o/r"),
        ("github.com:o/r", "ssh://github.com", "o/r"),
        ("file:///srv/a%20b.git", "path://", "/srv/a b.git"),
        ("/srv/x:y.git", "path://", "/srv/x:y.git"),
    ],
)
def test_addresses(url: str, site: str, path: str):
    remote = parse(url)
    assert (remote.site, remote.path) == (site, path)


def test_relative_paths_are_made_absolute():
    assert parse("./x").path == str(Path("x").absolute())
    assert parse("~/x").path == str(Path.home() / "x")


@pytest.mark.parametrize(
    "url",
    ["", "-x", "--upload-pack=evil", "ext::sh -c x", "git://host/x", "file://other/x", "https://",
     "https://host", "https://host:port/x", "https://host/x?y", "ssh://-oProxyCommand=x/y",
     "-oProxyCommand=x:y", "https://host/x\n", "ftp://x/y"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str):
    with pytest.raises(InvalidArgument):
        parse(url)


def test_token_in_an_address_is_refused_without_repeating_it():
    for site in ("https://{}@github.com/o/r", "https://u:{}@github.com/o/r", "ssh://u:{}@h/r"):
        with pytest.raises(InvalidArgument, match="GH_TOKEN") as caught:
            parse(site.format("ghp_secret99"))
        assert "ghp_secret99" not in caught.value.text
    for site in ("https://{}@github.com/o/r\n", "file://{}@x/y", "https://{}@", "ftp://{}@h/x"):
        with pytest.raises(InvalidArgument) as caught:
            parse(site.format("ghp_secret99"))
        assert "ghp_secret99" not in caught.value.text


GITHUB, GITLAB = parse("https://github.com/o/r"), parse("https://gitlab.com/o/r")
LOCAL = parse("http://127.0.0.1:3000/o/r")


@pytest.mark.parametrize(
    ("url", "kind", "environment", "found"),
    [
        ("https://github.com/o/r", "github", {"GH_TOKEN": "a", "GITHUB_TOKEN": "b"}, "a"),
        ("https://github.com/o/r", "github", {"GITHUB_TOKEN": "b"}, "b"),
        ("git@github.com:o/r.git", "github", {"GITHUB_TOKEN": "b"}, "b"),
        ("https://github.com/o/r", "github", {"GITLAB_TOKEN": "b"}, None),
        ("https://gitlab.com/o/r", "gitlab", {"GITLAB_TOKEN": "b"}, "b"),
        ("https://evil.example/o/r", "github", {"GH_TOKEN": "a"}, None),
        ("https://git.example/o/r", "github", {"GH_TOKEN": "a", "GH_HOST": "git.example"}, "a"),
        ("https://github.com/o/r", "github", {"GH_TOKEN": "a", "GH_HOST": "git.example"}, None),
        ("https://git.example:8443/o/r", "gitea",
         {"GITEA_TOKEN": "t", "GITEA_HOST": "https://git.example:8443/"}, "t"),
        ("http://127.0.0.1:3000/o/r", "gitea",
         {"GITEA_TOKEN": "t", "GITEA_HOST": "127.0.0.1:3000"}, "t"),
        ("http://git.example/o/r", "gitea",
         {"GITEA_TOKEN": "t", "GITEA_HOST": "git.example"}, None),
        ("/srv/r.git", "local", {"GH_TOKEN": "a"}, None),
    ],
)  # fmt: skip
def test_token_of_the_environment_goes_to_its_own_host(
    url: str, kind: str, environment: dict[str, str], found: str | None
) -> None:
    credential = credentials.find(parse(url), kind, environment)
    assert (None if credential is None else credential.secret.reveal()) == found


def helper_environment(tmp_path: Path, script: str) -> dict[str, str]:
    config = tmp_path / "gitconfig"
    config.write_text(f'[credential]\n\thelper = "!{script}"\n')
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def test_git_credential_helpers_are_asked(tmp_path: Path):
    script = "f() { cat > asked; echo username=me; echo password=from-helper; }; f"
    environment = helper_environment(tmp_path, f"cd {tmp_path}; {script}")
    credential = credentials.find(GITHUB, "github", environment)
    assert credential is not None
    assert (credential.user, credential.secret.reveal()) == ("me", "from-helper")
    assert "host=github.com" in (tmp_path / "asked").read_text()
    environment["GH_TOKEN"] = "from-environment"
    credential = credentials.find(GITHUB, "github", environment)
    assert credential is not None
    assert credential.source == "GH_TOKEN"
    (tmp_path / "asked").unlink()
    assert credentials.find(parse("http://git.example/o/r"), "gitea", environment) is None
    assert not (tmp_path / "asked").exists()


def test_helper_that_knows_nothing_asks_nobody(tmp_path: Path):
    assert credentials.find(GITHUB, "github", helper_environment(tmp_path, "true")) is None
    assert credentials.find(GITHUB, "github", {"PATH": "/nonexistent"}) is None


def test_advice_names_the_variable_and_the_host():
    assert "set GH_TOKEN, or" in credentials.advice(GITHUB, "github")
    assert "GITEA_TOKEN and GITEA_HOST=127.0.0.1:3000" in credentials.advice(LOCAL, "gitea")
    assert "https://" in credentials.advice(parse("http://git.example/o/r"), "gitea")
    assert "git credential approve" in credentials.advice(GITHUB, "git")


TOKENS = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="*"),
    min_size=6,
    max_size=60,
)


@given(TOKENS, st.text(max_size=40), st.text(max_size=40))
def test_token_is_masked_wherever_it_turns_up(token: str, before: str, after: str):
    secret = Secret(token, "user")
    basic = base64.b64encode(f"user:{token}".encode()).decode()
    said = f"{before}{token}{after} {basic} {quote(token, safe='')} https://u:{token}@h/x"
    texts = [
        mask(said),
        errors.ForgeError(said).text,
        str(errors.Refused(said)),
        repr(errors.MergeConflict(said)),
        from_git(said, GITHUB, "github", "fetch").text,
        from_git(f"fatal: Authentication failed for {said}", GITHUB, "github", "fetch").text,
        from_push(said, f"remote: {said}", GITHUB, "main").text,
        repr(secret),
        f"{secret}",
        repr(credentials.Credential("user", secret, "test")),
        credentials.Credential("user", secret, "test").fingerprint,
    ]
    for text in texts:
        for form in (token, basic, quote(token, safe="")):
            assert form not in text or form in MASK


def test_passwords_in_addresses_are_masked_and_users_of_ssh_are_not():
    assert mask("x https://tok@h/x http://u:p@h ssh://git@h/x ssh://u:p@h") == (
        "x https://***@h/x http://***@h ssh://git@h/x ssh://u:***@h"
    )


def test_secrets_are_not_stored():
    secret = Secret("ghp_0123456789")
    with pytest.raises(TypeError, match="not stored"):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.copy(secret)


def test_second_secret_of_the_same_value_outlives_the_first():
    first = Secret("ghp_twice_the_same")
    second = Secret("ghp_twice_the_same")
    del first
    assert mask(f"x {second.reveal()} y") == "x *** y"


def test_what_a_forge_says_cannot_speak_to_the_terminal():
    text = errors.Refused("no\x1b[2J\x07 way\u202e\n" + "x" * 5000).text
    assert text.startswith("no[2J way\nxxx")
    assert len(text) < 2100
