"""The compiled view against the naive reading of the contract."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusefs.contract.explain import explain
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below
from fusefs.contract.view import Rules, View
from tests.contract import naive

names = st.sampled_from([b"a", b"b", b"c"])
paths = st.lists(names, max_size=5).map(tuple)
levels = st.sampled_from(Level)
tables = st.dictionaries(paths, levels, max_size=6)
rules_sets = st.builds(
    Rules,
    grants=tables,
    floors=st.dictionaries(paths, levels, max_size=4),
    boundary=st.one_of(st.just(()), st.lists(names, max_size=2).map(tuple)),
    caps=st.dictionaries(paths, levels, max_size=2),
)


def nearby(rules: Rules, path: Path) -> set[Path]:
    """Return `path`, every path that a rule leads through, and one beside each."""
    through = {at[:n] for at in naive.rule_paths(rules) for n in range(len(at) + 1)}
    return {path} | through | {(*at, b"z") for at in through}


@settings(max_examples=300, deadline=None)
@given(rules_sets, paths)
def test_cursor_says_what_the_contract_says(rules: Rules, path: Path) -> None:
    view = View(rules)
    for at in nearby(rules, path):
        cursor = view.cursor(at)
        assert cursor.level == naive.level(rules, at)
        assert cursor.visible == naive.visible(rules, at)
        assert cursor.passage == naive.passage(rules, at)
        assert cursor.mixed == naive.mixed(rules, at)
        assert cursor.uniform == naive.uniform(rules, at)
        refusal = cursor.removal_refusal(at)
        assert (None if refusal is None else refusal.text) == naive.refusal_text(rules, at)
        refusal = cursor.commit_refusal(at)
        said = naive.refusal_text(rules, at, to_commit=True)
        assert (None if refusal is None else refusal.text) == said
        if not cursor.visible:
            assert cursor.unseen(at).text == naive.unseen_text(rules, at)


@settings(max_examples=200, deadline=None)
@given(rules_sets, paths)
def test_named_entries_are_sorted_and_the_others_alike(rules: Rules, path: Path) -> None:
    cursor = View(rules).cursor(path)
    named = list(cursor.named())
    assert named == sorted(named, key=lambda item: item[0])
    others = {cursor.child(name) for name in (b"a", b"b", b"c", b"z")}
    others -= {child for _, child in named}
    assert len(others) == 1
    assert others.pop().uniform


@settings(max_examples=300, deadline=None)
@given(rules_sets, paths)
def test_explanation_agrees_with_the_view(rules: Rules, path: Path) -> None:
    told = explain(rules, path)
    assert told.level == naive.level(rules, path)
    assert told.visible == naive.visible(rules, path)
    assert told.passage == naive.passage(rules, path)
    assert told.inside_boundary == is_at_or_below(path, rules.boundary)
    assert told.grant_level == (
        naive.most_specific(rules.grants, path, Level.NONE) if told.grant_path else None
    )
    if told.inside_boundary:
        limits = [told.floor_level, told.cap_level, told.grant_level or Level.NONE]
        assert told.level == min(limit for limit in limits if limit is not None)
    assert told.sentences[0].startswith(f"{told.path} is at {told.level}: ")
    if not told.visible:
        assert told.sentences[-1] == f"The session is told: {naive.unseen_text(rules, path)}"


def test_explanation_in_words() -> None:
    rules = Rules(
        grants={(b"w",): Level.COMMIT, (b"w", b"x", b"y"): Level.STAGE, (b"w", b"x"): Level.NONE},
        floors={(b"w", b"x"): Level.RO},
        boundary=(b"w",),
        caps={(b"w",): Level.STAGE},
    )
    assert explain(rules, (b"w", b"x")).sentences == [
        "/w/x is at none: it is a passage.",
        "The grant on /w/x gives none.",
        "The floor on /w/x allows up to ro.",
        "The user's right on the repository mounted at /w allows up to stage.",
        "It is inside the boundary /w.",
        "As a passage it leads to /w/x/y, at ro, and can be neither listed nor changed.",
        "The session is told: Access denied: /w/x is not open to this session.",
    ]
    assert explain(rules, (b"w", b"x", b"y")).sentences[2] == "The floor on /w/x lowers it to ro."
    assert explain(rules, (b"v",)).sentences == [
        "/v is at none: it does not exist for the session.",
        "No grant covers it, so it starts at none.",
        "It is outside the boundary /w: nothing there is visible.",
        "The session is told: Access denied: /v is not open to this session.",
    ]


def test_explanation_speaks_of_committing_in_repositories_alone() -> None:
    rules = Rules(
        grants={(): Level.COMMIT, (b"s",): Level.STAGE, (b"r", b"s"): Level.STAGE},
        caps={(b"r",): Level.COMMIT},
    )
    verdicts = {
        (): "/ is at commit: it can be read and changed.",
        (b"s",): "/s is at stage: it can be read and changed.",
        (b"r",): "/r is at commit: it can be read, changed and committed.",
        (b"r", b"s"): "/r/s is at stage: it can be read and changed, but not committed.",
    }
    for path, verdict in verdicts.items():
        assert explain(rules, path).sentences[0] == verdict


def test_rules_may_lie_any_number_of_names_deep() -> None:
    deep = (b"d",) * 20_000
    rules = Rules(grants={(): Level.STAGE, deep: Level.NONE, (*deep, b"x"): Level.RO})
    view = View(rules)
    assert view.cursor(deep).passage
    assert view.cursor((*deep, b"x")).visible
    refusal = view.root.removal_refusal(())
    assert refusal is not None
    assert refusal.text.startswith("Access denied: /d/d/")
    assert explain(rules, deep[:-1]).level == Level.STAGE


@pytest.mark.timeout(60)  # seconds; a quadratic compiler would take many minutes
def test_deep_passages_and_long_chains_of_rules_are_compiled_in_linear_time() -> None:
    deep = (b"d",) * 200_000
    view = View(Rules(grants={deep: Level.RO}))
    assert view.root.passage
    assert view.cursor(deep).visible
    chain = {(b"d",) * n: Level(n % 2) for n in range(2_000)}
    assert View(Rules(grants=chain)).cursor((b"d",) * 1_998).passage


def test_rules_that_say_nothing_new_cost_nothing() -> None:
    view = View(Rules(grants={(): Level.RO, (b"a",): Level.RO, (b"a", b"b"): Level.RO}))
    assert view.root.uniform
    assert list(view.root.named()) == []


@pytest.mark.parametrize("level", Level)
def test_levels_read_as_they_are_written(level: Level) -> None:
    assert Level.parse(str(level)) is level


def test_unknown_level_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="use one of none, ro, stage, commit"):
        Level.parse("rw")
