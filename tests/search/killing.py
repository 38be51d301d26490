"""Kills whoever makes an index, at random moments, while files change; then looks what came of it.

Run for long: ``python -m tests.search.killing --rounds 50``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fusefs.index.library import Library
from fusefs.index.model import Windows
from fusefs.session import index_worker, indexing
from fusefs.session.answers import Mode
from fusefs.session.indexing import Indexer
from fusefs.session.searching import Searcher
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from tests.search.made_up import MadeUp


class Slow(MadeUp):
    """Takes its time, and writes down each piece that it embeds."""

    def __init__(self, record: Path) -> None:
        super().__init__()
        self._record = record

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        time.sleep(0.01)
        with self._record.open("a") as file:
            file.writelines(f"{piece.strip()}\n" for pieces in texts for piece in pieces)
        return super().embed(texts)

    def embed_question(self, question: str) -> NDArray[np.float32]:
        return super().embed_question(question)


def work(folder: Path, record: Path) -> None:
    """Make the index complete, as the process in the background does."""
    with Instance.open(folder) as instance:
        library = Library(folder)
        index_worker.work(
            instance, library, Indexer(instance, library, Slow(record)), until_complete=True
        )
        library.close()


def torture(folder: Path, rounds: int, seed: int) -> list[str]:
    """Return what was wrong, a line each."""
    chance = random.Random(seed)
    record = folder / "embedded.txt"
    record.touch()
    kept: dict[str, str] = {}
    kills = 0
    with Instance.init(folder / "instance") as instance:
        owner = Session(instance)
        for number in range(rounds):
            for file in range(chance.randrange(10, 40)):
                text = "\n\n".join(
                    f"piece r{number}x{file}x{part}" for part in range(chance.randrange(1, 5))
                )
                owner.write(f"/d{file % 7}/f{number}-{file}.txt", text.encode())
                kept[f"/d{file % 7}/f{number}-{file}.txt"] = text
            for path in chance.sample(sorted(kept), min(5, len(kept))):
                owner.rm(path)
                del kept[path]
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.search.killing", "--work", str(folder)],
                start_new_session=True,
            )
            before = record.stat().st_size
            deadline = time.monotonic() + 30
            # At least now and then it gets to embed something before it dies.
            while child.poll() is None and record.stat().st_size == before:
                if chance.random() < 0.01 or time.monotonic() > deadline:
                    break
                time.sleep(0.01)
            time.sleep(chance.random() * 0.2)
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
            child.wait()
    work(folder / "instance", record)
    return list(_wrong(folder, kept, record, kills))


def _wrong(folder: Path, kept: dict[str, str], record: Path, kills: int) -> list[str]:
    wrong = []
    with Instance.open(folder / "instance") as instance:
        library = Library(instance.folder)
        model = MadeUp()
        pending = Indexer(instance, library, model).pending()
        if not pending.is_complete:
            wrong.append(f"not complete: {pending}")
        searcher = Searcher(Session(instance), library, model)
        for path, text in kept.items():
            piece = text.split("\n\n")[-1]
            hits = searcher.search(piece, limit=1, mode=Mode.WORDS).hits
            if not hits or hits[0].path != path or hits[0].text != piece:
                wrong.append(f"{path}: not found by {piece!r}")
            by_meaning = searcher.search(piece, path, mode=Mode.MEANING).hits
            if len(by_meaning) != len(text.split("\n\n")):
                wrong.append(f"{path}: {len(by_meaning)} pieces are found by meaning")
        library.close()
    twice = sum(count - 1 for count in Counter(record.read_text().splitlines()).values())
    # What a killed process had in hand: at most that many pieces, and those of one more text.
    if twice > kills * (indexing.PIECES_AT_ONCE + 5):
        wrong.append(f"{twice} pieces were embedded twice in {kills} kills")
    print(f"{kills} kills, {len(kept)} files, {twice} pieces embedded twice")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work / "instance", options.work / "embedded.txt")
        return
    with tempfile.TemporaryDirectory() as folder:
        wrong = torture(Path(folder), options.rounds, options.seed)
    print("\n".join(wrong) or "Nothing was wrong.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
