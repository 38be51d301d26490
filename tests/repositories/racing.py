"""Two sessions race commits on one repository, each in a mount of its own; nothing gets lost.

Each session is an agent in a process of its own beside the daemon that serves its mount. Again and
again it adds a line to its own file, one to a file that both append to, and one at a random place
of a third; then it commits, syncs when it is told to, and settles conflicts as it is told to. At
the end every line must be there once, in the history too, whoever won.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import traceback
from collections import Counter
from pathlib import Path

from fusefs.contract.sessions import SessionSpec
from fusefs.daemon import mountpoint
from fusefs.forge.errors import Moved
from fusefs.session.commit_once import commit
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.session.syncing import sync
from fusefs.store.instance import Instance
from fusefs.tree.instance_care import check
from tests.daemon.conftest import until
from tests.mount.killing import Found, forked_daemon
from tests.repositories.place import ALL, add_mount, git, looked, make_source

NAMES = ("ada", "bob")
_SHARED, _SPREAD = "log.txt", "deep/er/spread.txt"
_MARKS = ("<<<<<<< staged", "=======", ">>>>>>> origin/")
_MOST_TRIES = 100
_MANY = 10**6
_MOST_AHEAD = 1
"""Commits: who is slower has the other wait for it, so that they meet all the time."""


class Race:
    """A race on one instance.

    Attributes:
        moved: how often a commit was refused because the other one was faster.
        conflicts: how many files showed both sides.
    """

    def __init__(self, folder: Path, seed: int, commits: int) -> None:
        """Make repository, instance and mounts below `folder`.

        Args:
            folder: an empty one, or not there.
            seed: what the agents do follows from it, though not who is faster.
            commits: how many both make together.
        """
        self.moved = self.conflicts = 0
        self._seed = seed
        self._each = commits // len(NAMES)
        folder.mkdir(parents=True, exist_ok=True)
        self._source = make_source(folder / "source", _fill)
        self._folder = folder / "instance"
        self._tops = {name: folder / name for name in NAMES}
        self._daemons: dict[str, int] = {}
        self._done = memoryview(mmap.mmap(-1, 4 * len(NAMES))).cast("I")
        with Instance.init(self._folder) as instance:
            self._clone = Path(instance.mounts.folder(add_mount(instance, self._source)))
            for name in NAMES:
                user = f"{name.title()} <{name}@example.org>"
                instance.sessions.put(SessionSpec(name, grants=ALL, user=user), "-")

    def run(self) -> None:
        """Race, and look what came of it.

        Raises:
            Found: something is not as it must be.
        """
        try:
            for name, top in self._tops.items():
                top.mkdir()
                self._daemons[name] = forked_daemon(self._folder, name, top)
            told = [self._agent(name) for name in NAMES]
            for pid, pipe in told:
                with os.fdopen(pipe) as lines:
                    said = lines.read()
                if os.waitpid(pid, 0)[1]:
                    raise Found(said)
                moved, conflicts = map(int, said.split())
                self.moved += moved
                self.conflicts += conflicts
            self._look()
        finally:
            self._end()

    def _end(self) -> None:
        for name, daemon in self._daemons.items():
            os.kill(daemon, signal.SIGTERM)
            os.waitpid(daemon, 0)
            if mountpoint.mounted_at(str(self._tops[name])) is not None:
                mountpoint.detach(str(self._tops[name]))
        self._daemons.clear()

    def _agent(self, name: str) -> tuple[int, int]:
        """Start an agent; return its process, and the pipe in which it says how it went."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(reading)
                with Instance.open(self._folder) as instance:
                    agent = Agent(instance, name, self._tops[name] / "proj", self._seed)
                    for number in range(self._each):
                        self._wait_for_all(number - _MOST_AHEAD)
                        agent.work(number)
                        self._done[NAMES.index(name)] += 1
                os.write(writing, f"{agent.moved} {agent.conflicts}".encode())
                status = 0
            except BaseException:  # noqa: BLE001 - told to whoever waits
                self._done[NAMES.index(name)] = _MANY  # nobody is to wait for this one
                os.write(writing, f"{name}: {traceback.format_exc()}".encode()[:60_000])
            finally:
                os._exit(status)
        os.close(writing)
        return pid, reading

    def _wait_for_all(self, number: int) -> None:
        until(lambda: min(self._done) >= number, 120)

    def _look(self) -> None:
        tokens = [f"{name}-{number}" for name in NAMES for number in range(self._each)]
        self._look_at_history(tokens)
        with Instance.open(self._folder) as instance:
            for name in NAMES:
                work = Repository(Session(instance, instance.sessions.get(name)), "/proj")
                sync(work)
                if staged := work.changes():
                    raise Found(f"still staged by {name}: {staged}")
            if problems := check(instance).problems:
                raise Found("\n".join(problems))
        for folder in (self._source, self._clone):
            git(folder, "fsck", "--strict", "--no-dangling")
        checkout = self._source.with_name("checkout")
        git(checkout.parent, "clone", "-q", str(self._source), str(checkout))
        want = looked(checkout)
        self._look_at_lines(checkout, tokens)
        with Instance.open(self._folder) as instance:
            for name in NAMES:
                session = Session(instance, instance.sessions.get(name))
                for path, found in want.items():
                    data = found[1] if isinstance(found, tuple) else found
                    if session.read(b"/proj/" + path) != data:
                        raise Found(f"{name} sees another {path!r} than was committed")

    def _look_at_history(self, tokens: list[str]) -> None:
        """Every commit is there once, changes nothing of others, and is built on the one before."""
        said = git(self._source, "log", "--format=%an %s|%P", "main").decode().splitlines()
        subjects = Counter(line.split("|")[0].split()[-1] for line in said)
        if subjects != Counter([*tokens, "first"]):
            raise Found(f"commits: {subjects - Counter(tokens)}, {Counter(tokens) - subjects}")
        if any(not line.split()[1].startswith(line.split()[0].lower()) for line in said[:-1]):
            raise Found("a commit of another author")
        if any(len(line.split("|")[1].split()) != 1 for line in said[:-1]):
            raise Found("a commit that is not built on one before it")
        patches = git(self._source, "log", "-p", "--format=@@@%s", "main").decode()
        for patch in patches.split("@@@")[1:]:
            subject, _, body = patch.partition("\n")
            lines = [line for line in body.splitlines() if line.startswith(("+", "-"))]
            changed = [line for line in lines if line[:3] not in ("+++", "---")]
            own = [line for line in changed if line == f"+{subject}"]
            if subject != "first" and changed != own:
                raise Found(f"the commit {subject} changes what others wrote: {changed}")

    def _look_at_lines(self, checkout: Path, tokens: list[str]) -> None:
        for file in (_SHARED, _SPREAD):
            lines = Counter((checkout / file).read_text().splitlines())
            found = Counter({line: n for line, n in lines.items() if line in tokens})
            if found != Counter(tokens):
                lost, twice = Counter(tokens) - found, found - Counter(tokens)
                raise Found(f"{file}: lost {lost}, twice {twice}")
        for name in NAMES:
            own = [f"{name}-{number}" for number in range(self._each)]
            if (checkout / f"own/{name}.txt").read_text().splitlines() != own:
                raise Found(f"own/{name}.txt has not every line in order")


class Agent:
    """One session at work.

    Attributes:
        moved: how often a commit was refused because the branch had moved.
        conflicts: how many files it settled.
    """

    def __init__(self, instance: Instance, name: str, top: Path, seed: int) -> None:
        """Work as the session `name`, whose mount has the repository at `top`."""
        self.moved = self.conflicts = 0
        self._name = name
        self._top = top
        self._random = random.Random(f"{seed} {name}")
        self._session = Session(instance, instance.sessions.get(name))

    def work(self, number: int) -> None:
        """Make one commit.

        Raises:
            Found: the other one was always faster.
        """
        token = f"{self._name}-{number}"
        self._edit(token)
        for _ in range(_MOST_TRIES):
            # Like a command of its own each time: nothing is remembered of the last one.
            try:
                commit(Repository(self._session, "/proj"), token, key=token)
            except Moved:
                self.moved += 1
            else:
                return
            for path in sync(Repository(self._session, "/proj")).conflicts:
                self.conflicts += 1
                self._settle(self._top / os.fsdecode(b"/".join(path)))
        raise Found(f"{token} was never committed")

    def _edit(self, token: str) -> None:
        own = self._top / f"own/{self._name}.txt"
        own.parent.mkdir(exist_ok=True)
        with own.open("a") as file:
            file.write(f"{token}\n")
        with (self._top / _SHARED).open("a") as file:
            file.write(f"{token}\n")
        spread = self._top / _SPREAD
        lines = spread.read_text().splitlines(keepends=True)
        lines.insert(self._random.randrange(1, len(lines)), f"{token}\n")
        # As editors do it: beside, then over.
        beside = spread.with_name(f".{self._name}.new")
        beside.write_text("".join(lines))
        beside.replace(spread)

    def _settle(self, file: Path) -> None:
        """Keep both sides' lines."""
        lines = file.read_text().splitlines(keepends=True)
        if not any(line.startswith(_MARKS[0]) for line in lines):
            raise Found(f"{file} is in conflict and shows no marks")
        file.write_text("".join(line for line in lines if not line.startswith(_MARKS)))


def _fill(top: Path) -> None:
    (top / "deep/er").mkdir(parents=True)
    (top / _SHARED).write_text("begin\n")
    (top / _SPREAD).write_text("".join(f"line {number}\n" for number in range(200)))
