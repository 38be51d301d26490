"""The same files, the same questions: ripgrep(1) on a plain copy, and a session."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from fusefs.contract.globs import compile_include
from fusefs.session import texts
from fusefs.session.session import Session
from fusefs.session.transfer import import_directory
from fusefs.session.visible_files import VisibleFiles
from fusefs.store.instance import Instance

PATTERNS = [
    "import", r"^import \w+$", r"self\.[a-z_]+\(", r"\bdef\b.*:", "[A-Z]{3,}", r"^\s*$", r"é|ü|ß",
    r"(?i)TODO|fixme", r"[^\x00-\x7f]+", r"return (None|True|False)", "", r"\d+\.\d+", r"\)$",
]  # fmt: skip
INCLUDES = [
    ("*.py",), ("test_*",), ("json/**",), ("/json/*.py",), ("!*.py",), ("!json",),
    ("!json/", "*.py"),
    ("*.py", "!__init__.py"), ("{json,email}/*.py",), ("**/_*.py",), ("[j-l]*.py",), ("json",),
    ("email/m*.py", "*.txt"), ("!*", "*.py"),
]  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Session]]:
    """A folder, and a session that has a copy of it."""
    folder = tmp_path_factory.mktemp("ripgrep")
    plain = folder / "plain"
    library = Path(sysconfig.get_path("stdlib"))
    for package in ("json", "email", "encodings", "logging"):
        for path in sorted((library / package).rglob("*.py"))[:25]:
            copy = plain / path.relative_to(library)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (plain / ".hidden").mkdir()
    (plain / ".hidden/notes.txt").write_text("import this\nTODO: é\n")
    (plain / "no end.txt").write_text("fixme\nimport")
    with Instance.init(folder / "instance") as instance:
        session = Session(instance)
        import_directory(session, plain, "/top", lambda progress: None)
        yield plain, session


def rg(folder: Path, *words: str) -> list[str]:
    """Return what ripgrep prints, in path order."""
    done = subprocess.run(
        ["rg", "-uuu", "--no-heading", "--no-messages", *words], cwd=folder, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60,
        env={**os.environ, "RIPGREP_CONFIG_PATH": ""},
    )  # fmt: skip
    assert done.returncode in (0, 1)
    return done.stdout.decode().splitlines()


def in_order(lines: list[str]) -> list[str]:
    return sorted(lines, key=lambda line: line.split(":")[0].split("/"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_lines(places: tuple[Path, Session], pattern: str) -> None:
    folder, session = places
    # Its classes are about Unicode, unless they are told not to.
    theirs = f"(?-u:{pattern})" if re.search(r"\\[wdsb]", pattern) else pattern
    with mock.patch.multiple(texts, _FIRST_BYTES=1000, _MOST_BYTES=20_000):
        found = session.grep(pattern, "/top")
        lines = [f"{line.path}:{line.number}:{line.text}" for line in found]
        counts = [f"{count.path}:{count.lines}" for count in session.grep(pattern, "/top").counts()]
        files = list(session.grep(pattern, "/top").files())
    assert not found.truncated
    for flag, ours in (("-n", lines), ("-c", counts), ("-l", files)):
        assert ours == [f"/top/{line}" for line in in_order(rg(folder, flag, "--", theirs))]


@pytest.mark.parametrize("includes", INCLUDES, ids=" ".join)
def test_which_files(places: tuple[Path, Session], includes: tuple[str, ...]) -> None:
    folder, session = places
    words = [word for include in includes for word in ("-g", include)]
    found = VisibleFiles(session.view, session.place((b"top",)), compile_include(includes))
    theirs = [f"/top/{path}" for path in in_order(rg(folder, "--files", *words))]
    assert [file.text for file in found] == theirs
