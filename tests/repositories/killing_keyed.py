"""kill -9 of commands under an idempotency key, and of the daemon beside them.

A round has a mount of a session at work, and one command: a commit, a push that takes its time, a
sync, a merge of a branch into the working copy, or of a pull request on the forge. The process
that runs the command is killed, or the daemon, at a random moment or at a chosen step: before or
after a git, a commit of the store, a write to its log, or a ref. What is there then is what was
before or what is to be; the same command again gets there; and all of it happened once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from fusefs.contract.sessions import SessionSpec
from fusefs.daemon import mountpoint
from fusefs.forge import git_process
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.store.redo import RedoLog
from fusefs.tools.cli.app import run
from fusefs.tree.instance_care import check
from fusefs.tree.repository_objects import RepositoryObjects
from tests.conftest import Quick
from tests.daemon.conftest import until
from tests.mount.killing import Found, forked_daemon, kill
from tests.repositories.place import (
    ALL,
    add_mount,
    commit_to,
    git,
    looked,
    make_source,
    seen,
    tree_of,
)

S = ("/proj", "--session", "s")
_SLOW = "#!/bin/sh\ntouch {0}/pushing\nsleep 0.1\n"
_STEPS: tuple[tuple[type | object, str], ...] = (
    (subprocess, "Popen"),
    (git_process, "_end"),
    (Instance, "commit"),
    (RedoLog, "append"),
    (RepositoryObjects, "pin"),
    (RepositoryObjects, "unpin"),
    (RepositoryObjects, "note_branch"),
)
"""Where a command is killed, before it and after it."""


class KillKeyed:
    """Kill rounds on one instance.

    Attributes:
        kills: how many processes were killed before they were done, by action.
        done: how many commands were done before.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        """Make repository, instance and mount below `folder`."""
        self._random = random.Random(seed)
        self._top = folder / "view"
        self._top.mkdir(parents=True)
        self._source = make_source(folder / "source", _fill)
        self._flag = folder / "pushing"
        self._folder = folder / "instance"
        with Instance.init(self._folder) as instance:
            self._clone = Path(instance.mounts.folder(add_mount(instance, self._source)))
            spec = SessionSpec("s", grants=ALL, user="Ada <ada@example.org>")
            instance.sessions.put(spec, "-")
        self._cli = Quick(self._folder)
        self._number = 0
        self._step: int | None = None
        self._seconds: dict[str, float] = {}
        self.kills: dict[str, int] = {}
        self.done = 0
        self._daemon = forked_daemon(self._folder, "s", self._top)

    def end(self) -> None:
        """Take the mount away."""
        if self._daemon:
            os.kill(self._daemon, signal.SIGTERM)
            os.waitpid(self._daemon, 0)
            self._daemon = 0
        if mountpoint.mounted_at(str(self._top)) is not None:
            mountpoint.detach(str(self._top))

    @property
    def _proj(self) -> Path:
        return self._top / "proj"

    # Killing.

    def round(self, action: str) -> None:
        """Do a round of an action; kill at a random moment.

        Raises:
            Found: something is not as it must be.
        """
        self._step = None
        self._number += 1
        ACTIONS[action](self)

    def steps(self, action: str, first: int = 0, stride: int = 1) -> int:
        """Do a round for each step of an action, from `first` on; return how many there are."""
        step = first
        while True:
            self._step = step
            self._number += 1
            ACTIONS[action](self)
            if self._step is None:
                return step
            step += stride

    def _killed(self, action: str, *words: str) -> None:
        """Run a command line in a process that is killed, or comes before that to its end."""
        victim = "command" if self._step is not None else self._random.choice(
            ["command", "command", "daemon"]
        )  # fmt: skip
        pid = os.fork()
        if pid == 0:
            self._run_in_child(words)
        began = time.monotonic()
        usual = self._seconds.get(action, 0.3)
        if action == "push":
            until(lambda: self._flag.exists() or _is_over(pid))
            began, usual = time.monotonic(), 0.2
        give_up = began + self._random.random() * 1.2 * usual
        if victim == "daemon":
            while time.monotonic() < give_up and not _is_over(pid):
                time.sleep(0.0005)
            kill(self._daemon)
            self._daemon = 0
            give_up = began + 60
        elif self._step is not None:
            give_up = began + 60
        while time.monotonic() < give_up and not _is_over(pid):
            time.sleep(0.0005)
        is_over = _is_over(pid)
        if not is_over:
            os.kill(pid, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._seconds[action] = 0.7 * usual + 0.3 * (time.monotonic() - began)
        if ended == -signal.SIGKILL or victim == "daemon":
            self.kills[action] = self.kills.get(action, 0) + 1
        else:
            self.done += 1
            self._step = None
        if victim == "daemon" and ended not in (0, 1):
            raise Found(f"{words} ended with {ended} when the daemon was killed")
        if victim == "daemon":
            mountpoint.detach(str(self._top))
            self._daemon = forked_daemon(self._folder, "s", self._top)

    def _run_in_child(self, words: tuple[str, ...]) -> None:
        status = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for number in (1, 2):
                os.dup2(null, number)
            os.environ["FUSEFS_INSTANCE"] = str(self._folder)
            if self._step is not None:
                _die_at(self._step)
            status = run(words)
        finally:
            os._exit(status)

    # Looking.

    def _seen(self) -> dict[bytes, object]:
        with Instance.open(self._folder) as instance:
            return seen(Session(instance, instance.sessions.get("s")))

    def _look(self) -> dict[bytes, object]:
        """Look whether all is whole; return what the session sees, in its mount too."""
        with Instance.open(self._folder) as instance:
            if problems := check(instance).problems:
                raise Found("\n".join(problems))
        # The git of a process that was killed may be at work yet, and what is half there of it is
        # no fault.
        until(lambda: _is_whole(self._clone) and _is_whole(self._source))
        found = self._seen()
        until(lambda: _shows(self._proj, found))
        return found

    def _subjects(self, text: str) -> int:
        log = git(self._source, "log", "--format=%s", "main").decode().splitlines()
        return sum(line.startswith(text) for line in log)

    def _main(self) -> str:
        return git(self._source, "rev-parse", "main").decode().strip()

    def _must(self, holds: object, what: str) -> None:
        if not holds:
            raise Found(f"round {self._number}, step {self._step}: {what}")

    # What is done.

    def _edit(self) -> None:
        new = self._proj / f"new/{self._number}"
        new.parent.mkdir(exist_ok=True)
        new.write_text(f"{self._number}\n")
        (self._proj / f"new/{self._number - 3}").unlink(missing_ok=True)
        with (self._proj / "log").open("a") as log:
            log.write(f"mine {self._number}\n")
        big = self._random.randbytes(self._random.choice([10, 100_000]))
        (self._proj / "deep/er/big").write_bytes(big)

    def commit(self, action: str = "commit") -> None:
        """Commit under a key."""
        self._edit()
        before, old = self._look(), self._main()
        words = ("commit", "-m", f"round {self._number}.", *S, "--key", f"c{self._number}")
        self._killed(action, *words)
        self._must(self._look() == before, "a commit changed files")
        made = self._main()
        if made != old:
            parent = git(self._source, "rev-parse", f"{made}^").decode().strip()
            self._must(parent == old, "more than one commit")
        done = self._cli(*words, "--json").json
        self._must(self._cli(*words, "--json").json == done, "another answer the second time")
        self._must(done["commit"] == self._main(), "another commit than was said")
        self._must(made in (old, done["commit"]), "committed twice")
        self._settled(before)

    def push(self) -> None:
        """Commit under a key, to a remote that takes its time before and after."""
        self._flag.unlink(missing_ok=True)
        hooks = self._source / "hooks"
        hooks.mkdir(exist_ok=True)
        hook = hooks / self._random.choice(["pre-receive", "post-receive"])
        hook.write_text(_SLOW.format(self._flag.parent))
        hook.chmod(0o755)
        try:
            self.commit("push")
        finally:
            hook.unlink()

    def _settled(self, files: dict[bytes, object]) -> None:
        """What is in main is what the session sees, and the round's commit is there once."""
        self._must(self._look() == files, "the files are not what they were")
        self._must(self._subjects(f"round {self._number}.") == 1, "not committed once")
        staged = self._cli("status", *S).out
        self._must(staged == "", f"still staged: {staged}")
        tree = tree_of(self._source, "main")
        with Instance.open(self._folder) as instance:
            work = Repository(Session(instance, instance.sessions.get("s")), "/proj")
            self._must(work.work_tree().hex() == tree, "main has other files")

    def sync(self) -> None:
        """Take in what others committed."""
        commit_to(self._source, self._theirs, f"theirs {self._number}.")
        self._take_in("sync", "sync", *S)

    def merge_in(self) -> None:
        """Merge another branch into the working copy."""
        checkout = self._source.with_name("source.first")
        git(checkout, "fetch", "-q", str(self._source), "main")
        git(checkout, "reset", "-q", "--hard", "FETCH_HEAD")
        self._theirs(checkout)
        git(checkout, "add", "-A")
        git(checkout, "commit", "-q", "-m", f"theirs {self._number}.")
        branch = f"topic{self._number}"
        git(checkout, "push", "-q", str(self._source), f"HEAD:{branch}")
        self._take_in("merge in", "sync", "--from", branch, *S)
        parents = git(self._source, "log", "-1", "--format=%P", "main").split()
        self._must(len(parents) == 2, "no merge was committed")

    def _theirs(self, top: Path) -> None:
        log = top / "log"
        log.write_text(f"theirs {self._number}\n" + log.read_text())
        (top / f"theirs{self._number}").write_text("theirs\n")
        (top / f"theirs{self._number - 2}").unlink(missing_ok=True)
        (top / "both").write_text(f"theirs {self._number}\n")

    def _take_in(self, action: str, *words: str) -> None:
        self._edit()
        (self._proj / "both").write_text(f"mine {self._number}\n")
        before = self._look()
        self._killed(action, *words)
        between = self._look()
        done = self._cli(*words, expect=None)
        if action == "sync":
            self._must(done.status in (0, 1), done.err)
        else:  # refused where it was merged already
            merged = "merge is not committed" in done.err
            self._must(done.status in (0, 1) or merged, done.err)
        after = self._look()
        self._must(between in (before, after), "neither as before nor as after")
        both = (self._proj / "both").read_text()
        self._must("<<<<<<< staged\n" in both, f"the conflict is not shown: {both}")
        for side in ("mine", "theirs"):
            self._must(f"{side} {self._number}\n" in both, f"{side} is lost: {both}")
        (self._proj / "both").write_text("settled\n")
        log = (self._proj / "log").read_text().splitlines()
        for side in ("mine", "theirs"):
            self._must(log.count(f"{side} {self._number}") == 1, f"{side} is not once in the log")
        self._cli("commit", "-m", f"round {self._number}.", *S, "--key", f"t{self._number}")
        self._settled(self._seen())
        self._must(self._subjects(f"theirs {self._number}.") == 1, "their commit is lost")

    def merge(self) -> None:
        """Merge a pull request on the forge, under a key."""
        branch = f"pull{self._number}"
        self._cli("branch", branch, *S)
        self._edit()
        self._cli("commit", "-m", f"round {self._number}.", *S)
        opened = self._cli("pr", "create", *S, "-t", f"Pull {self._number}.", "--json").json
        self._cli("switch", "main", *S)
        commit_to(self._source, self._theirs, f"theirs {self._number}.")
        before, old = self._look(), self._main()
        words = ("pr", "merge", str(opened["number"]), *S, "--key", f"m{self._number}", "--json")
        self._killed("merge", *words)
        made = self._main()
        self._must(self._look() == before, "a merge on the forge changed files of a session")
        shown = self._cli("pr", "show", str(opened["number"]), *S, "--json").json
        self._must((shown["state"] == "merged") == (made != old), f"half merged: {shown}")
        done = self._cli(*words).json
        self._must(self._cli(*words).json == done, "another answer the second time")
        self._must(done["state"] == "merged", f"not merged: {done}")
        self._must(made in (old, self._main()), "merged twice")
        parents = git(self._source, "log", "-1", "--format=%P", "main").decode().split()
        self._must(parents[0] == old and len(parents) == 2, "not merged once")
        self._cli("sync", *S)
        self._settled(self._seen())


ACTIONS: dict[str, Callable[[KillKeyed], None]] = {
    "commit": KillKeyed.commit,
    "push": KillKeyed.push,
    "sync": KillKeyed.sync,
    "merge in": KillKeyed.merge_in,
    "merge": KillKeyed.merge,
}


def _fill(top: Path) -> None:
    (top / "deep/er").mkdir(parents=True)
    (top / "log").write_text("".join(f"line {number}\n" for number in range(30)))
    (top / "deep/er/big").write_bytes(b"0")
    (top / "both").write_text("both\n")


def _is_over(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _is_whole(repository: Path) -> bool:
    done = subprocess.run(
        ["git", "fsck", "--strict", "--no-dangling"], cwd=repository, capture_output=True,
        check=False,
    )  # fmt: skip
    return done.returncode == 0


def _shows(top: Path, files: dict[bytes, object]) -> bool:
    with contextlib.suppress(OSError):  # it changes while it is walked
        return looked(top) == files
    return False


def _die_at(step: int) -> None:
    """Have this process kill itself at a step."""
    left = [step]

    def pass_step() -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    for holder, name in _STEPS:
        real = getattr(holder, name)

        def stepped(
            *given: object, real: Callable[..., object] = real, **named: object
        ) -> object:
            pass_step()
            found = real(*given, **named)
            pass_step()
            return found

        mock.patch.object(holder, name, stepped).start()
