"""Checks, collections and backups of an instance with repositories."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.session.committing import commit, prepare, send
from fusefs.session.session import Session
from fusefs.session.syncing import switch, sync, take_in
from fusefs.session.worktree import worktree
from fusefs.store import orphans
from fusefs.store.instance import Instance
from fusefs.store.working_copies import all_working_copies
from fusefs.tree.backend import publish
from fusefs.tree.instance_backup import backup
from fusefs.tree.instance_care import check, collect
from fusefs.tree.instance_restore import restore
from fusefs.tree.repository_backup import clone_files
from fusefs.tree.repository_objects import RepositoryObjects
from tests.repositories.place import (
    MOUNT,
    add_mount,
    add_session,
    commit_to,
    git,
    make_source,
    repository,
    seen,
)

BIG = os.urandom(100_000)


def fill(top: Path) -> None:
    for name, data in {"a": b"a\n", "d/b": b"b\n", "d/e/c": b"c\n", "big": BIG}.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    source = make_source(tmp_path / "source", fill)
    with Instance.init(tmp_path / "instance") as opened:
        add_mount(opened, source)
        yield opened


@pytest.fixture
def session(instance: Instance) -> Session:
    session = add_session(instance)
    session.write("/proj/d/b", b"changed\n")
    session.write("/proj/d/new", BIG + b"!")
    return session


def clone_of(instance: Instance) -> Path:
    return next((instance.folder / "repositories").glob("*.git"))


def pins(instance: Instance) -> set[tuple[int, bytes]]:
    return set(RepositoryObjects(os.fspath(clone_of(instance))).pins())


def unpack(clone: Path) -> None:
    """Have every object in a file of its own."""
    packs = list((clone / "objects/pack").glob("*.pack"))
    for pack in packs:
        data = pack.read_bytes()
        for file in pack.parent.glob(f"{pack.stem}.*"):
            file.unlink()
        git(clone, "unpack-objects", "-q", stdin=data)


@pytest.mark.parametrize("name", ["a", "d/e/c", "d/e", "d/b"])
def test_a_check_finds_objects_that_are_gone(
    instance: Instance, session: Session, name: str
) -> None:
    assert check(instance).problems == []
    clone = clone_of(instance)
    unpack(clone)
    oid = git(clone, "rev-parse", f"refs/remotes/origin/main:{name}").decode().strip()
    (clone / "objects" / oid[:2] / oid[2:]).unlink()
    assert any(oid in problem for problem in check(instance).problems)


def test_a_check_finds_clones_that_are_gone(instance: Instance, session: Session) -> None:
    shutil.rmtree(clone_of(instance))
    assert [problem for problem in check(instance).problems if "/proj: the clone" in problem]


def test_what_a_working_copy_needs_is_kept(instance: Instance, session: Session) -> None:
    before = seen(session)
    collect(instance)
    git(clone_of(instance), "gc", "-q", "--prune=now")
    assert check(instance).problems == []
    assert seen(session) == before
    # What others bring, and take away again, does not matter to it.
    source = Path(instance.mounts.all()[MOUNT].url)
    commit_to(source, lambda top: (top / "a").write_bytes(b"theirs\n"))
    assert sync(repository(session)).conflicts == ()
    session.write("/proj/a", b"mine\n")
    checkout = source.with_name("source.first")
    git(checkout, "checkout", "-q", "--orphan", "other")
    git(checkout, "commit", "-qm", "all new")
    git(checkout, "push", "-qf", str(source), "HEAD:main")
    other = add_session(instance, "other")
    assert other.read("/proj/a") == b"theirs\n"
    sync(repository(other))
    shown = seen(session)
    clone = clone_of(instance)
    for kept in git(clone, "for-each-ref", "--format=%(refname)", "refs/fusefs/kept").split():
        git(clone, "update-ref", "-d", kept)
    git(clone, "gc", "-q", "--prune=now")
    assert check(instance).problems == []
    assert seen(Session(instance, session.spec)) == shown


def test_what_a_merge_brings_is_kept_until_it_is_committed(
    instance: Instance, session: Session
) -> None:
    source = Path(instance.mounts.all()[MOUNT].url)
    base = git(source, "rev-parse", "main").decode().strip()
    checkout = source.with_name("source.first")
    git(checkout, "checkout", "-q", "-b", "topic")
    (checkout / "topic").write_bytes(b"topic\n")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "topic")
    git(checkout, "push", "-q", str(source), "topic")
    topic = git(source, "rev-parse", "topic").decode().strip()
    assert take_in(repository(session), "topic").conflicts == ()
    git(source, "branch", "-D", "topic")
    clone = clone_of(instance)
    for ref in git(clone, "for-each-ref", "--format=%(refname)").decode().split():
        if ref.endswith("/topic") or "/kept" in ref:
            git(clone, "update-ref", "-d", ref)
    collect(instance)
    git(clone, "gc", "-q", "--prune=now")
    assert check(instance).problems == []
    commit(repository(session), "merge")
    assert git(source, "rev-parse", "main^1", "main^2").decode().split() == [base, topic]
    assert not repository(session).tree.copy.merging
    assert session.read("/proj/topic") == b"topic\n"
    git(clone, "update-ref", "-d", next(
        ref for ref in git(clone, "for-each-ref", "--format=%(refname)").decode().split()
        if ref.startswith("refs/remotes/origin/main")
    ))  # fmt: skip
    git(clone, "gc", "-q", "--prune=now")
    assert check(instance).problems == []


def test_a_commit_that_is_noted_after_a_switch_stays_staged_there(
    instance: Instance, session: Session
) -> None:
    source = Path(instance.mounts.all()[MOUNT].url)
    git(source, "branch", "other", "main")
    prepared = prepare(repository(session), "mine")
    switch(repository(session), "other")
    send(repository(session), prepared)
    now = repository(session)
    assert now.branch == "other"
    assert now.tree.copy.base.hex() == prepared.base
    assert {changed.path for changed in now.changes()} == set(prepared.done.paths)


@pytest.mark.parametrize(("name", "size"), [(b"b", 10), (b"new", 100_000)])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_file_that_is_closed_while_it_is_committed(
    instance: Instance, session: Session, name: bytes, size: int, is_closed: bool
) -> None:
    """Its bytes are committed, not those from before it was written."""
    data = os.urandom(size)
    file = session.view.open_file(session.place((*MOUNT, b"d", name)), write=True)
    file.truncate(0)
    file.write(0, data)
    work = repository(session)
    changes = work.all_changes()

    def close() -> None:
        publish(file.close())

    if is_closed:
        close()
    tree = work.write_tree(changes)
    if not is_closed:
        close()
    committed = b"%s:d/%s" % (tree.hex().encode(), name)
    assert git(clone_of(instance), "cat-file", "blob", committed) == data


def test_an_ended_working_copy_is_collected(instance: Instance, session: Session) -> None:
    assert len(pins(instance)) == 1
    instance.sessions.remove("s", "-")
    with instance.kv.read() as txn:
        assert list(all_working_copies(txn)) == []
    orphans.collect(instance, grace=0)
    report = collect(instance)
    assert report.contents_removed == 2  # the changed file, the new one
    assert pins(instance) == set()
    assert check(instance).problems == []


def test_clones_that_are_not_mounted_go_after_a_day(instance: Instance, session: Session) -> None:
    clone = clone_of(instance)
    stale = clone / "refs" / "heads" / "main.lock"
    stale.touch()
    instance.mounts.remove(MOUNT, "-")
    spec = add_mount(instance, clone.parent.parent.with_name("source"))
    assert collect(instance).clones_removed == 0
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(clone, (long_ago, long_ago))
    assert collect(instance).clones_removed == 1
    assert not clone.exists()
    assert Path(instance.mounts.folder(spec)).exists()
    assert check(instance).problems == []


def test_locks_of_refs_that_are_nobodys_go(instance: Instance, session: Session) -> None:
    clone = clone_of(instance)
    ours = clone / "fusefs-fetch.lock"  # the kernel's locks are in it
    dead, alive = clone / "refs/heads/dead.lock", clone / "refs/heads/alive.lock"
    for lock in (ours, dead, alive):
        lock.touch()
    for lock in (ours, dead):
        os.utime(lock, (1, 1))
    collect(instance)
    assert [lock.exists() for lock in (ours, dead, alive)] == [True, False, True]


def test_a_lock_that_is_nobodys_is_in_the_way_of_no_pin(
    instance: Instance, session: Session
) -> None:
    objects = repository(session).tree.objects
    [(top, commit), *_] = objects.pins()
    lock = clone_of(instance) / f"refs/fusefs/work/{top:x}/{commit.hex()}.lock"
    for change in (objects.unpin, objects.pin):
        lock.parent.mkdir(exist_ok=True)
        lock.touch()
        os.utime(lock, (1, 1))
        change(top, commit)
        assert not lock.exists()
    assert (top, commit) in objects.pins()


def test_no_lock_that_is_nobodys_is_in_the_way_of_a_worktree(
    instance: Instance, session: Session
) -> None:
    clone, name = clone_of(instance), session.spec.name
    made = worktree(repository(session), materialise=True)
    branch, note = (clone / f"refs/{where}/{name}" for where in ("heads/fusefs", "fusefs/worktree"))
    # Killed while it wrote the files: the note is gone, the locks are there.
    note.unlink()
    locks = [branch.with_suffix(".lock"), note.with_suffix(".lock")]
    for lock in locks:
        lock.touch()
        os.utime(lock, (1, 1))
    (clone / "worktrees" / name / "index.lock").touch()
    session.write("/proj/d/b", b"again\n")
    assert worktree(repository(session), materialise=True).folder == made.folder
    assert (made.folder / "d/b").read_bytes() == b"again\n"
    assert note.exists()
    assert not any(lock.exists() for lock in locks)


def test_what_a_killed_merge_left_goes_after_a_day(instance: Instance, session: Session) -> None:
    clone = clone_of(instance)
    old, new = clone / "tmp_merge_old", clone / "tmp_merge_new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "ours").touch()
    git(clone, "update-ref", "refs/heads/tmp_branch", "refs/remotes/origin/main")
    copied = {path.as_posix() for path in clone_files(clone)}
    assert "refs/heads/tmp_branch" in copied
    assert not any(path.startswith("tmp_merge") for path in copied)
    os.utime(old, (0, 0))
    collect(instance)
    assert [path.name for path in clone.glob("tmp_*")] == ["tmp_merge_new"]


def test_backups_hold_repositories(instance: Instance, session: Session, tmp_path: Path) -> None:
    source = Path(instance.mounts.all()[MOUNT].url)
    commit_to(source, lambda top: (top / "d/b").write_bytes(b"theirs\n"))
    assert sync(repository(session)).conflicts == ((b"d", b"b"),)
    shown = seen(session)
    assert backup(instance, tmp_path / "backup").missing == []
    first = objects(tmp_path / "backup")
    session.write("/proj/later", b"later\n")
    assert backup(instance, tmp_path / "backup").missing == []
    assert first.items() <= objects(tmp_path / "backup").items()  # taken over, not copied
    restore(tmp_path / "backup", tmp_path / "restored")
    with Instance.open(tmp_path / "restored") as restored:
        again = Session(restored, restored.sessions.get("s"))
        assert seen(again) == {**shown, b"later": (False, b"later\n")}
        assert [change.path for change in repository(again).changes()] == [
            (b"d", b"b"), (b"d", b"new"), (b"later",),
        ]  # fmt: skip
        assert check(restored).problems == []
        git(clone_of(restored), "fsck", "--strict", "--no-dangling")


def objects(folder: Path) -> dict[str, int]:
    """Return the object files of the clone in an instance, with their inodes."""
    files = (folder / "repositories").glob("*.git/objects/**/*")
    return {file.name: file.stat().st_ino for file in files if file.is_file()}
