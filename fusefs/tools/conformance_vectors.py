"""The conformance vectors, read from their files; ``conformance/README.md`` says what they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fusefs.contract.errors import ContractError
from fusefs.contract.sessions import SessionSpec
from fusefs.tools.conformance_chunks import write_out

FACES = ("api", "mount", "cli")

Tree = Mapping[str, "str | Mapping[str, Any] | None"]
"""Path to a file's text, to None for a directory, to ``{"link": target}``, or to a repository."""

_OPERATIONS = frozenset(
    {"list", "read", "write", "mkdir", "rm", "mv", "symlink", "stat", "format", "commit",
     "cut", "halve", "glob", "grep", "search"}
)  # fmt: skip
_API_ONLY = frozenset({"format", "commit", "cut", "halve"})
_CASE_KEYS = frozenset(
    {"op", "path", "target", "content", "recursive", "by", "entries", "world",
     "directory_level", "query", "text", "tokens", "size", "overlap", "least", "piece", "pattern",
     "include", "literal", "ignore_case", "before", "after", "limit", "results", "expect",
     "faces", "about"}
)  # fmt: skip


class VectorError(Exception):
    """A file of vectors that cannot be read as such; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call and what it must answer; see ``conformance/README.md``."""

    number: int
    op: str
    fields: Mapping[str, object]
    expect: Mapping[str, object]
    faces: tuple[str, ...]

    @property
    def by_operator(self) -> bool:
        """The call is made with every right, to look behind the session's view."""
        return self.fields.get("by") == "operator"

    @property
    def call(self) -> str:
        """The call, for people."""
        given = (self.fields.get(key) for key in ("pattern", "path", "target"))
        return " ".join([self.op, *(repr(value) for value in given if value is not None)])

    def refused(self, face: str) -> bool:
        """Tell whether the call must fail on `face`."""
        if face == "mount":
            return "errno" in self.expect
        return "error" in self.expect or "code" in self.expect


@dataclass(frozen=True, slots=True)
class Scenario:
    """A tree, a session, and cases that run in order; on each of `trees` all answer alike."""

    name: str
    trees: tuple[Tree, ...]
    session: SessionSpec
    cases: tuple[Case, ...]


def shipped() -> list[Traversable]:
    """Return the files of vectors that come with the package, or lie beside it in a checkout."""
    folder: Traversable = resources.files("fusefs") / "vectors"
    if not folder.is_dir():
        folder = Path(__file__).parents[2] / "conformance"
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".json"))
    return sorted(found, key=lambda entry: entry.name)


def load(files: Sequence[Traversable] = ()) -> list[Scenario]:
    """Return the scenarios in `files`, or without files in those that come with the package.

    Raises:
        VectorError: a file is not vectors.
        OSError: a file cannot be read.
    """
    scenarios: list[Scenario] = []
    for file in files or shipped():
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            scenarios.extend(_scenario(item) for item in data["scenarios"])
        except (ValueError, KeyError, TypeError, AttributeError, ContractError) as error:
            raise VectorError(f"{file}: {type(error).__name__}: {error}") from error
    return scenarios


def _scenario(data: Mapping[str, object]) -> Scenario:
    session, cases, others = data["session"], data["cases"], data.get("same_with", [])
    if not (isinstance(session, Mapping) and isinstance(cases, list) and isinstance(others, list)):
        raise TypeError(f"not a scenario: {data.get('name')!r}")
    return Scenario(
        name=str(data["name"]),
        trees=tuple(_tree(tree) for tree in (data["tree"], *others)),
        session=SessionSpec.from_table({"name": "vectors", **session}),
        cases=tuple(_case(number, case) for number, case in enumerate(cases, 1)),
    )


def _tree(data: object) -> Tree:
    if not isinstance(data, Mapping):
        raise TypeError(f"not a tree: {data!r}")
    for path, value in data.items():
        if not (value is None or isinstance(value, str) or _is_special(value)):
            raise TypeError(f"not a node: {path} = {value!r}")
    return data


def _is_special(value: object) -> bool:
    """Tell whether it is a link or a repository."""
    if not isinstance(value, Mapping):
        return False
    files = value.get("repository")
    if files is None:
        return isinstance(value.get("link"), str)
    right = value.get("right", "write")
    return right in ("none", "read", "write") and None not in _tree(files).values()


def _case(number: int, data: Mapping[str, object]) -> Case:
    unknown = set(data) - _CASE_KEYS
    if unknown or data["op"] not in _OPERATIONS:
        raise ValueError(f"not a case: {data!r}")
    if "text" in data:
        write_out(data["text"])
    expect, op = data["expect"], str(data["op"])
    default: tuple[str, ...] = ("api", "mount")
    if op in _API_ONLY or data.get("by") == "operator":
        default = ("api",)
    elif op in ("glob", "grep", "search"):
        default = ("api", "cli")
    faces = data.get("faces", default)
    if not (isinstance(expect, Mapping) and isinstance(faces, Sequence)):
        raise TypeError(f"not a case: {data!r}")
    return Case(number, op, data, expect, tuple(str(face) for face in faces))
