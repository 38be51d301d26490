"""The user's right on a forge is a maximum inside the mount; against a small forge over HTTP."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from fusefs.contract.errors import NotFound, ReadOnly
from fusefs.contract.levels import Level
from fusefs.contract.paths import resolve
from fusefs.contract.sessions import SessionSpec
from fusefs.daemon.rights_watch import RightsWatch
from fusefs.session import rights
from fusefs.session.caps import caps_in, due
from fusefs.session.mounting import add
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from tests.conftest import TIMEOUT, Cli, Quick
from tests.forge.small_forge import github
from tests.forge.small_forge.server import Fault, SmallForge, running
from tests.forge.small_forge.world import Repository
from tests.repositories.remote import Remote, git

TOKEN = "tok_alice_0123456789abcdef"
WORK = ("/project", "--session", "work")


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "forge", {"README": "read me\n"})


@pytest.fixture
def small(remote: Remote) -> Iterator[SmallForge]:
    """GitHub with one private repository that the user alice may change."""
    repository = Repository.make(remote.url, "owner/project")
    repository.rights = {"alice": "write"}
    forge = SmallForge({"owner/project": repository}, {TOKEN: "alice"}, {github.ROOT: github.face})
    with running(forge):
        yield forge
    assert forge.crashes == []


@pytest.fixture
def quick(cli: Cli, small: SmallForge) -> Quick:
    """An instance with the repository at /project and a session that may do all with it."""
    environment = {"GH_TOKEN": TOKEN, "GH_HOST": f"127.0.0.1:{small.port}"}
    cli.environment.update(environment)
    command = Quick(cli.instance, environment)
    command("repo", "add", f"{small.url}/owner/project.git", "/project", "--forge", "github")
    command("session", "create", "work", "--grant", "/=ro", "--grant", "/project=commit",
            "--user", "Ada <ada@example.org>")  # fmt: skip
    return command


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_from_clone_to_merge_over_http(quick, remote, small):
    quick("branch", "topic", *WORK)
    quick("write", "/project/new", "--session", "work", stdin=b"new\n")
    quick("commit", "-m", "Add a file", *WORK)
    opened = quick("pr", "create", *WORK, "-t", "Add", "--json").json
    assert opened["head"] == "topic"
    assert opened["url"]
    assert quick("pr", "merge", "1", *WORK, "--json").json["state"] == "merged"
    quick("switch", "main", *WORK)
    assert quick("cat", "/project/new", "--session", "work").out == "new\n"
    quick("tag", "v1", *WORK, "-m", "One")
    quick("release", "v1", *WORK, "-n", "A file.")
    log = git(remote.url, "log", "--format=%s", "main").splitlines()
    assert log[1:] == ["Add a file", "first"]
    assert remote.tip("v1^{commit}") == remote.tip()
    assert TOKEN not in "".join(str(quick(*words)) for words in (["repo", "list"], ["log"]))


def test_a_right_taken_away_holds_no_more(quick, mount, remote, small):
    repository = small.repositories["owner/project"]
    view = mount("work")
    readme = view / "project" / "README"
    readme.write_text("changed\n")
    assert readme.stat().st_mode & 0o222
    kept_open = os.open(readme, os.O_WRONLY)
    tip = remote.tip()

    repository.rights = {"alice": "read"}
    refused = quick("commit", "-m", "x", *WORK, expect=1)
    read_only = "Read-only: /project/README can be read in this session but not changed."
    assert refused.err == f"{read_only}\n"
    # Another process asked, and the live mount follows: kernel caches and open handles too.
    wait_until(lambda: not readme.stat().st_mode & 0o222)
    with pytest.raises(OSError, match="Read-only"):
        os.pwrite(kept_open, b"no", 0)
    os.close(kept_open)
    with pytest.raises(OSError, match="Read-only"):
        (view / "project" / "other").write_text("no")
    assert readme.read_text() == "changed\n"
    assert os.getxattr(readme, "user.fusefs.level") == b"ro"
    with Instance.open(quick.instance) as instance:
        session = Session(instance, instance.sessions.get("work"))
        with pytest.raises(ReadOnly) as caught:
            session.write("/project/README", b"no")
        assert (caught.value.text, caught.value.errno) == (read_only, errno.EROFS)
    for words in (["write", "/project/README"], ["rm", "/project/README"]):
        said = quick(*words, "--session", "work", "--json", expect=1).json["error"]
        assert (said["text"], said["code"]) == (read_only, "FS_PERMISSION_DENIED")
    said = quick("explain", *WORK).out
    assert "The user's right on the repository mounted at /project allows up to ro." in said
    for words in (["branch", "b"], ["tag", "t", "-m", "T"], ["pr", "list"]):
        said = quick(*words, *WORK, expect=1).err
        assert said == "Read-only: /project can be read in this session but not changed.\n"

    repository.rights = {}
    assert quick("pr", "list", *WORK, expect=1).err == "No such file or directory: /project\n"
    wait_until(lambda: os.listdir(view) == [])
    assert quick("status", *WORK, expect=1).err == "No such file or directory: /project\n"

    repository.rights = {"alice": "write"}
    quick("pr", "list", "/project")  # the person in charge asks, for all
    wait_until(lambda: os.listdir(view) == ["project"])
    readme.write_text("changed again\n")
    assert remote.tip() == tip
    quick("commit", "-m", "At last", *WORK)
    assert git(remote.url, "show", "main:README") == "changed again\n"
    assert [line.split()[2:4] for line in quick("log").out.splitlines() if "right" in line]


def test_the_last_answer_holds_while_the_forge_is_away(quick, small, monkeypatch):
    for name, value in quick.environment.items():
        monkeypatch.setenv(name, value)
    small.faults.append(Fault("/api/v3/", "hang", times=1000))
    with Instance.open(quick.instance) as instance:
        specs = list(instance.mounts.all().values())
        rights.refresh(instance, specs, 0.2)
        with instance.kv.read() as txn:
            assert caps_in(txn) == {resolve("/project"): Level.COMMIT}
        assert due(instance) == []  # nobody waits for it again within a minute
        monkeypatch.delenv("GH_TOKEN")
        assert rights.ask(instance, specs[0], 5) is None  # as nobody is not as the user
    quick("write", "/project/new", "--session", "work", stdin=b"new\n")
    assert quick("status", *WORK).out == "?? new\n"


def test_unknown_rights_are_for_reading(tmp_path, remote):
    with Instance.init(tmp_path / "instance") as instance:
        add(instance, str(remote.url), resolve("/project"))
        everything = SessionSpec("s", grants={(): Level.COMMIT})
        spec = instance.mounts.all()[resolve("/project")]
        assert Session(instance, everything).stat("/project").level == Level.COMMIT
        rights.forget(instance, spec)
        remote.url.rename(tmp_path / "elsewhere.git")
        assert Session(instance, everything).stat("/project").level == Level.RO
        assert Session(instance).stat("/project").level == Level.COMMIT
        (tmp_path / "elsewhere.git").rename(remote.url)
        rights.refresh(instance, [spec])
        assert Session(instance, everything).stat("/project").level == Level.COMMIT


def test_a_session_in_python_asks(tmp_path, remote, monkeypatch):
    """When it begins, and while it goes on, if nobody asked for a minute."""
    away = tmp_path / "elsewhere.git"
    with Instance.init(tmp_path / "instance") as instance:
        add(instance, str(remote.url), resolve("/project"))
        spec = instance.sessions.put(SessionSpec("s", grants={(): Level.COMMIT}), "-")
        lasting = Session(instance, spec)
        remote.url.rename(away)
        remote.url.mkdir()  # an answer: that is no repository
        assert Session(instance, spec).exists("/project")  # the last one is new enough
        assert lasting.exists("/project")
        monkeypatch.setattr("fusefs.session.caps.due", lambda _: instance.mounts.all().values())
        with pytest.raises(NotFound):
            Session(instance, spec).stat("/project")
        with pytest.raises(NotFound):
            lasting.stat("/project/README")
        remote.url.rmdir()
        away.rename(remote.url)
        monkeypatch.setattr("fusefs.session.session.FRESH_SECONDS", 0.0)
        lasting = Session(instance, spec)
        assert lasting.stat("/project/README").level == Level.COMMIT
        (remote.url / "HEAD").rename(remote.url / "HEAD.away")
        with pytest.raises(NotFound):
            lasting.stat("/project/README")


def test_a_daemon_asks_by_itself(tmp_path, remote):
    class Beside:
        """What the watch needs of a daemon."""

        def __init__(self) -> None:
            self.refreshed = trio.Event()

        async def lock_writer(self, within: float) -> None:
            """Nobody else writes here."""

        def refresh(self) -> None:
            self.refreshed.set()

    with Instance.init(tmp_path / "instance") as instance:
        add(instance, str(remote.url), resolve("/project"))
        remote.url.rename(tmp_path / "elsewhere.git")
        with instance.kv.read() as txn:
            asked = caps_in(txn)
        rights.refresh(instance, list(instance.mounts.all().values()))
        with instance.kv.read() as txn:
            assert caps_in(txn) == asked == {resolve("/project"): Level.COMMIT}  # nobody answered
        remote.url.mkdir()  # and that is no repository

        async def one_round() -> None:
            beside: Any = Beside()
            watch = RightsWatch(instance, beside, beside, every=0.01)
            with trio.fail_after(TIMEOUT):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watch.follow)
                    await beside.refreshed.wait()
                    nursery.cancel_scope.cancel()

        trio.run(one_round)
        with instance.kv.read() as txn:
            assert caps_in(txn) == {resolve("/project"): Level.NONE}
        assert [op.op.name for op in instance.journal.since(0, 100)][-1] == "RIGHT"
