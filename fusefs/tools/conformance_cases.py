"""Runs the cases of a scenario on a tree, whatever holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fusefs.contract.kinds import Kind
from fusefs.tools.conformance_faces import Face, SessionFace, SessionLike, spell
from fusefs.tools.conformance_vectors import Scenario, Tree


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case on one face.

    Attributes:
        tree: which of the scenario's trees, from 0.
        case: the case's number in the scenario, from 1; 0 for the mount itself.
        call: the call, for people.
        expected, got: the answers, for people; equal in meaning where `passed`.
    """

    scenario: str
    face: str
    tree: int
    case: int
    call: str
    passed: bool
    expected: str
    got: str


def run_cases(
    scenario: Scenario, name: str, face: Face, operator: SessionLike, *, tree: int = 0
) -> Iterator[Outcome]:
    """Run the cases of `scenario` for the face called `name`, on a tree that is in place."""
    behind = SessionFace(operator)
    for case in scenario.cases:
        if name not in case.faces:
            continue
        # A refusal that changes something all the same would be the worst of failures.
        before = snapshot(operator) if case.refused(name) and name == "api" else None
        answer = (behind if case.by_operator else face).call(case.op, case.fields)
        passed = answer.meets(case.expect, name)
        got = str(answer)
        if passed and before is not None and snapshot(operator) != before:
            passed, got = False, f"{got}, but the tree was changed"
        yield Outcome(
            scenario.name, name, tree, case.number, case.call, passed,
            _describe(case.expect, name), got,
        )  # fmt: skip


def plant(tree: Tree, operator: SessionLike) -> None:
    """Make `tree`, whose paths may come in any order, below the operator's empty root.

    Repositories in it are left to whoever mounts them.
    """
    for path, value in sorted(tree.items()):
        parent = path.rpartition("/")[0]
        if parent:
            operator.mkdir(parent)
        if value is None:
            operator.mkdir(path)
        elif isinstance(value, str):
            operator.write(path, value.encode())
        elif "link" in value:
            operator.symlink(path, str(value["link"]))


def snapshot(operator: SessionLike) -> dict[str, object]:
    """Return everything in the tree: path to kind, and the bytes of files."""
    found: dict[str, object] = {}
    folders = ["/"]
    while folders:
        folder = folders.pop()
        for entry in operator.list(folder):
            kind = entry.stat.kind
            path = f"{folder.rstrip('/')}/{entry.name}"
            found[path] = kind
            if kind in (Kind.DIR, Kind.MOUNT):
                folders.append(path)
            elif kind == Kind.FILE:
                found[path] = operator.read(path)
    return found


def _describe(expect: Mapping[str, object], face: str) -> str:
    if face == "mount" and "errno" in expect:
        return str(expect["errno"])
    for key in ("error", "code"):
        if key in expect:
            return str(expect[key])
    return spell(expect.get("ok"))
