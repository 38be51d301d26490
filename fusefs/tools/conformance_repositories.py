"""Repositories in the trees of conformance vectors: made of their files, and mounted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fusefs.contract.errors import NothingToCommit
from fusefs.contract.paths import resolve
from fusefs.contract.sessions import OPERATOR
from fusefs.forge.git_process import run
from fusefs.forge.model import Right
from fusefs.session.commit_once import commit
from fusefs.session.mounting import add
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.store.rights import note_right
from fusefs.tools.conformance_finding import FindingFace
from fusefs.tools.conformance_vectors import Tree

_BRANCH = "main"


class RepositoryFace(FindingFace):
    """A session's methods, and its commits."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._working = session

    def _do(self, op: str, fields: Mapping[str, object]) -> object:
        if op != "commit":
            return super()._do(op, fields)
        found = Repository(self._working, str(fields.get("path", "")), outside=NothingToCommit)
        commit(found, "vectors", [found.path])
        return None


def mount_all(tree: Tree, instance: Instance, folder: Path) -> None:
    """Make and mount the repositories of a tree; they are put into `folder`, made for it.

    Raises:
        ContractError: one cannot be mounted.
    """
    folder.mkdir()
    for number, (path, value) in enumerate(sorted(tree.items())):
        if not isinstance(value, Mapping) or "repository" not in value:
            continue
        source = folder / f"{number}.git"
        _make(source, value["repository"])
        spec = add(instance, str(source), resolve(path))
        # What the files of the repository allow is not asked again within the time of a run.
        note_right(instance, spec, Right(value.get("right", "write")).cap, OPERATOR.name)
    instance.commit()


def _make(source: Path, files: Tree) -> None:
    """Make a bare repository of files, in one commit (git-fast-import(1))."""
    lines = [f"commit refs/heads/{_BRANCH}", "committer Vectors <vectors@localhost> 0 +0000"]
    lines += ["data 5", "first"]
    for name, value in files.items():
        is_link = isinstance(value, Mapping)
        text = str(value["link"]) if isinstance(value, Mapping) else str(value)
        lines.append(f"M {'120000' if is_link else '100644'} inline {name}")
        lines += [f"data {len(text.encode())}", text]
    run(["init", "-q", "--bare", "-b", _BRANCH, str(source)])
    run(["fast-import", "--quiet"], repository=source, stdin="\n".join(lines) + "\n")
