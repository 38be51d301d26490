"""The vectors through system calls in a real mount."""

from __future__ import annotations

import pytest

from fusefs.tools.conformance import Scenario, load, run

SCENARIOS = [s for s in load() if any("mount" in case.faces for case in s.cases)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_vectors(scenario: Scenario) -> None:
    outcomes = run([scenario], ["mount"])
    assert outcomes
    assert [outcome for outcome in outcomes if not outcome.passed] == []
