"""The contract's sections 3 and 5 read word by word: every rule is scanned for every path."""

from __future__ import annotations

from collections.abc import Mapping

from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below, render
from fusefs.contract.view import Rules


def rule_paths(rules: Rules) -> set[Path]:
    return {*rules.grants, *rules.floors, *rules.caps, rules.boundary}


def most_specific(rules: Mapping[Path, Level], path: Path, default: Level) -> Level:
    covering = [at for at in rules if is_at_or_below(path, at)]
    return rules[max(covering, key=len)] if covering else default


def level(rules: Rules, path: Path) -> Level:
    """Effective level = the minimum of all of these."""
    if not is_at_or_below(path, rules.boundary):
        return Level.NONE
    rights = [right for at, right in rules.caps.items() if is_at_or_below(path, at)]
    return min(
        most_specific(rules.grants, path, Level.NONE),
        most_specific(rules.floors, path, Level.COMMIT),
        *rights,
    )


def visible(rules: Rules, path: Path) -> bool:
    return level(rules, path) >= Level.RO


def passage(rules: Rules, path: Path) -> bool:
    """Levels change only where a rule stands, so those paths decide what is below."""
    return not visible(rules, path) and any(
        visible(rules, at) for at in rule_paths(rules) if is_at_or_below(at, path)
    )


def unseen_text(rules: Rules, path: Path) -> str:
    """The table of section 5."""
    for length in range(len(path), -1, -1):
        nearest = path[:length]
        if visible(rules, nearest):
            return f"No such file or directory: {render(path)}"
        if passage(rules, nearest):
            break
    return f"Access denied: {render(path)} is not open to this session."


def refusal_text(rules: Rules, path: Path, *, to_commit: bool = False) -> str | None:
    """Why removing or moving a directory at `path` is refused; the first rule in path order.

    With `to_commit`: why what is about all of a repository at `path` is refused.
    """
    if not visible(rules, path):
        return unseen_text(rules, path)
    below = (at for at in rule_paths(rules) if is_at_or_below(at, path))
    for at in sorted({path, *below}):
        if level(rules, at) == Level.NONE:
            return f"Access denied: {render(at)} is not open to this session."
        if level(rules, at) == Level.RO:
            return f"Read-only: {render(at)} can be read in this session but not changed."
        if to_commit and level(rules, at) == Level.STAGE:
            return (
                f"Not committed: this session may change {render(at)} but not commit it; "
                "the change stays staged."
            )
    return None


def mixed(rules: Rules, path: Path) -> bool:
    """Some entry of the visible directory `path` may be hidden."""
    names = {at[len(path)] for at in rule_paths(rules) if at[: len(path)] == path != at}
    return visible(rules, path) and any(not visible(rules, (*path, name)) for name in names)


def uniform(rules: Rules, path: Path) -> bool:
    """Everything at and below `path` has one level."""
    return all(
        level(rules, at) == level(rules, path)
        for at in rule_paths(rules)
        if is_at_or_below(at, path)
    )
