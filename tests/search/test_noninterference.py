"""What a session finds tells nothing of what it cannot see: not a score, not a count."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusefs.contract.errors import ContractError
from fusefs.contract.paths import Path as TreePath
from fusefs.contract.paths import render
from fusefs.session.answers import Mode
from fusefs.session.session import Session
from tests.properties.worlds import Pair, Tree, build_order, pairs
from tests.search.place import Place

TEXTS = st.sampled_from(
    [
        b"one two three\n\nfour five",
        b"two two two two",
        b"three\n\nthree four\n\nfive six seven",
        b"one",
        b"\xff\x00",
        b"",
    ]
)
QUERIES = ["two", "one three", "five of seven", "two two", "twelve"]


def _plant(place: Place, tree: Tree, texts: dict[TreePath, bytes]) -> None:
    for path, content in build_order(tree):
        if content is None:
            place.owner.mkdir(render(path))
        else:
            place.owner.write(render(path), texts.get(path, content))


def _answers(session: Session, place: Place) -> list[object]:
    searcher = place.searcher(session)
    told: list[object] = []
    for query in QUERIES:
        for where in ("/", "/a", "/a/b", "/b", "/c/a", "/missing"):
            for mode in (Mode.HYBRID, Mode.WORDS):
                try:
                    found = searcher.search(query, where, limit=3, mode=mode)
                    told.append((found.hits, dataclasses.astuple(found.completeness), found.notes))
                except ContractError as error:
                    told.append(error.text)
    return told


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(pair=pairs(), data=st.data())
def test_equal_answers_whatever_is_hidden(pair: Pair, data: st.DataObject) -> None:
    files = sorted(
        path for tree in (pair.first, pair.second) for path, c in tree.items() if c is not None
    )
    # What is at a path is the same in both trees; hidden texts may be equal to visible ones.
    texts = {path: data.draw(TEXTS) for path in dict.fromkeys(files)}
    with tempfile.TemporaryDirectory() as folder:
        told = []
        for number, tree in enumerate((pair.first, pair.second)):
            place = Place(Path(folder) / str(number))
            place.instance.sessions.put(pair.spec, "-")
            session = Session(place.instance, place.instance.sessions.get("s"))
            _plant(place, tree, texts)
            if number:  # in other order, and with other pieces in the same segments
                for at, path, content in pair.late:
                    if content is not None and at % 2:
                        place.searcher().search("one", patience=10)
                        _plant_late(place, path, texts.get(path, b"two three seven " * 50))
            place.complete()
            told.append(_answers(session, place))
            place.close()
        assert told[0] == told[1]


def _plant_late(place: Place, path: TreePath, text: bytes) -> None:
    try:
        place.owner.write(render(path), text)
    except ContractError:
        return  # something else is there
