"""`sqlite3` in a mount whose daemon is killed: what was committed is there afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from fusefs.daemon import mount_lock
from tests.conftest import unmount
from tests.tools_in_mount.conftest import AREAS, Views, make_instance
from tests.tools_in_mount.place import program

COMMITS = 300
INSERT = "insert into t values ({0}, printf('%.*c', 100 + {0} % 200, 'x'));"


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_commits_survive_a_kill(tmp_path: Path, area: str, mode: str) -> None:
    cli = make_instance(tmp_path)
    view = tmp_path / "view"
    view.mkdir()
    cli.mount("first", view)
    base = view / "top" / area / "base"
    shell = subprocess.Popen(
        [program("sqlite3"), "-batch", base],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert shell.stdin is not None
        assert shell.stdout is not None
        # Nothing has to reach the disk for a kill, only for a loss of power; it takes long.
        script = [f"pragma synchronous = {'off' if mode == 'delete' else 'full'};"]
        # Nothing moves from the log into the base, so that the log itself has to survive.
        script += [f"pragma journal_mode = {mode};", "pragma wal_autocheckpoint = 0;",
                  "create table t (n integer primary key, text);"]  # fmt: skip
        script += [INSERT.format(number) for number in range(COMMITS)]
        shell.stdin.write("\n".join([*script, "select 'done';", ""]))
        shell.stdin.flush()
        said = [shell.stdout.readline().strip() for _ in range(3)]
        assert said == [mode, "0", "done"]
        (daemon,) = mount_lock.served(cli.instance / "run")
        os.kill(daemon.pid, signal.SIGKILL)
    finally:
        shell.kill()
        shell.communicate()
        unmount(view)
    cli.mount("first", view)
    try:
        found = _ask(base, "pragma integrity_check; select count(*), sum(length(text)) from t;")
    finally:
        unmount(view)
    assert found == f"ok\n{COMMITS}|{sum(100 + n % 200 for n in range(COMMITS))}\n"
    assert "No problems" in cli("check").out


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_two_writers_of_one_mount(views: Views, area: str, mode: str) -> None:
    base = views.first / "top" / area / f"shared-{mode}"
    _ask(base, f"pragma journal_mode = {mode}; create table t (n);")
    script = ".timeout 60000\n" + "insert into t values (1);\n" * 100
    shells = [
        subprocess.Popen([program("sqlite3"), "-batch", base], stdin=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for shell in shells:
        assert shell.stdin is not None
        shell.stdin.write(script)
        shell.stdin.close()
    assert [shell.wait(60) for shell in shells] == [0, 0]
    assert _ask(base, "pragma integrity_check; select count(*) from t;") == "ok\n200\n"


def _ask(base: Path, script: str) -> str:
    return subprocess.run(
        [program("sqlite3"), "-batch", base, script],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
