"""Glob patterns over paths, decided name by name on the way down (contract section 9).

A pattern is compiled to the names that may follow each other. Whoever walks a tree carries a
`Selection` along, which tells of each directory whether anything below it can be wanted: so
``src/*.py`` never leads out of ``src``. Every name costs time linear in its length and in the
pattern's, whatever the pattern: nothing here backtracks.

========== =====================================================================
``*``      any characters of a name, also at its beginning: dotfiles are names like others
``?``      one character (a byte that is not UTF-8 counts as one)
``[a-z]``  one of these characters; ``[!a-z]`` and ``[^a-z]``: one of all others
``{a,b}``  either; what is in braces may hold a ``/`` and further braces
``**``     as a whole name: any number of directories, also none; at the end all below
``\\x``     the character ``x``
========== =====================================================================

The standard library's ``fnmatch`` and ``pathlib`` know neither braces nor ``**`` in all places,
and wcmatch, which does, makes regular expressions that backtrack and that cannot tell which
directories need not be entered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from fusefs.contract.glob_syntax import (
    ANYWHERE,
    Anywhere,
    Name,
    Way,
    has_slash,
    parse,
    read_pattern,
)
from fusefs.contract.paths import Path


class Selection(Protocol):
    """What of a directory, and of what is below it, is wanted.

    Attributes:
        directories: directories themselves may be wanted.
    """

    @property
    def directories(self) -> bool: ...

    def wants(self, name: bytes) -> bool:
        """Tell whether an entry that is no directory is wanted."""
        ...

    def wants_directory(self, name: bytes) -> bool:
        """Tell whether a directory is wanted itself."""
        ...

    def enter(self, name: bytes) -> Self | None:
        """Return what is wanted in a directory, None where nothing can be."""
        ...


class Everything:
    """The selection of every file."""

    directories = False

    def wants(self, name: bytes) -> bool:
        return True

    def wants_directory(self, name: bytes) -> bool:
        return False

    def enter(self, name: bytes) -> Everything:
        return self


EVERYTHING = Everything()


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern that names files of a tree, as in a shell.

    Attributes:
        absolute: it begins at the root of the tree.
        top: of an absolute one, the directories that lead to all that it names.
        selection: what is wanted below `top`, or where the pattern is applied.
    """

    absolute: bool
    top: Path
    selection: Selection


def compile_glob(pattern: str | bytes) -> Glob:
    """Compile a pattern that is relative to a directory, or to the root if it begins with ``/``.

    ``*.py`` names what is directly in the directory, ``**/*.py`` what is at any depth below it.
    It names what is no directory; one that ends with ``/`` names directories.

    Raises:
        InvalidArgument: it is none.
    """
    text = read_pattern(pattern)
    ways = parse(text)
    if not text.startswith("/"):
        return Glob(False, (), _Ways(ways).begin())
    top: list[bytes] = []
    while (name := _shared_directory(ways)) is not None:
        top.append(name)
        ways = [Way(way.names[1:], way.directory) for way in ways]
    return Glob(True, tuple(top), _Ways(ways).begin())


def _shared_directory(ways: Sequence[Way]) -> bytes | None:
    """Return the directory that all of `ways` begin with, if they all begin with one."""
    first = {way.names[0] for way in ways if len(way.names) > 1}
    if any(len(way.names) < 2 for way in ways) or len(first) > 1:
        return None
    name = first.pop()
    return name.exact if isinstance(name, Name) else None


def compile_include(patterns: Sequence[str | bytes]) -> Selection:
    """Compile patterns that say which files below a directory are wanted, as ripgrep's ``--glob``.

    Without a ``/`` one is about names at any depth, with one about paths from the directory on.
    One that begins with ``!`` leaves out what it names, a directory with all that is below. Of
    several the last that names something decides; what none names is wanted if all begin
    with ``!``.

    Raises:
        InvalidArgument: one of them is none.
    """
    return _Include.begin([_rule(pattern) for pattern in patterns]) if patterns else EVERYTHING


class _Ways:
    """The patterns that one with braces stands for, and where in them a walk can be.

    Attributes:
        directories: some of them are about directories.
    """

    def __init__(self, ways: Sequence[Way]) -> None:
        self.ways = ways
        self.directories = any(way.directory for way in ways)
        self._known: dict[frozenset[tuple[int, int]], _At] = {}

    def begin(self) -> _At:
        """Return where a walk begins."""
        return self.at(frozenset((number, 0) for number in range(len(self.ways))))

    def at(self, places: frozenset[tuple[int, int]]) -> _At:
        """Return where a walk is that may stand before these names of these patterns."""
        known = self._known.get(places)
        if known is None:
            known = self._known[places] = _At(self, places)
        return known

    def name(self, place: tuple[int, int]) -> Name | Anywhere:
        """Return what the pattern says there."""
        return self.ways[place[0]].names[place[1]]

    def is_last(self, place: tuple[int, int]) -> bool:
        """Tell whether the pattern ends there."""
        return place[1] == len(self.ways[place[0]].names) - 1


class _At:
    """Where a walk is in a pattern: a `Selection`."""

    __slots__ = (
        "_everywhere", "_next", "_same", "_ways", "directories", "wants", "wants_directory",
    )  # fmt: skip

    def __init__(self, ways: _Ways, key: frozenset[tuple[int, int]]) -> None:
        self._ways = ways
        self._everywhere = frozenset(at for at in key if ways.name(at) is ANYWHERE)
        # `**` also stands for no directory at all.
        behind = {(way, at + 1) for way, at in self._everywhere if not ways.is_last((way, at))}
        places = sorted(behind.union(key))
        self._next = [
            (name, (place[0], place[1] + 1))
            for place in places
            if isinstance(name := ways.name(place), Name) and not ways.is_last(place)
        ]
        self._same: _At | None = self
        if self._everywhere != key:
            self._same = ways.at(self._everywhere) if self._everywhere else None
        ends = [place for place in places if ways.is_last(place)]
        self.directories = ways.directories
        self.wants = _any_of([ways.name(at) for at in ends if not ways.ways[at[0]].directory])
        self.wants_directory = _any_of(
            [ways.name(at) for at in ends if ways.ways[at[0]].directory]
        )

    def names(self, name: bytes) -> bool:
        """Tell whether a name ends the pattern, whatever it is about."""
        return self.wants(name) or self.wants_directory(name)

    def enter(self, name: bytes) -> _At | None:
        if not self._next:
            return self._same
        places = [place for known, place in self._next if known.matches(name)]
        return self._ways.at(self._everywhere.union(places)) if places else self._same


def _any_of(names: Sequence[Name | Anywhere]) -> Callable[[bytes], bool]:
    """Return what tells whether a name is as one of `names` says."""
    if ANYWHERE in names:
        return lambda name: True
    known = [name for name in names if isinstance(name, Name)]
    exact = frozenset(name.exact for name in known if name.exact is not None)
    suffixes = tuple(name.suffix for name in known if name.suffix is not None)
    others = [n.matches for n in known if n.exact is None and n.suffix is None]
    if not others and not suffixes:
        return exact.__contains__
    if not others and not exact:
        return lambda name: name.endswith(suffixes)
    return lambda name: (
        name in exact or name.endswith(suffixes) or any(matches(name) for matches in others)
    )


@dataclass(frozen=True, slots=True)
class _Rule:
    """Where a walk is in one pattern of several.

    Attributes:
        leaves_out: what it names is not wanted.
        at: where the walk is; None where it can name nothing any more.
    """

    leaves_out: bool
    at: _At | None


def _rule(pattern: str | bytes) -> _Rule:
    text = read_pattern(pattern)
    leaves_out = text.startswith("!")
    text = read_pattern(text[leaves_out:])
    ways = parse(text)
    if not has_slash(text):
        ways = [_at_any_depth(way) for way in ways]
    if not leaves_out:
        ways = [way for way in ways if not way.directory]
    return _Rule(leaves_out, _Ways(ways).begin() if ways else None)


def _at_any_depth(way: Way) -> Way:
    if way.names[0] is ANYWHERE:
        return way
    return Way((ANYWHERE, *way.names), way.directory)


class _Include:
    """Several patterns: a `Selection`."""

    directories = False

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules
        self._only = any(not rule.leaves_out for rule in rules)

    @classmethod
    def begin(cls, rules: Sequence[_Rule]) -> Selection:
        """Return where a walk begins."""
        if len(rules) == 1 and not rules[0].leaves_out and rules[0].at is not None:
            return rules[0].at
        return cls(rules)

    def wants(self, name: bytes) -> bool:
        for rule in reversed(self._rules):
            if rule.at is not None and rule.at.wants(name):
                return not rule.leaves_out
        return not self._only

    def wants_directory(self, name: bytes) -> bool:
        return False

    def enter(self, name: bytes) -> _Include | None:
        for rule in reversed(self._rules):
            if rule.at is not None and rule.at.names(name):
                if rule.leaves_out:
                    return None
                break
        rules = [
            _Rule(rule.leaves_out, None if rule.at is None else rule.at.enter(name))
            for rule in self._rules
        ]
        if self._only and all(rule.at is None or rule.leaves_out for rule in rules):
            return None
        return _Include(rules)
