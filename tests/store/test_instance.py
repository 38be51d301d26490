"""Opening instances, and what a check finds in damaged ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.session.session import Session
from fusefs.store import keys, nodes
from fusefs.store.check import check
from fusefs.store.content import INLINE_MAX
from fusefs.store.instance import FORMAT, Instance, InstanceError
from fusefs.store.kv import Writer, after_prefix


def test_a_folder_with_other_things_is_not_made_an_instance(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InstanceError, match="not an empty folder"):
        Instance.init(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_an_instance_is_made_once(tmp_path: Path) -> None:
    Instance.init(tmp_path / "i").close()
    with pytest.raises(InstanceError, match="already"):
        Instance.init(tmp_path / "i")


def test_a_folder_that_is_no_instance_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="init"):
        Instance.open(tmp_path)


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    with Instance.init(tmp_path / "i") as instance, instance.kv.write() as txn:
        txn.put(keys.META_FORMAT, keys.number(FORMAT + 1))
    with pytest.raises(InstanceError, match=f"format {FORMAT + 1}.*newer fusefs"):
        Instance.open(tmp_path / "i")


def test_processes_are_known_while_they_live(tmp_path: Path) -> None:
    with Instance.init(tmp_path / "i") as first, Instance.open(tmp_path / "i") as second:
        assert first.live_processes() == {first.process, second.process}
        second.close = lambda: None  # type: ignore[method-assign]
        Instance.close(second)
        assert first.live_processes() == {first.process}


def test_the_bell_reaches_the_others(tmp_path: Path) -> None:
    with Instance.init(tmp_path / "i") as first, Instance.open(tmp_path / "i") as second:
        Session(first).write("/a", b"x")
        assert second.bell.drain() != []
        assert first.bell.drain() == []


def _fill(instance: Instance) -> None:
    session = Session(instance)
    session.write("/dir/small", b"small")
    session.write("/dir/large", b"l" * (INLINE_MAX + 1))
    session.rm("/dir/small")
    session.write("/dir/small", b"other")


def _flip_small(txn: Writer) -> None:
    key, value = next(iter(txn.range(keys.CONTENT, after_prefix(keys.CONTENT))))
    txn.put(key, bytes([value[0] ^ 1]) + value[1:])


def _lose_small(txn: Writer) -> None:
    for key, _ in list(txn.range(keys.CONTENT, after_prefix(keys.CONTENT))):
        txn.delete(key)


def _lose_entry(txn: Writer) -> None:
    directory = nodes.child(txn, keys.ROOT_ID, b"dir")
    assert directory is not None
    txn.delete(keys.entry(directory.id, b"large"))


def _lose_directory(txn: Writer) -> None:
    directory = nodes.child(txn, keys.ROOT_ID, b"dir")
    assert directory is not None
    txn.delete(keys.entry(keys.ROOT_ID, b"dir"))
    txn.delete(keys.node(directory.id))


def _alter_journal(txn: Writer) -> None:
    key = keys.JOURNAL + keys.number(2)
    value = txn.get(key)
    assert value is not None
    txn.put(key, value.replace(b"small", b"smell"))


def _lose_journal_record(txn: Writer) -> None:
    txn.delete(keys.JOURNAL + keys.number(2))


def _cut_record(txn: Writer) -> None:
    directory = nodes.child(txn, keys.ROOT_ID, b"dir")
    assert directory is not None
    key = keys.entry(directory.id, b"large")
    value = txn.get(key)
    assert value is not None
    txn.put(key, value[:30])


def _forget_trash(txn: Writer) -> None:
    for name, record in list(nodes.children(txn, keys.TRASH_ID)):
        nodes.drop(txn, nodes.Located(keys.TRASH_ID, name, record))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_flip_small, "damaged"),
        (_lose_small, "content is missing"),
        (_lose_entry, "in no directory"),
        (_lose_directory, "no directory"),
        (_alter_journal, "altered"),
        (_lose_journal_record, "missing"),
        (_cut_record, "damaged"),
        (_forget_trash, "trash entry"),
    ],
)
def test_a_check_finds(tmp_path: Path, damage: Callable[[Writer], None], said: str) -> None:
    with Instance.init(tmp_path / "i") as instance:
        _fill(instance)
        assert check(instance).problems == []
        with instance.kv.write() as txn:
            damage(txn)
        problems = check(instance).problems
        assert any(said in problem for problem in problems), problems


def test_a_cut_data_file_is_an_error_that_can_be_told(tmp_path: Path) -> None:
    with Instance.init(tmp_path / "i") as instance:
        for number in range(200):
            Session(instance).write(f"/f{number}", b"%d" % number * 500)
    data = tmp_path / "i" / "data.mdb"
    whole = data.stat().st_blocks * 512
    for kept in (whole // 2, 8192, 100):
        os.truncate(data, kept)
        with pytest.raises(InstanceError):
            Instance.open(tmp_path / "i")


def test_a_check_finds_a_damaged_large_file(tmp_path: Path) -> None:
    with Instance.init(tmp_path / "i") as instance:
        _fill(instance)
        (_, file) = next(instance.content.all_large())
        file.chmod(0o600)
        with file.open("r+b") as writer:
            writer.seek(1000)
            writer.write(b"?")
        assert any("damaged" in problem for problem in check(instance).problems)
