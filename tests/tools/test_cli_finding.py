"""`glob` and `grep` by command: what is printed where, and the exit statuses."""

from __future__ import annotations

import re
import sys

import pytest

import fusefs
from tests.conftest import Cli, Quick, on_terminal

FILES = {
    "/src/a.py": b"import os\n\ndef main():\n    return os\n",
    "/src/lib/b.py": b"import sys\nx = 1\n",
    "/src/long.js": b"x" * 5000 + b"import" + b"y" * 3000,
    "/src/logo.png": b"\x89PNG\0",
}


@pytest.fixture
def command(cli: Cli) -> Quick:
    with fusefs.Instance.open(cli.instance) as instance:
        session = fusefs.Session(instance)
        for path, data in FILES.items():
            session.write(path, data)
        spec = fusefs.SessionSpec(
            name="some", start=(b"src",), grants={(b"src", b"lib"): fusefs.Level.RO}
        )
        instance.sessions.put(spec, "-")
    return Quick(cli.instance)


def test_grep(command):
    found = command("grep", "import", "/src", "-g", "*.py")
    assert found.out == "/src/a.py:1:import os\n/src/lib/b.py:1:import sys\n"
    assert found.err == ""
    found = command("grep", "^$|x =", "/src", "-C", "1", "-g", "*.py")
    assert found.out == (
        "/src/a.py-1-import os\n/src/a.py:2:\n/src/a.py-3-def main():\n"
        "--\n"
        "/src/lib/b.py-1-import sys\n/src/lib/b.py:2:x = 1\n"
    )
    assert command("grep", "main", "/src/a.py", "-A1").out == (
        "/src/a.py:3:def main():\n/src/a.py-4-    return os\n"
    )
    assert command("grep", "main", "/src/a.py", "-C1", "-A0").out == (
        "/src/a.py-2-\n/src/a.py:3:def main():\n"
    )
    assert command("grep", "-c", "os", "/src").out == "/src/a.py:2\n"
    assert command("grep", "-l", "IMPORT", "-i", "/src", "-g", "!*.js").out == (
        "/src/a.py\n/src/lib/b.py\n"
    )
    assert command("grep", "-F", "main()", "/src").out == "/src/a.py:3:def main():\n"


def test_a_long_line_is_cut_where_the_match_is_seen(command):
    line = command("grep", "import", "/src/long.js").out
    assert re.fullmatch(
        r"/src/long.js:1:\[4,800 characters\]x{200}importy{1794}\[1,206 characters\]\n", line
    )
    [line] = command("grep", "import", "/src/long.js", "--json").json["lines"]
    assert (line["left_out_before"], line["left_out_after"]) == (4800, 1206)
    assert len(line["text"]) == 2000


def test_what_is_left_out_is_said(command):
    found = command("grep", "os", "/src")
    assert found.err == "Left out: /src/logo.png (not text)\n"
    document = command("grep", "os", "/src", "--json").json
    assert document == {
        "lines": [
            {"path": "/src/a.py", "line": 1, "text": "import os", "match": True},
            {"path": "/src/a.py", "line": 4, "text": "    return os", "match": True},
        ],
        "files_searched": 3, "files_matched": 1, "lines_matched": 2,
        "unread": [{"path": "/src/logo.png", "reason": "not text"}], "truncated": True,
    }  # fmt: skip
    found = command("grep", "os", "/src/a.py", "-m", "1")
    assert found.out == "/src/a.py:1:import os\n"
    assert found.err == "There is more: this is what --limit 1 lets through.\n"
    assert command("grep", "os", "/src/a.py", "-m", "2").err == ""
    with fusefs.Instance.open(command.instance) as instance:
        for number in range(12):
            fusefs.Session(instance).write(f"/bin/{number}", b"\0")
    assert command("grep", "x", "/bin", expect=1).err == (
        "Left out: 12 files; --json names them and says why.\n"
    )
    found = command("glob", "**", "/bin", "--limit", "2")
    assert found.err == "There is more: this is what --limit 2 lets through.\n"


def test_json(command):
    assert command("grep", "-l", "import", "/src/lib", "--json").json == {
        "files": ["/src/lib/b.py"], "files_searched": 1, "files_matched": 1, "unread": [],
        "truncated": False,
    }  # fmt: skip
    assert command("grep", "-c", "import", "/src/lib", "--json").json == {
        "counts": [{"path": "/src/lib/b.py", "lines": 1}], "files_searched": 1,
        "files_matched": 1, "lines_matched": 1, "unread": [], "truncated": False,
    }  # fmt: skip
    assert command("glob", "*.py", "/src", "--json").json == {
        "paths": ["/src/a.py"], "unread": [], "truncated": False
    }  # fmt: skip
    assert command("glob", "*.c", "/src", "--json", expect=1).json["paths"] == []


def test_glob(command):
    assert command("glob", "**/*.py").out == "/src/a.py\n/src/lib/b.py\n"
    assert command("glob", "*/", "/src").out == "/src/lib/\n"
    assert command("glob", "/src/{a,long}.*").out == "/src/a.py\n/src/long.js\n"


def test_as_a_session(command):
    assert command("glob", "**", "lib", "--session", "some").out == "/src/lib/b.py\n"
    assert command("grep", "1", "lib", "--session", "some").out == "/src/lib/b.py:2:x = 1\n"
    for words in (["glob", "**"], ["grep", "import"], ["grep", "import", "/src/a.py"]):
        refused = command(*words, "--session", "some", expect=1)
        assert refused.out == ""
        assert re.fullmatch(
            r"Access denied: /src(/a\.py)? is not open to this session\.\n", refused.err
        )


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["grep", "nothing here", "/src/a.py"], 1),
        (["glob", "nothing*"], 1),
        (["grep", "x", "/nope"], 1),
        (["glob", "*", "/src/a.py"], 1),
        (["grep", "(", "/src"], 2),
        (["grep", "x", "/src", "-g", "[a"], 2),
        (["glob", "{a"], 2),
        (["grep", "-l", "-c", "x"], 2),
        (["grep", "-m", "0", "x"], 2),
        (["grep", "-A", "-1", "x"], 2),
        (["grep"], 2),
        (["grep", "x", "--session", "nobody"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_statuses(command, words, status):
    assert command(*words, expect=status).out == ""


def test_on_a_terminal_matches_are_seen(command):
    with fusefs.Instance.open(command.instance) as instance:
        fusefs.Session(instance).write("/odd/a\nforged\x1b[1m", b"\x1b[2Jone two two\n")
    program = [sys.executable, "-m", "fusefs", "--instance", str(command.instance)]
    status, shown = on_terminal([*program, "grep", "two", "/odd"])
    assert status == 0
    red = "\x1b[31m\x1b[1mtwo\x1b[0m"
    assert f"\\x1b[2Jone {red} {red}" in shown
    assert "\x1b[35m/odd/a\\nforged\\x1b[1m\x1b[0m" in shown
    status, shown = on_terminal(["env", "NO_COLOR=1", *program, "grep", "two", "/odd"])
    assert "/odd/a\\nforged\\x1b[1m:1:\\x1b[2Jone two two" in shown
    assert on_terminal([*program, "glob", "**", "/odd"])[1].strip() == "/odd/a\\nforged\\x1b[1m"


def test_names_that_are_not_utf8(command):
    with fusefs.Instance.open(command.instance) as instance:
        fusefs.Session(instance).write(b"/odd/caf\xe9", b"word\n")
    assert command("grep", "word", "/odd").out == "/odd/caf\udce9:1:word\n"
    assert command("glob", "caf?", "/odd").out == "/odd/caf\udce9\n"
    assert command("glob", "caf\udce9", "/odd", "--json").json["paths"] == ["/odd/caf\udce9"]
    assert "not Unicode" in command("grep", "\udce9", "/odd", expect=2).err
