"""How well search finds what is meant: NDCG@10 by words alone, by meaning alone, and by both.

    python -m bench.search_quality                        # every collection
    python -m bench.search_quality --only functions --questions 200

Every collection (`bench.search_data`) is put into an instance of its own as files, indexed with
the model of the product, and asked through the product's own searcher. A hit counts as its file; of
several hits in one file the first counts. Questions at even places served to choose parameters;
those at odd places did not, and are the figures to go by.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import machine
from bench.search_data import Collection, Question, commits, functions, man_pages
from fusefs.session.answers import Mode
from fusefs.session.search_setup import setup
from fusefs.session.searching import Searcher
from fusefs.session.session import Session
from fusefs.store.instance import Instance

_PROJECT = Path(__file__).resolve().parent.parent
_COLLECTIONS: Mapping[str, Callable[[], Collection]] = {
    "functions": functions,
    "man": man_pages,
    "commits": lambda: commits(_PROJECT),
}
_MODES = (Mode.WORDS, Mode.MEANING, Mode.HYBRID)
_RANKS = 10
_HITS = 50
"""Enough for ten different files."""


def ndcg(ranked: Sequence[str], answers: frozenset[str]) -> float:
    """Return the normalised discounted cumulative gain of the first ten, each right or wrong."""
    gain = sum(
        1 / math.log2(rank + 1)
        for rank, path in enumerate(ranked[:_RANKS], start=1)
        if path in answers
    )
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(_RANKS, len(answers)) + 1))
    return gain / best


def measure(collection: Collection, questions: int, folder: Path) -> list[list[str]]:
    """Return a row of figures for the two halves of a collection's questions."""
    instance = Instance.init(folder)
    try:
        session = Session(instance)
        _fill(session, collection.documents)
        with setup(instance) as made:
            if made.loaded.unavailable is not None:
                sys.exit(f"Nothing can be found by meaning: {made.loaded.unavailable}")
            indexer = made.indexer()
            began = time.perf_counter()
            if not indexer.take() or not indexer.add_words(lambda: True):
                sys.exit("The index could not be made.")
            while indexer.add_vectors():
                pass
            indexer.finish()
            indexer.give_back()
            say(f"{collection.name}: indexed in {time.perf_counter() - began:.0f} s")
            searcher = made.searcher(session)
            return [
                [
                    f"{collection.name}: {kind}, {half} half",
                    f"{len(collection.documents):,}",
                    f"{len(asked[start:questions:2]):,}",
                    *(f"{_mean(searcher, asked[start:questions:2], mode):.3f}" for mode in _MODES),
                ]
                for kind, asked in collection.questions.items()
                for start, half in ((1, "held-out"), (0, "other"))
            ]
    finally:
        instance.close()


def _fill(session: Session, documents: Mapping[str, str]) -> None:
    folders = {str(parent) for path in documents for parent in Path("/", path).parents} - {"/"}
    for folder in sorted(folders):
        session.mkdir(folder)
    for path, text in documents.items():
        session.write(f"/{path}", text.encode())


def _mean(searcher: Searcher, questions: Sequence[Question], mode: Mode) -> float:
    total = 0.0
    for question in questions:
        hits = searcher.search(question.text, limit=_HITS, mode=mode).hits
        # What stands in several files word for word is one hit, in all of them.
        files = dict.fromkeys(path.removeprefix("/") for hit in hits for path in hit.paths)
        total += ndcg(list(files), question.answers)
    return total / len(questions)


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(_COLLECTIONS), help="collections, by comma")
    parser.add_argument("--questions", type=int, default=1_000, help="of each, at most")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.only.split(","):
        say(f"{name}: collecting")
        collection = _COLLECTIONS[name]()
        with tempfile.TemporaryDirectory(prefix="fusefs-bench-") as folder:
            found = measure(collection, chosen.questions, Path(folder) / "instance")
        for row in found:
            say(" ".join(row))
        rows += found
    heading = ["NDCG@10", "documents", "questions", *_MODES]
    print(machine.table(heading, rows))


if __name__ == "__main__":
    main()
