"""The vectors themselves against the contract, read word by word."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from fusefs.contract.sessions import OPERATOR
from fusefs.tools.conformance_cases import run_cases
from fusefs.tools.conformance_faces import Answer, SessionFace
from fusefs.tools.conformance_vectors import Scenario, VectorError, load
from tests.conformance import model_pieces
from tests.conformance.model import ModelSession, mounted, planted
from tests.conformance.model_finding import ModelFinder

SCENARIOS = load()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_contract_says_what_the_vectors_say(scenario: Scenario) -> None:
    for number, tree in enumerate(scenario.trees):
        nodes = planted(tree)
        face = ModelFace(ModelSession(nodes, scenario.session, mounted(tree)))
        operator = ModelSession(nodes, OPERATOR, mounted(tree))
        outcomes = run_cases(scenario, "api", face, operator, tree=number)
        assert [outcome for outcome in outcomes if not outcome.passed] == []


class ModelFace(SessionFace):
    """The model's methods, its commits and searches too, and the models of pure rules."""

    def __init__(self, session: ModelSession) -> None:
        super().__init__(session)
        self._model = session
        self._finder = ModelFinder(session)

    def _do(self, op: str, fields: Mapping[str, object]) -> object:
        match op:
            case "commit":
                self._model.commit(str(fields.get("path", "")))
                return None
            case "cut" | "halve":
                return model_pieces.answer(op, fields)
            case "glob":
                return self._finder.glob(fields)
            case "grep":
                return self._finder.grep(fields)
            case "search":
                return self._finder.search(fields)
            case _:
                return super()._do(op, fields)


def test_names_of_scenarios_are_unique() -> None:
    assert [name for name, n in Counter(s.name for s in SCENARIOS).items() if n > 1] == []


def test_every_case_has_an_answer_for_each_of_its_faces() -> None:
    for scenario in SCENARIOS:
        for case in scenario.cases:
            assert {"ok", "error", "code"} & set(case.expect), (scenario.name, case)
            if "mount" in case.faces and "ok" not in case.expect:
                assert "errno" in case.expect, (scenario.name, case)


@pytest.mark.parametrize(
    "damage",
    [
        "[]",
        "{",
        '{"scenarios": [{"name": "x"}]}',
        '{"scenarios": [{"name": "x", "session": {"world": "x"}, "tree": {}, "cases": []}]}',
        '{"scenarios": [{"name": "x", "session": {}, "tree": {"/a": 1}, "cases": []}]}',
        '{"scenarios": [{"name": "x", "session": {}, "tree": {"/a": {"repository": {"b": null}}}, '
        '"cases": []}]}',
        '{"scenarios": [{"name": "x", "session": {}, "cases": [], '
        '"tree": {"/a": {"repository": {}, "right": "all"}}}]}',
        '{"scenarios": [{"name": "x", "session": {}, "tree": {}, "cases": [{"op": "sing"}]}]}',
        '{"scenarios": [{"name": "x", "session": {}, "tree": {}, "cases": [1]}]}',
        '{"scenarios": [{"name": "x", "session": {}, "tree": {}, "cases": [{"op": "cut", '
        '"text": ["a", {"repeat": ["b"]}], "expect": {"ok": []}}]}]}',
    ],
)
def test_damaged_files_are_named(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "broken.json"
    file.write_text(damage)
    with pytest.raises(VectorError, match=r"broken\.json"):
        load([file])


def test_a_refusal_that_changes_something_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    case = {"op": "rm", "path": "/a", "expect": {"code": "FS_NOT_FOUND"}, "faces": ["api"]}
    scenario = {"name": "s", "session": {}, "tree": {"/a": "a"}, "cases": [case]}
    file.write_text(json.dumps({"scenarios": [scenario]}))

    class Liar(SessionFace):
        def call(self, op: str, fields: object) -> Answer:
            nodes.clear()
            nodes[()] = None
            return Answer(error="No such file or directory: /a", code="FS_NOT_FOUND")

    [loaded] = load([file])
    nodes = planted(loaded.trees[0])
    operator = ModelSession(nodes, OPERATOR)
    [outcome] = run_cases(loaded, "api", Liar(operator), operator)
    assert not outcome.passed
    assert outcome.got.endswith("but the tree was changed")
