"""Searching from the command line, with the model that comes along, indexed in the background."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.index.upkeep import Upkeep
from fusefs.session.index_starter import IndexStarter
from fusefs.store.instance import Instance
from tests.conftest import TIMEOUT, Cli, on_terminal, unmount

TEXTS = {
    "/notes/bread.md": "# Baking\n\nKnead the dough, let it rest for an hour, then bake it.\n",
    "/notes/cars.md": "# Driving\n\nThe engine stalls when the clutch is let go too fast.\n",
    "/src/retry.py": "def backoff_seconds(attempt):\n    return min(60, 2 ** attempt)\n",
}


@pytest.fixture
def filled(cli: Cli) -> Cli:
    for path, text in TEXTS.items():
        cli("write", path, stdin=text.encode())
    return cli


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_by_words_at_once_then_by_meaning(filled: Cli) -> None:
    found = filled("search", "backoffSeconds", "/")
    assert found.out == f"/src/retry.py:1-2\n{TEXTS['/src/retry.py']}"
    assert "3 of 3 files are found by words alone yet" in found.err
    status = filled("index", "status", "--json").json
    assert (status["words_pending"], status["vectors_pending"]) == (0, 3)
    assert status["model"] == "all-MiniLM-L6-v2"
    done = filled("index", "update")
    assert "complete" in done.out
    question = "how do I make a loaf?"
    found = filled("search", question, "/", "-n", "1")
    assert found.out.startswith("/notes/bread.md:1-3\n# Baking")
    assert found.err == ""
    hit = filled("search", question, "/", "--json").json["hits"][0]
    assert (hit["path"], hit["first_line"], hit["last_line"]) == ("/notes/bread.md", 1, 3)
    assert hit["meaning"] > 0.2


def test_what_a_session_sees(filled: Cli) -> None:
    filled("session", "create", "s", "--grant", "/notes=ro")
    filled("index", "update")
    found = filled("search", "attempt engine", "/notes", "--session", "s", "--json").json
    assert {hit["path"] for hit in found["hits"]} == {"/notes/bread.md", "/notes/cars.md"}
    refused = filled("search", "attempt", "/src", "--session", "s", expect=1)
    assert refused.err == "Access denied: /src is not open to this session.\n"


def test_nothing_found_and_what_makes_no_sense(filled: Cli) -> None:
    filled("search", "zyzzyva", "/", "--mode", "words", expect=1)
    filled("search", " ", "/", expect=2)
    filled("search", "x", "/", "-n", "0", expect=2)
    filled("search", "x", "/", "-g", "{a", expect=2)
    found = filled("search", "bake attempt", "/", "-g", "*.md", "--mode", "words")
    assert found.out.count(":1-") == 1


def test_a_person_sees_what_was_asked_for(filled: Cli) -> None:
    command = ["search", "dough", "/", "--mode", "words"]
    status, shown = on_terminal(
        ["env", "TERM=xterm", sys.executable, "-m", "fusefs", "--instance", filled.instance,
         *command]
    )  # fmt: skip
    assert status == 0
    assert "/notes/bread.md:1-3" in shown
    assert "\x1b[1;33mdough\x1b[0m" in shown


def test_other_models(filled: Cli, tmp_path: Path) -> None:
    filled("index", "update")
    assert "There is no onnx/model.onnx" in filled("index", "model", str(tmp_path), expect=2).err
    assert filled("index", "model", "none").out.startswith("none")
    # Until the index without vectors is complete the old one answers, by meaning.
    assert filled("search", "how do I make a loaf?", "/", "-n", "1").out.startswith("/notes/bread")
    filled("index", "update")
    found = filled("search", "dough", "/")
    assert "By words alone: no model is to be used" in found.err
    assert filled("index", "model", "default").out == "all-MiniLM-L6-v2\n"
    filled("index", "update")
    assert filled("search", "dough", "/").err == ""
    filled("index", "model", "--tokenizer", "http://example.org:80", expect=2)


def test_pausing_and_rebuilding(filled: Cli) -> None:
    filled("index", "pause")
    assert "paused" in filled("index", "status").out
    assert filled("search", "dough", "/").out
    filled("index", "resume")
    filled("index", "update")
    filled("index", "rebuild")
    status = filled("index", "status", "--json").json
    assert (status["words_pending"], status["vectors_pending"]) == (3, 3)
    assert filled("search", "how do I make a loaf?", "/").err == ""
    filled("index", "update")
    assert filled("index", "status", "--json").json["complete"]


def test_gc_drops_what_is_gone(filled: Cli) -> None:
    filled("index", "update")
    filled("rm", "/notes")
    assert filled("gc", "--json").json["unindexed"] == 2
    assert filled("search", "dough", "/", "--mode", "words", expect=1).out == ""


def is_complete(cli: Cli) -> bool:
    return bool(cli("index", "status", "--json").json["complete"])


def holder(cli: Cli) -> int | None:
    with Instance.open(cli.instance) as instance:
        return Upkeep(instance.folder).lease.holder(instance.live_processes())


def test_a_command_has_it_made_in_the_background(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FUSEFS_INDEX")
    filled("write", "/new.txt", stdin=b"The lighthouse keeper trims the wick.")
    until(lambda: is_complete(filled), "the index is never complete")
    found = filled("search", "who looks after the lamp by the sea?", "/", "-n", "1")
    assert found.out.startswith("/new.txt")
    until(lambda: holder(filled) is None, "the process never ends")


def test_a_mount_has_it_made_in_the_background(
    filled: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled("session", "create", "s", "--grant", "/=stage")
    monkeypatch.delenv("FUSEFS_INDEX")
    view = tmp_path / "view"
    view.mkdir()
    Cli.mount(Cli(filled.instance, {"FUSEFS_INDEX": "on"}), "s", view)
    try:
        (view / "new.txt").write_text("The lighthouse keeper trims the wick.")
        until(lambda: is_complete(filled), "the index is never complete")
        question = "who looks after the lamp by the sea?"
        found = filled("search", question, "/", "--session", "s", "--json").json
        assert found["hits"][0]["path"] == "/new.txt"
    finally:
        unmount(view)
    until(lambda: holder(filled) is None, "the process never ends")


def test_a_process_that_fails_is_not_started_again_at_once(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FUSEFS_INDEX")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with Instance.open(filled.instance) as instance:
        starter = IndexStarter(instance)
        starter.start()
        first = starter.process
        assert first is not None
        first.wait()
        starter.start()
        assert starter.process is None


def test_settings_survive_nonsense(filled: Cli) -> None:
    folder = filled.instance / "index"
    filled("index", "status")
    (folder / "settings.json").write_text("[1")
    (folder / "rate.json").write_text(json.dumps({"pieces_per_second": 1}))
    (folder / "complete").write_text("x")
    filled("index", "update")
    assert filled("search", "dough", "/").err == ""
