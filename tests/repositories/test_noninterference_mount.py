"""Two repositories that differ only in what a session cannot see are one to it (real mounts)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as HostPath
from unittest import mock

import pygit2
import pytest
from hypothesis import HealthCheck, assume, given, settings
from pygit2.enums import ObjectType

from fusefs.contract.errors import ContractError
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below
from fusefs.contract.view import View
from fusefs.session import history
from fusefs.session.commit_once import commit
from fusefs.session.mounting import remove
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.session.status import status
from fusefs.session.syncing import sync
from fusefs.tree.repository_merge import differences
from fusefs.tree.repository_objects import BLOB, RepositoryObjects, TreeEntry
from fusefs.tree.repository_trees import edit_tree
from tests.properties.test_noninterference_mount import Side, quietly
from tests.properties.worlds import Call, Pair, Tree, pairs
from tests.repositories.place import MOUNT, add_mount

_MARK = (b"mark",)
_FIRST = 1_700_000_000
_ATTRIBUTES = ("level", "kind", "branch", "staged", "sha256", "version")


class Origin:
    """A bare repository on which others commit: whole trees, at times of their own."""

    def __init__(self, folder: HostPath) -> None:
        self.folder = folder
        self.files: dict[Path, bytes] = {}
        self._repository = pygit2.init_repository(str(folder), bare=True, initial_head="main")
        self._objects = RepositoryObjects(str(folder))

    def commit(self, changes: Mapping[Path, bytes | None], message: str, when: int) -> None:
        """Commit files (None: no such file any more). What comes takes the place of what is
        in its way."""
        for path, data in changes.items():
            for taken in [known for known in self.files if _one_above_the_other(known, path)]:
                del self.files[taken]
            if data is not None:
                self.files[path] = data
        empty = self._repository.odb.write(ObjectType.TREE, b"").raw
        edits = {p: TreeEntry(BLOB, self._objects.write(data)) for p, data in self.files.items()}
        tree = edit_tree(self._objects, empty, edits)
        who = pygit2.Signature("Ann", "ann@example.org", _FIRST + when, 60)
        tip = self._repository.references.get("refs/heads/main")
        self._repository.create_commit(
            "refs/heads/main", who, who, message, pygit2.Oid(raw=tree),
            [] if tip is None else [tip.target],
        )  # fmt: skip


    def tip(self) -> dict[Path, bytes]:
        """Return the files of the newest commit."""
        commit = self._repository.references["refs/heads/main"].target
        assert isinstance(commit, pygit2.Oid)
        found = differences(self._objects, None, self._objects.tree_of(commit.raw))
        return {path: self._objects.read(entry.oid) for path, entry in found if entry}


def _one_above_the_other(one: Path, other: Path) -> bool:
    return is_at_or_below(one, other) or is_at_or_below(other, one)


class RepositorySide(Side):
    """One of two instances, whose mount shows a repository."""

    def __init__(self, folder: HostPath) -> None:
        super().__init__(folder)
        self.folder = folder
        self.count = 0
        self.origin = Origin(folder / "origin-0")

    def begin_in(self, pair: Pair, tree: Tree) -> None:
        """Mount a new repository with the files of a tree, under new rules.

        A visible directory has a file of its own: git keeps none without, so it would be there
        or not for what is hidden in it.
        """
        rules = View(pair.spec.rules())
        files = {path: data for path, data in tree.items() if data is not None}
        files |= {(*path, b"k"): b"" for path, data in tree.items()
                  if data is None and rules.cursor(path).visible}  # fmt: skip
        self.begin_with(files, pair.spec.grants, pair.spec.floors)

    def begin_with(
        self,
        files: Mapping[Path, bytes],
        grants: Mapping[Path, Level],
        floors: Mapping[Path, Level] | None = None,
    ) -> None:
        if MOUNT in self.instance.mounts.all():
            remove(self.instance, MOUNT, force=True)
        self.count += 1
        self.origin = Origin(self.folder / f"origin-{self.count}")
        self.origin.commit({(b"k",): b"", **files}, "first", 0)
        add_mount(self.instance, self.origin.folder)
        self.grant(grants, floors)
        self.numbers, self.times = {}, {}

    def grant(
        self, grants: Mapping[Path, Level], floors: Mapping[Path, Level] | None = None
    ) -> None:
        """Give the session other rules."""
        old = self.instance.sessions.get("s")
        below = {(*MOUNT, *path): level for path, level in grants.items()}
        maxima = {(*MOUNT, *path): level for path, level in (floors or {}).items()}
        self.spec = replace(
            old, grants={**below, _MARK: Level.RO}, floors=maxima, user="S <s@example.org>"
        )
        self.instance.sessions.put(self.spec, "-")
        self.session = Session(self.instance, self.spec)
        self.settle()
        self.settle()

    def at(self, path: Path) -> bytes:
        return super().at((*MOUNT, *path))

    def seen(self, path: Path) -> object:
        told = [quietly(lambda n=name: os.getxattr(self.at(path), f"user.fusefs.{n}"))  # type: ignore[misc]
                for name in _ATTRIBUTES]  # fmt: skip
        return super().seen(path), told

    def everything(self, depth: int = 3) -> list[object]:
        return [self.answer(Call("stat", ())), self.answer(Call("list", ())),
                *super().everything(depth)]  # fmt: skip

    def work(self, step: str) -> object:
        """Do one thing that a session does with a repository, and say what it was told."""
        visible = [top for top in sorted(self.spec.grants) if is_at_or_below(top, MOUNT)
                   and self.session.view.rules.cursor(top).visible]  # fmt: skip
        tops = visible[:1] or [MOUNT]
        try:
            repository = Repository(self.session, b"/" + b"/".join(tops[0]))
            repository.catch_up()
            told = _STEPS[step](repository)
        except ContractError as error:
            return type(error).__name__, error.text, error.code
        self.settle()
        return told


_STEPS: dict[str, Callable[[Repository], object]] = {
    "status": lambda r: [str(line) for line in status(r)],
    "diff": lambda r: (r.diff(), r.diff(binary=True)),
    "log": lambda r: (history.log(r, limit=99), history.records(r, limit=99)),
    "show": lambda r: history.show(r, None),
    "commit": lambda r: ((done := commit(r, "mine")).branch, done.paths),
    "sync": lambda r: ((done := sync(r)).conflicts, done.taken),
    "restore": lambda r: r.restore((), new=True),
    "discard": lambda r: r.restore(r.path),
}
_ASK = ("status", "diff", "log", "show")
_SIGNATURE = pygit2.Signature


Sides = tuple[RepositorySide, RepositorySide]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Two mounted instances. Sessions commit at one time."""

    def signature(name: str, mail: str, when: int = 2 * _FIRST, offset: int = 0) -> object:
        return _SIGNATURE(name, mail, when, offset)

    with mock.patch.object(pygit2, "Signature", signature):
        first, second = (
            RepositorySide(tmp_path_factory.mktemp(name)) for name in ("first", "second")
        )
        yield first, second
    first.close()
    second.close()


def compare(sides: Sides, ask: Callable[[RepositorySide], object]) -> object:
    """Ask both sides and return the answer, which is one."""
    first, second = (ask(side) for side in sides)
    assert first == second
    return first


def compare_all(sides: Sides) -> None:
    for step in _ASK:
        told = compare(sides, lambda side, step=step: side.work(step))  # type: ignore[misc]
        assert "SECRET" not in repr(told)
    compare(sides, RepositorySide.everything)


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pair=pairs())
def test_hidden_things_change_nothing(sides: Sides, pair: Pair) -> None:
    assume(not pair.spec.boundary)  # the mark is at the top
    first, second = sides
    first.begin_in(pair, pair.first)
    second.begin_in(pair, pair.second)
    compare_all(sides)
    for call in pair.calls[:4]:
        compare(sides, lambda side, call=call: side.answer(call))  # type: ignore[misc]
        compare(sides, RepositorySide.everything)
    compare_all(sides)
    # Others commit: what is hidden to one repository only, then what is visible to both.
    hidden = {path: content for _, path, content in pair.late if content is not None}
    second.origin.commit(beside(second.origin.files, hidden), "hidden", 100)
    for step in ("sync", "commit"):
        compare(sides, lambda side, step=step: side.work(step))  # type: ignore[misc]
    compare_all(sides)
    rules = View(pair.spec.rules())
    seen = {path: b"theirs\n" for path, data in pair.first.items()
            if data == b"one" and rules.cursor(path).visible}  # fmt: skip
    for side in sides:
        side.origin.commit(beside({}, seen), "theirs", 200)
    for step in ("commit", "sync", "commit", "restore"):
        compare(sides, lambda side, step=step: side.work(step))  # type: ignore[misc]
    compare_all(sides)


def beside(files: Mapping[Path, bytes], more: Mapping[Path, bytes]) -> dict[Path, bytes | None]:
    """Return those of `more` that are in the way of nothing."""
    found: dict[Path, bytes | None] = {}
    for path, data in more.items():
        if not any(_one_above_the_other(path, known) for known in (*files, *found)):
            found[path] = data
    return found


@dataclass(frozen=True)
class Case:
    """Others put something in the place of what a session has; only in one repository is that
    something hidden.

    Attributes:
        grants: the session's, in the repository.
        work: files that the session writes; of a name that ends in ``/``, a directory.
        theirs: what others do in both repositories, and `hidden`, in the second one alone.
        kept: what the session has staged afterwards, wherever.
        later: grants that come before the others' work.
    """

    grants: Mapping[Path, Level]
    work: Mapping[Path, bytes]
    theirs: Mapping[Path, bytes | None]
    hidden: Mapping[Path, bytes | None]
    kept: Mapping[Path, bytes] = field(default_factory=dict)
    later: Mapping[Path, Level] = field(default_factory=dict)


A, AB, AC, ABC = (b"a",), (b"a", b"b"), (b"a", b"c"), (b"a", b"b", b"c")
SECRET = b"SECRET\n"
PASSAGE = {(): Level.COMMIT, A: Level.NONE, AB: Level.COMMIT}
BELOW = {(): Level.COMMIT, AC: Level.NONE}
ALONE = {A: Level.COMMIT, AC: Level.NONE}
NEW, LOG = (b"a", b"b", b"new"), (b"a", b"b", b"x.log")
CASES = {
    # A hidden file where a directory leads to what the session sees.
    "nothing staged": Case(PASSAGE, {}, {ABC: None}, {A: SECRET}),
    "staged in it": Case(PASSAGE, {ABC: b"mine\n"}, {ABC: None}, {A: SECRET}, {ABC: b"mine\n"}),
    "new in it": Case(PASSAGE, {NEW: b"new\n"}, {ABC: None}, {A: SECRET}, {NEW: b"new\n"}),
    "ignored in it": Case(PASSAGE, {LOG: b"log\n"}, {ABC: None}, {A: SECRET}, {LOG: b"log\n"}),
    "a directory in it": Case(PASSAGE, {(b"a", b"b", b"e", b""): b""}, {ABC: None}, {A: SECRET}),
    # A directory with hidden files where the session has a file.
    "unchanged file": Case(BELOW, {}, {A: None, AB: b"k\n"}, {AC: SECRET}),
    "staged file": Case(BELOW, {A: b"mine\n"}, {A: None, AB: b"k\n"}, {AC: SECRET},
                        {(b"a~staged",): b"mine\n"}),
    "a file granted alone": Case(ALONE, {A: b"mine\n"}, {A: None, AB: b"k\n"}, {AC: SECRET},
                                 {(b"a", b"a~staged"): b"mine\n"}),
    # What the session has made is hidden from it by now.
    "own ignored file": Case({(): Level.COMMIT}, {(b"x.log",): b"log\n"}, {},
                             {(b"x.log",): SECRET}, later={(b"x.log",): Level.NONE}),
    "own ignored file above": Case({(): Level.COMMIT}, {(b"x.log",): b"log\n"}, {},
                                   {(b"x.log", b"in"): SECRET}, later={(b"x.log",): Level.NONE}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_takes_the_place_of_a_sessions_own(sides: Sides, name: str) -> None:
    case = CASES[name]
    files: dict[Path, bytes] = {ABC if case.grants is PASSAGE else A: b"one\n"}
    for side in sides:
        side.begin_with({**files, (b".gitignore",): b"*.log\n"}, case.grants)
        for path, data in case.work.items():
            place = side.at(path)
            if place.endswith(b"/"):
                os.mkdir(place)
                continue
            with open(place, "wb") as file:
                file.write(data)
        side.grant({**case.grants, **case.later})
        side.origin.commit(case.theirs, "theirs", 100)
    sides[1].origin.commit(case.hidden, "hidden", 200)
    assert "SECRET" not in repr(compare(sides, lambda side: side.work("sync")))
    compare_all(sides)
    for path, data in case.kept.items():
        for side in sides:
            with open(side.at(path), "rb") as file:
                assert file.read() == data
    for step in ("commit", "sync", "restore"):
        told = compare(sides, lambda side, step=step: side.work(step))  # type: ignore[misc]
        assert "SECRET" not in repr(told)
    compare_all(sides)
    assert SECRET in sides[1].origin.tip().values()
