"""The vectors through the command line."""

from __future__ import annotations

import pytest

from fusefs.tools.conformance import Scenario, load, run

SCENARIOS = [s for s in load() if any("cli" in case.faces for case in s.cases)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_vectors(scenario: Scenario) -> None:
    outcomes = run([scenario], ["cli"])
    assert outcomes
    assert [outcome for outcome in outcomes if not outcome.passed] == []
