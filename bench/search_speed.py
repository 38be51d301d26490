"""How long search takes: to make texts findable, to follow an edit, and to answer.

    python -m bench.search_speed                          # everything; takes some minutes
    python -m bench.search_speed --sizes 35000,100000 --megabytes 10
    python -m bench.search_speed --folder /var/tmp        # where instances are made

Texts are files of installed Python packages, documentation and manual pages, in their own mixture.
Beside the product stand tantivy and SQLite's FTS5, which are given the same pieces as documents;
they know neither sessions nor meaning, and commit once.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing as mp
import random
import sqlite3
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ParamSpec

from bench import machine
from bench.search_sizes import RandomModel, Vocabulary, make_instance
from fusefs.contract.texts import is_text
from fusefs.index.batch import LARGEST_TEXT
from fusefs.index.library import Library
from fusefs.index.postings import TermCounter
from fusefs.index.terms import words_of
from fusefs.session.answers import Mode
from fusefs.session.search_setup import setup
from fusefs.session.searching import Searcher
from fusefs.session.session import Session
from fusefs.session.transfer import import_directory
from fusefs.store.instance import Instance

_SOURCES = (Path(sysconfig.get_path("purelib")), Path("/usr/share/doc"), Path("/usr/share/man"))
_SIZES = "35000,100000,1000000"
_SEED = 20
_QUESTIONS = 100
_EDITS = 20
_ROUNDS = 4
_SPAWN = mp.get_context("spawn")
_Given = ParamSpec("_Given")


def read_texts(megabytes: int) -> list[str]:
    """Return texts of the machine, an equal share of each source."""
    found = []
    for top in _SOURCES:
        left = megabytes * 1_000_000 // len(_SOURCES)
        files = sorted(file for file in top.rglob("*") if file.is_file())
        random.Random(_SEED).shuffle(files)
        for file in files:
            if left <= 0:
                break
            data = file.read_bytes()
            if file.suffix == ".gz":
                data = gzip.decompress(data)
            text = data.decode() if len(data) <= LARGEST_TEXT and is_text(data) else None
            if text is not None:
                found.append(text)
                left -= len(data)
    return found


def questions_of(texts: Sequence[str]) -> list[str]:
    """Return lines of texts that have as many words as questions have."""
    chosen = random.Random(_SEED).sample(texts, min(len(texts), 500))
    lines = [line for text in chosen for line in text.splitlines() if 4 <= len(words_of(line)) <= 9]
    return random.Random(_SEED).sample(lines, _QUESTIONS)


def indexing(texts: Sequence[str], questions: Sequence[str], folder: Path) -> str:
    """Return a table of what it takes to index texts by words, and to ask for them."""
    host = folder / "host"
    for number, text in enumerate(texts):
        file = host / str(number // 100) / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    with Instance.init(folder / "instance") as instance:
        session = Session(instance)
        import_directory(session, host, "/texts", lambda progress: None)
        with setup(instance) as made:
            indexer = made.indexer()
            assert indexer.take()
            seconds = timed(lambda: indexer.add_words(lambda: True))
            indexer.give_back()
            model = made.loaded.model
            pieces = [[text[start:end] for start, end in model.cut(text)] for text in texts]
            rows = [
                ["fusefs", machine.seconds(seconds), *_asked(made.searcher(session), questions)],
                ["- of that, cutting", machine.seconds(timed(lambda: list(map(model.cut, texts))))],
                ["- of that, counting", machine.seconds(timed(lambda: _count(pieces)))],
            ]
            took = _edit_by_words(made.searcher(session), session)
            rows.append(["an edit, by words", machine.seconds(took)])
    meant = _edit_by_meaning(folder / "edited")
    rows.append(["an edit, by meaning", "" if meant is None else machine.seconds(meant)])
    every = [piece for of_text in pieces for piece in of_text]
    rows.append(["tantivy", *_tantivy(every, questions, folder / "tantivy")])
    rows.append(["SQLite FTS5", *_fts5(every, questions, folder / "fts5.db")])
    size = sum(len(text.encode()) for text in texts) / 1e6
    heading = [f"{size:.0f} MB, {len(texts):,} files, {len(every):,} pieces", "", "p50", "p95"]
    return machine.table(heading, [row + [""] * (4 - len(row)) for row in rows])


def _count(pieces: Sequence[Sequence[str]]) -> None:
    # Batches of the product have some megabytes, too.
    for at in range(0, len(pieces), 1_000):
        counter = TermCounter()
        for of_text in pieces[at : at + 1_000]:
            for piece in of_text:
                counter.add(piece)
        counter.finish()


def _edit_by_words(searcher: Searcher, session: Session) -> float:
    """Return how many seconds it takes, on the median, until the words of an edit are found."""
    times = []
    for number in range(_EDITS):
        session.write("/note.txt", f"Edit number{number}: the harbour is closed.\n".encode())
        times.append(timed(_find, searcher, f"number{number}", Mode.WORDS))
    return statistics.median(times)


def _edit_by_meaning(folder: Path) -> float | None:
    """Return how many seconds it takes until an edit is found by meaning, where all else is.

    The steps of the process that makes vectors are taken here, one after the other. None where
    there is no model.
    """
    times = []
    with Instance.init(folder) as instance, setup(instance) as made:
        session = Session(instance)
        searcher, indexer = made.searcher(session), made.indexer()
        assert indexer.take()

        def follow() -> None:
            indexer.add_words(lambda: True)
            indexer.add_vectors()
            _find(searcher, "closed in winter", Mode.MEANING)

        if made.loaded.unavailable is not None:
            return None
        for number in range(_EDITS):
            session.write("/note.txt", f"Harbour {number} is shut when it is cold.\n".encode())
            times.append(timed(follow))
        indexer.give_back()
    # The first one loads the model.
    return statistics.median(times[1:])


def _find(searcher: Searcher, query: str, mode: Mode) -> None:
    assert searcher.search(query, mode=mode).hits[0].path == "/note.txt"


def _tantivy(pieces: Sequence[str], questions: Sequence[str], folder: Path) -> list[str]:
    import tantivy  # noqa: PLC0415  # only this needs it

    folder.mkdir()
    schema = tantivy.SchemaBuilder().add_text_field("text", stored=False, tokenizer_name="en_stem")
    index = tantivy.Index(schema.build(), path=str(folder))

    def add() -> None:
        writer = index.writer(num_threads=1)
        for piece in pieces:
            writer.add_document(tantivy.Document(text=piece))
        writer.commit()
        writer.wait_merging_threads()

    seconds = timed(add)
    index.reload()
    found = index.searcher()

    def ask(question: str) -> None:
        query = index.parse_query(" ".join(words_of(question)).lower(), ["text"])
        found.search(query, 10)

    return [machine.seconds(seconds), *percentiles(ask, questions)]


def _fts5(pieces: Sequence[str], questions: Sequence[str], path: Path) -> list[str]:
    database = sqlite3.connect(path)
    database.execute(
        "create virtual table texts using fts5(text, content='', tokenize='porter unicode61')"
    )

    def add() -> None:
        rows = enumerate(pieces)
        database.executemany("insert into texts (rowid, text) values (?, ?)", rows)
        database.commit()

    seconds = timed(add)

    def ask(question: str) -> None:
        query = " OR ".join(f'"{word}"' for word in words_of(question))
        database.execute(
            "select rowid from texts where texts match ? order by rank limit 10", (query,)
        ).fetchall()

    asked = percentiles(ask, questions)
    database.close()
    return [machine.seconds(seconds), *asked]


def _asked(searcher: Searcher, questions: Sequence[str]) -> list[str]:
    return percentiles(partial(searcher.search, mode=Mode.WORDS), questions)


def answering(
    pieces: int, texts: Sequence[str], questions: Sequence[str], folder: Path
) -> list[str]:
    """Return a row of what an answer takes among so many pieces, and of the memory."""
    make_instance(folder, pieces, Vocabulary(texts))
    with _SPAWN.Pool(1) as process:
        return [f"{pieces:,} pieces", *process.apply(_answer, (folder / "instance", questions))]


def _answer(folder: Path, questions: Sequence[str]) -> list[str]:
    with Instance.open(folder) as instance:
        library = Library(instance.folder)
        searcher = Searcher(Session(instance), library, RandomModel())
        first = timed(lambda: searcher.search(questions[0]))
        rows = [machine.seconds(first)]
        for mode in Mode:
            rows += percentiles(partial(searcher.search, mode=mode), questions)
        library.close()
    return [*rows, *_memory()]


def _memory() -> list[str]:
    """Return what the process holds of its own, and what of files is mapped."""
    words = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    sizes = {kind: int(words[f"Rss{kind}"].split()[0]) / 1024 for kind in ("Anon", "File", "Shmem")}
    return [f"{sizes['Anon']:.0f} MiB", f"{sizes['File'] + sizes['Shmem']:.0f} MiB"]


def percentiles(ask: Callable[[str], object], questions: Sequence[str]) -> list[str]:
    """Return the median time of an answer, and that below which nineteen of twenty are.

    Each question is asked several times and its shortest time taken, so that what else the machine
    does counts less; the first time warms it.
    """
    times = sorted(min(timed(ask, one) for _ in range(_ROUNDS)) for one in questions)
    return [machine.seconds(times[len(times) * share // 100]) for share in (50, 95)]


def timed(work: Callable[_Given, object], *given: _Given.args, **named: _Given.kwargs) -> float:
    """Return how many seconds something takes."""
    began = time.perf_counter()
    work(*given, **named)
    return time.perf_counter() - began


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=50, help="of text that is indexed")
    parser.add_argument("--sizes", default=_SIZES, help="pieces, by comma; may be empty")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="for instances")
    given = parser.parse_args()
    for line in machine.describe(given.folder):
        print(line)
    texts = read_texts(given.megabytes)
    questions = questions_of(texts)
    say("indexing")
    with tempfile.TemporaryDirectory(prefix="fusefs-bench-", dir=given.folder) as folder:
        print(indexing(texts, questions, Path(folder)))
    rows = []
    for size in filter(None, given.sizes.split(",")):
        say(f"{size} pieces")
        with tempfile.TemporaryDirectory(prefix="fusefs-bench-", dir=given.folder) as folder:
            rows.append(answering(int(size), texts[::20], questions, Path(folder)))
    heading = [
        "",
        "first",
        *(f"{mode} {p}" for mode in Mode for p in ("p50", "p95")),
        "own",
        "mapped",
    ]
    print(machine.table(heading, rows))


if __name__ == "__main__":
    main()
