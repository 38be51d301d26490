"""Runs the conformance vectors through the faces of this implementation.

The vectors are described in ``conformance/README.md``. The faces are ``api``, the Python
session, ``mount``, system calls in a real mount, and ``cli``, the command line. Every run makes its
own instances in temporary folders and touches nothing else.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from fusefs.contract.errors import ContractError
from fusefs.contract.sessions import OPERATOR, SessionSpec
from fusefs.index.upkeep import Upkeep
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.tools.conformance_cases import Outcome, plant, run_cases
from fusefs.tools.conformance_faces import Face, MountFace, MountFailed, mounted
from fusefs.tools.conformance_finding import CommandFace
from fusefs.tools.conformance_repositories import RepositoryFace, mount_all
from fusefs.tools.conformance_vectors import FACES, Scenario, Tree, VectorError, load, shipped

__all__ = ["FACES", "Outcome", "Scenario", "VectorError", "load", "run", "shipped"]


def run(
    scenarios: Sequence[Scenario],
    faces: Sequence[str] = FACES,
    *,
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run every case of `scenarios` that `faces` can express, and return what became of each.

    `report` is called with each outcome as soon as it is known.
    """
    outcomes: list[Outcome] = []
    for scenario in scenarios:
        for face in faces:
            # Closed in any case: what a scenario has mounted must not outlive it.
            with closing(_run_scenario(scenario, face)) as found:
                for outcome in found:
                    report(outcome)
                    outcomes.append(outcome)
    return outcomes


def _run_scenario(scenario: Scenario, name: str) -> Generator[Outcome, None, None]:
    if not any(name in case.faces for case in scenario.cases):
        return
    for number, tree in enumerate(scenario.trees):
        try:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(_temporary_folder()))
                instance, spec = stack.enter_context(_planted(folder / "instance", scenario, tree))
                face: Face
                if name == "mount":
                    place = mounted(folder / "instance", spec.name, folder / "mount")
                    face = MountFace(stack.enter_context(place), spec.directory)
                elif name == "cli":
                    face = CommandFace(folder / "instance", spec.name)
                else:
                    face = RepositoryFace(Session(instance, spec))
                operator = Session(instance, OPERATOR)
                yield from run_cases(scenario, name, face, operator, tree=number)
        except MountFailed as error:
            yield Outcome(scenario.name, name, number, 0, "mount", False, "a mount", str(error))


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    # What cannot be removed is a mount that would not go away, which is the outcome to report.
    return tempfile.TemporaryDirectory(prefix="fusefs-", ignore_cleanup_errors=True)


@contextmanager
def _planted(
    folder: Path, scenario: Scenario, tree: Tree
) -> Iterator[tuple[Instance, SessionSpec]]:
    """Make a throw-away instance with `tree` and the scenario's session in it."""
    with Instance.init(folder) as instance:
        Upkeep(folder).pause()  # no case waits for an index, and all of it is thrown away soon
        plant(tree, Session(instance, OPERATOR))
        try:
            mount_all(tree, instance, folder.with_name("repositories"))
        except ContractError as error:
            raise MountFailed(f"a repository could not be mounted: {error.text}") from None
        spec = instance.sessions.put(scenario.session, OPERATOR.name)
        yield instance, spec
