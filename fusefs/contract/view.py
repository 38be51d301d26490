"""A session's view: grants, floors and boundary compiled to a trie (contract sections 3 and 5).

A `Cursor` stands at a path and knows what the rules make of it. `Cursor.child` moves it one
name down in constant time, so nobody ever walks the rules of a path from the root again.
Effective levels change only at paths that a rule names; everything off the trie shares one
of a handful of cursors.

Compiling takes time linear in the number of names that rules are made of, whatever their
depth, and nothing here recurses: a rule may lie any number of names deep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fusefs.contract.errors import AccessDenied, ContractError, NotCommitted, NotFound, ReadOnly
from fusefs.contract.levels import Level
from fusefs.contract.paths import ROOT, Path, render


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides a view. Paths are absolute.

    Attributes:
        grants: path to level; the most specific one wins.
        floors: path to maximum level; the most specific one applies.
        boundary: nothing outside it is visible.
        caps: path of a mount to a further maximum (the user's right on the forge).
    """

    grants: Mapping[Path, Level] = field(default_factory=dict)
    floors: Mapping[Path, Level] = field(default_factory=dict)
    boundary: Path = ROOT
    caps: Mapping[Path, Level] = field(default_factory=dict)


class Cursor:
    """What the rules say at one path.

    Attributes:
        level: the effective level.
        visible: the level is at least ``ro``.
        passage: the level is ``none`` and a path somewhere below is visible by the rules.
        under_passage: for an unseen path: its nearest visible-or-passage ancestor is a passage,
            or there is none; it is denied, where otherwise it does not exist.
        uniform: everything below has this level too.
        mixed: this directory is visible and an entry of it may be hidden from its listing.
    """

    __slots__ = (
        "_children",
        "_lowest",
        "_rest",
        "level",
        "mixed",
        "passage",
        "under_passage",
        "uniform",
        "visible",
    )

    def __init__(self, level: Level, *, passage: bool = False, under_passage: bool = False) -> None:
        self.level = level
        self.visible = level >= Level.RO
        self.passage = passage
        self.under_passage = under_passage
        self.uniform = True
        self.mixed = False
        self._lowest = level
        self._children: dict[bytes, Cursor] = {}
        self._rest = self

    def _branch(self, children: dict[bytes, Cursor], rest: Cursor) -> None:
        """Set what lies below: `children` in name order, and `rest` for every other name."""
        self._children = children
        self._rest = rest
        self.uniform = False
        self.mixed = self.visible and not all(child.visible for child in children.values())
        self._lowest = min(self.level, *(child._lowest for child in children.values()))

    @property
    def whole(self) -> bool:
        """This path is visible, and so is whatever lies below it."""
        return self._lowest >= Level.RO

    def child(self, name: bytes) -> Cursor:
        """Return the cursor of the entry `name`."""
        return self._children.get(name, self._rest)

    def named(self) -> Iterator[tuple[bytes, Cursor]]:
        """Yield, in name order, the entries that rules set apart from all others here.

        Entries that are not yielded share one cursor, and so does everything below them.
        """
        return iter(self._children.items())

    def unseen(self, path: Path) -> ContractError:
        """Return the answer for the path at this cursor, which is not visible (section 5)."""
        if self.passage or self.under_passage:
            return AccessDenied(render(path))
        return NotFound(render(path))

    def removal_refusal(self, path: Path) -> ContractError | None:
        """Return why the rules at and below `path`, this cursor's, forbid removing or moving it.

        The answer depends on the rules alone, never on what exists (section 5). Of several
        rules that forbid it, the first in path order is named. A directory must not be moved
        *to* a path with such a refusal either: what it brings would lie where the session may
        not write.
        """
        if not self.visible:
            return self.unseen(path)
        if self.level < Level.STAGE:
            return ReadOnly(render(path))
        lower = self._first_below(path, Level.STAGE)
        if lower is None:
            return None
        rule, cursor = lower
        return ReadOnly(render(rule)) if cursor.visible else AccessDenied(render(rule))

    def commit_refusal(self, path: Path) -> ContractError | None:
        """Return why the rules at and below `path`, this cursor's, forbid what is about all of it.

        That is whatever moves or names whole commits: branches, pull requests, tags, releases.
        As with `removal_refusal`, the rules alone decide and the first that forbids it is named.
        """
        if not self.visible:
            return self.unseen(path)
        lower = self._first_below(path, Level.COMMIT)
        if lower is None:
            return None
        rule, cursor = lower
        if cursor.level == Level.STAGE:
            return NotCommitted(render(rule))
        return ReadOnly(render(rule)) if cursor.visible else AccessDenied(render(rule))

    def _first_below(self, path: Path, level: Level) -> tuple[Path, Cursor] | None:
        """Return the first path, this one or below by the rules, that has not got `level`."""
        names, cursor = list(path), self
        while cursor._lowest < level:
            if cursor.level < level:
                return tuple(names), cursor
            name, cursor = next(
                item for item in cursor._children.items() if item[1]._lowest < level
            )
            names.append(name)
        return None


_FLAT = {level: Cursor(level) for level in Level}
_DENIED = Cursor(Level.NONE, under_passage=True)


class View:
    """The compiled rules of one session."""

    __slots__ = ("root", "rules")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.root = _compile(rules)

    def cursor(self, path: Path) -> Cursor:
        """Return the cursor at `path`."""
        cursor = self.root
        for name in path:
            cursor = cursor.child(name)
        return cursor


class _Rule:
    """A node of the rules' paths while they are compiled.

    Attributes:
        grant, floor, cap, inside: what rules say at this very path; after `inherit`, what holds.
        opens: a path below is visible.
        denies: an unseen path here is denied, where otherwise it does not exist.
    """

    __slots__ = (
        "cap",
        "children",
        "cursor",
        "denies",
        "floor",
        "grant",
        "inside",
        "level",
        "opens",
    )

    def __init__(self) -> None:
        self.grant: Level | None = None
        self.floor: Level | None = None
        self.cap: Level = Level.COMMIT
        self.inside = False
        self.children: dict[bytes, _Rule] = {}
        self.level = Level.NONE
        self.opens = False
        self.denies = True
        self.cursor = _DENIED

    def at(self, path: Path) -> _Rule:
        """Return the node of `path`, made where it is missing."""
        node = self
        for name in path:
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = _Rule()
            node = child
        return node

    def inherit(self, grant: Level, floor: Level, cap: Level, inside: bool) -> None:
        """Take over from above what no rule says here, and settle the level."""
        self.grant = grant if self.grant is None else self.grant
        self.floor = floor if self.floor is None else self.floor
        # The forge's right is no rule of the most specific kind: every mount on the way counts.
        self.cap = min(cap, self.cap)
        self.inside = inside or self.inside
        if self.inside:
            self.level = min(self.grant, self.floor, self.cap)


def _compile(rules: Rules) -> Cursor:
    top = _Rule()
    for path, level in rules.grants.items():
        top.at(path).grant = level
    for path, level in rules.floors.items():
        top.at(path).floor = level
    for path, level in rules.caps.items():
        top.at(path).cap = level
    top.at(rules.boundary).inside = True

    top.inherit(Level.NONE, Level.COMMIT, Level.COMMIT, inside=False)
    order = [top]  # parents before their children; grows while it is gone through
    for rule in order:
        assert rule.grant is not None and rule.floor is not None
        for child in rule.children.values():
            child.inherit(rule.grant, rule.floor, rule.cap, rule.inside)
            order.append(child)
    for rule in reversed(order):
        rule.opens = any(c.opens or c.level >= Level.RO for c in rule.children.values())
    for rule in order:
        if rule.level >= Level.RO:
            rule.denies = False
        elif rule.opens:
            rule.denies = True
        for child in rule.children.values():
            child.denies = rule.denies
    for rule in reversed(order):
        rule.cursor = _cursor_of(rule)
    return top.cursor


def _cursor_of(rule: _Rule) -> Cursor:
    """Return the cursor of `rule`, whose children have theirs."""
    rest = _DENIED if rule.denies and rule.level < Level.RO else _FLAT[rule.level]
    children = {
        name: child.cursor
        for name, child in sorted(rule.children.items())
        if child.cursor is not rest
    }
    if not children:
        return rest
    passage = rule.level < Level.RO and rule.opens
    cursor = Cursor(rule.level, passage=passage, under_passage=rest is _DENIED and not passage)
    cursor._branch(children, rest)
    return cursor
