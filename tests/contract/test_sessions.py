"""Sessions and their written forms (contract section 1)."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.levels import Level
from fusefs.contract.sessions import OPERATOR, SessionSpec, World, parse_rule
from fusefs.contract.view import View

names = st.binary(min_size=1, max_size=4).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
paths = st.lists(names, max_size=3).map(tuple)
tables = st.dictionaries(paths, st.sampled_from(Level), max_size=3)
specs = st.builds(
    SessionSpec,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    world=st.sampled_from(World),
    boundary=paths,
    start=paths,
    grants=tables,
    floors=tables,
    user=st.text(max_size=5),
    context=st.one_of(st.none(), st.just("site_1")),
    secret=st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)),
)


@given(specs)
def test_json_keeps_everything(spec: SessionSpec) -> None:
    assert SessionSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@given(specs)
def test_a_table_keeps_everything_but_the_secret(spec: SessionSpec) -> None:
    table = spec.to_table()
    assert "secret" not in table
    assert {**SessionSpec.from_table(table).to_json(), "secret": ""} == {**table, "secret": ""}


def test_toml() -> None:
    spec = SessionSpec.from_table(
        tomllib.loads("""
            name = "alice"
            world = "chat"
            boundary = "/Projects/"
            start = "/Projects/site"
            grants = { "/Projects" = "ro", "/Projects/site" = "stage" }
            floors = { "/Projects/site/.git" = "none" }
        """)
    )
    assert spec.world is World.CHAT
    assert spec.directory == (b"Projects", b"site")
    view = View(spec.rules({(b"Projects", b"site"): Level.RO}))
    assert view.cursor((b"Projects", b"site")).level == Level.RO
    assert not view.cursor((b"Projects", b"site", b".git")).visible


def test_a_start_outside_the_boundary_is_the_boundary() -> None:
    assert SessionSpec("s", boundary=(b"a",), start=(b"ab",)).directory == (b"a",)
    assert SessionSpec("s", boundary=(b"a",)).directory == (b"a",)


def test_the_operator_sees_and_changes_everything() -> None:
    assert View(OPERATOR.rules()).root.uniform
    assert View(OPERATOR.rules()).root.level == Level.COMMIT


def test_a_secret_is_not_shown() -> None:
    assert b"x".hex() * 16 not in repr(SessionSpec("s", secret=b"x" * 16))
    assert "secret" not in repr(SessionSpec("s", secret=b"x" * 16))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "needs a name"),
        ({"name": "-"}, "person at the CLI"),
        ({"name": "a/b"}, "Not a session name: 'a/b'"),
        ({"name": ".a"}, "Not a session name"),
        ({"name": "a\n"}, "Not a session name"),
        ({"name": "a" * 65}, "Not a session name"),
        ({"name": 3}, "Wrong value for name: 3 is not text"),
        ({"name": "a", "grant": {}}, "Unknown key in a session: grant. Known are name, world,"),
        ({"name": "a", "secret": ""}, "Unknown key in a session: secret"),
        ({"name": "a", "world": "moon"}, "Unknown world 'moon': use one of chat, agent"),
        ({"name": "a", "boundary": "b"}, "Not an absolute path in boundary: 'b'"),
        ({"name": "a", "grants": ["/"]}, "Wrong value for grants"),
        ({"name": "a", "grants": {"/": "rw"}}, "Wrong level in grants for /: unknown level 'rw'"),
        ({"name": "a", "grants": {"x": "ro"}}, "Not an absolute path in grants: 'x'"),
        ({"name": "a", "floors": {"/": 1}}, "Wrong rule in floors: '/' = 1"),
        ({"name": "a", "grants": {"/b": "ro", "/b/": "none"}}, "Two levels for /b in grants"),
        ({"name": "a", "context": "System"}, "'System' is reserved"),
        ({"name": "a", "context": "-x"}, "Not a context name"),
    ],
)
def test_mistakes_are_named(table: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        SessionSpec.from_table(table)
    assert said in caught.value.text


@pytest.mark.parametrize("secret", ["zz", "00", 5])
def test_a_secret_is_sixteen_bytes(secret: object) -> None:
    with pytest.raises(InvalidArgument):
        SessionSpec.from_json({"name": "a", "secret": secret})


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("/=ro", ((), Level.RO)),
        ("/a/b=none", ((b"a", b"b"), Level.NONE)),
        ("/a=b=stage", ((b"a=b",), Level.STAGE)),
        ("/a/../b/=commit", ((b"b",), Level.COMMIT)),
    ],
)
def test_rules_as_text(text: str, rule: object) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize("text", ["", "/a", "a=ro", "=ro", "/a=", "/a=rw", "/a=RO"])
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_rule(text)
