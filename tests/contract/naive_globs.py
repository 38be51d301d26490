"""Glob patterns read word by word: each is tried on every path, with no thought of cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

Names = tuple[str, ...]
"""The names of a path, from where a pattern is applied."""


def globbed(pattern: str, names: Names, *, directory: bool) -> bool:
    """Tell whether a pattern names a path."""
    return any(
        alternative.endswith("/") == directory and _along(_names(alternative), names)
        for alternative in expanded(pattern)
    )


def included(patterns: Sequence[str], names: Names) -> bool:
    """Tell whether a file is searched, of those below a directory."""
    for length in range(1, len(names)):
        if _decides(patterns, names[:length], directory=True) is False:
            return False
    decided = _decides(patterns, names, directory=False)
    return all(p.startswith("!") for p in patterns) if decided is None else decided


def _decides(patterns: Sequence[str], names: Names, *, directory: bool) -> bool | None:
    for pattern in reversed(patterns):
        bare = pattern.removeprefix("!")
        anchored = "/" in bare.removesuffix("/")
        for alternative in expanded(bare):
            about = names if anchored else names[-1:]
            if (directory or not alternative.endswith("/")) and _along(_names(alternative), about):
                return pattern == bare
    return None


def expanded(pattern: str) -> Iterator[str]:
    """Yield the patterns that one with braces stands for."""
    start = next((at for at, char in _bare(pattern) if char == "{"), None)
    if start is None:
        yield pattern
        return
    depth, cuts = 0, [start]
    for at, char in _bare(pattern):
        if at < start:
            continue
        depth += {"{": 1, "}": -1}.get(char, 0)
        if (char == "," and depth == 1) or depth == 0:
            cuts.append(at)
        if depth == 0:
            break
    for left, right in pairwise(cuts):
        yield from expanded(pattern[:start] + pattern[left + 1 : right] + pattern[cuts[-1] + 1 :])


def _bare(pattern: str) -> Iterator[tuple[int, str]]:
    """Yield the characters that stand neither behind a backslash nor in a class."""
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
        elif pattern[at] == "[":
            at = _class_end(pattern, at) + 1
        else:
            yield at, pattern[at]
            at += 1


def _class_end(pattern: str, at: int) -> int:
    at += 1
    if pattern[at] in "!^":
        at += 1
    first = at
    while pattern[at] != "]" or at == first:
        at += 2 if pattern[at] == "\\" else 1
    return at


def _names(pattern: str) -> list[str]:
    return [name for name in pattern.split("/") if name not in ("", ".")]


def _along(pattern: Sequence[str], names: Names) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        # At the end it is about what is below, not about the directory itself.
        least = 1 if len(pattern) == 1 else 0
        return any(_along(pattern[1:], names[n:]) for n in range(least, len(names) + 1))
    return bool(names) and _matches(pattern[0], names[0]) and _along(pattern[1:], names[1:])


def _matches(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    first, rest = pattern[0], pattern[1:]
    if first == "*":
        return any(_matches(rest, name[n:]) for n in range(len(name) + 1))
    if not name:
        return False
    if first == "?":
        return _matches(rest, name[1:])
    if first == "\\":
        return rest[0] == name[0] and _matches(rest[1:], name[1:])
    if first == "[":
        end = _class_end(pattern, 0)
        return _in_class(pattern[1:end], name[0]) and _matches(pattern[end + 1 :], name[1:])
    return first == name[0] and _matches(rest, name[1:])


def _in_class(members: str, char: str) -> bool:
    negated = members[0] in "!^"
    chars: list[tuple[str, bool]] = []  # with whether it is behind a backslash
    left = iter(members[negated:])
    for member in left:
        chars.append((next(left), True) if member == "\\" else (member, False))
    found, at = False, 0
    while at < len(chars):
        if at + 2 < len(chars) and chars[at + 1] == ("-", False):
            found = found or chars[at][0] <= char <= chars[at + 2][0]
            at += 3
        else:
            found = found or chars[at][0] == char
            at += 1
    return found != negated
