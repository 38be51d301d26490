"""What a mount logs: refusals and failures in fields, and never what is in a file."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import secrets
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fusefs.contract.levels import Level
from fusefs.daemon import logs
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance
from fusefs.tree.tree import HOST
from tests.daemon.conftest import Mounted, World, until

HOSTILE = [
    b'two\nlines level=error msg="forged"',
    b'"quoted" \\',
    b"\xff\xfe not UTF-8",
    b"\x1b[31m",
    "\u2028\u202e".encode(),
]


def lines(mounted: Mounted) -> list[dict[str, Any]]:
    return [json.loads(line) for line in mounted.log.read_bytes().splitlines()]


def refusals(mounted: Mounted, op: str) -> list[dict[str, Any]]:
    return [line for line in lines(mounted) if line.get("op") == op]


@pytest.fixture
def careful(world: World) -> Mounted:
    """A mount of ``/open`` to be changed, ``/kept`` to be read, with everything logged."""
    with world.opened() as owner:
        owner.write("/open/f", b"open")
        owner.write("/kept/f", b"kept")
        owner.write("/hidden/f", b"hidden")
    levels = {(b"open",): Level.STAGE, (b"kept",): Level.RO, (b"kept", b"secret"): Level.NONE}
    return world.mount("careful", levels, log_format="json", log_level="debug")


def test_a_refusal_says_who_what_and_why(careful: Mounted) -> None:
    with pytest.raises(OSError):
        os.open(careful.point / "kept/f", os.O_WRONLY)
    (line,) = until(lambda: refusals(careful, "open"))
    assert {key: line[key] for key in ("level", "session", "op", "path", "code", "errno")} == {
        "level": "debug",
        "session": "careful",
        "op": "open",
        "path": "/kept/f",
        "code": "FS_PERMISSION_DENIED",
        "errno": "EROFS",
    }
    assert line["msg"] == "Read-only: /kept/f can be read in this session but not changed."
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", line["time"])


@pytest.mark.parametrize(
    ("call", "op", "code", "number"),
    [
        (lambda view: (view / "hidden").stat(), "lookup", "FS_PERMISSION_DENIED", "EACCES"),
        (lambda view: (view / "kept/secret").stat(), "lookup", "FS_NOT_FOUND", "ENOENT"),
        (lambda view: (view / "kept/new").mkdir(), "mkdir", "FS_PERMISSION_DENIED", "EROFS"),
        (lambda view: (view / "kept/f").unlink(), "unlink", "FS_PERMISSION_DENIED", "EROFS"),
        (lambda view: os.link(view / "open/f", view / "open/g"), "link", None, "EPERM"),
        (os.listdir, "opendir", "FS_PERMISSION_DENIED", "EACCES"),
        (lambda view: os.getxattr(view / "open/f", "user.x"), "getxattr", None, "ENODATA"),
        (lambda view: (view / "open/f").rename(view / "kept/g"), "rename",
         "FS_PERMISSION_DENIED", "EROFS"),
    ],
)  # fmt: skip
def test_each_refusal_has_its_line(
    careful: Mounted, call: Callable[[Path], object], op: str, code: str | None, number: str
) -> None:
    with pytest.raises(OSError):
        call(careful.point)
    line = until(lambda: refusals(careful, op))[-1]
    assert (line.get("code"), line["errno"]) == (code, number)
    assert line["path"].startswith("/")


def test_hostile_names_break_no_line(careful: Mounted) -> None:
    top = os.fsencode(careful.point / "kept")
    for name in HOSTILE:
        with pytest.raises(OSError):
            os.mkdir(os.path.join(top, name))
    found = until(lambda: len(refusals(careful, "mkdir")) == len(HOSTILE) and lines(careful))
    paths = [line["path"] for line in found if line.get("op") == "mkdir"]
    assert [os.fsencode(path) for path in paths] == [b"/kept/" + name for name in HOSTILE]
    assert {line["session"] for line in found} == {"careful"}


def test_at_info_only_the_mount_and_its_end(world: World) -> None:
    with world.opened() as owner:
        owner.write("/kept/f", b"kept")
    mounted = world.mount("reader", {(): Level.RO}, log_format="text", log_level="info")
    with pytest.raises(OSError):
        (mounted.point / "kept/f").write_bytes(b"")
    assert not (mounted.point / "missing").exists()
    mounted.stop()
    fields = [
        dict(word.partition("=")[::2] for word in shlex.split(line))
        for line in mounted.words.splitlines()
    ]
    assert [line["msg"] for line in fields] == ["mounted", "told to end", "unmounted"]
    assert {line["session"] for line in fields} == {"reader"}
    assert fields[0]["mountpoint"] == str(mounted.point)


def test_a_failure_is_logged_with_its_traceback_on_one_line(world: World) -> None:
    mounted = world.mount(log_format="json", log_level="error")
    with pytest.raises(OSError):
        (mounted.point / "bug").stat()
    (line,) = until(lambda: lines(mounted))
    assert (line["level"], line["op"], line["path"]) == ("error", "lookup", "/bug")
    assert (line["code"], line["errno"]) == ("FS_IO", "EIO")
    assert "ZeroDivisionError" in line["traceback"]


def test_a_line_that_cannot_be_written_is_dropped_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        with Path("/dev/full").open("w") as full:
            logs.set_up("s", "text", "info", full)
            logging.getLogger("fusefs.test").warning("nobody hears it")
            for handler in root.handlers:
                handler.close()
            with contextlib.suppress(OSError):
                full.close()
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert "Logging error" not in capfd.readouterr().err


def markers() -> Iterator[bytes]:
    while True:
        yield b"MARK" + secrets.token_hex(12).encode()


def test_no_content_and_no_value_is_ever_logged(world: World, tmp_path: Path) -> None:
    """Through every operation that carries bytes, done, refused and made to fail."""
    (tmp_path / "host").mkdir()
    with Instance.open(world.folder) as instance:
        instance.binds.put((b"host",), BindSpec(HOST, str(tmp_path / "host")), "-")
    with world.opened() as owner:
        owner.write("/kept/f", b"kept")
    mounted = world.mount(
        "marked", {(): Level.STAGE, (b"kept",): Level.RO}, log_format="text", log_level="debug"
    )
    marks = markers()
    used: list[bytes] = []

    def mark() -> bytes:
        used.append(next(marks))
        return used[-1]

    def attempts(top: Path, name: str) -> Iterator[Callable[[], object]]:
        file = top / name
        yield lambda: file.write_bytes(mark())
        yield lambda: file.write_bytes(mark() * 20_000)
        yield file.read_bytes
        yield lambda: os.setxattr(file, "user.a", mark())
        yield lambda: os.setxattr(file, "user.fusefs.level", mark())
        yield lambda: os.setxattr(file, "trusted.a", mark())
        yield lambda: os.getxattr(file, "user.a")
        yield lambda: os.setxattr(file, "user.a", mark() * 4000)
        yield lambda: (top / f"{name}-link").symlink_to(os.fsdecode(mark()))
        yield lambda: append(file)
        yield lambda: os.truncate(file, 5)

    def append(file: Path) -> None:
        with file.open("ab") as opened:
            opened.write(mark())

    for top in (mounted.point, mounted.point / "host", mounted.point / "kept"):
        for name in ("f", "breaks", "breaks-os"):
            for attempt in attempts(top, name):
                with contextlib.suppress(OSError):
                    attempt()
    # A handle that the rules turn against while it is open.
    with (mounted.point / "late").open("wb", buffering=0) as late:
        late.write(mark())
        world.define("marked", {(): Level.RO})
        until(lambda: not os.stat(mounted.point / "late").st_mode & 0o222)
        with pytest.raises(OSError):
            late.write(mark())
    mounted.stop()
    logged = mounted.log.read_bytes()
    assert len(used) > 50
    for op in (b"op=write", b"op=setxattr", b"op=symlink", b"ZeroDivisionError", b"op=open"):
        assert op in logged
    assert b"MARK" not in logged


def test_text_for_the_journal_has_a_priority_and_no_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w+") as stream:
        status = os.fstat(stream.fileno())
        record = logging.makeLogRecord({"name": "fusefs.x", "msg": "m", "levelno": logging.ERROR})
        for stands, begins in (
            (f"{status.st_dev}:{status.st_ino}", "<3>level="),
            (f"{status.st_dev}:{status.st_ino + 1}", "time="),
        ):
            monkeypatch.setenv("JOURNAL_STREAM", stands)
            form = logs.TextLines("s", to_journal=logs.is_journal(stream))
            assert form.format(record).startswith(begins)
        assert not logs.is_journal(io.StringIO())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain/path-1", "plain/path-1"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ("new\nline\x1b", r'"new\nline\x1b"'),
        (os.fsdecode(b"\xff"), r'"\xff"'),
        ("\u2028", r'"\u2028"'),
        ("Straße", "Straße"),
    ],
)
def test_values_in_text(value: str, shown: str) -> None:
    record = logging.makeLogRecord({"name": "fusefs.x", "msg": value})
    assert logs.TextLines("s").format(record).endswith(f" msg={shown}")

