"""`fusefs log`: every kind of change, by every face, with actor and hashes; and its head."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fusefs
from tests.conftest import TIMEOUT, Cli, Mount, on_terminal
from tests.daemon.calls import EXCHANGE, renameat2

Change = dict[str, Any]


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def changes(cli: Cli, *options: str) -> list[Change]:
    found: list[Change] = cli("log", "--since", "1d", "--json", *options).json["changes"]
    return found


def told(change: Change) -> tuple[str, str, str, str | None, str | None]:
    """What every record must say: who, what, where, from what to what."""
    path = change["path"]
    if change["target"] is not None:
        path += f" {change['target']}"
    before, after = change["sha256_before"], change["sha256_after"]
    return change["session"], change["what"], path, before, after


@pytest.fixture
def work(cli: Cli, mount: Mount) -> Path:
    """A view of the session ``work``, which may change everything."""
    cli("session", "create", "work", "--grant", "/=stage")
    return mount("work")


def test_what_a_mount_changes(cli: Cli, work: Path) -> None:
    before = len(changes(cli))
    one, empty = sha(b"one"), sha(b"")
    (work / "d").mkdir()
    (work / "d/f").write_bytes(b"one")
    with (work / "d/f").open("ab") as file:
        file.write(b" two")
    os.truncate(work / "d/f", 3)
    (work / "d/f").chmod(0o600)
    os.setxattr(work / "d/f", "user.x", b"v")
    os.setxattr(work / "d/f", "user.x", b"w")
    os.removexattr(work / "d/f", "user.x")
    (work / "d/link").symlink_to("f")
    (work / "d/f").rename(work / "d/g")
    (work / "d/h").write_bytes(b"h")
    renameat2(work / "d/g", work / "d/h", EXCHANGE)
    (work / "d/h").rename(work / "d/g")
    (work / "d/link").unlink()
    os.mkfifo(work / "d/fifo")
    (work / "large").write_bytes(bytes(1 << 20))
    os.sync()
    # A large file is hashed once it is closed, and its record comes then.
    deadline = time.monotonic() + TIMEOUT
    while (found := changes(cli)[before:])[-1]["what"] != "write":
        assert time.monotonic() < deadline, found
    assert [told(change) for change in found] == [("work", *rest) for rest in [
        ("create", "/d", None, None),
        ("create", "/d/f", None, empty),
        ("write", "/d/f", empty, one),
        ("write", "/d/f", one, sha(b"one two")),
        ("write", "/d/f", sha(b"one two"), one),
        ("attributes", "/d/f", None, None),
        ("xattr", "/d/f", None, sha(b"v")),
        ("xattr", "/d/f", sha(b"v"), sha(b"w")),
        ("xattr", "/d/f", sha(b"w"), None),
        ("create", "/d/link", None, sha(b"f")),
        ("rename", "/d/f /d/g", None, one),
        ("create", "/d/h", None, empty),
        ("write", "/d/h", empty, sha(b"h")),
        ("exchange", "/d/g /d/h", sha(b"h"), one),
        ("rename", "/d/h /d/g", sha(b"h"), one),
        ("remove", "/d/link", sha(b"f"), None),
        ("create", "/d/fifo", None, None),
        ("create", "/large", None, empty),
        ("write", "/large", empty, sha(bytes(1 << 20))),
    ]]  # fmt: skip
    attributes = next(change for change in found if change["what"] == "attributes")
    assert attributes["detail"]["mode"] == ["644", "600"]
    assert {change["detail"].get("attribute") for change in found} == {None, "user.x"}
    assert "mode 644 -> 600" in cli("log").out
    assert cli("log", "verify").out.startswith(f"{before + len(found)} records, unbroken; ")


def test_what_the_command_line_changes(cli: Cli, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "a").write_bytes(b"a")
    (host / "l").symlink_to("a")
    cli("import", host, "/in")
    cli("session", "create", "s", "--grant", "/in=stage")
    cli("write", "/in/a", "--session", "s", stdin=b"b")
    cli("mv", "/in/a", "/in/b", "--session", "s")
    cli("rm", "/in/b", "--session", "s")
    cli("trash", "restore", "/in/b")
    cli("rm", "/in")
    cli("trash", "empty", "--yes")
    cli("gc")
    found = changes(cli)
    assert [told(change) for change in found if change["what"] != "attributes"] == [
        ("-", "create", "/in", None, None),
        ("-", "create", "/in/a", None, sha(b"a")),
        ("-", "create", "/in/l", None, sha(b"a")),
        ("-", "session", "s", None, found[4]["sha256_after"]),
        ("s", "write", "/in/a", sha(b"a"), sha(b"b")),
        ("s", "rename", "/in/a /in/b", None, sha(b"b")),
        ("s", "remove", "/in/b", sha(b"b"), None),
        ("-", "restore", "/in/b", None, sha(b"b")),
        ("-", "remove", "/in", None, None),
        ("-", "purge", "/in", None, None),
        ("(gc)", "collect", "", None, None),
    ]
    removed, purged = found[-3]["detail"], found[-2]["detail"]
    assert removed == purged
    assert found[-1]["detail"]["contents_removed"] == 1
    assert cli("log", "--session", "(gc)").out.count("\n") == 2


def test_definitions_with_what_they_were(cli: Cli, tmp_path: Path) -> None:
    cli("session", "create", "s", "--grant", "/a=ro")
    with fusefs.Instance.open(cli.instance) as instance:
        secret = instance.sessions.get("s").secret.hex()
    cli("session", "grant", "s", "/a=stage", "/b=ro")
    cli("session", "revoke", "s", "/b")
    cli("session", "rm", "s")
    (tmp_path / "h").mkdir()
    cli("bind", tmp_path / "h", "/h")
    cli("unbind", "/h")
    found = [change for change in changes(cli) if change["what"] in {"session", "bind"}]
    details = [(change["detail"]["before"], change["detail"]["after"]) for change in found]
    assert [(old and old.get("grants"), new and new.get("grants")) for old, new in details] == [
        (None, {"/a": "ro"}),
        ({"/a": "ro"}, {"/a": "stage", "/b": "ro"}),
        ({"/a": "stage", "/b": "ro"}, {"/a": "stage"}),
        ({"/a": "stage"}, None),
        (None, None),
        (None, None),
    ]
    bind = {"backend": "host", "source": str(tmp_path / "h")}
    assert details[4:] == [(None, bind), (bind, None)]
    for one, next_one in pairwise(found[:4]):
        assert one["sha256_after"] == next_one["sha256_before"]
    assert secret not in cli("log", "--json").out
    shown = cli("log").out
    assert "s  (grant /a ro -> stage, grant /b none given -> ro)" in shown
    assert "s  (removed)" in shown


def test_what_is_done_in_a_bound_folder(cli: Cli, tmp_path: Path, mount: Mount) -> None:
    (tmp_path / "h").mkdir()
    cli("bind", tmp_path / "h", "/h")
    cli("session", "create", "work", "--grant", "/=stage")
    view = mount("work") / "h"
    start = len(changes(cli))
    (view / "d").mkdir()
    (view / "d/f").write_bytes(b"one")
    (view / "d/f").read_bytes()
    os.truncate(view / "d/f", 0)
    (view / "d/f").chmod(0o600)
    os.setxattr(view / "d/f", "user.x", b"v")
    os.removexattr(view / "d/f", "user.x")
    (view / "d/f").rename(view / "d/g")
    (view / "d/g").unlink()
    os.sync()
    cli("trash", "restore", "/h/d/g")
    cli("rm", "/h/d/g", "--session", "work")
    cli("trash", "empty", "--yes")
    (tmp_path / "h/behind").write_bytes(b"the back of the instance")
    found = changes(cli)[start:]
    assert [told(change)[:3] for change in found] == [
        ("work", "create", "/h/d"),
        ("work", "create", "/h/d/f"),
        ("work", "write", "/h/d/f"),
        ("work", "write", "/h/d/f"),
        ("work", "attributes", "/h/d/f"),
        ("work", "xattr", "/h/d/f"),
        ("work", "xattr", "/h/d/f"),
        ("work", "rename", "/h/d/f /h/d/g"),
        ("work", "remove", "/h/d/g"),
        ("-", "restore", "/h/d/g"),
        ("work", "remove", "/h/d/g"),
        ("-", "purge", "/h/d/g"),
    ]
    assert {(change["sha256_before"], change["sha256_after"]) for change in found} == {(None, None)}
    cli("check")


def test_since_and_until(filled: Cli) -> None:
    everything = filled("log", "--since", "1h", "--json").json["changes"]
    assert filled("log", "--until", "1h").err == "Nothing.\n"
    cut = everything[3]["time_ns"]
    assert "is no time: give how long ago" in filled("log", "--since", "4711", expect=2).err
    iso = subprocess.run(
        ["date", "-u", "-d", f"@{cut // 10**9}", "+%Y-%m-%dT%H:%M:%SZ"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    early = filled("log", "--until", iso, "--json").json["changes"]
    late = filled("log", "--since", iso, "--json").json["changes"]
    assert early + late == everything
    assert len(filled("log", "--since", "1h", "-n", "2", "--json").json["changes"]) == 2
    filled("log", "--follow", "--until", "1h", expect=2)


@pytest.fixture
def follower(cli: Cli) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "fusefs", "log", "--follow", "--json", "--session", "-"],
        env={**os.environ, "FUSEFS_INSTANCE": str(cli.instance)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def test_follow(cli: Cli, follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    for number in range(3):  # the first may be there before it looks
        cli("mkdir", f"/d{number}")
        assert json.loads(follower.stdout.readline())["path"] == f"/d{number}"
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=20)
    assert (follower.returncode, out, err) == (0, "", "")


def test_follow_on_a_terminal_ends_with_ctrl_c(filled: Cli) -> None:
    where = ["--instance", str(filled.instance)]
    command = [sys.executable, "-m", "fusefs", *where, "log", "--follow", "-n", "1"]
    status, shown = on_terminal(command, until="wide  (")
    assert status == 0
    assert "session" in shown.splitlines()[0]


def test_no_name_forges_a_row(cli: Cli) -> None:
    forged = "9       2026-01-01 00:00:00  -        write       -  -  forged"
    cli("mkdir", f"/a\n{forged}")
    assert cli("log").out.splitlines()[1].endswith(f"/a\\n{forged}")
    assert cli("log", "--json").json["changes"][0]["path"] == f"/a\n{forged}"


def test_verify(cli: Cli) -> None:
    cli("mkdir", "/a")
    head = cli("log", "verify", "--json").json["head"]
    cli("mkdir", "/b")
    said = cli("log", "verify", "--expect", head).out
    assert said.startswith("2 records, unbroken; the head is 2:")
    assert "The head noted at record 1 is in it." in said
    assert "--expect SEQ:HASH" in cli("log", "verify").out
    wrong = f"1:{'0' * 64}"
    refused = cli("log", "verify", "--expect", wrong, expect=1)
    assert refused.out.startswith("journal: record 1 is not the one that was noted")
    document = cli("log", "verify", "--expect", wrong, "--json", expect=1).json
    assert (document["records"], document["problem_count"]) == (2, 1)
    assert "no head: write SEQ:HASH" in cli("log", "verify", "--expect", "1", expect=2).err
