"""LMDB's pages must hang together, or what depends on them is refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusefs.store import lmdb_soundness
from fusefs.store.lmdb_kv import LmdbKV
from fusefs.store.lmdb_pages import BEHIND
from fusefs.store.seal import Damaged
from tests.store.pages import PAGE, Pages

KEYS = [b"k%04d" % number for number in range(2000)]


def open_kv(folder: Path) -> LmdbKV:
    return LmdbKV.open(
        folder, deferred=False, process=1, on_wait=lambda _: None, map_bytes=64 << 20
    )


@pytest.fixture(params=(256, 0), ids=("few branches", "many branches"))
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Look at all branch pages at opening, or at each when it is come to."""
    monkeypatch.setattr(lmdb_soundness, "_MOST_BRANCHES", request.param)
    return int(request.param)


@pytest.fixture
def folder(tmp_path: Path, limit: int) -> Path:
    """A store of some hundred leaf pages, some of them free."""
    kv = open_kv(tmp_path)
    for part in range(0, len(KEYS), 500):
        with kv.write() as txn:
            for key in KEYS[part : part + 500]:
                txn.put(key, key * 20)
    with kv.write() as txn:
        txn.put(b"large", b"l" * 20_000)
    kv.close()
    return tmp_path


def patch(folder: Path, at: int, form: str, change: Callable[[int], int]) -> None:
    with (folder / "data.mdb").open("r+b") as file:
        file.seek(at)
        (old,) = struct.unpack(form, file.read(struct.calcsize(form)))
        file.seek(at)
        file.write(struct.pack(form, change(old)))


def a_leaf(folder: Path) -> tuple[int, list[bytes]]:
    """Return the offset of a leaf page in the middle, and its keys."""
    leaves = [part.start for part in Pages(folder / "data.mdb").used["leaf"][::2]]
    raw = (folder / "data.mdb").read_bytes()
    for at in leaves[len(leaves) // 2 :]:
        nodes = [at + pointer for pointer in pointers(raw, at)]
        found = [raw[node + 8 :][: struct.unpack_from("<H", raw, node + 6)[0]] for node in nodes]
        if all(key in KEYS for key in found):
            return at, found
    raise AssertionError


def pointers(raw: bytes, at: int) -> list[int]:
    (lower,) = struct.unpack_from("<H", raw, at + 12)
    return list(struct.unpack_from(f"<{(lower - 16) // 2}H", raw, at + 16))


def refused(kv: LmdbKV, key: bytes) -> Iterator[str]:
    """Yield what a damaged page refuses: that `key` is absent, lists, writes."""
    with kv.read() as txn:
        for name, ask in (
            ("get", lambda: txn.get(key)),
            ("range", lambda: list(txn.range(b"k", b"l"))),
            ("last", lambda: txn.last(b"k", key + b"\0")),
        ):
            with pytest.raises(Damaged):
                ask()
            yield name
    for value in (b"1", None):
        with pytest.raises(Damaged), kv.write() as writer:
            if value is None:
                writer.delete(key)
            else:
                writer.put(key, value)
        yield "write"


def test_a_count_that_hides_the_last_key(folder: Path, limit: int) -> None:
    at, found = a_leaf(folder)
    patch(folder, at + 12, "<H", lambda lower: lower - 2)
    kv = open_kv(folder)
    assert len(list(refused(kv, found[-1]))) == 5
    with kv.read() as txn:
        # Elsewhere nothing is wrong.
        assert txn.get(b"k0000") == b"k0000" * 20
        assert txn.get(b"l") is None
        assert dict(txn.range(b"k00", b"k01")).keys() == set(KEYS[:100])
        if limit:
            assert txn.get(found[0]) == found[0] * 20
    with kv.write() as writer:
        writer.put(b"k0000", b"new")
        writer.delete(b"k0001")
    kv.close()


def test_a_pointer_to_the_key_beside(folder: Path) -> None:
    at, found = a_leaf(folder)
    beside = pointers((folder / "data.mdb").read_bytes(), at)[3]
    patch(folder, at + 16 + 2 * 4, "<H", lambda _: beside)
    kv = open_kv(folder)
    assert len(list(refused(kv, found[4]))) == 5
    kv.close()


def test_a_leaf_beside_that_would_be_joined(folder: Path) -> None:
    at, found = a_leaf(folder)
    patch(folder, at + 14, "<H", lambda upper: upper + 2)
    kv = open_kv(folder)
    before = KEYS[KEYS.index(found[0]) - 1]
    with pytest.raises(Damaged), kv.write() as writer:
        writer.delete(before)
    with kv.write() as writer:
        writer.delete(b"k0000")
    kv.close()


def test_a_bound_that_sends_keys_to_the_page_beside(folder: Path) -> None:
    raw = (folder / "data.mdb").read_bytes()
    branch = max(
        (part.start for part in Pages(folder / "data.mdb").used["branch"][::2]),
        key=lambda at: len(pointers(raw, at)),
    )
    node = branch + pointers(raw, branch)[5]
    bound = raw[node + 8 : node + 13]
    assert bound in KEYS
    for moved in (bound[:4] + bytes([bound[4] ^ 1]), bound[:4] + bytes([bound[4] ^ 4])):
        patch(folder, node + 12, "<B", lambda _: moved[4])  # noqa: B023 (called at once)
        kv = open_kv(folder)
        # Between the two, and not there. Written, it would hide those behind it.
        with pytest.raises(Damaged), kv.write() as writer:
            writer.put(min(bound, moved) + b"0", b"new")
        kv.close()


def test_an_old_page_in_the_place_of_a_new_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_soundness, "_MOST_BRANCHES", 256)
    kv = open_kv(folder)
    with kv.write() as writer:
        writer.put(b"k0500", b"new")
    kv.close()
    raw = (folder / "data.mdb").read_bytes()
    branch = Pages(folder / "data.mdb").used["branch"][0].start
    node = branch + pointers(raw, branch)[1]
    (child,) = struct.unpack_from("<I", raw, node)
    used = {part.start // PAGE for part in Pages(folder / "data.mdb").used["leaf"][::2]}
    free = next(
        page
        for page in range(2, len(raw) // PAGE)
        if page not in used and raw[page * PAGE + 10] == 2 and page != child
        and struct.unpack_from("<Q", raw, page * PAGE)[0] == page
    )  # fmt: skip
    patch(folder, node, "<I", lambda _: free)
    with pytest.raises(Damaged, match="is in the list of free pages"):
        open_kv(folder)
    patch(folder, node, "<I", lambda _: struct.unpack_from("<I", raw, node)[0])
    open_kv(folder).close()


def test_damage_in_the_list_of_free_pages(folder: Path) -> None:
    part = Pages(folder / "data.mdb").used["free"][1]
    last = part.stop - 8
    patch(folder, last, "<Q", lambda page: page ^ 1 << 20)
    with pytest.raises(Damaged, match=r"data\.mdb"):
        open_kv(folder)


def test_a_large_value_that_claims_the_pages_behind_it(folder: Path) -> None:
    raw = (folder / "data.mdb").read_bytes()
    at = next(
        page * PAGE
        for page in range(2, len(raw) // PAGE)
        if struct.unpack_from("<QHH", raw, page * PAGE) == (page, 0, 4)
    )
    with (folder / "data.mdb").open("r+b") as file:
        # The page behind it is one.
        file.seek(at + 5 * PAGE)
        file.write(struct.pack("<QHH", at // PAGE + 5, 0, 2))
    patch(folder, at + 12, "<I", lambda pages: pages + 1)
    kv = open_kv(folder)
    with pytest.raises(Damaged, match="another length"), kv.write() as writer:
        writer.delete(b"large")
    kv.close()


@pytest.mark.parametrize("ranges", (10_000, 3))
def test_what_lmdb_writes_is_sound(
    tmp_path: Path, limit: int, ranges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_soundness, "_MOST_RANGES", ranges)
    rng = random.Random(limit + ranges)
    kv, model = open_kv(tmp_path), dict[bytes, bytes]()
    for turn in range(30):
        with kv.write() as txn:
            for _ in range(rng.randrange(1, 80)):
                if turn % 10 < 6 or rng.random() < 0.1:
                    key = b"k" + rng.randbytes(rng.choice((1, 2, 8, 40, 300)))
                    # A large value that gets shorter keeps its pages.
                    value = rng.randbytes(rng.choice((0, 3, 20, 300, 1500, 5000, 20_000)))
                    txn.put(key, value)
                    model[key] = value
                elif model:
                    key = rng.choice(sorted(model))
                    txn.delete(key)
                    del model[key]
        with kv.write() as txn:
            for key in rng.sample(sorted(model), min(5, len(model))):
                model[key] = model[key][:-2000]
                txn.put(key, model[key])
        with kv.read() as reader:
            assert dict(reader.range(b"k", b"l")) == model
        again = kv.freeze(lambda _: None)
        key = b""
        while key < BEHIND:
            key = again[1].until(key, again[0])
        again[1].check_free(again[0])
        again[0].abort()
        again[1].close()
    kv.close()
