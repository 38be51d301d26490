"""Two sessions at one file, each through a mount of its own."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.daemon.conftest import until
from tests.tools_in_mount.conftest import AREAS, Views
from tests.tools_in_mount.place import PATIENCE

LINES = 300
OPEN_ONCE = "for ((n = 0; n < {lines}; n++)); do printf '%s\\n' {word}-$n-{tail}; done >> {file}"
OPEN_EACH = "for ((n = 0; n < {lines}; n++)); do printf '%s\\n' {word}-$n-{tail} >> {file}; done"


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("script", [OPEN_ONCE, OPEN_EACH], ids=["open once", "open for each"])
def test_appended_lines_are_all_there_and_whole(views: Views, area: str, script: str) -> None:
    name = f"top/{area}/log-{'once' if script == OPEN_ONCE else 'each'}"
    # Long enough for many lines to stand across the edge of a page.
    tail = "x" * 1000
    writers = [
        subprocess.Popen(
            ["bash", "-c", script.format(lines=LINES, word=word, tail=tail, file=view / name)]
        )
        for word, view in (("a", views.first), ("b", views.second))
    ]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0]
    expected = [f"{word}-{number}-{tail}" for word in "ab" for number in range(LINES)]
    length = sum(len(line) + 1 for line in expected)
    for view in (views.first, views.second):
        found = until(partial(_lines, view / name, length))
        assert sorted(found) == sorted(expected)
        # Each one's own lines are in order.
        assert [line for line in found if line[0] == "a"] == expected[:LINES]


def _lines(file: Path, length: int) -> list[str]:
    """The lines of a file, none as long as it has not come to its length."""
    text = file.read_text()
    return text.splitlines() if len(text) >= length else []
