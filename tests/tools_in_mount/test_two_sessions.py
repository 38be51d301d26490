"""Two sessions at one file, each through a mount of its own."""

from __future__ import annotations

import subprocess

import pytest

from tests.tools_in_mount.conftest import AREAS, Views
from tests.tools_in_mount.place import PATIENCE

LINES = 500
OPEN_ONCE = "for ((n = 0; n < {lines}; n++)); do printf '%s\\n' {word}-$n-{tail}; done >> {file}"
OPEN_EACH = "for ((n = 0; n < {lines}; n++)); do printf '%s\\n' {word}-$n-{tail} >> {file}; done"


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("script", [OPEN_ONCE, OPEN_EACH], ids=["open once", "open for each"])
def test_appended_lines_are_all_there_and_whole(views: Views, area: str, script: str) -> None:
    name = f"top/{area}/log-{'once' if script == OPEN_ONCE else 'each'}"
    tail = "x" * 200
    writers = [
        subprocess.Popen(
            ["bash", "-c", script.format(lines=LINES, word=word, tail=tail, file=view / name)]
        )
        for word, view in (("a", views.first), ("b", views.second))
    ]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0]
    expected = [f"{word}-{number}-{tail}" for word in "ab" for number in range(LINES)]
    found = (views.first / name).read_text().splitlines()
    assert sorted(found) == sorted(expected)
    # Each one's own lines are in order.
    assert [line for line in found if line[0] == "a"] == expected[:LINES]
    assert (views.second / name).read_text().splitlines() == found
