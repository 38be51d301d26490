"""Finding files in a tree kept in a dictionary: the contract's section 9 read word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fusefs.contract.chunks import Piece
from fusefs.contract.errors import InvalidArgument, NotADirectory
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path, decode, is_at_or_below, render
from fusefs.tools.conformance_finding import found
from tests.conformance.model import DIRECTORIES, ModelSession
from tests.contract import naive
from tests.contract.naive_globs import expanded, globbed, included
from tests.index import naive as naive_index


class ModelFinder:
    """Finds what a model's session sees."""

    def __init__(self, session: ModelSession) -> None:
        self._session = session

    def glob(self, given: Mapping[str, Any]) -> object:
        """Answer a case of glob."""
        pattern, path = given["pattern"], given.get("path", ".")
        _check(pattern)
        if given.get("limit") == 0:
            raise InvalidArgument("at least one")
        if pattern.startswith("/"):
            # It is about what is below the directories that it names.
            *above, _ = pattern.strip("/").split("/")
            literal = [name for name in above if not re.search(r"[*?\[{\\]", name)]
            above = above[: next((n for n, name in enumerate(above) if name not in literal), None)]
            path, pattern = "/" + "/".join(above), pattern.strip("/").split("/", len(above))[-1]
        top = self._session.existing(path)
        if self._session.kind(top) not in DIRECTORIES:
            raise NotADirectory(render(top))
        paths = []
        for at in self._below(top):
            is_directory = self._session.kind(at) in DIRECTORIES
            names = tuple(map(decode, at[len(top) :]))
            if globbed(pattern, names, directory=is_directory):
                paths.append(render(at) + "/" * is_directory)
        allowed = paths[: given.get("limit")]
        return found(allowed, allowed != paths, [])

    def grep(self, given: Mapping[str, Any]) -> object:
        """Answer a case of grep."""
        pattern = _compiled(given)
        include = given.get("include", [])
        include = [include] if isinstance(include, str) else include
        for each in include:
            _check(each.removeprefix("!"))
        top = self._session.existing(given.get("path", "."))
        files = [top]
        if self._session.kind(top) in DIRECTORIES:
            below = [at for at in self._below(top) if self._session.kind(at) == Kind.FILE]
            names = {at: tuple(map(decode, at[len(top) :])) for at in below}
            files = [at for at in below if not include or included(include, names[at])]
        texts, unread = {}, []
        for at in files:
            data = self._session.nodes[at]
            assert isinstance(data, bytes)
            try:
                text = data.decode()
            except UnicodeDecodeError:
                text = "\0"
            if "\0" in text:
                unread.append(at)
            else:
                texts[at] = _lines(text, given)
        hits = [
            (at, number)
            for at, lines in texts.items()
            for number, line in enumerate(lines, 1)
            if pattern.search(line)
        ]
        if "results" in given:
            hits = [hit for n, hit in enumerate(hits) if hit[0] not in {h[0] for h in hits[:n]}]
        allowed, more = hits[: given.get("limit")], hits[len(hits[: given.get("limit")]) :]
        unread = [at for at in unread if not more or at < more[0][0]]
        results = list(_results(texts, allowed, more, given, pattern))
        return found(results, bool(more or unread), [render(at) for at in unread])

    def search(self, given: Mapping[str, Any]) -> object:
        """Answer a case of search, by words; no text of a case has more than one piece."""
        if not given["query"].strip() or given.get("limit") == 0:
            raise InvalidArgument("nothing to look for")
        top = self._session.existing(given.get("path", "."))
        include = given.get("include", [])
        include = [include] if isinstance(include, str) else include
        seen: dict[bytes, list[Path]] = {}
        for at in self._visible():
            data = self._session.nodes[at]
            if isinstance(data, bytes) and data.strip():
                seen.setdefault(data, []).append(at)
        texts = {data: data.decode() for data in seen}
        scores = naive_index.word_scores(
            texts, naive_index.term_list(given["query"]), cut=lambda text: [Piece(0, len(text))]
        )
        hits = []
        for (data, _), score in scores.items():
            paths = [
                at
                for at in seen[data]
                if is_at_or_below(at, top)
                and (not include or included(include, tuple(map(decode, at[len(top) :]))))
            ]
            if paths:
                hits.append((-round(score, 9), paths, texts[data]))
        ranked = sorted(hits)[: given.get("limit", 10)]
        if given.get("results") == "text":
            return "\n\n".join(
                f"{_place(paths[0], text)}\n{_shown(text)}" for _, paths, text in ranked
            )
        return [
            "=".join((_place(paths[0], text), *map(render, paths[1:])))
            for _, paths, text in ranked
        ]

    def _visible(self) -> list[Path]:
        session = self._session
        return [at for at in sorted(session.nodes) if naive.visible(session.rules, at)]

    def _below(self, top: Path) -> list[Path]:
        session = self._session
        return [
            at
            for at in sorted(session.nodes)
            if is_at_or_below(at, top) and at != top and naive.visible(session.rules, at)
        ]


def _shown(text: str) -> str:
    """A passage without blank lines at its ends."""
    lines = text.rstrip().split("\n")
    while not lines[0].strip():
        lines.pop(0)
    return "\n".join(lines)


def _place(path: Path, text: str) -> str:
    shown = _shown(text)
    first = text[: text.index(shown)].count("\n") + 1
    return f"{render(path)}:{first}-{first + shown.count(chr(10))}"


def _results(
    texts: Mapping[Path, list[str]],
    allowed: list[tuple[Path, int]],
    more: list[tuple[Path, int]],
    given: Mapping[str, Any],
    pattern: re.Pattern[str],
) -> Iterator[str]:
    before, after = given.get("before", 0), given.get("after", 0)
    for at in dict.fromkeys(at for at, _ in allowed):
        if given.get("results") == "files":
            yield render(at)
            continue
        if given.get("results") == "counts":
            yield f"{render(at)}:{sum(1 for line in texts[at] if pattern.search(line))}"
            continue
        for number, line in enumerate(texts[at], 1):
            is_match = (at, number) in allowed
            is_near = any((at, number + n) in allowed for n in range(-after, before + 1))
            if is_near and (not more or (at, number) < more[0]):
                mark = ":" if is_match else "-"
                shown = _cut(line.removesuffix("\r"), pattern.search(line) if is_match else None)
                yield f"{render(at)}{mark}{number}{mark}{shown}"


def _cut(line: str, match: re.Match[str] | None) -> str:
    """Return at most 2,000 characters, with the match or its beginning among them."""
    start = 0
    if match is not None and match.end() > 2000:
        start = max(match.start() - 200, 0)
    return line[start : start + 2000] if len(line) > 2000 else line


def _check(pattern: str) -> None:
    try:
        expanded_ones = list(expanded(pattern))
        names = [name for one in expanded_ones for name in one.split("/")]
    except (IndexError, ValueError, StopIteration):
        raise InvalidArgument(pattern) from None
    if pattern.endswith("\\") or len(expanded_ones) > 1000 or ".." in names or not any(names):
        raise InvalidArgument(pattern)
    if re.search(r"\[z-a\]", pattern) or pattern.count("{") > pattern.count("}"):
        raise InvalidArgument(pattern)


def _compiled(given: Mapping[str, Any]) -> re.Pattern[str]:
    text = given["pattern"]
    if re.search(r"\n|\\n|\\[1-9]|\(\?[=!<]", text):
        raise InvalidArgument(text)
    if given.get("literal"):
        text = re.escape(text)
    else:
        for spelt, meant in _RE2:
            text = text.replace(spelt, meant)
    try:
        return re.compile(text, re.IGNORECASE if given.get("ignore_case") else re.NOFLAG)
    except re.error:
        raise InvalidArgument(text) from None


_WORD = "[0-9A-Za-z_]"
_RE2 = (
    ("\\pL", "[a-zà-ÿ]"), ("\\z", "\\Z"), ("^(?i)", "(?i)^"), ("\\w", _WORD), ("\\d", "[0-9]"),
    ("\\s", "[\\t\\n\\f\\r ]"), ("\\b", f"(?:(?<!{_WORD})(?={_WORD})|(?<={_WORD})(?!{_WORD}))"),
)  # fmt: skip
"""How Python spells what RE2 takes for something else."""


def _lines(text: str, given: Mapping[str, Any]) -> list[str]:
    text = text.removeprefix("\ufeff")
    if "\\r" not in given["pattern"]:
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]
