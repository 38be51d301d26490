"""Rounds of kill -9 during commits, syncs and restores: each is done, or not begun.

A round stages random changes, lets somebody else commit, and starts one command in a process
that is killed at a random moment. What the working copy shows is then what was before, or what
the same command leaves in the working copy of a second session, which nobody kills; the instance
and the clone are whole; and the command, given again, gets there.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from fusefs.contract.errors import ContractError, NothingStaged
from fusefs.forge.errors import Moved
from fusefs.session.committing import commit
from fusefs.session.conflicts import conflicting
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.session.syncing import sync
from fusefs.store.instance import Instance
from fusefs.tree.instance_care import check
from tests.daemon.conftest import until
from tests.mount.killing import Found
from tests.mount.writing import Node
from tests.repositories.place import (
    add_mount,
    add_session,
    commit_to,
    git,
    make_source,
    seen,
)

_NAMES = [f"{directory}f{number}" for directory in ("", "d/", "d/e/", "g/") for number in range(6)]
_SIZES = (0, 50, 3000, 70_000)


class KillCommands:
    """Kill rounds on one instance.

    Attributes:
        kills: how many processes were killed before they were done.
        done: how many were done before.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        """Make repository and instance below `folder`."""
        self._random = random.Random(seed)
        self._source = make_source(folder / "source", self._fill)
        self._folder = folder / "instance"
        with Instance.init(self._folder) as instance:
            self._clone = Path(instance.mounts.folder(add_mount(instance, self._source)))
            for name in ("s", "twin"):
                add_session(instance, name)
        self.kills = 0
        self.done = 0
        self._seconds = dict.fromkeys(("commit", "sync", "restore"), 0.1)

    def _fill(self, top: Path) -> None:
        for name in _NAMES[::2]:
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(self._text())

    def _text(self) -> bytes:
        lines = self._random.choice(_SIZES) // 10
        return b"".join(b"%09d\n" % self._random.randrange(10**6) for _ in range(lines))

    def round(self) -> None:
        """Stage, kill, look, go on.

        Raises:
            Found: something is not as it must be.
        """
        action = self._random.choice(["commit", "sync", "sync", "restore"])
        edits = [self._edit() for _ in range(self._random.randrange(1, 8))]
        if action == "sync":
            theirs = {name: self._text() for name in self._random.sample(_NAMES, 4)}
            gone = self._random.choice(_NAMES)
            commit_to(self._source, lambda top: self._commit(top, theirs, gone))
        with Instance.open(self._folder) as instance:
            before = self._stage(instance, "s", edits)
            if self._stage(instance, "twin", edits) != before:
                raise Found("two sessions show the same stage differently")
        self._killed(action)
        with Instance.open(self._folder) as instance:
            after = self._twin(instance, action, before)
            self._look(instance, action, before, after)

    def _commit(self, top: Path, files: dict[str, bytes], gone: str) -> None:
        for name, data in files.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(data)
        (top / gone).unlink(missing_ok=True)

    def _edit(self) -> Callable[[Session], None]:
        name, other = (f"/proj/{self._random.choice(_NAMES)}" for _ in range(2))
        data = self._text()
        return self._random.choice(
            [
                lambda session: session.write(name, data),
                lambda session: session.write(name, data),
                lambda session: session.rm(name),
                lambda session: session.mv(name, other),
            ]
        )

    def _stage(
        self, instance: Instance, name: str, edits: list[Callable[[Session], None]]
    ) -> dict[bytes, object]:
        session = Session(instance, instance.sessions.get(name))
        for edit in edits:
            with contextlib.suppress(ContractError):
                edit(session)
        return seen(session)

    def _killed(self, action: str) -> None:
        """Do an action in a process that is killed, or comes before that to its end."""
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException), Instance.open(self._folder) as instance:
                act(Repository(Session(instance, instance.sessions.get("s")), "/proj"), action)
                os._exit(0)
            os._exit(1)
        began = time.monotonic()
        give_up = began + self._random.random() * 1.3 * self._seconds[action]
        ended = 0
        while not ended and time.monotonic() < give_up:
            ended = os.waitpid(pid, os.WNOHANG)[0]
            time.sleep(0.0005)
        if ended:
            self.done += 1
            self._seconds[action] = time.monotonic() - began
        else:
            self.kills += 1
            self._seconds[action] *= 1.1
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _twin(
        self, instance: Instance, action: str, before: dict[bytes, object]
    ) -> dict[bytes, object]:
        """Return what the action leaves, done by nobody who is killed."""
        if action == "commit":
            return before
        session = Session(instance, instance.sessions.get("twin"))
        act(Repository(session, "/proj"), action)
        return seen(session)

    def _look(
        self, instance: Instance, action: str, before: dict[bytes, object],
        after: dict[bytes, object],
    ) -> None:  # fmt: skip
        session = Session(instance, instance.sessions.get("s"))
        found = seen(session)
        if found not in (before, after):
            raise Found(f"after a killed {action}: neither as before nor as after")
        if problems := check(instance).problems:
            raise Found("\n".join(problems))
        for folder in (self._clone, self._source):
            git(folder, "fsck", "--strict", "--no-dangling")
        work = Repository(session, "/proj")
        act(work, action)
        if seen(session) != after:
            raise Found(f"a {action} that was given again left something else")
        # From here on everybody has the same again.
        act(work, "sync")
        act(work, "commit")
        if left := work.changes():
            raise Found(f"not committed: {left}")
        twin = Repository(Session(instance, instance.sessions.get("twin")), "/proj")
        act(twin, "restore")
        act(twin, "sync")
        if seen(twin.session) != seen(session):
            raise Found("a sync after a restore is not what was committed")


def act(work: Repository, action: str) -> None:
    """Do one of the actions; that there is nothing to be done is as good."""
    if action == "restore":
        with contextlib.suppress(NothingStaged):
            work.restore((), new=True)
        return
    if action == "sync":
        until(lambda: _sync(work))
        return
    try:
        _commit(work)
    except Moved:
        # A commit that was killed after it was sent.
        until(lambda: _sync(work))
        _commit(work)


def _sync(work: Repository) -> bool:
    """Sync; False while the git of a process that was killed is still at work."""
    try:
        sync(work)
    except Moved:
        return False
    return True


def _commit(work: Repository) -> None:
    for path in conflicting(work, work.changes()):
        work.session.write(b"/proj/" + b"/".join(path), b"settled\n")
    with contextlib.suppress(NothingStaged):
        commit(work, "ours")


def make_repository(instance: Instance, folder: Path, name: bytes) -> dict[str, Node]:
    """Mount a repository at ``/NAME`` for the rounds of writing (see `Torture`)."""
    files = {"f0": b"0" * 10, "f1": b"1" * 70_000, "d0/f0": b"d" * 1000}

    def fill(top: Path) -> None:
        (top / "d0").mkdir()
        for path, data in files.items():
            (top / path).write_bytes(data)

    add_mount(instance, make_source(folder / f"source-{name.decode()}", fill), (name,))
    return {"d0": Node("directory"), **{path: Node("file", data) for path, data in files.items()}}
