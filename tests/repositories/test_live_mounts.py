"""Live mounts of a repository: what one session does in one, the others show at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from fusefs.contract.errors import Blocked, NotCommitted
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path as TreePath
from fusefs.session.committing import commit
from fusefs.session.session import Session
from fusefs.session.syncing import switch, sync
from fusefs.store.instance import Instance
from fusefs.tree.instance_care import check
from tests.daemon.conftest import settle, until
from tests.mount.killing import forked_daemon
from tests.repositories.place import (
    ALL,
    add_mount,
    add_session,
    commit_to,
    git,
    make_source,
    repository,
)

BIG = os.urandom(6 << 20)
FILES = {
    "top.txt": b"one\ntwo\nthree\n",
    "d/a.txt": b"a\n",
    "d/b.txt": b"b\n",
    "d/deep/er/c.txt": b"c\n",
    "e/x.txt": b"x\n",
    "e/y.txt": b"y\n",
    "gone/f.txt": b"f\n",
    "big.bin": BIG,
    "run.sh": b"#!/bin/sh\n",
}


def fill(top: Path) -> None:
    for name, data in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    (top / "run.sh").chmod(0o755)
    (top / "link").symlink_to("top.txt")


@dataclass
class Views:
    """Two mounts of the session ``s``, one of ``t``, and both from another process."""

    source: Path
    instance: Instance
    first: Path
    second: Path
    other: Path
    s: Session
    t: Session


@pytest.fixture
def views(tmp_path: Path) -> Iterator[Views]:
    folder = tmp_path / "instance"
    source = make_source(tmp_path / "source", fill)
    with Instance.init(folder) as instance:
        add_mount(instance, source)
        for name in "st":
            add_session(instance, name)
    tops = [tmp_path / name for name in ("first", "second", "other")]
    daemons = []
    for top, name in zip(tops, "sst", strict=True):
        top.mkdir()
        daemons.append(forked_daemon(folder, name, top))
    with Instance.open(folder) as instance:
        s, t = (Session(instance, instance.sessions.get(name)) for name in "st")
        first, second, other = (top / "proj" for top in tops)
        yield Views(source, instance, first, second, other, s, t)
        for daemon in daemons:
            os.kill(daemon, signal.SIGTERM)
            os.waitpid(daemon, 0)
        assert check(instance).problems == []


def shows(top: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {
        str(file.relative_to(top)): file.read_bytes()
        for file in sorted(top.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }


def shows_at_last(top: Path, wanted: dict[str, bytes]) -> bool:
    try:
        return shows(top) == wanted
    except OSError:  # it changes while it is walked
        return False


def holds(file: Path, wanted: bytes) -> bool:
    return file.read_bytes() == wanted


def missing(path: Path) -> bool:
    return not os.path.lexists(path)


def test_what_is_not_changed_is_shown_as_it_is(views: Views) -> None:
    for top in (views.first, views.other):
        assert shows(top) == FILES
        assert os.readlink(top / "link") == "top.txt"
        assert (top / "run.sh").stat().st_mode & 0o777 == 0o755
    numbers = {p: (views.first / p).stat().st_ino for p in FILES}
    assert numbers == {p: (views.second / p).stat().st_ino for p in FILES}


CHANGES: list[tuple[Callable[[Path], object], Callable[[Path], bool]]] = [
    (lambda top: (top / "d/a.txt").write_bytes(b"new\n"),
     lambda top: (top / "d/a.txt").read_bytes() == b"new\n"),
    (lambda top: (top / "d/new.txt").write_bytes(b"new\n"),
     lambda top: (top / "d/new.txt").exists() and "new.txt" in os.listdir(top / "d")),
    (lambda top: (top / "d/b.txt").unlink(), lambda top: missing(top / "d/b.txt")),
    (lambda top: (top / "d/deep").rename(top / "e/deep"),
     lambda top: missing(top / "d/deep") and (top / "e/deep/er/c.txt").read_bytes() == b"c\n"),
    (lambda top: (top / "gone/f.txt").rename(top / "e/x.txt"),
     lambda top: (top / "e/x.txt").read_bytes() == b"f\n" and missing(top / "gone/f.txt")),
    (lambda top: (top / "gone").rmdir(), lambda top: missing(top / "gone")),
    (lambda top: (top / "run.sh").chmod(0o644),
     lambda top: (top / "run.sh").stat().st_mode & 0o777 == 0o644),
    (lambda top: os.truncate(top / "big.bin", 5 << 20),
     lambda top: (top / "big.bin").read_bytes() == BIG[: 5 << 20]),
    (lambda top: (top / "e").rename(top / "f"),
     lambda top: missing(top / "e") and (top / "f/deep/er/c.txt").exists()),
]  # fmt: skip


def test_two_mounts_of_a_session_are_one(views: Views) -> None:
    shows(views.second)  # everything is cached there
    assert missing(views.second / "d/new.txt")
    for change, seen in CHANGES:
        change(views.first)
        assert seen(views.first)
        until(partial(seen, views.second))
    assert shows(views.first) == shows(views.second)
    assert shows(views.other) == FILES


def test_handles_of_what_the_other_mount_changes(views: Views) -> None:
    with (views.second / "d/a.txt").open("rb", buffering=0) as kept, \
         (views.second / "d/b.txt").open("rb", buffering=0) as gone, \
         (views.second / "d/deep/er/c.txt").open("rb", buffering=0) as moved:  # fmt: skip
        assert kept.read() == b"a\n"
        (views.first / "d/a.txt").write_bytes(b"longer than before\n")
        (views.first / "d/b.txt").unlink()
        (views.first / "d/deep").rename(views.first / "m")
        until(lambda: os.pread(kept.fileno(), 100, 0) == b"longer than before\n")
        until(lambda: missing(views.second / "d/b.txt"))
        assert os.pread(gone.fileno(), 100, 0) == b"b\n"
        assert os.pread(moved.fileno(), 100, 0) == b"c\n"
        views.s.rm("/proj/d")
        until(lambda: missing(views.second / "d"))
        assert os.pread(gone.fileno(), 100, 0) == b"b\n"


def test_others_commits_and_syncs_are_seen(views: Views) -> None:
    for top in (views.first, views.other):
        shows(top)
    where = os.open(views.first / "d", os.O_RDONLY)
    kept = (views.first / "e/x.txt").open("rb", buffering=0)
    (views.first / "d/mine.txt").write_bytes(b"mine\n")
    (views.first / "top.txt").write_bytes(b"one\ntwo\nmine\n")
    settle(views.first)

    def theirs(top: Path) -> None:
        (top / "top.txt").write_bytes(b"theirs\ntwo\nthree\n")
        (top / "e/x.txt").write_bytes(b"their x\n")
        (top / "gone/f.txt").unlink()
        (top / "e/y.txt").unlink()
        (top / "e/y.txt").mkdir()
        (top / "e/y.txt/in.txt").write_bytes(b"in\n")
        (top / "fresh/new").mkdir(parents=True)
        (top / "fresh/new/n.txt").write_bytes(b"n\n")
        (top / "run.sh").chmod(0o644)
        (top / "link").unlink()
        (top / "link").symlink_to("d")

    commit_to(views.source, theirs)
    assert missing(views.first / "fresh")
    done = sync(repository(views.s))
    assert done.conflicts == ()
    for top in (views.first, views.second):
        until(partial(os.path.exists, top / "fresh/new/n.txt"))
        until(partial(holds, top / "top.txt", b"theirs\ntwo\nmine\n"))
        assert (top / "e/x.txt").read_bytes() == b"their x\n"
        assert (top / "e/y.txt/in.txt").read_bytes() == b"in\n"
        assert missing(top / "gone")
        assert os.readlink(top / "link") == "d"
        assert (top / "run.sh").stat().st_mode & 0o777 == 0o644
        assert (top / "d/mine.txt").read_bytes() == b"mine\n"
    assert os.pread(kept.fileno(), 100, 0) == b"their x\n"
    kept.close()
    # A shell whose directory it is goes on.
    assert os.readlink(f"/proc/self/fd/{where}") == str(views.first / "d")
    os.close(where)
    made = commit(repository(views.s), "mine")
    assert sorted(made.paths) == [(b"d", b"mine.txt"), (b"top.txt",)]
    assert git(views.source, "show", "main:top.txt") == b"theirs\ntwo\nmine\n"
    assert shows(views.other) == FILES
    assert not sync(repository(views.t)).conflicts
    until(lambda: shows(views.other) == shows(views.first))
    assert repository(views.t).changes() == []


def test_who_stands_in_a_directory_that_stays_goes_on(views: Views) -> None:
    """Also where nothing stays in it: what comes takes the place of what goes."""
    shows(views.first)
    where = {name: os.open(views.first / name, os.O_RDONLY) for name in ("", "d", "d/deep/er")}
    numbers = {name: os.fstat(fd).st_ino for name, fd in where.items()}

    def theirs(top: Path) -> None:
        for name in ("d/a.txt", "d/b.txt", "d/deep/er/c.txt"):
            (top / name).unlink()
        (top / "d/deep/er").mkdir(exist_ok=True, parents=True)
        (top / "d/deep/er/instead").write_bytes(b"instead\n")

    def goes_on() -> bool:
        return all(
            os.readlink(f"/proc/self/fd/{fd}") == str(views.first / name).rstrip("/")
            and os.stat(views.first / name).st_ino == numbers[name] == os.fstat(fd).st_ino
            for name, fd in where.items()
        )

    commit_to(views.source, theirs)
    git(views.source, "branch", "first", "main~1")
    for move in (
        partial(sync, repository(views.s)),
        partial(switch, repository(views.s), "first"),
        partial(switch, repository(views.s), "main"),
    ):
        was = (views.first / "d/a.txt").exists()
        move()
        until(lambda: (views.first / "d/a.txt").exists() != was)  # noqa: B023 - waited for here
        until(lambda: (views.first / "d/deep/er/instead").exists() == was)  # noqa: B023
        assert goes_on()
    (views.first / "d/deep/er/instead").unlink()
    (views.first / "d/deep/er/mine").write_bytes(b"mine\n")
    settle(views.first)
    repository(views.s).restore((), new=True)
    until((views.first / "d/deep/er/instead").exists)
    assert goes_on()
    for fd in where.values():
        os.close(fd)


def test_a_restore_is_seen(views: Views) -> None:
    subprocess.run(["rm", "-r", "d", "e"], cwd=views.first, check=True)
    (views.first / "d").write_bytes(b"a file now\n")
    (views.first / "top.txt").write_bytes(b"changed\n")
    settle(views.first)
    assert (views.second / "top.txt").read_bytes() == b"changed\n"
    repository(views.s).restore((), new=True)
    for top in (views.first, views.second):
        until(partial(holds, top / "top.txt", FILES["top.txt"]))
        until(partial(shows_at_last, top, FILES))
    assert repository(views.s).changes() == []


def test_conflicts_show_both_sides_and_lose_nothing(views: Views) -> None:
    (views.first / "top.txt").write_bytes(b"one\nmine\nthree\n")
    (views.first / "gone/f.txt").write_bytes(b"kept\n")
    settle(views.first)

    def theirs(top: Path) -> None:
        (top / "top.txt").write_bytes(b"one\ntheirs\nthree\n")
        (top / "gone/f.txt").unlink()

    commit_to(views.source, theirs)
    assert sync(repository(views.s)).conflicts == ((b"gone", b"f.txt"), (b"top.txt",))
    text = b"one\n<<<<<<< staged\nmine\n=======\ntheirs\n>>>>>>> origin/main\nthree\n"
    until(lambda: (views.first / "top.txt").read_bytes() == text)
    assert (views.first / "gone/f.txt").read_bytes() == b"kept\n"
    # What was merged is in no branch, and outlives a git gc in the clone.
    clone = next((views.instance.folder / "repositories").glob("*.git"))
    git(clone, "gc", "-q", "--prune=now")
    git(clone, "fsck", "--strict")
    with Instance.open(views.instance.folder) as fresh:
        session = Session(fresh, fresh.sessions.get("s"))
        assert session.read("/proj/top.txt") == text


def test_a_sync_after_history_was_rewritten(views: Views) -> None:
    (views.first / "d/a.txt").write_bytes(b"mine\n")
    settle(views.first)
    commit_to(views.source, lambda top: (top / "e/x.txt").write_bytes(b"will go\n"))
    sync(repository(views.s))
    checkout = views.source.with_name("source.first")
    git(checkout, "reset", "-q", "--hard", "HEAD~1")
    (checkout / "e/y.txt").write_bytes(b"instead\n")
    git(checkout, "commit", "-qam", "instead")
    git(checkout, "push", "-qf", str(views.source), "HEAD:main")
    assert sync(repository(views.s)).conflicts == ()
    assert [change.path for change in repository(views.s).changes()] == [(b"d", b"a.txt")]
    until(lambda: (views.first / "e/x.txt").read_bytes() == b"x\n")


def test_a_sync_touches_nothing_that_git_does_not_keep(views: Views) -> None:
    (views.first / ".gitignore").write_bytes(b"*.log\n")
    (views.first / "e/out.log").write_bytes(b"log\n")
    settle(views.first)
    commit_to(views.source, lambda top: (top / "e/x.txt").write_bytes(b"their x\n"))
    sync(repository(views.s))
    assert (views.first / "e/out.log").read_bytes() == b"log\n"
    commit_to(views.source, lambda top: (top / "e/out.log").write_bytes(b"theirs\n"))
    with pytest.raises(Blocked, match="is ignored"):
        sync(repository(views.s))
    assert (views.first / "e/out.log").read_bytes() == b"log\n"


def test_a_file_being_written_stops_a_sync(views: Views) -> None:
    commit_to(views.source, lambda top: (top / "top.txt").write_bytes(b"theirs\ntwo\nthree\n"))
    # In a process of its own: git is forked off this one, and closes what it got, which
    # publishes it.
    script = "f = open('top.txt', 'ab', 0); f.write(b'mine\\n'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=views.first, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        writer.stdout.readline()
        settle(views.first)
        with pytest.raises(Blocked, match=r"/proj/top\.txt is being written"):
            sync(repository(views.s))
        writer.communicate(b"\n")
    settle(views.first)
    assert sync(repository(views.s)).conflicts == ()
    until(partial(holds, views.first / "top.txt", b"theirs\ntwo\nthree\nmine\n"))


def test_rules_that_change_meanwhile(views: Views) -> None:
    shows(views.first)
    (views.first / "d/a.txt").write_bytes(b"staged\n")
    (views.first / "e/x.txt").write_bytes(b"staged\n")
    settle(views.first)
    hidden = {**ALL, (b"proj", b"d"): Level.NONE, (b"proj", b"e", b"x.txt"): Level.STAGE}
    views.instance.sessions.put(replace(views.s.spec, grants=hidden), "-")
    until(lambda: missing(views.first / "d"))
    assert "d" not in os.listdir(views.first)
    work = repository(views.s)
    assert [change.path for change in work.changes()] == [(b"e", b"x.txt")]
    with pytest.raises(NotCommitted, match=r"/proj/e/x\.txt"):
        commit(work, "no")
    (views.first / "e/y.txt").write_bytes(b"y2\n")
    settle(views.first)
    assert commit(repository(views.s), "yes").paths == ((b"e", b"y.txt"),)
    assert git(views.source, "show", "main:d/a.txt") == b"a\n"
    passages: dict[TreePath, Level] = {(b"proj", b"d", b"deep"): Level.COMMIT}
    views.instance.sessions.put(replace(views.s.spec, grants=passages), "-")
    until(partial(os.path.exists, views.first / "d/deep/er/c.txt"))
    with pytest.raises(PermissionError):
        os.listdir(views.first)
    (views.first / "d/deep/er/c.txt").write_bytes(b"c2\n")
    settle(views.first / "d/deep")
    assert commit(repository(views.s, "/proj/d/deep"), "deep").paths == (
        (b"d", b"deep", b"er", b"c.txt"),
    )
    views.instance.sessions.put(replace(views.s.spec, grants=ALL), "-")
    until(partial(os.path.exists, views.first / "d/a.txt"))
    assert {change.path for change in repository(views.s).changes()} == {
        (b"d", b"a.txt"), (b"e", b"x.txt"),
    }  # fmt: skip


def test_a_removed_session_takes_its_stage_along(views: Views) -> None:
    views.t.write("/proj/top.txt", b"of t\n")
    views.instance.sessions.remove("t", "-")
    again = add_session(views.instance, "t")
    assert again.read("/proj/top.txt") == FILES["top.txt"]
