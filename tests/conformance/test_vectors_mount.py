"""The vectors through system calls in a real mount."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusefs.tools import conformance
from fusefs.tools.conformance import Scenario, load, run
from tests.conftest import Cli, unmount

SCENARIOS = [s for s in load() if any("mount" in case.faces for case in s.cases)]


@contextmanager
def mounted(instance: Path, session: str, mountpoint: Path) -> Iterator[Path]:
    """Mount a view as the runner does, by a daemon that is there sooner."""
    mountpoint.mkdir()
    Cli(instance).mount(session, mountpoint)
    try:
        yield mountpoint
    finally:
        unmount(mountpoint)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_vectors(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "mounted", mounted)
    outcomes = run([scenario], ["mount"])
    assert outcomes
    assert [outcome for outcome in outcomes if not outcome.passed] == []
