"""Why a session sees a path as it does, in words (contract section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below, render
from fusefs.contract.view import Rules, View

_MEANING = {
    Level.NONE: "it does not exist for the session",
    Level.RO: "it can be read but not changed",
    Level.STAGE: "it can be read and changed",
    Level.COMMIT: "it can be read and changed",
}
_MEANING_IN_REPOSITORY = {
    **_MEANING,
    Level.STAGE: "it can be read and changed, but not committed",
    Level.COMMIT: "it can be read, changed and committed",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What decides the level of one path.

    Attributes:
        path: the path asked about, absolute.
        level: the effective level there.
        passage: not visible, but a visible path lies below by the rules.
        grant_path: where the grant that applies stands; None: there is none, so ``none``.
        floor_path: where the floor that applies stands; None: there is none, so no maximum.
        cap_path: the mount whose forge right is the lowest maximum; None: not in a mount.
        sentences: the same for people, one fact each, the verdict first.
    """

    path: str
    level: Level
    visible: bool
    passage: bool
    grant_path: str | None
    grant_level: Level | None
    floor_path: str | None
    floor_level: Level | None
    cap_path: str | None
    cap_level: Level | None
    boundary: str
    inside_boundary: bool
    sentences: list[str]


def explain(rules: Rules, path: Path, *, in_repository: bool = False) -> Explanation:
    """Say which grant, floor, cap, boundary and passage decide about `path` under `rules`.

    Args:
        rules: of the session.
        path: what is asked about.
        in_repository: it is in a mount; a cap says so too, but the owner has none.
    """
    view = View(rules)
    cursor = view.cursor(path)
    grant = _most_specific(rules.grants, path)
    floor = _most_specific(rules.floors, path)
    cap = _lowest(rules.caps, path)
    inside = is_at_or_below(path, rules.boundary)
    text, boundary = render(path), render(rules.boundary)

    meaning = _MEANING_IN_REPOSITORY if in_repository or cap is not None else _MEANING
    verdict = "it is a passage" if cursor.passage else meaning[cursor.level]
    sentences = [f"{text} is at {cursor.level}: {verdict}."]
    if grant is None:
        sentences.append("No grant covers it, so it starts at none.")
    else:
        sentences.append(f"The grant on {render(grant[0])} gives {grant[1]}.")
    if floor is not None:
        lowers = grant is not None and floor[1] < grant[1]
        effect = "lowers it to" if lowers else "allows up to"
        sentences.append(f"The floor on {render(floor[0])} {effect} {floor[1]}.")
    if cap is not None:
        sentences.append(
            f"The user's right on the repository mounted at {render(cap[0])} allows up to {cap[1]}."
        )
    if not inside:
        sentences.append(f"It is outside the boundary {boundary}: nothing there is visible.")
    elif rules.boundary:
        sentences.append(f"It is inside the boundary {boundary}.")
    if cursor.passage:
        target = _first_visible_below(view, path)
        sentences.append(
            f"As a passage it leads to {render(target)}, at {view.cursor(target).level}, "
            "and can be neither listed nor changed."
        )
    if not cursor.visible:
        sentences.append(f"The session is told: {cursor.unseen(path).text}")
    return Explanation(
        path=text,
        level=cursor.level,
        visible=cursor.visible,
        passage=cursor.passage,
        grant_path=None if grant is None else render(grant[0]),
        grant_level=None if grant is None else grant[1],
        floor_path=None if floor is None else render(floor[0]),
        floor_level=None if floor is None else floor[1],
        cap_path=None if cap is None else render(cap[0]),
        cap_level=None if cap is None else cap[1],
        boundary=boundary,
        inside_boundary=inside,
        sentences=sentences,
    )


def _covering(rules: Mapping[Path, Level], path: Path) -> list[tuple[Path, Level]]:
    """Return the rules on `path` and above it, the most specific one last."""
    found = [(at, level) for at, level in rules.items() if is_at_or_below(path, at)]
    return sorted(found, key=lambda rule: len(rule[0]))


def _most_specific(rules: Mapping[Path, Level], path: Path) -> tuple[Path, Level] | None:
    covering = _covering(rules, path)
    return covering[-1] if covering else None


def _lowest(rules: Mapping[Path, Level], path: Path) -> tuple[Path, Level] | None:
    covering = _covering(rules, path)
    return min(covering, key=lambda rule: rule[1]) if covering else None


def _first_visible_below(view: View, passage: Path) -> Path:
    """Return the first visible path below `passage`, in path order."""
    names, cursor = list(passage), view.cursor(passage)
    while not cursor.visible:
        name, cursor = next(item for item in cursor.named() if item[1].visible or item[1].passage)
        names.append(name)
    return tuple(names)
