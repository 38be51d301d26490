"""Patterns over lines: what is special in them, and what is refused."""

from __future__ import annotations

import pytest

from fusefs.contract.errors import InvalidArgument
from fusefs.session.line_patterns import LinePattern

LINES = ["abc", "a.b*c", "ABC", "foo(bar)", "A65", "x{2}", "aab", "", "tab\there", "a|b", "\u212a"]
TEXT = "\n".join([*LINES, ""]).encode()


def matching(pattern: LinePattern) -> list[str]:
    """Return the lines in which a pattern is found, one after the other."""
    matches = pattern.matches(TEXT)
    found, place = [], 0
    while (match := matches.find(place)) is not None and match[0] < len(TEXT):
        begin, end = TEXT.rfind(b"\n", 0, match[0]) + 1, TEXT.index(b"\n", match[1])
        found.append(TEXT[begin:end].decode())
        place = end + 1
    return found


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("abc", ["abc"]),
        ("(?i)abc", ["abc", "ABC"]),
        ("(?i:a)bc", ["abc"]),
        ("(?-i:a)bc", ["abc"]),
        (r"\Qa.b*c\E", ["a.b*c"]),
        (r"\Qa.b*c", ["a.b*c"]),
        (r"\Qa.\E+b", ["a.b*c"]),
        (r"a\.b\*c", ["a.b*c"]),
        (r"\x41BC", ["ABC"]),
        (r"\x{41}\d+", ["A65"]),
        (r"\101BC", ["ABC"]),
        (r"foo\(bar\)", ["foo(bar)"]),
        (r"fo{2}\(", ["foo(bar)"]),
        (r"fooo?\(", ["foo(bar)"]),
        (r"foox*\(", ["foo(bar)"]),
        (r"fo+\(", ["foo(bar)"]),
        (r"x\{2}", ["x{2}"]),
        ("x{2}", []),
        ("a{2}b", ["aab"]),
        ("xy?|ab", ["abc", "x{2}", "aab", "tab\there"]),
        (r"a\|b", ["a|b"]),
        ("(x|a)b", ["abc", "aab", "tab\there"]),
        ("(?:a|b)b", ["abc", "aab", "tab\there"]),
        ("(?P<n>foo|ab)c", ["abc"]),
        (r"\Aab", ["abc"]),
        (r"b\z", ["aab", "a|b"]),
        ("[A]BC", ["ABC"]),
        ("^$", [""]),
        (r"tab\there", ["tab\there"]),
        (r"[]x]\{", ["x{2}"]),
        (r"[^\n]b", ["abc", "a.b*c", "foo(bar)", "aab", "tab\there", "a|b"]),
        (r"\pLbc", ["abc"]),
        (r"\p{Lu}BC", ["ABC"]),
        (r"(?s)a.c", ["abc"]),
    ],
)
def test_which_lines_match(pattern: str, lines: list[str]) -> None:
    assert matching(LinePattern(pattern)) == lines


def test_texts() -> None:
    assert matching(LinePattern("a.b*c", literal=True)) == ["a.b*c"]
    assert matching(LinePattern("A", literal=True, ignore_case=True)) == [
        "abc", "a.b*c", "ABC", "foo(bar)", "A65", "aab", "tab\there", "a|b"
    ]  # fmt: skip
    assert matching(LinePattern("k", ignore_case=True)) == ["\u212a"]
    assert matching(LinePattern("", literal=True)) == LINES


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a\nb", "line break"), (r"a\nb", "line break"), (r"(?-m)^a", "flag m"),
        (r"(?i-ms:a)", "flag m"), (r"a\C", "a byte"), ("a(", r"RE2: missing \)"),
        ("(?=a)", "RE2: invalid perl operator"), (r"(a)\1", "RE2: invalid escape"),
        ("\ud800", "not Unicode"), ("((a{100}){100}){100}", "RE2: "),
        ("é(", r"RE2: missing \): é\("),
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_said(pattern: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        LinePattern(pattern)


def test_a_hostile_pattern_takes_no_time() -> None:
    for pattern in ("(a*)*b", "(a|aa)+$b", "(.*)(.*)(.*)(.*)(.*)[bc]d", "(x+x+)+y"):
        assert LinePattern(pattern).matches(b"a" * 100_000).find(0) is None
