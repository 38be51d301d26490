"""Two repositories that differ only in what a session cannot see are one to it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path as HostPath
from unittest import mock

from hypothesis import HealthCheck, assume, given, settings

from fusefs.contract.errors import ContractError
from fusefs.contract.paths import Path, is_at_or_below
from fusefs.contract.view import View
from fusefs.session.committing import commit
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.session.syncing import sync
from fusefs.store.instance import Instance
from tests.properties.test_noninterference_api import Clock, Observer
from tests.properties.worlds import Call, Pair, Tree, pairs
from tests.repositories.place import MOUNT, add_mount, commit_to, make_source

_NOW = 10**18


class RepositoryObserver(Observer):
    """Does a session's calls in a mounted repository, and all that is done with one."""

    def __init__(self, folder: HostPath, pair: Pair, tree: Tree, clock: Clock) -> None:
        self.clock = clock
        self.spec = pair.spec
        self.rules = View(pair.spec.rules())
        clock.now = _NOW
        self.source = make_source(folder / "source", lambda top: self.fill(top, tree))
        self.instance = Instance.init(folder / "instance")
        add_mount(self.instance, self.source)
        below = {(*MOUNT, *path): level for path, level in pair.spec.grants.items()}
        floors = {(*MOUNT, *path): level for path, level in pair.spec.floors.items()}
        spec = self.instance.sessions.put(
            replace(pair.spec, grants=below, floors=floors), "-"
        )
        self.session = Session(self.instance, spec)
        self.numbers = {}
        self.log = []

    def fill(self, top: HostPath, tree: Tree) -> None:
        """Make what git can keep of a tree. A visible directory has a file of its own: else
        it would be there or not for what is hidden in it."""
        for path, content in tree.items():
            place = top.joinpath(*(name.decode() for name in path))
            if content is None:
                place.mkdir(parents=True, exist_ok=True)
                if self.rules.cursor(path).visible:
                    (place / "k").touch()
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
        if self.rules.cursor(()).visible:
            (top / "k").touch()

    def _tops(self) -> list[Path]:
        return sorted({MOUNT, *self.session.spec.grants})

    def in_repository(self, call: Call) -> Call:
        """Return the call with its paths below the mount."""
        return replace(call, path=(*MOUNT, *call.path), target=(*MOUNT, *call.target))

    def work(self, number: int) -> None:
        """Look at what is staged, commit it, take in what others did."""
        self.clock.now = _NOW + 10**9 * (100 + number)
        for what in (self._status, self._diff, self._commit, self._sync, self._status,
                     self._restore, self._sync):  # fmt: skip
            try:
                self.log.append(what())
            except ContractError as error:
                self.log.append((type(error).__name__, error.text, error.code))
            self.log.append(self._everything())

    def _repository(self) -> Repository:
        visible = next((top for top in self._tops() if self.rules_at(top)), MOUNT)
        return Repository(self.session, b"/" + b"/".join(visible))

    def rules_at(self, path: Path) -> bool:
        return is_at_or_below(path, MOUNT) and self.session.view.rules.cursor(path).visible

    def _status(self) -> object:
        return [(c.path, c.old, c.new) for c in self._repository().changes()]

    def _diff(self) -> object:
        return self._repository().diff()

    def _commit(self) -> object:
        done = commit(self._repository(), "message")
        return done.branch, done.paths

    def _sync(self) -> object:
        return sync(self._repository()).conflicts

    def _restore(self) -> object:
        return self._repository().restore((), new=True)

    def others(self, change: Callable[[HostPath], object]) -> None:
        commit_to(self.source, change)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs())
def test_hidden_parts_of_a_repository_change_nothing(pair: Pair) -> None:
    assume(not pair.spec.boundary)  # it would have to lie at the mount
    folder = HostPath(tempfile.mkdtemp(prefix="fusefs-test-"))
    clock = Clock()
    try:
        with mock.patch.object(time, "time_ns", clock):
            first = RepositoryObserver(folder / "1", pair, pair.first, clock)
            second = RepositoryObserver(folder / "2", pair, pair.second, clock)
            for number, call in enumerate(pair.calls):
                for side in (first, second):
                    side.call(number, side.in_repository(call))
                assert first.log == second.log
            # Others commit: what is hidden to one repository only, what is visible to both.
            late: Tree = {path: content for _, path, content in pair.late}
            seen = {path: b"theirs\n" for path in pair.first if pair.first[path] == b"one"
                    and first.rules.cursor(path).visible}  # fmt: skip
            first.others(lambda top: _overwrite(top, seen))
            second.others(lambda top: _overwrite(top, {**late, **seen}))
            for side in (first, second):
                side.work(len(pair.calls))
            assert first.log == second.log
            first.close()
            second.close()
    finally:
        shutil.rmtree(folder)


def _overwrite(top: HostPath, tree: Mapping[Path, bytes | None]) -> None:
    for path, content in tree.items():
        place = top.joinpath(*(name.decode() for name in path))
        try:
            if content is not None and not place.is_dir():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
        except OSError:
            continue
