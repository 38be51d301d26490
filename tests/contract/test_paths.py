"""Paths are resolved by their text (contract section 2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.contract.errors import InvalidArgument, NameTooLong
from fusefs.contract.paths import Path, is_at_or_below, render, resolve

names = st.binary(min_size=1, max_size=6).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
paths = st.lists(names, max_size=6).map(tuple)


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("/", (b"s",), ()),
        (".", (b"s",), (b"s",)),
        ("a", (b"s",), (b"s", b"a")),
        ("../a", (b"s", b"t"), (b"s", b"a")),
        ("../../../a", (b"s",), (b"a",)),
        ("//a///b/", (), (b"a", b"b")),
        ("/a/./b/../c/.", (), (b"a", b"c")),
        ("/..", (), ()),
        ("/...", (), (b"...",)),
        ("/é", (), ("é".encode(),)),
        (b"/\xff", (), (b"\xff",)),
        ("/\udcff", (), (b"\xff",)),
    ],
)
def test_resolve(text: str | bytes, start: Path, expected: Path) -> None:
    assert resolve(text, start) == expected


@given(paths, paths)
def test_rendered_paths_resolve_to_themselves(path: Path, start: Path) -> None:
    assert resolve(render(path), start) == path


@given(paths, paths)
def test_below_is_a_prefix_of_names_not_of_text(path: Path, more: Path) -> None:
    assert is_at_or_below(path + more, path)
    assert not is_at_or_below((*path, b"ab"), (*path, b"a"))
    assert is_at_or_below(path, path + more) == (more == ())


@pytest.mark.parametrize("text", ["", b"", "/a\0b", "/\ud800"])
def test_what_no_path_can_be_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidArgument):
        resolve(text)


def test_names_are_at_most_255_bytes() -> None:
    assert resolve("/" + "x" * 255) == (b"x" * 255,)
    with pytest.raises(NameTooLong, match=r"^Name too long: /s/(é){128} has a name"):
        resolve("é" * 128, (b"s",))
