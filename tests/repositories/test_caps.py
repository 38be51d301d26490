"""A repository of the local forge: what its user may do with the files is a session's maximum."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories.remote import Remote, git

AS_USER = r"""
import json, os, sys
from pathlib import Path
sys.path.insert(0, os.environ["ROOT"])
from tests.conftest import Quick

home, remote = Path(sys.argv[1]), Path(sys.argv[2])
cli = Quick(home / "instance")

def modes(folders):
    for folder, _, _ in os.walk(remote, topdown=False):
        os.chmod(folder, folders)

def say(*words, stdin=b""):
    done = cli(*words, "--session", "s", stdin=stdin, expect=None)
    print(json.dumps([int(done.status), (done.out + done.err).rstrip("\n")]))

cli("init")
cli("repo", "add", remote, "/p")
cli("session", "create", "s", "--grant", "/p=commit", "--user", "Nobody <nobody@example.org>")
say("stat", "/p/a")
say("write", "/p/a", stdin=b"mine\n")
modes(0o555)
say("commit", "-m", "x", "/p", "--key", "k")
say("write", "/p/b", stdin=b"more\n")
say("stat", "/p/a")
say("branch", "topic", "/p")
modes(0o755)
say("commit", "-m", "x", "/p", "--key", "k")
remote.chmod(0o000)
say("commit", "-m", "x", "/p")
say("cat", "/p/a")
remote.chmod(0o755)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def give(top: Path, user: int) -> None:
    """Make a user the owner of a folder and of all below it."""
    for folder, names, files in os.walk(top):
        for name in (".", *names, *files):
            os.lchown(os.path.join(folder, name), user, user)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs something as somebody else")
def test_the_permissions_of_the_repository_are_a_maximum(place: Path) -> None:
    remote = Remote(place / "forge", {"a": "a\n"})
    first = remote.tip()
    home = place / "home"
    home.mkdir()
    give(place, 65534)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
         sys.executable, "-c", AS_USER, home, remote.url],
        capture_output=True, text=True, timeout=60, check=False, cwd=place,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "ROOT": os.getcwd(),
             "PYTHONDONTWRITEBYTECODE": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    read_only = "Read-only: {} can be read in this session but not changed."
    denied = "Access denied: {} is not open to this session."
    assert "level     commit\nmode      0644\n" in said[0][1]
    assert said[1:4] == [
        [0, "Wrote: /p/a"], [1, read_only.format("/p/a")], [1, read_only.format("/p/b")],
    ]  # fmt: skip
    assert "level     ro\nmode      0444\n" in said[4][1]
    assert said[5] == [1, read_only.format("/p")]
    assert said[6][0] == 0
    assert said[7:] == [[1, denied.format("/p")], [1, denied.format("/p/a")]]
    give(place, os.geteuid())
    assert remote.tip("main~1") == first
    assert git(remote.url, "show", "main:a") == "mine\n"
