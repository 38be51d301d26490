"""Rounds of kill -9 under load, held against a model of what was acknowledged.

A round mounts two sessions of one instance, has a writer work in each, kills the daemons at
random moments (one while the other goes on, or both), kills processes that recover what they
left, checks the instance, and mounts anew: everything that a returned call did must be there,
and of a call that did not return all or nothing (of a write: a part).
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from fusefs.daemon import mountpoint
from fusefs.daemon.readiness import READY
from fusefs.daemon.serve import serve
from fusefs.store.check import check
from fusefs.store.instance import Instance
from fusefs.store.maintenance import collect
from fusefs.store.trash_can import TrashCan
from tests.conftest import Quick
from tests.mount.writing import Node, Writer, differences, look


class Found(AssertionError):
    """Something was lost or damaged."""


class Torture:
    """Kill rounds on one instance.

    Attributes:
        calls: how many calls returned, in all rounds.
        kills: how many processes were killed.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        make: Callable[[Instance, Path, bytes], dict[str, Node]] | None = None,
    ) -> None:
        """Make the instance below `folder`; `make` makes what is written in other than a plain
        directory: it is given a folder for its own use and a name at the top of the tree, and
        returns what is there."""
        self._random = random.Random(seed)
        self._folder = folder / "instance"
        cli = Quick(self._folder)
        cli("init")
        self._tops = [folder / "view0", folder / "view1"]
        self._trees: list[dict[str, Node]] = [{}, {}]
        for number, top in enumerate(self._tops):
            top.mkdir()
            if make is None:
                cli("mkdir", f"/w{number}")
            else:
                with Instance.open(self._folder) as instance:
                    self._trees[number] = make(instance, folder, f"w{number}".encode())
            cli("session", "create", f"s{number}", "--grant", f"/w{number}=commit")
        self.calls = 0
        self.kills = 0
        self._daemons: dict[Path, int] = {}
        self._mount()

    def end(self) -> None:
        """Kill what still serves and take the dead mounts away."""
        for daemon in self._daemons.values():
            kill(daemon)
        self._daemons.clear()
        for top in self._tops:
            if mountpoint.mounted_at(str(top)) is not None:
                mountpoint.detach(str(top))

    def _mount(self) -> None:
        for number, top in enumerate(self._tops):
            self._daemons[top] = forked_daemon(self._folder, f"s{number}", top)

    def _works(self) -> list[Path]:
        return [top / f"w{number}" for number, top in enumerate(self._tops)]

    def round(self) -> None:
        """Write, kill, recover, compare.

        Raises:
            Found: something is not as it must be.
        """
        writers = [
            Writer(work, random.Random(self._random.random()), tree)
            for work, tree in zip(self._works(), self._trees, strict=True)
        ]
        for writer in writers:
            writer.start()
        self._kill_daemons(writers)
        for writer in writers:
            writer.join(60)
            if writer.is_alive() or not writer.died_of_the_kill:
                raise Found(f"a writer ended otherwise: {writer.error!r}")
            self.calls += writer.calls
        self.end()
        for _ in range(self._random.randrange(4)):
            self._kill_recovery()
        with Instance.open(self._folder) as instance:
            problems = check(instance).problems
        if problems:
            raise Found("\n".join(problems))
        self._compare(writers)

    def _kill_daemons(self, writers: list[Writer]) -> None:
        """Kill both daemons, one after or with the other, once their writers are at work."""
        victims = list(zip(self._tops, writers, strict=True))
        self._random.shuffle(victims)
        for top, writer in victims:
            wanted = writer.calls + self._random.randrange(1, 60)
            while writer.calls < wanted and writer.is_alive():
                time.sleep(0.001)
            kill(self._daemons.pop(top))
            self.kills += 1

    def _kill_recovery(self) -> None:
        """Kill a process that opens the instance, which replays and tidies up."""
        begun, begin = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(begin, b".")
            with contextlib.suppress(BaseException), Instance.open(self._folder) as instance:
                collect(instance)
                TrashCan(instance).purge_older_than(5)
            os._exit(0)
        os.read(begun, 1)
        os.close(begun)
        os.close(begin)
        time.sleep(self._random.random() ** 2 * 0.05)
        kill(pid)
        self.kills += 1

    def _compare(self, writers: list[Writer]) -> None:
        self._mount()
        found = [look(work) for work in self._works()]
        lines = [line for f, w in zip(found, writers, strict=True) for line in differences(f, w)]
        if lines:
            raise Found("\n".join(lines))
        self._trees = [
            {path: Node(kind, data, dict(xattrs)) for path, (kind, data, xattrs) in seen.items()}
            for seen in found
        ]


def forked_daemon(folder: Path, session: str, top: Path) -> int:
    """Mount a session's view; return its process, which need not import the program first.

    Raises:
        Found: it could not be mounted.
    """
    wait, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(wait)
            os.dup2(os.open(folder / "run" / f"{session}.log", os.O_WRONLY | os.O_CREAT), 2)
            logging.basicConfig(stream=os.fdopen(2, "w"), force=True)
            serve(folder, session, top, ready_fd=ready)
        os._exit(0)
    os.close(ready)
    with os.fdopen(wait, "rb") as pipe:
        if pipe.read() != READY:
            raise Found(f"{session} cannot be mounted")
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
