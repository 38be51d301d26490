"""Whoever tampers with the journal is found out; what is sound is said to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from fusefs.session.session import Session
from fusefs.store import keys
from fusefs.store.check import check
from fusefs.store.instance import Instance
from fusefs.store.journal import CHAIN_BYTES, NO_CHAIN, link
from fusefs.store.journal_chain import Head, Verdict, verify
from fusefs.store.seal import seal, unseal


class Store:
    """The store in the hands of somebody who knows its seals as well."""

    def __init__(self, txn: lmdb.Transaction) -> None:
        self._txn = txn

    def get(self, name: bytes) -> bytes:
        stored = self._txn.get(name)
        assert stored is not None
        return unseal(name, memoryview(stored))

    def put(self, name: bytes, value: bytes) -> None:
        self._txn.put(name, seal(name, value))

    def delete(self, name: bytes) -> bool:
        return self._txn.delete(name)

    def finish(self) -> None:
        self.put(keys.META_COMMIT, keys.number(self._txn.id()))


def key(seq: int) -> bytes:
    return keys.JOURNAL + keys.number(seq)


def alter(store: Store, *seqs: int) -> None:
    for seq in seqs:
        store.put(key(seq), store.get(key(seq)).replace(b"/f", b"/g"))


def remove(store: Store, *seqs: int) -> None:
    for seq in seqs:
        assert store.delete(key(seq))


def rechain(store: Store, last: int) -> None:
    """Write all hashes up to the record `last` anew, as somebody who knows how would."""
    chain = NO_CHAIN
    for seq in range(1, last + 1):
        raw = store.get(key(seq))[:-CHAIN_BYTES]
        chain = link(chain, seq, raw)
        store.put(key(seq), raw + chain)
    store.put(keys.META_JOURNAL, keys.number(last) + chain)


def alter_and_rechain(store: Store) -> None:
    alter(store, 4)
    rechain(store, 10)


def cut_off(store: Store) -> None:
    remove(store, 8, 9, 10)
    rechain(store, 7)


def swap(store: Store) -> None:
    one, two = store.get(key(3)), store.get(key(4))
    store.put(key(3), two)
    store.put(key(4), one)


def change_a_hash(store: Store) -> None:
    value = store.get(key(4))
    store.put(key(4), value[:-1] + bytes([value[-1] ^ 1]))


def insert(store: Store) -> None:
    store.put(key(4) + b"x", store.get(key(4)))


def shorten(store: Store) -> None:
    store.put(key(4), store.get(key(4))[:20])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An instance with ten journal records."""
    with Instance.init(tmp_path / "i") as instance:
        for number in range(10):
            Session(instance).mkdir(f"/f{number}")
        assert instance.journal.last() == 10
    return tmp_path / "i"


def tamper(folder: Path, how: Callable[[Store], object]) -> None:
    with lmdb.open(str(folder), map_size=1 << 30) as environment, environment.begin(
        write=True
    ) as txn:
        store = Store(txn)
        how(store)
        store.finish()


def problems(folder: Path, expect: Head | None = None) -> list[str]:
    with Instance.open(folder) as instance, instance.kv.read() as txn:
        return list(verify(txn, Verdict(), expect=expect))


def head(folder: Path) -> Head:
    verdict = Verdict()
    with Instance.open(folder) as instance, instance.kv.read() as txn:
        assert not list(verify(txn, verdict))
    assert verdict.records == verdict.head.seq
    return verdict.head


def test_a_sound_journal_is_unbroken_and_holds_its_earlier_heads(folder: Path) -> None:
    earlier = head(folder)
    assert Head.parse(str(earlier)) == earlier
    with Instance.open(folder) as instance:
        Session(instance).mkdir("/more")
    assert head(folder) != earlier
    for expect in (earlier, head(folder), Head(0, NO_CHAIN)):
        assert problems(folder, expect) == []


UNSURE = ", or does not follow the one before"
MISSING_AT_END = "journal: records 8 to 10 are missing at the end"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda store: alter(store, 4), ["journal: record 4 was altered"]),
        (lambda store: alter(store, 10), ["journal: record 10 was altered"]),
        (change_a_hash, ["journal: record 4 was altered"]),
        (shorten, ["journal: record 4 was altered", f"journal: record 5 was altered{UNSURE}"]),
        (lambda store: alter(store, 2, 7),
         ["journal: record 2 was altered", "journal: record 7 was altered"]),
        (lambda store: alter(store, 2, 3),
         ["journal: record 2 was altered", f"journal: record 3 was altered{UNSURE}"]),
        (swap, ["journal: record 3 was altered", f"journal: record 4 was altered{UNSURE}",
                f"journal: record 5 was altered{UNSURE}"]),
        (insert, ["journal: there is a record after 4 that has no place there"]),
        (lambda store: remove(store, 4),
         ["journal: record 4 is missing, so record 5 cannot be told from another"]),
        (lambda store: remove(store, 1, 2, 3),
         ["journal: records 1 to 3 are missing, so record 4 cannot be told from another"]),
        (lambda store: remove(store, 8, 9, 10), [MISSING_AT_END]),
        (lambda store: remove(store, *range(1, 11)),
         ["journal: records 1 to 10 are missing at the end"]),
        (lambda store: store.delete(keys.META_JOURNAL),
         ["journal: it should end at record 0, but goes on to 10"]),
    ],
)  # fmt: skip
def test_what_was_done_to_which_record_is_told(
    folder: Path, how: Callable[[Store], object], said: list[str]
) -> None:
    tamper(folder, how)
    found = problems(folder)
    assert found == said
    with Instance.open(folder) as instance:
        assert set(found) <= set(check(instance).problems)


def test_only_a_noted_head_tells_of_a_journal_written_anew(folder: Path) -> None:
    noted = head(folder)
    tamper(folder, alter_and_rechain)
    assert problems(folder) == []
    (problem,) = problems(folder, noted)
    assert "record 10 is not the one that was noted" in problem


def test_only_a_noted_head_tells_of_a_tail_cut_off_with_care(folder: Path) -> None:
    noted = head(folder)
    tamper(folder, cut_off)
    assert problems(folder) == []
    assert problems(folder, noted) == [f"{MISSING_AT_END}: they were cut off"]


def test_a_damaged_record_is_told_where_the_journal_is_read(folder: Path) -> None:
    tamper(folder, shorten)
    with Instance.open(folder) as instance, pytest.raises(OSError, match="record 4 is damaged"):
        instance.journal.since(0)


@pytest.mark.parametrize("text", ["", "7", "7:", "x:" + "0" * 64, "7:" + "0" * 63, "7:" + "g" * 64])
def test_what_is_no_head(text: str) -> None:
    with pytest.raises(ValueError, match="SEQ:HASH"):
        Head.parse(text)
