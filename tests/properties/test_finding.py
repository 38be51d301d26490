"""glob and grep against the contract read word by word, on generated trees and views."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path as HostPath
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusefs.contract.paths import ROOT, render
from fusefs.session import texts
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.tools.conformance_faces import Answer, SessionFace
from fusefs.tools.conformance_finding import FindingFace
from tests.conformance.model import ModelSession
from tests.conformance.test_vectors_model import ModelFace
from tests.properties.worlds import PATHS, Pair, build_order, pairs

_LINES = st.text("abA é.1_\t", max_size=8)
_TEXT = st.lists(_LINES, max_size=6).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n", "\n\n", "\r"]).map(lambda end: end.join(lines))
)
_CONTENT = st.builds(
    lambda start, text, end: start + text.encode() + end,
    st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"]),
    _TEXT,
    st.sampled_from([b"", b"\n", b"\n", b"\r\n", b"\0", b"\xff\n", b"a" * 1990]),
)

_ATOM = st.sampled_from(
    ["a", "b", "A", "é", ".", "\\.", "1", "\\w", "\\d", "\\s", "[ab]", "[^a]", "\\r"]
)
_EDGE = st.sampled_from(["", "", "^", "$", "\\b"])


def _more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda a, b: f"(?:{a}|{b})", inner, inner) | st.builds(
        lambda a, mark: f"(?:{a}){mark}", inner, st.sampled_from(["*", "+", "?", "{2}"])
    )


_PART = st.recursive(_ATOM, _more, max_leaves=3)
_PATTERN = st.builds(
    lambda start, parts, end: start + "".join(parts) + end,
    _EDGE, st.lists(_PART, max_size=3), _EDGE,
)  # fmt: skip
_TOP = PATHS.map(render) | st.just("/")
_GLOB = st.sampled_from(
    ["*", "**", "**/", "a/**", "*/b", "**/[ab]", "{a,b/c}", "{a,b}/**/c", "?/*/", "/a/*", "/b/**/c"]
)
_INCLUDE = st.lists(
    st.sampled_from(["a", "b", "[ab]", "a/*", "/b", "**/a/*", "!a", "!b/", "!a/b", "{a,c}"]),
    min_size=1, max_size=2,
)  # fmt: skip
_LIMIT = st.integers(1, 4)

_GREP = st.fixed_dictionaries(
    {"op": st.just("grep"), "pattern": _PATTERN, "path": _TOP},
    optional={
        "literal": st.just(True), "ignore_case": st.just(True), "include": _INCLUDE,
        "before": st.integers(0, 2), "after": st.integers(0, 2), "limit": _LIMIT,
        "results": st.sampled_from(["files", "counts"]),
    },
)  # fmt: skip
CASES = st.fixed_dictionaries(
    {"op": st.just("glob"), "pattern": _GLOB, "path": _TOP}, optional={"limit": _LIMIT}
) | _GREP


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    pairs(),
    st.lists(_CONTENT, min_size=12, max_size=12),
    st.lists(CASES, min_size=4, max_size=12),
    st.sampled_from([1, 12, texts._MOST_BYTES]),
)
def test_what_is_found(
    pair: Pair, contents: list[bytes], cases: list[Mapping[str, object]], at_once: int
) -> None:
    files = [path for path, content in build_order(pair.first) if content is not None]
    given_texts = dict(zip(files, contents * 10, strict=False))
    with (
        mock.patch.multiple(texts, _FIRST_BYTES=at_once, _MOST_BYTES=at_once, _MOST_AHEAD=2),
        tempfile.TemporaryDirectory(prefix="fusefs-test-") as folder,
        Instance.init(HostPath(folder) / "instance") as instance,
    ):
        operator = Session(instance)
        for path, content in build_order(pair.first):
            if content is None:
                operator.mkdir(render(path))
            else:
                operator.write(render(path), given_texts[path])
        session = Session(instance, instance.sessions.put(pair.spec, "-"))
        model = ModelSession({ROOT: None, **pair.first, **given_texts}, pair.spec)
        for case in cases:
            assert _answer(FindingFace(session), case) == _answer(ModelFace(model), case), case


def _answer(face: SessionFace, case: Mapping[str, object]) -> Answer:
    return face.call(str(case["op"]), case)
