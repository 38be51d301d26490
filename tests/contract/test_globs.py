"""Glob patterns against the naive reading of them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.globs import Selection, compile_glob, compile_include
from fusefs.contract.paths import encode
from tests.contract.naive_globs import Names, globbed, included

CHARS = "ab-é\udcff"
NAMES = ["a", "b", "ab", "aab", ".a", "é", "aé", "\udcff", "a-b", "]", "!a", "a.b"]
PATHS = [path for length in (1, 2, 3) for path in product(NAMES[: 14 - 3 * length], repeat=length)]

_CLASS = st.builds(
    lambda mark, first, rest: f"[{mark}{first}{rest}]",
    st.sampled_from(["", "!", "^"]),
    st.sampled_from(["]", "a", "b-é", "\\]", "-", "a-a"]),
    st.sampled_from(["", "a", "é", "-", "\\-", "!"]),
)
_PIECE = st.sampled_from(["a", "b", "*", "?", "é", ".", "-", "\udcff", "\\a", "\\*", "**"]) | _CLASS
_NAME = st.lists(_PIECE, min_size=1, max_size=4).map("".join) | st.sampled_from(["**", "*", "a"])


def _braced(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=1, max_size=3).map(lambda parts: "{" + ",".join(parts) + "}")
    return st.builds(lambda a, b, c: a + b + c, st.just("") | _NAME, several, st.just("") | _NAME)


_WAY = st.lists(_NAME, min_size=1, max_size=3).map("/".join)
_TEXT = st.recursive(_WAY, _braced, max_leaves=4)
PATTERNS = st.builds(lambda a, text, b: a + text + b, st.sampled_from(["", "", "./"]), _TEXT,
                     st.sampled_from(["", "", "", "/"]))  # fmt: skip


def selected(selection: Selection | None, names: Names, *, directory: bool = False) -> bool:
    """Walk down a path as a search does."""
    *above, last = map(encode, names)
    for name in above:
        if selection is None:
            return False
        selection = selection.enter(name)
    if selection is None:
        return False
    if directory:
        return selection.directories and selection.wants_directory(last)
    return selection.wants(last)


def _is_pattern(text: str) -> bool:
    try:
        compile_glob(text)
    except InvalidArgument:
        return False
    return True


@given(PATTERNS.filter(_is_pattern))
def test_glob(pattern: str) -> None:
    compiled = compile_glob(pattern)
    assert not compiled.absolute
    for path, directory in product(PATHS, (False, True)):
        wanted = globbed(pattern, path, directory=directory)
        assert selected(compiled.selection, path, directory=directory) == wanted, path


@given(PATTERNS.filter(_is_pattern), st.lists(st.sampled_from(NAMES), max_size=2))
def test_an_absolute_pattern_begins_at_the_root(pattern: str, top: list[str]) -> None:
    escaped = ["".join("\\" + char for char in name) for name in top]
    text = "/".join(["", *escaped, pattern])
    if not _is_pattern(text):
        return
    compiled = compile_glob(text)
    assert compiled.absolute
    assert compiled.top[: len(top)] == tuple(map(encode, top))
    more = tuple(name.decode("utf-8", "surrogateescape") for name in compiled.top[len(top) :])
    for path in PATHS[::7]:
        below = path[len(more) :]
        if path[: len(more)] == more and below:
            assert selected(compiled.selection, below) == globbed(pattern, path, directory=False)
        else:
            assert not globbed(pattern, path, directory=False)


@given(
    st.lists(
        st.builds(str.__add__, st.sampled_from(["", "", "!"]), PATTERNS.filter(_is_pattern)),
        min_size=1, max_size=3,
    ),
)  # fmt: skip
def test_include(patterns: list[str]) -> None:
    compiled = compile_include(patterns)
    for path in PATHS[::3]:
        assert selected(compiled, path) == included(patterns, path), path


@given(PATTERNS.filter(_is_pattern))
def test_the_leading_slash_of_an_include_anchors_it(pattern: str) -> None:
    if pattern.startswith("{") or "/" in pattern:
        return
    for path in PATHS[::5]:
        anchored = selected(compile_include(["/" + pattern]), path)
        assert anchored == (globbed(pattern, path, directory=False))


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "Empty"), ("a\0", "NUL"), ("[", r"\[ is not closed"), ("[]", r"\[ is not closed"),
        ("[!]", r"\[ is not closed"), ("x[a", r"\[ is not closed"), ("[a\\]", r"\[ is not closed"),
        ("{a", r"{ is not closed"), ("{a,{b}", r"{ is not closed"), ("[b-a]", "backwards: b-a"),
        ("[a/b]", "never /"), ("[[:alpha:]]", "no names"), ("a\\", "ends with"),
        ("..", "lead up"), ("a/../b", "lead up"), ("{a,..}/b", "lead up"), ("/", "no file"),
        ("./.", "no file"), ("{/a,b}", "before braces"), ("{a,b}" * 10, "1,000"),
        ("{a,b,c}" * 300, "1,000"), ("{" * 2000, "not closed"), ("a" * 4097, "4,096"),
        ("\ud800", "surrogate"), ("{" + ",a" * 1000 + "}", "1,000"),
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_said(pattern: str, why: str) -> None:
    for compile_it in (compile_glob, lambda text: compile_include([text])):
        with pytest.raises(InvalidArgument, match=why):
            compile_it(pattern)


def test_a_hostile_pattern_takes_no_time() -> None:
    for pattern in ("*a" * 120 + "*b", "**/a/" * 60 + "b", "{*,*a}" * 9 + "b", "?*" * 100 + "[b]"):
        selection: Selection | None = compile_glob(pattern).selection
        for _ in range(60):
            assert selection is not None
            assert not selection.wants(b"a" * 255)
            selection = selection.enter(b"a") or selection


@pytest.mark.parametrize(
    ("pattern", "entered"),
    [
        ("src/*.py", {("src",)}),
        ("{src,test}/a/*", {("src",), ("src", "a"), ("test",), ("test", "a")}),
        ("*.py", set()),
        ("a/**/b", {("a",), ("a", "src"), ("a", "a")}),
        ("s*/x", {("src",)}),
    ],
)
def test_only_what_can_hold_something_is_entered(pattern: str, entered: set[Names]) -> None:
    selection = compile_glob(pattern).selection
    found: set[Names] = set()
    for name in ("src", "test", "a"):
        below = selection.enter(name.encode())
        if below is not None:
            found.add((name,))
            found |= {(name, inner) for inner in ("src", "a") if below.enter(inner.encode())}
    assert found == entered


def test_what_is_left_out_is_not_entered() -> None:
    selection = compile_include(["!node_modules", "*.js"])
    assert selection.enter(b"node_modules") is None
    assert selection.enter(b"src") is not None
    assert compile_include(["/src/*.js"]).enter(b"test") is None


def test_any_bytes_are_names() -> None:
    selection = compile_glob(b"\xff?[\xfe]*").selection
    assert selection.wants(b"\xff\xc3\xa9\xfe")
    assert not selection.wants(b"\xff\xc3\xa9\xfd")
