"""An index against a naive model: whatever was added, united and dropped, in any order."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fusefs.index.batch import LARGEST_TEXT, Content, Why
from fusefs.index.index import Index
from fusefs.index.vectors import Owned
from tests.index import naive

DIMENSIONS = 8
WORDS = ["alpha", "betaGamma", "gamma_delta", "delta", "naïve", "日本語", "x1", "\n", "\n\n", "the"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)
ASKED = ["alpha", "beta", "gammaDelta", "本語", "1", "absent"]
QUERIES = st.lists(st.sampled_from(ASKED), max_size=4)


def key_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def vector_of(text: str) -> np.ndarray:
    """A made-up meaning: any function of the text."""
    seed = int.from_bytes(key_of(text)[:4], "big")
    vector = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
    return vector / np.linalg.norm(vector)


class IndexMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.index = Index(Path(self.folder.name) / "index", dimensions=DIMENSIONS)
        self.texts: dict[bytes, str] = {}
        self.with_vectors: set[bytes] = set()

    def teardown(self) -> None:
        self.index.close()
        self.folder.cleanup()

    @rule(texts=st.lists(TEXTS, max_size=4), alias=st.booleans())
    def add(self, texts: list[str], alias: bool) -> None:
        contents = [Content(key_of(text), text.encode()) for text in texts]
        if alias:
            contents += [Content(b"blob" + key_of(t)[:16], t.encode()) for t in texts]
        assert self.index.add(contents, naive.cut_by_lines)
        self.texts |= {key_of(text): text for text in texts}

    @rule()
    def unite(self) -> None:
        while self.index.unite_segments():
            pass

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.texts:
            kept = data.draw(st.sets(st.sampled_from(sorted(self.texts))))
            gone = self.index.forget(kept)
            assert gone == len(self.texts) - len(kept)
            self.texts = {key: self.texts[key] for key in kept}
            self.with_vectors &= kept

    @rule(most=st.integers(1, 3))
    def put_vectors(self, most: int) -> None:
        keys = {d.number: key for key, d in self.index.documents(self.texts).items()}
        lacking = self.index.without_vectors(keys)
        assert {keys[one.document] for one in lacking} == {
            key for key, text in self.texts.items()
            if key not in self.with_vectors and not (not text or text.isspace())
        }
        owned = []
        for document, done, count in lacking[:most]:
            text = self.texts[keys[document]]
            pieces = [text[p.start : p.end] for p in naive.cut_by_lines(text)]
            assert len(pieces) == count
            # Not always all pieces at once.
            until = count if count < 3 else min(count, done + 2)
            # Two windows a piece, of which the nearer one counts.
            vectors = [vector_of(w) for p in pieces[done:until] for w in (p, p + "!")]
            ordinals = [at for at in range(done, until) for _ in "ab"]
            owned.append(Owned(document, done, until, ordinals, np.stack(vectors)))
            if until == count:
                self.with_vectors.add(keys[document])
        self.index.put_vectors(owned)

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = Index(Path(self.folder.name) / "index", dimensions=DIMENSIONS)

    @rule(query=QUERIES, data=st.data())
    def ask(self, query: list[str], data: st.DataObject) -> None:
        seen = {
            key: text
            for key, text in self.texts.items()
            if text and not text.isspace() and data.draw(st.booleans())
        }
        keys = {d.number: key for key, d in self.index.documents(seen).items()}
        snapshot = self.index.snapshot()
        visible = snapshot.visible(keys)
        terms = naive.term_list(" ".join(query))
        scores = self.index.word_scores(snapshot, visible, terms)
        assert scores is not None
        found = {}
        for piece in np.flatnonzero(scores):
            span = snapshot.span(int(piece))
            found[keys[span.document], span.ordinal] = float(scores[piece])
            text = seen[keys[span.document]]
            assert naive.cut_by_lines(text)[span.ordinal] == (span.start, span.end)
        expected = naive.word_scores(seen, terms)
        assert found == pytest.approx(expected, rel=1e-12)
        self.near(vector_of(" ".join(query)))

    def near(self, question: np.ndarray) -> None:
        snapshot = self.index.snapshot()
        meanings = self.index.meanings(snapshot)
        scores = meanings.scores(question)
        documents = {d.number: key for key, d in self.index.documents(self.texts).items()}
        for piece, score in enumerate(scores):
            span = snapshot.span(piece)
            key = documents[span.document]
            assert meanings.known[piece] == np.isfinite(score)
            if key in self.with_vectors:
                assert meanings.known[piece]
                text = self.texts[key][span.start : span.end]
                best = max(float(vector_of(w) @ question) for w in (text, text + "!"))
                assert score == pytest.approx(best, abs=0.02)

    @invariant()
    def all_is_there(self) -> None:
        documents = self.index.documents(self.texts)
        assert set(documents) == set(self.texts)
        for key, document in documents.items():
            assert document.why == Why.NOTHING
            assert self.index.sha256(document.number) == key


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


def test_many_small_segments_become_few(tmp_path: Path) -> None:
    index = Index(tmp_path / "index", dimensions=0)
    texts = {key_of(text): text for text in (f"word{n} common" for n in range(150))}
    for key, text in texts.items():
        index.add([Content(key, text.encode())], naive.cut_by_lines)
        index.unite_segments()
    snapshot = index.snapshot()
    assert len(snapshot.segments) < 20
    visible = snapshot.visible(d.number for d in index.documents(texts).values())
    scores = index.word_scores(snapshot, visible, ["word77"])
    assert scores is not None
    assert [snapshot.span(int(p)).document for p in np.flatnonzero(scores)] == [
        index.documents([key_of("word77 common")]).popitem()[1].number
    ]
    index.close()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xfe", Why.NOT_TEXT),
        (b"a\0b", Why.NOT_TEXT),
        (b"a" * (LARGEST_TEXT + 1), Why.TOO_LARGE),
        (None, Why.TOO_LARGE),
        (b"", Why.NOTHING),
    ],
)
def test_why_a_content_is_left_out(tmp_path: Path, data: bytes | None, why: Why) -> None:
    index = Index(tmp_path / "index", dimensions=0)
    index.add([Content(b"key", data)], naive.cut_by_lines)
    (document,) = index.documents([b"key"]).values()
    assert document.why == why
    assert index.without_vectors([document.number]) == []
    index.close()


def test_equal_contents_in_hidden_places_change_no_score(tmp_path: Path) -> None:
    """Scores are equal to the last bit, whatever else is in the index, and in what order."""
    seen = [f"alpha beta {'gamma ' * n}" for n in range(1, 6)]
    hidden = ["alpha alpha", "beta", *("gamma " * n for n in range(7))]
    found = []
    for order, (first, second) in enumerate(itertools.permutations([seen, hidden])):
        index = Index(tmp_path / f"index{order}", dimensions=DIMENSIONS)
        for text in (*first, *second):
            index.add([Content(key_of(text), text.encode())], naive.cut_by_lines)
        keys = {d.number: key for key, d in index.documents(map(key_of, seen)).items()}
        index.put_vectors(
            [Owned(d, 0, 1, [0], vector_of(key.hex())[None]) for d, key in keys.items()]
        )
        snapshot = index.snapshot()
        scores = index.word_scores(snapshot, snapshot.visible(keys), ["alpha", "gamma"])
        assert scores is not None
        near = index.meanings(snapshot).scores(vector_of("alpha"))
        pieces = {keys[snapshot.span(int(p)).document]: p for p in np.flatnonzero(scores)}
        found.append({key: (scores[p], near[p]) for key, p in pieces.items()})
        index.close()
    assert found[0] == found[1]
