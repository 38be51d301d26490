"""Two trees that differ only in what a session cannot see are one tree to it (API)."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path as HostPath
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, given, settings

from fusefs.contract.errors import ContractError
from fusefs.contract.paths import Path, render
from fusefs.contract.view import View
from fusefs.session.finding import Globbed
from fusefs.session.grepping import Grep
from fusefs.session.session import Session
from fusefs.session.stat import Stat
from fusefs.store.check import check
from fusefs.store.instance import Instance
from tests.properties.worlds import Call, Pair, Tree, build_order, pairs

_VISIBLE_TIME = 10**18
_HIDDEN_TIME = 2 * 10**18
_ALL_BELOW = ("walk", "glob", "grep")
"""What tells of everything below a directory."""


class Clock:
    """The time that the store sees."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Observer:
    """Runs a session's calls and writes down everything that it can tell."""

    def __init__(self, folder: HostPath, pair: Pair, tree: Tree, clock: Clock) -> None:
        self.clock = clock
        self.instance = Instance.init(folder)
        self.view = View(pair.spec.rules())
        self.operator = Session(self.instance)
        for number, (path, content) in enumerate(build_order(tree)):
            hidden = not self.view.cursor(path).visible
            # Times of what is visible must not tell how much is not.
            clock.now = _HIDDEN_TIME + number if hidden else _VISIBLE_TIME + hash_of(path)
            self.plant(path, content)
        clock.now = _VISIBLE_TIME
        spec = self.instance.sessions.put(pair.spec, "-")
        self.session = Session(self.instance, spec)
        self.numbers: dict[int, int] = {}
        self.log: list[object] = []

    def plant(self, path: Path, content: bytes | None) -> None:
        try:
            if content is None:
                self.operator.mkdir(render(path))
            else:
                self.operator.write(render(path), content)
        except ContractError:
            return

    def call(self, number: int, call: Call) -> None:
        self.clock.now = _VISIBLE_TIME + 10**9 * (number + 1)
        self.log.append(self._answer(call))
        self.log.append(self._everything())

    def _answer(self, call: Call) -> object:
        session, path = self.session, render(call.path)
        parent, name = call.path[:-1], call.path[-1]

        def removal(directory: bool) -> None:
            session.view.remove(session.place(parent), name, directory=directory)

        def rename() -> None:
            place, target = session.place(parent), session.place(call.target[:-1])
            session.view.rename(place, name, target, call.target[-1], replace=True)

        actions: dict[str, Callable[[], Any]] = {
            "stat": lambda: self._seen(session.stat(path)),
            "list": lambda: session.listing(path),
            "read": lambda: session.read(path),
            "write": lambda: session.write(path, call.data),
            "mkdir": lambda: session.mkdir(path),
            "rm": lambda: session.rm(path),
            "mv": lambda: session.mv(path, render(call.target)),
            "rmdir": lambda: removal(True),
            "unlink": lambda: removal(False),
            "rename": rename,
            "walk": lambda: [(w.path, self._seen(w.stat)) for w in session.walk(path)],
            "glob": lambda: _all_told(session.glob("**", path, limit=3)),
            "grep": lambda: _all_told(session.grep("o|w", path, after=1, limit=3)),
        }
        try:
            return (call.op, actions[call.op]())
        except ContractError as error:
            return (call.op, type(error).__name__, error.text, error.code, error.errno)

    def _seen(self, stat: Stat) -> Stat:
        """Number inodes in the order in which they were seen first."""
        return stat._replace(ino=self.numbers.setdefault(stat.ino, len(self.numbers)))

    def _everything(self) -> list[object]:
        found: list[object] = []
        for top in self._tops():
            found.append((top, self._answer(Call("stat", top)) if top else None))
            found += [self._answer(Call(op, top)) if top else None for op in _ALL_BELOW]
        return found

    def _tops(self) -> list[Path]:
        return sorted({*self.session.spec.grants, (b"a",), (b"b",), (b"c",)})

    def close(self) -> None:
        try:
            assert check(self.instance).problems == []
        finally:
            self.instance.close()


def _all_told(found: Globbed | Grep) -> object:
    """Return all that a search tells, its counts too."""
    counts = (found.searched, found.matched, found.lines) if isinstance(found, Grep) else ()
    return [*found], found.unread, found.truncated, counts


def hash_of(path: Path) -> int:
    """Return a small number for a path, the same in every run."""
    return int.from_bytes(render(path).encode()[-8:], "big") % 10**6


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(pairs())
def test_hidden_things_change_nothing(pair: Pair) -> None:
    folder = HostPath(tempfile.mkdtemp(prefix="fusefs-test-"))
    clock = Clock()
    try:
        with mock.patch.object(time, "time_ns", clock):
            first = Observer(folder / "1", pair, pair.first, clock)
            second = Observer(folder / "2", pair, pair.second, clock)
            for number, call in enumerate(pair.calls):
                for when, path, content in pair.late:
                    if when == number:
                        clock.now = _HIDDEN_TIME + 10**9 * number
                        second.plant(path, content)
                first.call(number, call)
                second.call(number, call)
                assert first.log == second.log
            first.close()
            second.close()
    finally:
        shutil.rmtree(folder)
