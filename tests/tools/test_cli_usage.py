"""Spellings, help texts, exit statuses and JSON of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fusefs.tools.cli.app import app
from fusefs.tools.cli.durations import duration


def commands(
    group: click.Group = app, prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield (*prefix, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*prefix, name))


ALL = dict(commands())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_help_with_an_example(words):
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    if not isinstance(ALL[words], click.Group):
        assert "Example:\n  " in result.output
        assert f"fusefs {' '.join(words)}" in result.output or words[0] == "init"


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_takes_instance_and_json(words):
    names = {option for param in ALL[words].params for option in param.opts}
    assert {"--instance", "--json"} <= names


def test_help_names_the_exit_statuses():
    output = CliRunner().invoke(app, ["--help"]).output
    for status in ("0 ", "1 ", "2 ", "3 ", "4 ", "130 "):
        assert f"\n    {status}" in output


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output.startswith("fusefs 0.")


def test_help_loads_no_database_and_no_fuse():
    code = (
        "import sys; from fusefs.tools.cli.app import run; run(['--help']);"
        "sys.exit(bool({'lmdb', 'pyfuse3', 'trio', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["ls", "--no-such-option"],
        ["import", "/tmp"],
        ["import", "/does/not/exist", "/x"],
        ["session", "create"],
        ["session", "create", "bad name"],
        ["session", "create", "s", "--grant", "/x"],
        ["session", "create", "s", "--grant", "x=ro"],
        ["session", "create", "s", "--grant", "/x=write"],
        ["session", "create", "s", "--world", "moon"],
        ["mount", "s"],
        ["mount", "s", "/tmp/a", "/tmp/b"],
        ["mount", "--bind", "/tmp", "/tmp/view"],
        ["mount", "s", "/tmp/view", "--grant", "/=ro"],
        ["mount", "s", "/tmp/view", "--set-owner", "1000"],
        ["mount", "s", "/tmp/view", "--passage-errno", "EIO"],
        ["trash", "empty", "--older-than", "soon"],
        ["ls", ""],
        ["cat", "/a" + "b" * 255],
        ["completion", "csh"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2(cli, arguments):
    result = cli(*arguments, expect=2)
    assert result.out == ""
    assert result.err
    in_json = cli("--json", *arguments, expect=2)
    assert in_json.json["error"]["text"]
    assert in_json.json["error"]["code"] in {"FS_USAGE", "FS_INVALID_ARGUMENT"}


def test_no_instance_is_status_3(cli, tmp_path):
    for arguments in (["ls", "/"], ["check"], ["session", "list"], ["mount", "s", str(tmp_path)]):
        result = cli("--instance", tmp_path / "none", *arguments, expect=3)
        assert "init" in result.err
    assert cli("--json", "--instance", tmp_path, "ls", expect=3).json["error"]["code"] == (
        "FS_INSTANCE"
    )


def test_a_foreign_instance_is_status_3(cli, tmp_path):
    foreign = tmp_path / "foreign"
    (foreign / "run").mkdir(parents=True)
    (foreign / "data.mdb").write_bytes(b"not a database" * 1000)
    file = tmp_path / "file"
    file.touch()
    for folder in (foreign, file):
        failed = cli("--instance", folder, "ls", "/", "--json", expect=3)
        assert failed.json["error"]["code"] == "FS_INSTANCE"
        cli("--instance", folder, "doctor", expect=1)


def test_an_unreadable_instance_is_status_3(cli):
    """As an ordinary user: root may read everything."""
    # In a process that has imported everything: the user may not read the program either.
    script = (
        "import os, sys; from fusefs.tools.cli import app, doctor, transfer, tree\n"
        "import click.shell_completion, fusefs, fusefs.session.session\n"
        "import fusefs.daemon.mending, fusefs.store.mending, pyfuse3, pygit2\n"
        "if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        f"sys.exit(app.run(['--instance', {str(cli.instance)!r}, *sys.argv[1:]]))"
    )
    for mode in (0o700, 0o711, 0o755):
        cli.instance.chmod(mode)
        done = subprocess.run(
            [sys.executable, "-c", script, "ls", "/"], capture_output=True, text=True, check=False
        )
        if os.geteuid() == 0:
            assert done.returncode == 3, done
            assert "Permission denied" in done.stderr
            assert "Traceback" not in done.stderr
    if os.geteuid() == 0:
        cli.instance.chmod(0o700)
        done = subprocess.run(
            [sys.executable, "-c", script, "doctor"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (1, "")
        assert "/dev/fuse" in done.stdout  # the machine is looked at all the same
        assert "be its owner, or restore it" in done.stdout


def test_an_unknown_command_names_the_near_ones(cli):
    assert "No such command 'unmount'. Did you mean umount" in cli("unmount", expect=2).err
    assert "Did you mean list?" in cli("trash", "lst", expect=2).err
    assert "Did you mean create?" in cli("session", "creat", expect=2).err
    assert "Did you mean" not in cli("xyzzy", expect=2).err


def test_init_does_not_touch_what_is_there(cli, tmp_path):
    assert "already" in cli("init", expect=3).err
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    cli("init", "--instance", taken, expect=3)
    assert [entry.name for entry in taken.iterdir()] == ["file"]


def test_no_such_session_is_status_3(cli):
    for arguments in (
        ["session", "show", "nobody"],
        ["session", "rm", "nobody"],
        ["session", "grant", "nobody", "/=ro"],
        ["ls", "/", "--session", "nobody"],
        ["mount", "nobody", "/tmp", "--background"],
        ["mount", "nobody", "/tmp"],
    ):
        assert "nobody" in cli(*arguments, expect=3).err


def test_instance_stands_before_or_after_the_command(cli, tmp_path):
    other = tmp_path / "other"
    cli("init", "--instance", other)
    cli("--instance", other, "session", "create", "s")
    assert cli("session", "--instance", other, "list", "--json").json["sessions"]
    assert cli("session", "list", "--instance", other, "--json").json["sessions"]
    assert not cli("session", "list", "--json").json["sessions"]


def test_instance_from_the_environment(tmp_path, cli):
    cli.environment = {"FUSEFS_INSTANCE": "", "XDG_DATA_HOME": str(tmp_path / "data")}
    cli("init")
    assert (tmp_path / "data/fusefs/data.mdb").exists()
    cli.environment = {"FUSEFS_INSTANCE": "", "XDG_DATA_HOME": "", "HOME": str(tmp_path / "home")}
    cli("init")
    assert (tmp_path / "home/.local/share/fusefs/data.mdb").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(cli, shell):
    assert "_FUSEFS_COMPLETE" in cli("completion", shell).out


def test_completion_offers_commands_and_sessions(cli):
    cli("session", "create", "alice")
    cli.environment = {"_FUSEFS_COMPLETE": "bash_complete", "COMP_WORDS": "fusefs mou",
                       "COMP_CWORD": "1"}
    assert "mount" in cli().out
    cli.environment |= {"COMP_WORDS": "fusefs session show a", "COMP_CWORD": "3"}
    assert "alice" in cli().out


def offered(cli, line: str) -> list[str]:
    """What the shell is offered at the end of `line`."""
    words = line.split(" ")
    cli.environment = {"_FUSEFS_COMPLETE": "bash_complete", "COMP_WORDS": line,
                       "COMP_CWORD": str(len(words) - 1)}  # fmt: skip
    result = cli()
    assert result.err == ""
    return [item.removeprefix("plain,") for item in result.out.split()]


def test_completion_offers_paths_of_the_tree(filled):
    assert offered(filled, "fusefs ls /") == ["/AGENTS.md", "/Dir1/", "/Dir2/"]
    assert offered(filled, "fusefs cat /Dir1/F") == ["/Dir1/FILE1.txt"]
    assert offered(filled, "fusefs stat A") == ["AGENTS.md"]
    assert offered(filled, "fusefs explain /Dir1/Dir3/") == [
        "/Dir1/Dir3/notes/", "/Dir1/Dir3/plan.txt"
    ]  # fmt: skip
    assert offered(filled, "fusefs ls --session narrow /Dir1/") == []
    assert offered(filled, "fusefs ls /nope/") == []
    assert offered(filled, "fusefs --instance /nope ls /") == []


def test_completion_offers_trash_entries(filled):
    filled("rm", "/Dir2")
    found = str(filled("trash", "list", "--json").json["entries"][0]["id"])
    assert offered(filled, "fusefs trash restore ") == [found]
    assert offered(filled, f"fusefs trash empty {found[0]}") == [found]
    assert offered(filled, "fusefs trash empty /D") == ["/Dir2"]


def test_doctor(cli):
    result = cli("doctor", "--json", expect=None)
    assert result.status == (0 if result.json["healthy"] else 1)
    names = {finding["name"] for finding in result.json["findings"]}
    assert {"python", "package pyfuse3", "/dev/fuse", "fusermount3", "instance"} <= names
    for finding in result.json["findings"]:
        assert (finding["verdict"] in {"ok", "mended"}) == (not finding["remedy"])


def test_a_reader_that_leaves_is_no_failure(cli):
    for name in ("a", "b", "c"):
        cli("session", "create", name)
    command = f"{sys.executable} -m fusefs --instance {cli.instance} log | true"
    for piped in (command, f"{sys.executable} -m fusefs log --help | true"):
        script = f"{piped}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(filled, closed):
    command = f"{sys.executable} -m fusefs --instance {filled.instance}"
    for words, status in (("cat /AGENTS.md", 0), ("cat /none", 1), ("write /new", 0)):
        done = subprocess.run(
            ["bash", "-c", f"{command} {words} {closed}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status, done
        assert "Traceback" not in done.stderr
    assert filled("check").out


def test_groups_without_a_command_show_their_help(cli):
    for words in ((), ("session",), ("trash",)):
        shown = cli(*words, expect=2)
        assert shown.out == ""
        assert shown.err == cli(*words, "--help").out
        assert cli("help", *words).out == shown.err
    assert cli("help", "session", "create").out == cli("session", "create", "--help").out
    assert "Did you mean session?" in cli("help", "sesion", expect=2).err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43200), ("30d", 2592000), ("0d", 0)]
)
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "3", "-3d", "3 d", "3y"])
def test_not_durations(text):
    with pytest.raises(click.BadParameter):
        duration(text)


def test_python_minus_m_is_the_command(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "fusefs", "--version"], capture_output=True, check=True
    )
    assert done.stdout.startswith(b"fusefs ")
