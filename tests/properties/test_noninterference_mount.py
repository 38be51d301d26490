"""Two trees that differ only in what a session cannot see are one tree to it (real mounts).

Two instances are mounted once; each example gives them new trees and new rules while they are
mounted, so that what the kernel has cached under the old ones counts as well.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path as HostPath

import pytest
from hypothesis import HealthCheck, assume, given, settings

from fusefs.contract.errors import ContractError
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, render
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from tests.conftest import Quick, unmount
from tests.properties.worlds import Call, Pair, Tree, build_order, pairs

_MARK = (b"mark",)
_PATIENCE = 20.0


class Side:
    """One of the two instances, with its mount."""

    def __init__(self, folder: HostPath) -> None:
        self.cli = Quick(folder / "instance")
        self.cli("init")
        self.cli("session", "create", "s", "--grant", "/=none")
        self.top = folder / "view"
        self.top.mkdir()
        self.cli.mount("s", self.top)
        self.instance = Instance.open(self.cli.instance)
        self.operator = Session(self.instance)
        self.marks = 0
        self.numbers: dict[int, int] = {}
        self.times: dict[Path, int] = {}

    def close(self) -> None:
        self.instance.close()
        unmount(self.top)
        self.cli("check")

    def begin(self, pair: Pair, tree: Tree) -> None:
        for listed in self.operator.list("/"):
            self.operator.rm("/" + listed.name)
        for path, content in build_order(tree):
            self.plant(path, content)
        old = self.instance.sessions.get("s")
        grants = {**pair.spec.grants, _MARK: Level.RO}
        spec = replace(pair.spec, grants=grants, secret=old.secret)
        self.instance.sessions.put(spec, "-")
        self.numbers, self.times = {}, {}
        self.settle()
        # The mark is in the kernel's cache now: its next change is seen only after all that was
        # dropped before it.
        self.settle()

    def plant(self, path: Path, content: bytes | None) -> None:
        try:
            if content is None:
                self.operator.mkdir(render(path))
            else:
                self.operator.write(render(path), content)
        except ContractError:
            return

    def settle(self) -> None:
        """Wait until the mount has followed everything done so far."""
        self.marks += 1
        self.operator.write("/mark", b"%d" % self.marks)
        give_up = time.monotonic() + _PATIENCE
        while quietly((self.top / "mark").read_bytes) != b"%d" % self.marks:
            assert time.monotonic() < give_up, "the mount does not follow"

    def at(self, path: Path) -> bytes:
        return os.fsencode(self.top) + b"/" + b"/".join(path)

    def answer(self, call: Call) -> object:
        path, target = self.at(call.path), self.at(call.target)

        def write() -> int:
            with open(path, "wb") as file:
                return file.write(call.data)

        def read() -> bytes:
            with open(path, "rb") as file:
                return file.read()

        actions: dict[str, Callable[[], object]] = {
            "stat": lambda: self.seen(call.path),
            "list": lambda: sorted(os.listdir(path)),
            "read": read,
            "write": write,
            "mkdir": lambda: os.mkdir(path),
            "rm": lambda: os.unlink(path),
            "unlink": lambda: os.unlink(path),
            "rmdir": lambda: os.rmdir(path),
            "mv": lambda: os.rename(path, target),
            "rename": lambda: os.rename(target, path),
            "walk": lambda: sorted(os.walk(path)) and os.listxattr(path),
        }
        return call.op, quietly(actions[call.op])

    def seen(self, path: Path) -> object:
        """Return what stat(2) tells, inodes numbered by first sight, times as changed or not."""
        status = os.lstat(self.at(path))
        number = self.numbers.setdefault(status.st_ino, len(self.numbers))
        stood_still = self.times.get(path) == status.st_mtime_ns
        self.times[path] = status.st_mtime_ns
        return (
            number, oct(status.st_mode), status.st_nlink, status.st_size, status.st_blocks,
            status.st_uid, status.st_gid, stood_still,
        )  # fmt: skip

    def everything(self, depth: int = 4) -> list[object]:
        found: list[object] = [tuple(os.statvfs(self.top))[:10]]
        pending: list[Path] = [(b"a",), (b"b",), (b"c",)]
        while pending:
            path = pending.pop()
            found.append((path, self.answer(Call("stat", path))))
            found.append(self.answer(Call("list", path)))
            if len(path) < depth:
                pending.extend((*path, name) for name in (b"a", b"b", b"c"))
        return found


def quietly(action: Callable[[], object]) -> object:
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Two mounted instances."""
    both = (Side(tmp_path_factory.mktemp("first")), Side(tmp_path_factory.mktemp("second")))
    yield both
    for side in both:
        side.close()


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pair=pairs())
def test_hidden_things_change_nothing(sides: tuple[Side, Side], pair: Pair) -> None:
    assume(not pair.spec.boundary)  # the mark is at the top
    first, second = sides
    first.begin(pair, pair.first)
    second.begin(pair, pair.second)
    for number, call in enumerate(pair.calls):
        for when, path, content in pair.late:
            if when == number:
                second.plant(path, content)
        first.settle()
        second.settle()
        assert first.answer(call) == second.answer(call)
        assert first.everything() == second.everything()
