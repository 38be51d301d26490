"""Real git agrees: the same edits here and in a checkout are the same changes and commits."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusefs.contract.errors import ContractError
from fusefs.contract.kinds import Kind
from fusefs.session.committing import commit
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.tree.backend import Change, Owner, publish
from fusefs.tree.instance_care import check
from fusefs.tree.repository_changes import Changed
from tests.conftest import Quick, unmount
from tests.daemon.conftest import settle, until
from tests.repositories.place import (
    add_mount,
    add_session,
    git,
    looked,
    make_source,
    repository,
    seen,
    tree_of,
)

# `a`, `a.b`, `a-` and `a/` sort differently as names and in a tree object.
NAMES = [b"a", b"a.b", b"a-", b"a0", b"d", b"build", b"x.o", b"\xff\xfe", "ü".encode(), b"sp ace"]
SMALL = [b"", b"one\n", b"one\ntwo\nthree\nfour\nfive\n", b"crlf\r\nlines\r\n", b"\0\1\2binary",
         b"latin \xe4\xf6\xfc\n", b"no newline"]  # fmt: skip
LARGE = [b"l" * 65535, b"line of text\n" * 5042, b"\n" * 65537, os.urandom(100_000),
         os.urandom(5 << 20)]  # fmt: skip
IGNORES = [b"*.o\n", b"build/\n", b"/a\n!a.b\n", b"*\n!*/\n!.gitignore\n", b"a*\r\n!/a/\n",
           b"# no\n\\#x\nd/**/x.o\n", b"build\n!build/a\n", b"**/d\n", b"a.b  \n"]  # fmt: skip

paths = st.one_of(
    st.lists(st.sampled_from(NAMES[:6]), min_size=1, max_size=2),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
).map(b"/".join)
contents = st.one_of(st.sampled_from(SMALL), st.sampled_from(SMALL), st.sampled_from(LARGE))


class Item(NamedTuple):
    """What a repository has at a path."""

    kind: str
    data: bytes


items = st.one_of(
    st.builds(Item, st.sampled_from(["file", "file", "file", "program"]), contents),
    st.builds(Item, st.just("link"), st.sampled_from([b"a", b"d/x.o", b"nowhere", b"\xff"])),
    st.builds(Item, st.just("submodule"), st.just(b"")),
)
ignore_files = st.dictionaries(
    st.sampled_from([b".gitignore", b"a/.gitignore", b"d/.gitignore", b"build/.gitignore"]),
    st.builds(Item, st.just("file"), st.sampled_from(IGNORES)),
    max_size=2,
)
repositories = st.tuples(st.dictionaries(paths, items, max_size=14), ignore_files)


class Step(NamedTuple):
    """One edit."""

    op: str
    path: bytes
    target: bytes = b""
    data: bytes = b""
    number: int = 0


def step(op: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    """Generate steps of one kind (`st.builds` would fill in every field of the tuple)."""
    return st.fixed_dictionaries(fields).map(lambda found: Step(op, **found))


steps = st.lists(
    st.one_of(
        step("write", path=paths, data=contents),
        step("write", path=paths, data=contents),
        step("patch", path=paths, data=st.sampled_from(SMALL),
             number=st.sampled_from([0, 3, 65530])),
        step("append", path=paths, data=st.sampled_from(SMALL)),
        step("truncate", path=paths, number=st.sampled_from([0, 2, 65536, 70000])),
        step("unlink", path=paths),
        step("rmdir", path=paths),
        step("rmtree", path=paths),
        step("mkdir", path=paths),
        step("chmod", path=paths, number=st.sampled_from([0o644, 0o755, 0o600])),
        step("symlink", path=paths, target=st.sampled_from([b"a", b"nowhere"])),
        step("rename", path=paths, target=paths),
        step("rename", path=paths, target=paths),
        step("ignore", path=st.sampled_from([b"", b"a/", b"d/"]), data=st.sampled_from(IGNORES)),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


def fill(top: Path, given: tuple[dict[bytes, Item], dict[bytes, Item]]) -> None:
    """Make a checkout with the items that do not stand in one another's way."""
    start = os.fsencode(top) + b"/"
    for path, item in [*given[0].items(), *given[1].items()]:
        try:
            os.makedirs(os.path.dirname(start + path), exist_ok=True)
            if os.path.lexists(start + path):
                continue
        except OSError:
            continue
        if item.kind == "link":
            os.symlink(item.data, start + path)
        elif item.kind == "submodule":
            if any(path.startswith(other + b"/") for other in given[0]):
                continue
            os.mkdir(start + path)
            (top / ".git" / "submodules").touch()
            info = b"160000," + b"1" * 40 + b"," + path
            git(top, "update-index", "--add", "--cacheinfo", info)
        else:
            with open(start + path, "wb") as file:
                file.write(item.data)
            if item.kind == "program":
                os.chmod(start + path, 0o755)


def edit_folder(top: Path, step: Step) -> object:
    """Do a step with system calls."""
    path, target = os.fsencode(top) + b"/" + step.path, os.fsencode(top) + b"/" + step.target
    match step.op:
        case "write" | "append" | "patch" | "ignore":
            flags = os.O_WRONLY | os.O_NOFOLLOW
            flags |= {"append": os.O_APPEND, "patch": 0}.get(step.op, os.O_CREAT | os.O_TRUNC)
            fd = os.open(path + (b".gitignore" if step.op == "ignore" else b""), flags, 0o644)
            try:
                os.pwrite(fd, step.data, step.number) if step.number else os.write(fd, step.data)
            finally:
                os.close(fd)
        case "truncate":
            os.truncate(path, step.number)
        case "unlink":
            os.unlink(path)
        case "rmdir":
            os.rmdir(path)
        case "rmtree":
            os.lstat(path)
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else None
        case "mkdir":
            os.mkdir(path)
        case "chmod":
            os.chmod(path, step.number)
        case "symlink":
            os.symlink(step.target, path)
        case "rename":
            os.rename(path, target)
    return None


def edit_session(session: Session, step: Step) -> object:
    """Do a step through the API, at the mount ``/proj``."""
    view, owner = session.view, Owner(0, 0)
    path = tuple((b"proj/" + step.path).split(b"/"))
    parent = session.place(path[:-1])
    match step.op:
        case "write" | "append" | "patch" | "ignore":
            name = b".gitignore" if step.op == "ignore" else path[-1]
            if step.op == "ignore":
                parent = session.place(path[:-1] if not path[-1] else path)
            try:
                place, stat = view.child(parent, name)
                if stat.kind == Kind.SYMLINK:
                    raise OSError(errno.ELOOP, "a link")
                file = view.open_file(place, write=True, append=step.op == "append",
                                      truncate=step.op in ("write", "ignore"))  # fmt: skip
            except ContractError as error:
                if error.errno != errno.ENOENT or step.op in ("append", "patch"):
                    raise
                file = view.create_file(parent, name, 0o644, owner)[2]
            if step.data:
                file.write(step.number, step.data)
            publish(file.close())
        case "truncate":
            view.set_attributes(session.place(path), Change(size=step.number))
        case "unlink":
            view.remove(parent, path[-1], directory=False)
        case "rmdir":
            view.remove(parent, path[-1], directory=True)
        case "rmtree":
            if view.child(parent, path[-1])[1].kind == Kind.DIR:
                view.remove(parent, path[-1], directory=None)
        case "mkdir":
            view.create(parent, path[-1], Kind.DIR, 0o755, owner)
        case "chmod":
            view.set_attributes(session.place(path), Change(mode=step.number))
        case "symlink":
            view.create(parent, path[-1], Kind.SYMLINK, 0o777, owner, target=step.target)
        case "rename":
            new = tuple((b"proj/" + step.target).split(b"/"))
            view.rename(parent, path[-1], session.place(new[:-1]), new[-1], replace=True)
    return None


def works(edit: Callable[[], object]) -> bool:
    """Tell whether an edit is not refused."""
    try:
        edit()
    except (OSError, ContractError):
        return False
    return True


def kept_by_git(top: Path, step: Step) -> bool:
    """Tell whether a step is one that both sides do alike: nothing is written into a submodule
    here, and one that is moved stays one, while the plain folder has but an empty directory."""
    names = (step.path, step.target)
    if not (top / ".git" / "submodules").exists():
        return True
    listed = git(top, "ls-files", "-s", "-z").split(b"\0")
    submodules = [line.partition(b"\t")[2] for line in listed if line.startswith(b"160000")]
    if step.op == "rename" and any(s.startswith(n + b"/") for n in names for s in submodules):
        return False
    return not any(n == s or n.startswith(s + b"/") for n in names for s in submodules)


def status_of(changes: list[Changed]) -> set[tuple[bytes, str]]:
    """Return changes as `git status --porcelain --no-renames` has them."""
    found = set()
    for change in changes:
        if change.old is None:
            letter = "A"
        elif change.new is None:
            letter = "D"
        else:
            same = change.old.mode & 0o170000 == change.new.mode & 0o170000
            letter = "M" if same else "T"
        found.add((b"/".join(change.path), letter))
    return found


def git_status(checkout: Path) -> set[tuple[bytes, str]]:
    """Return what is staged in a checkout."""
    told = git(checkout, "diff", "--cached", "--name-status", "--no-renames", "-z").split(b"\0")
    return {(path, letter.decode()) for letter, path in zip(told[::2], told[1::2], strict=False)}


def compare(session: Session, checkout: Path, clone: Path, top: bytes = b"/proj") -> None:
    """Hold everything that is changed against what git says, and commit it."""
    assert seen(session, top) == looked(checkout)
    work = repository(session, top)
    git(checkout, "add", "-A")
    changes = work.changes()
    assert status_of(changes) == git_status(checkout)
    assert work.diff() == git(checkout, "diff", "--cached", "--no-color")
    if changes:
        made = commit(work, "ours")
        assert tree_of(clone, made.commit) == git(checkout, "write-tree").decode().strip()
        assert work.changes() == []
        git(checkout, "commit", "-q", "-m", "ours")
    assert seen(session, top) == looked(checkout)
    assert check(session.view.instance).problems == []


def make_both(folder: Path, given_: tuple[dict[bytes, Item], dict[bytes, Item]]) -> Path:
    """Make a repository, which is returned, and the checkout ``plain`` of it."""
    source = make_source(folder / "source", lambda top: fill(top, given_))
    git(folder, "clone", "-q", str(source), "plain")
    if (folder / "source.first/.git/submodules").exists():
        (folder / "plain/.git/submodules").touch()
    return source


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given_=repositories, first=steps, second=steps)
def test_edits_through_the_api_are_gits(
    given_: tuple[dict[bytes, Item], dict[bytes, Item]], first: list[Step], second: list[Step]
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fusefs-test-"))
    try:
        source = make_both(folder, given_)
        with Instance.init(folder / "instance") as instance:
            clone = Path(instance.mounts.folder(add_mount(instance, source)))
            session = add_session(instance)
            assert seen(session) == looked(folder / "plain")
            for part in (first, second):
                for step in part:
                    if kept_by_git(folder / "plain", step):
                        done = works(partial(edit_folder, folder / "plain", step))
                        assert works(partial(edit_session, session, step)) == done, step
                compare(session, folder / "plain", clone)
            git(clone, "fsck", "--strict")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Path]]:
    """A session, and a mount of it."""
    folder = tmp_path_factory.mktemp("agrees")
    cli = Quick(folder / "instance")
    top = folder / "view"
    top.mkdir()
    with Instance.init(cli.instance) as instance:
        session = add_session(instance)
        cli.mount("s", top)
        yield session, top
        unmount(top)


numbers = count()


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(given_=repositories, first=steps, second=steps)
def test_edits_through_a_mount_are_gits(
    mounted: tuple[Session, Path],
    given_: tuple[dict[bytes, Item], dict[bytes, Item]],
    first: list[Step],
    second: list[Step],
) -> None:
    session, top = mounted
    instance = session.view.instance
    folder = Path(tempfile.mkdtemp(prefix="fusefs-test-"))
    name = f"p{next(numbers)}"
    try:
        source = make_both(folder, given_)
        spec = add_mount(instance, source, (name.encode(),))
        until((top / name).is_dir)
        assert looked(top / name) == looked(folder / "plain")
        for part in (first, second):
            for step in part:
                if kept_by_git(folder / "plain", step):
                    done = works(partial(edit_folder, folder / "plain", step))
                    assert works(partial(edit_folder, top / name, step)) == done, step
            assert looked(top / name) == looked(folder / "plain")
            settle(top / name)
            clone = Path(instance.mounts.folder(spec))
            compare(session, folder / "plain", clone, top=b"/" + name.encode())
            assert looked(top / name) == looked(folder / "plain")
    finally:
        shutil.rmtree(folder)


def test_more_ignored_files_than_fit_into_a_pipe(tmp_path: Path) -> None:
    def fill(top: Path) -> None:
        (top / ".gitignore").write_bytes(b"modules/\n!kept\n")

    with Instance.init(tmp_path / "instance") as instance:
        add_mount(instance, make_source(tmp_path / "source", fill))
        session = add_session(instance)
        for number in range(320):
            session.write(f"/proj/modules/{number}{'x' * 230}", b"")
        session.write("/proj/kept", b"")
        work = repository(session)
        assert [changed.path for changed in work.changes()] == [(b"kept",)]


def test_names_that_mean_something_else_to_git(tmp_path: Path) -> None:
    def fill(top: Path) -> None:
        (top / ".gitignore").write_bytes(b"/secret\n*.o\n")

    names = [b":/secret", b":!z", b":^w", b":(attr:a)b", b":(icase)q", b"-n", b"*", b"x"]
    with Instance.init(tmp_path / "instance") as instance:
        add_mount(instance, make_source(tmp_path / "source", fill))
        session = add_session(instance)
        session.mkdir("/proj/:")
        for name in (*names, b"secret", b":(icase)q.o"):
            session.write(b"/proj/" + name, b"")
        found = {b"/".join(changed.path) for changed in repository(session).changes()}
        assert found == set(names)
