"""What glob patterns say of names (see `fusefs.contract.globs`): reading them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.paths import decode, encode

MAX_ALTERNATIVES = 1000
"""Patterns without braces that one with braces may stand for."""
MAX_LENGTH = 4096
"""Characters of a pattern, as of a path for Linux (PATH_MAX)."""


class Anywhere:
    """``**``: any number of directories."""


ANYWHERE = Anywhere()


class Name:
    """What a pattern says of one name.

    Attributes:
        exact: the one name it stands for, if it stands for one.
        suffix: what the name ends with, where that is all it says.
        matches: tells whether a name is as it says.
    """

    __slots__ = ("exact", "matches", "suffix")

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.exact: bytes | None = None
        self.suffix: bytes | None = None
        self.matches: Callable[[bytes], bool]
        if all(token.literal for token in tokens):
            self.exact = _bytes(tokens)
            self.matches = self.exact.__eq__
        elif tokens[0] == _STAR and all(token.literal for token in tokens[1:]):
            self.suffix = _bytes(tokens[1:])
            self.matches = _ends_with(self.suffix)
        else:
            self.matches = _matcher(tokens)


@dataclass(frozen=True, slots=True)
class Way:
    """A pattern without braces.

    Attributes:
        names: what it says of each name of a path.
        directory: it is about directories.
    """

    names: tuple[Name | Anywhere, ...]
    directory: bool


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a pattern.

    Attributes:
        literal: the character that it stands for, "" if it is special.
        special: ``*``, ``/``, or the regular expression of one character of a name.
    """

    literal: str
    special: str = ""


_STAR, _SLASH, _ONE = Token("", "*"), Token("", "/"), Token("", ".")
_TOKENS = {"*": _STAR, "/": _SLASH, "?": _ONE}


def read_pattern(pattern: str | bytes) -> str:
    """Return a pattern as text.

    Raises:
        InvalidArgument: nothing can be one that is like this.
    """
    text = pattern if isinstance(pattern, str) else decode(pattern)
    encode(text)
    if not text:
        raise InvalidArgument("Empty glob pattern: * names all files of a directory.")
    if "\0" in text:
        raise InvalidArgument(f"NUL in glob pattern: {text!r}")
    if len(text) > MAX_LENGTH:
        raise InvalidArgument(f"Glob pattern too long: it may have {MAX_LENGTH:,} characters.")
    return text


def parse(text: str) -> list[Way]:
    """Return the patterns without braces that `text` stands for.

    Raises:
        InvalidArgument: it is no pattern.
    """
    return [_way(text, tokens) for tokens in _alternatives(text)]


def has_slash(text: str) -> bool:
    """Tell whether a pattern has a ``/`` but at its end."""
    return _SLASH in list(_tokens(text))[:-1]


def _fault(text: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"Not a glob pattern: {text!r}: {why}.")


def _way(text: str, tokens: Sequence[Token]) -> Way:
    if tokens and tokens[0] == _SLASH and text[0] != "/":
        raise _fault(text, "a / at the beginning must stand before braces")
    names: list[Name | Anywhere] = []
    for stretch in _split(tokens):
        if stretch == (_STAR, _STAR):
            if not names or names[-1] is not ANYWHERE:
                names.append(ANYWHERE)
        elif stretch == (_DOT, _DOT):
            raise _fault(text, "it cannot lead up (..); give the directory to begin in")
        elif stretch not in ((), (_DOT,)):
            names.append(_name(stretch))
    if not names:
        raise _fault(text, "it names no file")
    return Way(tuple(names), tokens[-1] == _SLASH)


_DOT = Token(".")
_name = lru_cache(maxsize=256)(Name)


def _split(tokens: Iterable[Token]) -> list[tuple[Token, ...]]:
    stretches: list[list[Token]] = [[]]
    for token in tokens:
        if token == _SLASH:
            stretches.append([])
        else:
            stretches[-1].append(token)
    return [tuple(stretch) for stretch in stretches]


def _alternatives(text: str) -> list[list[Token]]:
    """Return the token sequences that a pattern stands for: one, if it has no braces."""
    # One level for each open brace: sequences that are complete, and those that are growing.
    levels: list[tuple[list[list[Token]], list[list[Token]]]] = [([], [[]])]
    for token in _tokens(text):
        done, growing = levels[-1]
        if isinstance(token, Token):
            for sequence in growing:
                sequence.append(token)
        elif token == "{":
            levels.append(([], [[]]))
        elif token == ",":
            levels[-1] = ([*done, *growing], [[]])
        else:
            levels.pop()
            inner = [*done, *growing]
            done, growing = levels[-1]
            if len(done) + len(inner) * len(growing) > MAX_ALTERNATIVES:
                raise _fault(text, f"its braces stand for over {MAX_ALTERNATIVES:,} patterns")
            levels[-1] = (done, [[*start, *end] for start in growing for end in inner])
    if len(levels) > 1:
        raise _fault(text, "a { is not closed; \\{ is the character")
    return levels[0][1]


def _tokens(text: str) -> Iterator[Token | str]:
    """Yield tokens, and as they are the braces and commas that make alternatives."""
    at, depth = 0, 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            if at == len(text):
                raise _fault(text, "it ends with \\, which needs a character to stand for")
            yield _SLASH if text[at] == "/" else Token(text[at])
            at += 1
        elif char == "[":
            expression, at = _read_class(text, at)
            yield Token("", expression)
        elif char in "{},":
            depth += {"{": 1, "}": -(depth > 0), ",": 0}[char]
            yield char if depth or char == "}" else Token(char)
        else:
            yield _TOKENS.get(char) or Token(char)


def _read_class(text: str, at: int) -> tuple[str, int]:
    """Read a class from behind its ``[``; return its regular expression, and where it ends."""
    found = _CLASS.match(text, at)
    if found is None:
        raise _fault(text, "a [ is not closed; \\[ is the character")
    negated, members = found.groups()
    if "/" in members:
        raise _fault(text, "a class is about one character of a name, which is never /")
    if _NAMED_CLASS.search(members):
        raise _fault(text, "classes have no names here; write [a-z] for [[:lower:]]")
    ranges = []
    for low, high in _MEMBER.findall(members):
        first, last = low[-1], (high or low)[-1]
        if first > last:
            raise _fault(text, f"a range goes backwards: {first}-{last}")
        ranges.append(f"{re.escape(first)}-{re.escape(last)}")
    return f"[{'^' if negated else ''}{''.join(ranges)}]", found.end()


_CLASS = re.compile(r"((?>[!^]?))(\](?:\\.|[^\]\\])*|(?:\\.|[^\]\\])+)\]", re.DOTALL)
_MEMBER = re.compile(r"(\\.|[^\\])(?:-(\\.|[^\\]))?", re.DOTALL)
_NAMED_CLASS = re.compile(r"\[:[a-z]+:")


def _bytes(tokens: Iterable[Token]) -> bytes:
    return encode("".join(token.literal for token in tokens))


def _ends_with(suffix: bytes) -> Callable[[bytes], bool]:
    return lambda name: name.endswith(suffix)


def _matcher(tokens: Iterable[Token]) -> Callable[[bytes], bool]:
    """Return what tells whether a name matches.

    Between two stars is a stretch of single characters. The first place where it matches is as
    good as any later one, so it is never given up again (the atomic groups): that is what keeps
    matching linear.
    """
    stretches = [""]
    for token in tokens:
        if token == _STAR:
            stretches.append("")
        else:
            stretches[-1] += re.escape(token.literal) or token.special
    expression, *others = stretches
    if others:
        last = others.pop()
        expression += "".join(f"(?>.*?{stretch})" for stretch in others if stretch) + f".*{last}"
    found = re.compile(expression, re.DOTALL).fullmatch
    # A character of a name may be several bytes.
    return lambda name: found(decode(name)) is not None
