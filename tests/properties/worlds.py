"""Pairs of trees that differ only in what a session cannot see, and what is done in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from fusefs.contract.levels import Level
from fusefs.contract.paths import Path
from fusefs.contract.sessions import SessionSpec, World
from fusefs.contract.view import View

NAMES = [b"a", b"b", b"c"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(tuple)
LEVELS = st.sampled_from(list(Level))
RULES = st.dictionaries(st.lists(st.sampled_from(NAMES), max_size=3).map(tuple), LEVELS, max_size=5)
CONTENT = st.sampled_from([None, b"", b"one", b"two two"])
"""None stands for a directory."""

Tree = dict[Path, bytes | None]


@dataclass(frozen=True)
class Call:
    """One operation of a session."""

    op: str
    path: Path
    target: Path = ()
    data: bytes = b""


@dataclass(frozen=True)
class Pair:
    """A session's rules, two trees alike to it, and operations.

    Attributes:
        late: hidden nodes that appear in the second tree between the operations.
    """

    spec: SessionSpec
    first: Tree
    second: Tree
    calls: list[Call]
    late: list[tuple[int, Path, bytes | None]] = field(default_factory=list)


def _plant(nodes: Tree, path: Path, content: bytes | None) -> None:
    """Add a node with the directories it needs, unless a file is in the way."""
    for depth in range(1, len(path)):
        if nodes.get(path[:depth], b"") is not None and path[:depth] in nodes:
            return
    for depth in range(1, len(path)):
        nodes[path[:depth]] = None
    nodes.setdefault(path, content)


def _visible_part(nodes: Tree, view: View) -> Tree:
    """Return the visible nodes and the directories that lead to them."""
    kept: Tree = {}
    for path, content in nodes.items():
        if view.cursor(path).visible:
            for depth in range(1, len(path)):
                kept[path[:depth]] = None
            kept[path] = content
    return kept


OPS = ["stat", "list", "read", "write", "mkdir", "rm", "rmdir", "unlink", "mv", "walk", "rename"]
CALLS = st.lists(
    st.builds(
        Call,
        op=st.sampled_from(OPS),
        path=PATHS,
        target=PATHS,
        data=st.sampled_from([b"", b"new", b"longer than before"]),
    ),
    min_size=1,
    max_size=12,
)


@st.composite
def _specs(draw: st.DrawFn) -> SessionSpec:
    """Generate rules in which something is visible and something is not."""
    grants = draw(RULES)
    grants[()] = draw(st.sampled_from([Level.STAGE, Level.STAGE, Level.RO, Level.NONE]))
    for path in draw(st.lists(PATHS, min_size=1, max_size=3)):
        grants[path] = Level.NONE
    floors = draw(st.dictionaries(PATHS, LEVELS, max_size=2))
    boundary = draw(st.sampled_from([(), (), (), (b"a",), (b"a", b"b")]))
    return SessionSpec("s", World.AGENT, boundary, (), grants, floors)


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Generate a session and two trees that it cannot tell apart."""
    spec = draw(_specs())
    view = View(spec.rules())
    hidden = [path for path, level in spec.grants.items() if level == Level.NONE and path]
    below = st.builds(
        lambda path, rest: path + rest,
        st.sampled_from(hidden),
        st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
    )
    first: Tree = {}
    for path, content in draw(st.lists(st.tuples(PATHS | below, CONTENT), max_size=12)):
        _plant(first, path, content)
    second = _visible_part(first, view)
    late = []
    for path, content in draw(st.lists(st.tuples(below, CONTENT), max_size=6)):
        missing = [path[:n] for n in range(1, len(path) + 1) if path[:n] not in second]
        if any(view.cursor(at).visible for at in missing):
            continue
        if draw(st.booleans()):
            _plant(second, path, content)
        else:
            late.append((draw(st.integers(0, 11)), path, content))
    return Pair(spec, first, second, draw(CALLS), late)


def build_order(tree: Tree) -> list[tuple[Path, bytes | None]]:
    """Return the nodes so that directories come before what is in them."""
    return sorted(tree.items())
