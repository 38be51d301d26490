"""A store whose pages do not hang together is built anew, or left as it is where that loses
something."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from fusefs.session.session import Session
from fusefs.store.findings import Finding, Verdict
from fusefs.store.instance import Instance, InstanceError
from fusefs.store.mending import examine
from tests.store import flips
from tests.store.pages import PAGE, Pages


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance whose process died: there are changes in its redo log."""
    return flips.make(tmp_path_factory.mktemp("rebuild"))


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "instance"))


def change(folder: Path, at: int, form: str, xor: int) -> None:
    with (folder / "data.mdb").open("r+b") as file:
        (old,) = struct.unpack(form, os.pread(file.fileno(), struct.calcsize(form), at))
        os.pwrite(file.fileno(), struct.pack(form, old ^ xor), at)


def a_page(folder: Path, kind: str) -> tuple[int, list[int]]:
    """Return where a page with many nodes begins, and where they do."""
    raw = (folder / "data.mdb").read_bytes()
    found = []
    for part in Pages(folder / "data.mdb").used[kind][::2]:
        (lower,) = struct.unpack_from("<H", raw, part.start + 12)
        pointers = struct.unpack_from(f"<{(lower - 16) // 2}H", raw, part.start + 16)
        found.append((part.start, [part.start + pointer for pointer in pointers]))
    return max(found, key=lambda page: len(page[1]))


def damage(folder: Path, what: str) -> None:
    at, nodes = a_page(folder, "branch" if "branch" in what else "leaf")
    match what:
        case "free list":
            change(folder, Pages(folder / "data.mdb").used["free"][1].stop - 8, "<Q", 1 << 20)
        case "root of the free list":
            change(folder, Pages(folder / "data.mdb").used["free"][0].start + 10, "<H", 3)
        case "count":
            change(folder, at + 12, "<H", 4)
        case "bounds":
            change(folder, at + 14, "<H", 2)
        case "kind":
            change(folder, at + 10, "<H", 3)
        case "number" | "number of a branch":
            change(folder, at, "<Q", 1)
        case "pointer" | "pointer in a branch":
            change(folder, at + 16 + 6, "<H", nodes[3] - at ^ nodes[4] - at)
        case "separator in a branch":
            change(folder, nodes[3] + 8, "<B", 0x80)
        case "length of a key in a branch":
            change(folder, nodes[3] + 6, "<H", 0x40)
        case "two children":
            change(folder, nodes[3], "<H", 0x4000)
            change(folder, nodes[5], "<H", 0x4000)
        case "child of a branch":
            change(folder, nodes[3], "<H", 0x4000)
        case "length":
            change(folder, nodes[3], "<H", 0x100)
        case _:
            raise AssertionError


def pages(found: list[Finding]) -> Finding:
    return {finding.name: finding for finding in found}["pages"]


@pytest.mark.parametrize(
    "what",
    (
        "free list", "root of the free list", "count", "bounds", "kind", "number",
        "number of a branch", "pointer", "pointer in a branch", "separator in a branch",
        "child of a branch", "length of a key in a branch",
    ),
)  # fmt: skip
def test_what_leads_to_the_values_is_made_again(folder: Path, what: str) -> None:
    damage(folder, what)
    before = (folder / "data.mdb").read_bytes()
    finding = pages(examine(folder, dry_run=True))
    assert finding.verdict is Verdict.TO_MEND
    assert (folder / "data.mdb").read_bytes() == before
    finding = pages(examine(folder))
    assert finding.verdict is Verdict.MENDED, finding
    assert (folder / "data.mdb.damaged").read_bytes() == before
    assert not (folder / "data.new").exists()
    assert all(finding.verdict.well for finding in examine(folder))
    # All of it is there, with what stood in the redo log, and none of that comes again.
    done = flips.Round("rebuilt", what)
    flips.run(folder, done, use=flips.read_and_check)
    assert done.verdict == "right", done
    assert done.found == []
    for expected in (True, False):
        with Instance.open(folder) as instance:
            session = Session(instance)
            names = {entry.name for entry in session.list(b"/late")}
            assert ("kept.txt" in names) is expected
            if expected:
                session.rm(b"/late/kept.txt")


@pytest.mark.parametrize("what", ("two children", "length"))
def test_what_is_lost_is_not_made_up(folder: Path, what: str) -> None:
    damage(folder, what)
    finding = pages(examine(folder))
    assert finding.verdict is Verdict.BROKEN
    assert "restore" in finding.remedy
    assert not (folder / "data.mdb.damaged").exists()
    assert not (folder / "data.new").exists()


def test_a_value_that_is_damaged_is_not_carried_over(folder: Path) -> None:
    damage(folder, "free list")
    _, nodes = a_page(folder, "leaf")
    size, key_size = struct.unpack(
        "<H4xH", (folder / "data.mdb").read_bytes()[nodes[3] : nodes[3] + 8]
    )
    change(folder, nodes[3] + 8 + key_size + size - 1, "<B", 1)
    assert pages(examine(folder)).verdict is Verdict.BROKEN


def test_the_rest_is_mended_all_the_same(folder: Path) -> None:
    Instance.open(folder).close()
    for reserve in folder.glob("reserve*"):
        reserve.unlink()
    _, nodes = a_page(folder, "leaf")
    change(folder, nodes[3] + 8, "<B", 0x80)
    found = {finding.name: finding for finding in examine(folder)}
    assert found["pages"].verdict is Verdict.BROKEN
    assert found["reserves"].verdict is Verdict.MENDED


def test_a_file_in_use_is_not_replaced(folder: Path) -> None:
    with Instance.open(folder):
        damage(folder, "count")
        finding = pages(examine(folder))
    assert finding.verdict is Verdict.BROKEN
    assert "unmount" in finding.remedy
    assert pages(examine(folder)).verdict is Verdict.MENDED


def test_opening_says_who_mends(folder: Path) -> None:
    damage(folder, "free list")
    with pytest.raises(InstanceError, match="fusefs doctor"):
        Instance.open(folder)


def test_what_doctor_cannot_mend_it_is_not_asked_to(folder: Path) -> None:
    change(folder, PAGE + 16, "<B", 1)
    for ask in (Instance.open, examine):
        with pytest.raises(InstanceError, match=r"meta page 1 .*restore it from a backup"):
            ask(folder)
