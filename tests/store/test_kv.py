"""The ordered store: what was acknowledged survives, what failed leaves nothing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusefs.store.keys import META_COMMIT
from fusefs.store.lmdb_kv import LmdbKV


def open_kv(folder: Path, *, deferred: bool = False, map_bytes: int = 64 << 20) -> LmdbKV:
    folder.mkdir(exist_ok=True)
    return LmdbKV.open(
        folder, deferred=deferred, process=1, on_wait=lambda _: None, map_bytes=map_bytes
    )


@pytest.fixture
def kv(tmp_path: Path) -> Iterator[LmdbKV]:
    opened = open_kv(tmp_path)
    yield opened
    opened.close()


def _dying(folder: Path, body: str) -> str:
    return (
        "import os, signal; from pathlib import Path\n"
        "from fusefs.store.lmdb_kv import LmdbKV\n"
        f"kv = LmdbKV.open(Path({str(folder)!r}), deferred=True, process=2, on_wait=print)\n"
        f"{body}\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )


def run_and_die(folder: Path, body: str) -> None:
    """Run `body` with a deferred store `kv` in another process, which is then killed."""
    command = [sys.executable, "-c", _dying(folder, body)]
    done = subprocess.run(command, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def everything(kv: LmdbKV) -> dict[bytes, bytes]:
    with kv.read() as txn:
        pairs = dict(txn.range(b"", b"\xff" * 20))
    pairs.pop(META_COMMIT, None)  # the store's own
    return pairs


def test_acknowledged_mutations_survive_the_death_of_the_process(tmp_path: Path) -> None:
    run_and_die(
        tmp_path,
        "for i in range(50):\n"
        "    with kv.write() as txn:\n"
        "        txn.put(b'k%02d' % i, b'v' * i)\n"
        "        txn.delete(b'k%02d' % (i - 1))",
    )
    kv = open_kv(tmp_path)
    assert everything(kv) == {b"k49": b"v" * 49}
    kv.close()


def test_a_mutation_after_a_commit_survives_too_and_the_older_ones_are_not_replayed(
    tmp_path: Path,
) -> None:
    run_and_die(
        tmp_path,
        "with kv.write() as txn: txn.put(b'a', b'1')\n"
        "kv.commit()\n"
        "with kv.write() as txn: txn.put(b'b', b'2')",
    )
    kv = open_kv(tmp_path)
    assert everything(kv) == {b"a": b"1", b"b": b"2"}
    with kv.write() as txn:
        txn.delete(b"a")
    kv.close()
    kv = open_kv(tmp_path)
    assert everything(kv) == {b"b": b"2"}
    kv.close()


def test_what_two_processes_left_that_died_in_turn_survives(tmp_path: Path) -> None:
    body = "for i in range(4):\n    with kv.write() as txn: txn.put(b'a%d' % i, b'1')"
    first = _dying(tmp_path, body)
    # The second has the store open already when the first dies, so it replays while it works.
    run_and_die(
        tmp_path,
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {first!r}])\n"
        "with kv.write() as txn: txn.put(b'b', b'2')",
    )
    kv = open_kv(tmp_path)
    assert sorted(everything(kv)) == [b"a0", b"a1", b"a2", b"a3", b"b"]
    kv.close()


def test_a_torn_record_of_the_log_does_not_count(tmp_path: Path) -> None:
    run_and_die(
        tmp_path,
        "with kv.write() as txn: txn.put(b'a', b'1')\n"
        "with kv.write() as txn: txn.put(b'b', b'2' * 100)",
    )
    log = tmp_path / "redo.log"
    recorded = log.read_bytes().rstrip(b"\0")
    log.write_bytes(recorded[:-50])
    kv = open_kv(tmp_path)
    assert everything(kv) == {b"a": b"1"}
    kv.close()


def test_an_exception_undoes_the_whole_transaction(kv: LmdbKV) -> None:
    with kv.write() as txn:
        txn.put(b"kept", b"1")
    with pytest.raises(ZeroDivisionError), kv.write() as txn:
        txn.put(b"kept", b"2")
        txn.put(b"other", b"3")
        raise ZeroDivisionError
    assert everything(kv) == {b"kept": b"1"}


@pytest.mark.parametrize("deferred", [False, True])
def test_the_map_grows_by_itself(tmp_path: Path, deferred: bool) -> None:
    kv = open_kv(tmp_path, deferred=deferred, map_bytes=1 << 20)
    for i in range(200):
        with kv.write() as txn:
            for j in range(10):
                txn.put(b"%04d-%d" % (i, j), b"x" * 2000)
    kv.commit()
    assert len(everything(kv)) == 2000
    assert kv.sizes()[1] > 1 << 20
    kv.close()


def test_another_process_follows_a_map_that_grew(tmp_path: Path) -> None:
    kv = open_kv(tmp_path, map_bytes=1 << 20)
    body = (
        "with kv.write() as txn:\n"
        "    for i in range(3000): txn.put(b'%06d' % i, b'x' * 2000)\n"
        "kv.commit()"
    )
    run_and_die(tmp_path, body.replace("kv.commit()", "kv.commit()"))
    assert len(everything(kv)) == 3000
    kv.close()


KEYS = st.binary(min_size=1, max_size=3)
WRITES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=5)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(before=WRITES, during=WRITES, start=KEYS, end=KEYS)
def test_a_transaction_sees_its_own_writes_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[tuple[bytes, bytes | None]],
    during: list[tuple[bytes, bytes | None]],
    start: bytes,
    end: bytes,
) -> None:
    kv = open_kv(tmp_path_factory.mktemp("kv"))
    model: dict[bytes, bytes] = {}
    try:
        for writes in (before, during):
            with kv.write() as txn:
                for key, value in writes:
                    if value is None:
                        txn.delete(key)
                        model.pop(key, None)
                    else:
                        txn.put(key, value)
                        model[key] = value
                expected = sorted((k, v) for k, v in model.items() if start <= k < end)
                found = [pair for pair in txn.range(start, end) if pair[0] != META_COMMIT]
                assert found == expected
                if not start <= META_COMMIT < end:
                    assert txn.last(start, end) == (expected[-1] if expected else None)
                assert all(txn.get(k) == v for k, v in model.items())
        assert everything(kv) == model
    finally:
        kv.close()


def test_the_map_grows_also_where_only_the_commit_needs_a_page(tmp_path: Path) -> None:
    chance = random.Random(1)
    for trial in range(12):
        kv = open_kv(tmp_path / f"{trial}", map_bytes=1 << 20)
        model: dict[bytes, bytes] = {}
        while kv.sizes()[1] == 1 << 20:
            with kv.write() as txn:
                for _ in range(chance.randrange(1, 20)):
                    key = b"%d" % chance.randrange(10**8)
                    value = chance.randbytes(chance.choice((50, 500, 5000)))
                    txn.put(key, value)
                    model[key] = value
                for key in chance.sample(sorted(model), chance.randrange(min(len(model), 15))):
                    txn.delete(key)
                    del model[key]
        assert everything(kv) == model
        kv.close()
