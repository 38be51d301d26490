"""Open files: every handle of every process sees the same bytes, and none is lost."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from fusefs.contract.kinds import Kind
from fusefs.store import orphans
from fusefs.store.check import check
from fusefs.store.content import INLINE_MAX
from fusefs.store.instance import Instance
from fusefs.store.maintenance import collect
from fusefs.store.trash_can import TrashCan
from fusefs.tree.backend import Actor, Change, File, Owner, publish
from fusefs.tree.store_tree import StoreTree

ACTOR = Actor("tester")
OWNER = Owner(0, 0)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.init(tmp_path / "i") as opened:
        yield opened


def make(tree: StoreTree, name: bytes = b"f") -> int:
    node = tree.create(tree.root().key, name, Kind.FILE, 0o644, OWNER, ACTOR)
    assert isinstance(node.key, int)
    return node.key


def read_all(file: File) -> bytes:
    size = file.node().size + 10
    data = file.read_nowait(0, size)
    return file.read(0, size) if data is None else data


def close(file: File) -> None:
    publish(file.close())


SIZES = [0, 1, INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1, 3 * INLINE_MAX]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_published_by_hash(instance: Instance, size: int) -> None:
    tree = StoreTree(instance)
    key = make(tree)
    data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    file = tree.open_file(key, write=True)
    if data:
        file.write(0, data)
    close(file)
    node = tree.stat(key)
    assert (node.size, node.sha256) == (size, hashlib.sha256(data).digest())
    reader = tree.open_file(key, write=False)
    assert read_all(reader) == data
    close(reader)
    assert check(instance).problems == []
    assert list((instance.folder / "scratch").iterdir()) == []


def test_a_large_file_that_is_written_slowly_is_not_collected(instance: Instance) -> None:
    tree = StoreTree(instance)
    key = make(tree)
    file = tree.open_file(key, write=True)
    file.write(0, b"x" * 2 * INLINE_MAX)
    (scratch,) = (instance.folder / "scratch").iterdir()
    os.utime(scratch, (0, 0))
    assert collect(instance).stray_files == 0
    close(file)
    reader = tree.open_file(key, write=False)
    assert read_all(reader) == b"x" * 2 * INLINE_MAX
    close(reader)


def test_equal_content_is_stored_once(instance: Instance) -> None:
    tree = StoreTree(instance)
    for name in (b"a", b"b", b"c"):
        for size in (100, INLINE_MAX * 2):
            file = tree.open_file(make(tree, name + b"%d" % size), write=True)
            file.write(0, b"z" * size)
            close(file)
    assert check(instance).contents == 2


def test_content_that_nobody_refers_to_is_collected(instance: Instance) -> None:
    tree = StoreTree(instance)
    for round_ in range(3):
        for size in (100, INLINE_MAX * 2):
            name = b"%d" % size
            key = make(tree, name) if round_ == 0 else tree.lookup(1, name).key
            file = tree.open_file(key, write=True)
            file.write(0, bytes([65 + round_]) * size)
            close(file)
    report = collect(instance)
    assert report.contents_removed == 4
    assert (check(instance).contents, check(instance).problems) == (2, [])


def test_a_large_file_that_stays_open_is_no_leftover(instance: Instance) -> None:
    tree = StoreTree(instance)
    file = tree.open_file(make(tree), write=True)
    file.write(0, b"y" * (INLINE_MAX + 5))
    (scratch,) = (instance.folder / "scratch").iterdir()
    os.utime(scratch, (0, 0))
    assert collect(instance).stray_files == 0
    close(file)
    assert check(instance).problems == []
    assert read_all(tree.open_file(file.node().key, write=False)) == b"y" * (INLINE_MAX + 5)


def test_a_file_that_is_stored_while_it_is_checked_is_no_problem(instance: Instance) -> None:
    tree = StoreTree(instance)
    kept, gone = (make(tree, name) for name in (b"kept", b"gone"))
    files = [tree.open_file(key, write=True) for key in (kept, gone)]
    for file in files:
        file.write(0, b"y" * (INLINE_MAX + 5))

    def store(step: str) -> None:
        if step == "checking entries":  # the snapshot is older
            tree.remove(1, b"gone", ACTOR, directory=False)
            for file in files:
                close(file)

    assert check(instance, progress=store).problems == []
    make(tree, b"lost")
    lost = tree.open_file(tree.lookup(1, b"lost").key, write=True)
    lost.write(0, b"y" * (INLINE_MAX + 5))
    (scratch,) = (instance.folder / "scratch").iterdir()
    scratch.unlink()
    assert check(instance).problems == ["/lost: its scratch file is missing"]


def test_a_scratch_that_a_dead_process_left_is_published(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    Instance.init(folder).close()
    code = (
        "import os, signal\n"
        "from tests.store.test_files import INLINE_MAX, Instance, StoreTree, make\n"
        f"tree = StoreTree(Instance.open({str(folder)!r}, deferred=True))\n"
        "tree.open_file(make(tree), write=True).write(0, b'y' * (INLINE_MAX + 5))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    with Instance.open(folder) as instance:
        tree = StoreTree(instance)
        key = tree.lookup(tree.root().key, b"f").key
        assert tree.stat(key).size == INLINE_MAX + 5
        assert collect(instance).published == 1
        expected = hashlib.sha256(b"y" * (INLINE_MAX + 5)).digest()
        assert tree.stat(key).sha256 == expected
        assert check(instance).problems == []


def test_a_file_opened_again_while_it_is_hashed_is_published_as_it_is_then(
    instance: Instance,
) -> None:
    tree = StoreTree(instance)
    key = make(tree)
    file = tree.open_file(key, write=True)
    file.write(0, b"old" * INLINE_MAX)
    first = file.close()
    assert first is not None
    first.prepare()
    file = tree.open_file(key, write=True)
    file.write(0, b"new")
    second = file.close()
    first.finish()
    assert second is not None
    second.prepare()
    second.finish()
    expected = b"new" + (b"old" * INLINE_MAX)[3:]
    assert tree.stat(key).sha256 == hashlib.sha256(expected).digest()
    assert check(instance).problems == []


def test_a_hash_is_not_trusted_once_another_process_has_joined(tmp_path: Path) -> None:
    with Instance.init(tmp_path / "i") as one, Instance.open(tmp_path / "i") as two:
        first, second = StoreTree(one), StoreTree(two)
        key = make(first)
        mine, other = first.open_file(key, write=True), second.open_file(key, write=True)
        mine.write(0, b"a" * 100_000)
        other.write(100_000, b"b" * 100_000)
        publication = mine.close()
        assert publication is not None
        publication.prepare()
        other.write(200_000, b"c" * 100_000)
        close(other)
        assert not publication.finish()
        publish(publication)
        expected = b"a" * 100_000 + b"b" * 100_000 + b"c" * 100_000
        assert first.stat(key).sha256 == hashlib.sha256(expected).digest()
        assert check(one).problems == []


def test_what_others_replaced_or_dropped_is_kept_while_it_is_open(tmp_path: Path) -> None:
    with Instance.init(tmp_path / "i") as one, Instance.open(tmp_path / "i") as two:
        first, second = StoreTree(one), StoreTree(two)
        key, directory = make(first), first.create(1, b"d", Kind.DIR, 0o755, OWNER, ACTOR).key
        inner = first.create(directory, b"inner", Kind.FILE, 0o644, OWNER, ACTOR).key
        held = [first.open_file(node, write=True) for node in (key, inner)]
        for file in held:
            file.write(0, b"kept")
        make(second, b"new")
        second.rename(1, b"new", 1, b"f", ACTOR, replace=True)
        second.remove(1, b"d", ACTOR, directory=None)
        TrashCan(two).purge_older_than(-1)
        first.pin_orphans()
        orphans.collect(two, grace=-1)
        collect(two)
        for file in held:
            assert read_all(file) == b"kept"
            file.write(4, b" on")
            assert read_all(file) == b"kept on"
            close(file)
        first.pin_orphans()
        assert orphans.collect(two, grace=-1) == 2
        assert check(one).problems == []


def test_times_that_no_record_can_hold_are_brought_near(instance: Instance) -> None:
    tree = StoreTree(instance)
    key = make(tree)
    node = tree.set_attributes(key, Change(mtime=2**34 * 10**9, atime=-(2**40) * 10**9), ACTOR)
    assert (node.mtime, node.atime) == (2**63 - 1, -(2**63))


class TwoProcesses(RuleBasedStateMachine):
    """Two users of one instance write, cut and close one file; a byte string is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(prefix="fusefs-test-"))
        self.folder = self.top / "instance"
        self.instances = [Instance.init(self.folder)]
        self.instances.append(Instance.open(self.folder))
        self.trees = [StoreTree(instance) for instance in self.instances]
        self.handles: list[list[File]] = [[], []]
        self.model = b""
        self.key = 0

    @initialize()
    def create(self) -> None:
        self.key = make(self.trees[0])

    who = st.integers(0, 1)
    offsets = st.sampled_from([0, 1, 100, INLINE_MAX - 10, INLINE_MAX, INLINE_MAX * 2])
    lengths = st.sampled_from([1, 50, 4096, INLINE_MAX])

    def _file(self, who: int) -> File:
        if not self.handles[who]:
            self.handles[who].append(self.trees[who].open_file(self.key, write=True))
        return self.handles[who][-1]

    @rule(who=who)
    def open_another(self, who: int) -> None:
        self.handles[who].append(self.trees[who].open_file(self.key, write=True))

    @rule(who=who, offset=offsets, length=lengths, fill=st.binary(min_size=1, max_size=1))
    def write(self, who: int, offset: int, length: int, fill: bytes) -> None:
        self._file(who).write(offset, fill * length)
        self.model = self.model.ljust(offset, b"\0")
        self.model = self.model[:offset] + fill * length + self.model[offset + length :]
        self.compare()

    @rule(who=who, length=lengths)
    def append(self, who: int, length: int) -> None:
        self._file(who).write(0, b"A" * length, append=True)
        self.model += b"A" * length
        self.compare()

    @rule(who=who, size=offsets)
    def truncate(self, who: int, size: int) -> None:
        self._file(who).truncate(size)
        self.model = self.model[:size].ljust(size, b"\0")
        self.compare()

    @rule(who=who, size=offsets)
    def truncate_by_name(self, who: int, size: int) -> None:
        self.trees[who].set_attributes(self.key, Change(size=size), ACTOR)
        self.model = self.model[:size].ljust(size, b"\0")
        self.compare()

    @rule(who=who)
    def flush(self, who: int) -> None:
        self._file(who).flush()
        self.compare()

    @rule(who=who)
    def close_one(self, who: int) -> None:
        if self.handles[who]:
            close(self.handles[who].pop())
            self.compare()

    @rule(who=who)
    def collect_garbage(self, who: int) -> None:
        collect(self.instances[who])
        self.compare()

    def compare(self) -> None:
        for tree in self.trees:
            assert tree.stat(self.key).size == len(self.model)
            reader = tree.open_file(self.key, write=False)
            assert read_all(reader) == self.model
            close(reader)

    def teardown(self) -> None:
        for handles in self.handles:
            for file in handles:
                close(file)
        if self.key:
            node = self.trees[0].stat(self.key)
            assert node.sha256 == hashlib.sha256(self.model).digest()
            assert check(self.instances[0]).problems == []
            assert list((self.folder / "scratch").iterdir()) == []
        for instance in self.instances:
            instance.close()
        shutil.rmtree(self.top)


TestTwoProcesses = TwoProcesses.TestCase
TestTwoProcesses.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_content_of_a_process_that_died_before_it_said_so_is_not_written_to(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "i"
    Instance.init(folder).close()
    code = (
        "import os, signal\n"
        "from tests.store.test_files import INLINE_MAX, Instance, StoreTree, close, make\n"
        "from fusefs.store.content import ContentStore\n"
        "adopt = ContentStore.adopt\n"
        "def dying(*arguments):\n"
        "    adopt(*arguments)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "ContentStore.adopt = dying\n"
        f"tree = StoreTree(Instance.open({str(folder)!r}, deferred=True))\n"
        "file = tree.open_file(make(tree), write=True)\n"
        "file.write(0, b'y' * (INLINE_MAX + 5))\n"
        "close(file)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    with Instance.open(folder) as instance:
        tree = StoreTree(instance)
        assert check(instance).contents == 1
        file = tree.open_file(tree.lookup(tree.root().key, b"f").key, write=True)
        file.write(0, b"z")
        assert read_all(file) == b"z" + b"y" * (INLINE_MAX + 4)
        assert check(instance).problems == []
        close(file)
        assert read_all(tree.open_file(file.node().key, write=False))[:2] == b"zy"
        report = check(instance)
        assert (report.contents, report.problems) == (2, [])
