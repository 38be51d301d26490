"""Finding files, as conformance vectors ask for it: by a session's methods, and by command."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from fusefs.session.answers import Mode
from fusefs.session.search_setup import setup
from fusefs.session.session import Session
from fusefs.tools.cli.app import run
from fusefs.tools.conformance_faces import Answer, SessionFace

_FLAGS = {"literal": "--literal", "ignore_case": "--ignore-case"}
_NUMBERS = {"before": "--before-context", "after": "--after-context", "limit": "--limit"}
_RESULTS = {"files": "--files-with-matches", "counts": "--count"}


def found(results: Sequence[str], truncated: bool, unread: Sequence[str]) -> object:
    """Return the answer that vectors expect: the results; with more where some are left out."""
    if not truncated:
        return list(results)
    return {"found": list(results), "truncated": True, "unread": list(unread)}


class FindingFace(SessionFace):
    """A session's methods, those that find files too."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._finder = session

    def _do(self, op: str, fields: Mapping[str, object]) -> object:
        if op == "glob":
            return self._glob(dict(fields))
        if op == "grep":
            return self._grep(dict(fields))
        if op == "search":
            return self._search(dict(fields))
        return super()._do(op, fields)

    def _glob(self, given: dict[str, Any]) -> object:
        globbed = self._finder.glob(
            given["pattern"], given.get("path", "."), limit=given.get("limit")
        )
        paths = list(globbed)
        return found(paths, globbed.truncated, [what.path for what in globbed.unread])

    def _grep(self, given: dict[str, Any]) -> object:
        known = (*_FLAGS, *_NUMBERS, "include")
        options = {key: given[key] for key in known if key in given}
        search = self._finder.grep(given["pattern"], given.get("path", "."), **options)
        match given.get("results"):
            case "files":
                results = list(search.files())
            case "counts":
                results = [f"{count.path}:{count.lines}" for count in search.counts()]
            case _:
                results = [_spell(*line[:4]) for line in search]
        return found(results, search.truncated, [what.path for what in search.unread])


    def _search(self, given: dict[str, Any]) -> object:
        options = {key: given[key] for key in ("include", "limit") if key in given}
        with setup(self._finder.view.instance) as made:
            answer = made.searcher(self._finder).search(
                given["query"], given.get("path", "."), mode=Mode.WORDS, **options
            )
        if given.get("results") == "text":
            return answer.text()
        return [_hit(hit.paths, hit.first_line, hit.last_line) for hit in answer.hits]


class CommandFace:
    """The command line, in this very process."""

    def __init__(self, instance: Path, session: str) -> None:
        self._options = ["--json", "--instance", str(instance), "--session", session]

    def call(self, op: str, fields: Mapping[str, object]) -> Answer:
        """Make the call of a case and return its answer, a refusal included."""
        given: dict[str, Any] = dict(fields)
        if op == "search":
            given = {**given, "pattern": given["query"]}
        words = [*_options(op, given), "--", given["pattern"], given.get("path", ".")]
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with redirect_stdout(printed):
            run([op, *self._options, *words])
            printed.flush()
        document = json.loads(printed.buffer.getvalue())
        if "error" in document:
            return Answer(error=document["error"]["text"], code=document["error"]["code"])
        if op == "search":
            return Answer(_hits(document["hits"], given))
        unread = [what["path"] for what in document["unread"]]
        return Answer(found(_results(document), document["truncated"], unread))


def _hits(hits: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> object:
    if given.get("results") == "text":
        places = (f"{hit['path']}:{hit['first_line']}-{hit['last_line']}" for hit in hits)
        return "\n\n".join(
            f"{place}\n{hit['text']}" for place, hit in zip(places, hits, strict=True)
        )
    return [_hit(hit["paths"], hit["first_line"], hit["last_line"]) for hit in hits]


def _hit(paths: Sequence[str], first: int, last: int) -> str:
    """Return a hit as vectors spell it, with the further paths at which it stands."""
    return "=".join((f"{paths[0]}:{first}-{last}", *paths[1:]))


def _options(op: str, given: Mapping[str, Any]) -> Iterator[str]:
    if op == "search":
        yield "--mode=words"
    for key, flag in _FLAGS.items():
        if given.get(key):
            yield flag
    for key, option in _NUMBERS.items():
        if key in given:
            yield f"{option}={given[key]}"
    include = given.get("include", [])
    for pattern in [include] if isinstance(include, str) else include:
        yield f"--include={pattern}"
    if op == "grep" and "results" in given:
        yield _RESULTS[given["results"]]


def _results(document: Mapping[str, Any]) -> list[str]:
    for key in ("paths", "files"):
        if key in document:
            return list(document[key])
    if "counts" in document:
        return [f"{count['path']}:{count['lines']}" for count in document["counts"]]
    return [
        _spell(line["path"], line["line"], line["text"], line["match"])
        for line in document["lines"]
    ]


def _spell(path: str, number: int, text: str, is_match: bool) -> str:
    mark = ":" if is_match else "-"
    return f"{path}{mark}{number}{mark}{text}"
