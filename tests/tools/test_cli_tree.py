"""`import`, `export`, `bind`, the tree commands, `log`, `trash`, `check`, `gc`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
from pathlib import Path

from tests.conftest import on_terminal

ODD = "caf\udce9 \n\x1b[31m\u202e'\""
"""A name with a byte that is not UTF-8, a line end, an escape sequence, quotes."""


def digest(folder: Path) -> dict[str, tuple[object, ...]]:
    """What a copy must keep of every node below `folder`."""
    found: dict[str, tuple[object, ...]] = {}
    for top, directories, files in os.walk(folder):
        for name in (*directories, *files):
            path = os.path.join(top, name)
            status = os.lstat(path)
            content: object = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = Path(path).read_bytes()
            xattrs = {
                key: os.getxattr(path, key, follow_symlinks=False)
                for key in os.listxattr(path, follow_symlinks=False)
                if key.startswith("user.")
            }
            found[os.path.relpath(path, folder)] = (
                status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content, xattrs
            )  # fmt: skip
    return found


def test_import_and_export_keep_everything(cli, tmp_path):
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "empty").mkdir(mode=0o700)
    (source / "deep/big").write_bytes(os.urandom(3 << 20))
    (source / "deep/er/run.sh").write_text("#!/bin/sh\n")
    (source / "deep/er/run.sh").chmod(0o4750)
    (source / ODD).write_text("odd")
    (source / "none").touch()
    (source / "link").symlink_to("deep/er")
    (source / "dangling").symlink_to("/does/not/exist")
    os.mkfifo(source / "fifo")
    with contextlib.suppress(OSError):  # tmpfs had none before Linux 6.6
        os.setxattr(source / "none", "user.note", b"\x00kept")
    for path, when in ((source / "none", 1), (source / "deep/er", 2), (source / "deep", 3)):
        os.utime(path, ns=(0, when * 10**18 + 123456789))
    os.utime(source / "link", ns=(0, 10**18), follow_symlinks=False)

    summary = cli("import", source, "/a/b", "--json").json
    assert (summary["files"], summary["links"]) == (5, 2)
    assert summary["bytes"] == sum(
        p.lstat().st_size for p in source.rglob("*") if p.is_file() and not p.is_symlink()
    )
    assert summary["skipped"] == []
    target = tmp_path / "target"
    cli("export", "/a/b", target)
    assert digest(target) == digest(source)
    cli("check")


def test_one_is_not_called_many(cli, tmp_path):
    (tmp_path / "source/inner").mkdir(parents=True)
    (tmp_path / "source/file").touch()
    done = cli("import", tmp_path / "source", "/a").out
    assert done == "Imported 1 file, 1 directory, 0 links, 0 bytes\n"


def test_import_does_not_overwrite(filled, host_tree):
    refused = filled("import", host_tree, "/AGENTS.md", "--json", expect=1).json
    assert refused["error"]["code"] in {"FS_EXISTS", "FS_NOT_REGULAR_FILE"}
    assert filled("cat", "/AGENTS.md").out == "Read this first.\n"


def test_export_of_what_is_missing(cli, tmp_path):
    assert cli("export", "/nope", tmp_path / "x", expect=1).err == (
        "No such file or directory: /nope\n"
    )
    assert not (tmp_path / "x").exists()


def test_ls(filled):
    assert filled("ls", "/").out == "Dir1/\nDir2/\nAGENTS.md\n"
    assert filled("ls").out == filled("ls", "/").out
    entries = filled("ls", "/Dir1", "--json").json["entries"]
    assert [(entry["name"], entry["kind"]) for entry in entries] == [
        ("Dir3", "dir"),
        ("FILE1.txt", "file"),
    ]
    assert entries[1]["size"] == len("Not for everyone.\n")
    line = filled("ls", "-l", "/Dir1").out.splitlines()[1]
    assert line.startswith("-rw") and "commit" in line and line.endswith("FILE1.txt")
    filled("mkdir", "/empty")
    assert filled("ls", "/empty").out == ""


def test_the_refusals_are_the_contracts(filled):
    denied = "Access denied: {} is not open to this session.\n"
    missing = "No such file or directory: {}\n"
    read_only = "Read-only: {} can be read in this session but not changed.\n"
    for words, text in (
        (["ls", "/"], denied.format("/")),
        (["ls", "/Dir1/"], denied.format("/Dir1")),
        (["cat", "/Dir1/FILE1.txt"], denied.format("/Dir1/FILE1.txt")),
        (["cat", "/Dir2/b.md"], denied.format("/Dir2/b.md")),
        (["cat", "/Nope.md"], denied.format("/Nope.md")),
        (["stat", "/Dir1/../Dir2"], denied.format("/Dir2")),
        (["write", "/Dir1/new.txt"], denied.format("/Dir1/new.txt")),
        (["mkdir", "/Dir1/x"], denied.format("/Dir1/x")),
        (["cat", "/Dir1/Dir3/nope"], missing.format("/Dir1/Dir3/nope")),
        (["ls", "/AGENTS.md"], "Not a directory: /AGENTS.md\n"),
        (["write", "/AGENTS.md"], read_only.format("/AGENTS.md")),
        (["rm", "/Dir1"], denied.format("/Dir1")),
        (["mv", "/Dir1/Dir3/plan.txt", "/Dir1/Dir3/notes/one.txt"],
         "Already exists: /Dir1/Dir3/notes/one.txt\n"),
    ):  # fmt: skip
        result = filled(*words, "--session", "narrow", expect=1)
        assert (result.out, result.err) == ("", text)
        in_json = filled(*words, "--session", "narrow", "--json", expect=1)
        assert in_json.json["error"]["text"] + "\n" == text
        assert in_json.err == ""
    assert filled("check").out


def test_write_mkdir_mv_rm(filled):
    filled("write", "/new/deep/file", stdin=b"\xff\x00bytes")
    assert filled("cat", "/new/deep/file", "--json").json["files"] == [
        {"path": "/new/deep/file", "base64": "/wBieXRlcw=="}
    ]
    filled("write", "/new/deep/file", stdin=b"text")
    assert filled("cat", "/new/deep/file", "/new/../new/deep/file").out == "texttext"
    assert filled("mkdir", "/new/a/b", "--json").json == {"path": "/new/a/b"}
    assert filled("mv", "/new/deep", "/new/a/b/c", "--json").json == {
        "path": "/new/deep",
        "target": "/new/a/b/c",
    }
    assert filled("cat", "/new/a/b/c/file").out == "text"
    filled("rm", "/new")
    assert filled("stat", "/new", expect=1).err == "No such file or directory: /new\n"


def test_a_session_starts_where_it_starts(filled):
    filled("session", "create", "inside", "--grant", "/Dir1/Dir3=stage", "--start", "/Dir1/Dir3")
    assert filled("ls", "--session", "inside").out == "notes/\nplan.txt\n"
    filled("write", "here", "--session", "inside", stdin=b"x")
    assert filled("cat", "/Dir1/Dir3/here").out == "x"


def test_odd_names(filled):
    path = f"/Dir1/{ODD}"
    filled("write", path, stdin=b"odd")
    assert ODD in filled("ls", "/Dir1").out
    assert ODD in filled("ls", "-l", "/Dir1").out
    assert filled("cat", path).out == "odd"
    names = [entry["name"] for entry in filled("ls", "/Dir1", "--json").json["entries"]]
    assert ODD in names
    for words in (["stat", path], ["explain", path], ["rm", path], ["trash", "list"]):
        assert path in filled(*words).out
    assert json.dumps(path)[1:-1] in filled("trash", "list", "--json").out
    escaped = path.replace("\n", "\\n").replace("\x1b", "\\x1b")
    assert escaped in filled("cat", path, expect=1).err
    assert escaped in filled("log").out


def test_on_a_terminal_no_name_forges_a_line(filled):
    program = [sys.executable, "-m", "fusefs", "--instance", filled.instance]
    odd = "a\nforged\x1b[1m"
    filled("write", f"/Dir2/{odd}", stdin=b"")
    filled("mkdir", f"/Dir2/new/{odd}")
    for words in (["ls", "/Dir2"], ["ls", "-l", "/Dir2"], ["cat", "/Dir2/new"],
                  ["stat", f"/Dir2/{odd}"], ["rm", f"/Dir2/{odd}"], ["trash", "list"]):  # fmt: skip
        status, shown = on_terminal([*program, *words])
        assert status == 0
        assert "a\\nforged\\x1b[1m" in shown
        assert "\nforged" not in shown


def test_a_listing_by_cat_ends_its_line(filled):
    assert filled("cat", "/Dir2").out == filled("ls", "/Dir2").out == "b.md\n"


def test_log(filled):
    filled("write", "/Dir1/Dir3/new", "--session", "narrow", stdin=b"x")
    filled("rm", "/Dir1/Dir3/new")
    changes = filled("log", "--path", "/Dir1/Dir3/new", "--json").json["changes"]
    assert [change["seq"] for change in changes] == sorted(change["seq"] for change in changes)
    assert {(change["what"], change["session"]) for change in changes} >= {
        ("create", "narrow"),
        ("write", "narrow"),
        ("remove", "-"),
    }
    assert {change["session"] for change in filled(
        "log", "--session", "narrow", "--json").json["changes"]} == {"narrow"}  # fmt: skip
    assert len(filled("log", "-n", "1", "--json").json["changes"]) == 1
    assert "/Dir1/Dir3/new" in filled("log", "-n", "1").out
    assert filled("log", "--path", "/Dir1/Dir3/ne", "--json").json["changes"] == []


def test_trash(filled):
    filled("rm", "/Dir1/FILE1.txt")
    filled("rm", "/Dir2")
    entries = filled("trash", "list", "--json").json["entries"]
    assert [entry["path"] for entry in entries] == ["/Dir2", "/Dir1/FILE1.txt"]
    assert filled("trash", "restore", str(entries[0]["id"]), "--json").json == {"path": "/Dir2"}
    assert filled("cat", "/Dir2/b.md").out == "Secret\n"
    filled("write", "/Dir1/FILE1.txt", stdin=b"taken")
    assert "Already exists: /Dir1/FILE1.txt" in (
        filled("trash", "restore", "/Dir1/FILE1.txt", expect=1).err
    )
    filled("trash", "restore", "/Dir1/FILE1.txt", "--to", "/Dir2/FILE1.txt")
    assert filled("cat", "/Dir2/FILE1.txt").out == "Not for everyone.\n"
    assert filled("trash", "list").out == ""
    filled("trash", "restore", "999999", expect=1)
    filled("trash", "restore", "/Dir2", expect=1)
    filled("check")


def test_what_was_skipped_is_status_1(filled, host_tree, tmp_path):
    again = filled("import", host_tree, "/", "--json", expect=1).json
    assert len(again["skipped"]) == 5
    assert "Skipped: /AGENTS.md" in filled("import", host_tree, "/", expect=1).err
    filled("export", "/", tmp_path / "out")
    assert len(filled("export", "/", tmp_path / "out", "--json", expect=1).json["skipped"]) == 5
    assert "Exported 0 files" in filled("export", "/", tmp_path / "out", expect=1).out


def test_empty_lists_say_so_to_people(filled):
    listed = filled("trash", "list")
    assert (listed.out, listed.err) == ("", "Nothing.\n")
    logged = filled("log", "--path", "/nope")
    assert (logged.out, logged.err) == ("", "Nothing.\n")
    assert filled("trash", "list", "--json").err == ""


def test_log_of_a_session_that_never_was(filled):
    assert "No such session: narow (known: narrow, wide)" in (
        filled("log", "--session", "narow", expect=3).err
    )
    filled("log", "--session", "wide")
    filled("session", "rm", "wide")
    filled("log", "--session", "wide")
    filled("write", "/Dir1/Dir3/new", "--session", "narrow", stdin=b"x")
    filled("session", "rm", "narrow")
    assert "/Dir1/Dir3/new" in filled("log", "--session", "narrow").out


def test_the_root_is_not_removed(filled):
    assert filled("rm", "/", expect=1).err == "Not removed: / is the root of the tree.\n"


def test_some_of_the_trash_is_dropped(filled):
    for _ in range(2):
        filled("rm", "/AGENTS.md")
        filled("write", "/AGENTS.md", stdin=b"again")
    filled("rm", "/Dir2")
    filled("rm", "/Dir1/FILE1.txt")
    by_path = {
        entry["path"]: entry["id"] for entry in filled("trash", "list", "--json").json["entries"]
    }
    filled("trash", "empty", "/AGENTS.md", "999999", expect=1)
    filled("trash", "empty", "/AGENTS.md", "--older-than", "1d", expect=2)
    assert len(filled("trash", "list", "--json").json["entries"]) == 4
    assert filled("trash", "empty", "/AGENTS.md").out == "Dropped: 2\n"
    which = (str(by_path["/Dir2"]), "/Dir2")
    assert filled("trash", "empty", *which, "--json").json == {"dropped": 1}
    left = filled("trash", "list", "--json").json["entries"]
    assert [entry["path"] for entry in left] == ["/Dir1/FILE1.txt"]
    filled("check")


def test_on_a_terminal_emptying_the_trash_is_asked_about(filled):
    command = [sys.executable, "-m", "fusefs", "--instance", filled.instance, "trash", "empty"]
    filled("rm", "/Dir2")
    assert on_terminal(command, answer=b"n\n")[0] == 1
    assert filled("trash", "list", "--json").json["entries"]
    assert on_terminal([*command, "--older-than", "1d"])[0] == 0
    status, words = on_terminal(command, answer=b"y\n")
    assert (status, "Dropped: 1" in words) == (0, True)
    filled("rm", "/Dir1")
    status, words = on_terminal([*command, "--yes"])
    assert (status, "Dropped: 1" in words) == (0, True)


def test_trash_empty(filled):
    filled("rm", "/Dir2")
    assert filled("trash", "empty", "--older-than", "1h", "--json").json == {"dropped": 0}
    assert filled("trash", "list", "--json").json["entries"]
    assert filled("trash", "empty", "--json").json == {"dropped": 1}
    assert filled("trash", "list", "--json").json["entries"] == []
    filled("gc")
    filled("check")


def test_check_finds_what_is_wrong(filled):
    filled("write", "/big", stdin=os.urandom(1 << 20))
    objects = [path for path in (filled.instance / "objects").rglob("*") if path.is_file()]
    assert objects
    assert filled("check", "--json").json["problems"] == []
    for path in objects:
        path.chmod(0o600)
        path.write_bytes(b"not what it was")
    damaged = filled("check", "--json", expect=1).json
    assert damaged["problems"]
    assert "/big" in filled("check", expect=1).out


def test_gc(filled):
    filled("write", "/big", stdin=os.urandom(1 << 20))
    filled("write", "/big", stdin=b"small now")
    report = filled("gc", "--json").json
    assert report["bytes_removed"] >= 1 << 20
    filled("check")
    assert filled("cat", "/big").out == "small now"


def test_bind(filled, tmp_path):
    host = tmp_path / "elsewhere"
    host.mkdir()
    (host / "file").write_text("on the host")
    binds = filled("bind", host, "/Dir2/host", "--json").json["binds"]
    assert binds == [{"path": "/Dir2/host", "source": str(host)}]
    assert filled("bind", "--json").json["binds"] == binds
    assert filled("ls", "/Dir2").out == "host/\nb.md\n"
    assert filled("cat", "/Dir2/host/file").out == "on the host"
    refusal = "Not removed: /Dir2/host is a mount; whoever mounted it removes it.\n"
    assert filled("rm", "/Dir2", expect=1).err == (
        f"{refusal}To take it out of the tree: fusefs unbind /Dir2/host\n"
    )
    in_json = filled("mv", "/Dir2/host", "/q", "--json", expect=1).json["error"]
    assert in_json["text"] + "\n" == refusal
    filled("write", "/Dir2/host/new", stdin=b"by the tree")
    assert (host / "new").read_text() == "by the tree"
    filled("rm", "/Dir2/host/file")
    assert not (host / "file").exists()
    filled("trash", "restore", "/Dir2/host/file")
    assert (host / "file").read_text() == "on the host"
    filled("unbind", "/Dir2/host")
    assert filled("bind", "--json").json["binds"] == []
    assert (host / "new").exists()
    missing = filled("unbind", "/Dir2/host", expect=1).err
    assert missing == (
        "No folder is bound at /Dir2/host: there is a directory of the tree itself. "
        "What is bound: fusefs bind\n"
    )
    gone = "No folder is bound at /no, and nothing else is there. What is bound: fusefs bind\n"
    assert filled("unbind", "/no", expect=1).err == gone
    assert filled("ls", "/Dir2/host").out == ""


def test_bind_needs_a_place(filled, host_tree):
    assert filled("bind", host_tree, "/AGENTS.md", expect=1).err == "Not a directory: /AGENTS.md\n"
    filled("bind", host_tree, "/new/deep")
    assert filled("ls", "/").out == "Dir1/\nDir2/\nnew/\nAGENTS.md\n"
    assert filled("ls", "/new").out == "deep/\n"
    filled("bind", host_tree, "/")
    assert filled("ls", "/").out == "Dir1/\nDir2/\nAGENTS.md\n"


def test_bind_keeps_the_instance_out_of_reach(filled, tmp_path):
    for host, why in (
        (tmp_path, "contains the instance"),
        (filled.instance, "is the instance itself"),
        (filled.instance / "objects", "lies in the instance"),
    ):
        assert why in filled("bind", host, "/x", expect=2).err
    filled("bind", tmp_path / "missing", "/x", expect=2)
    filled("bind", shutil.which("true"), "/x", expect=2)
    assert filled("bind", "--json").json["binds"] == []
