"""Several sessions at once on one instance: what they get done, and how long a stat takes.

    python -m bench.sessions                     # eight sessions, three rounds
    python -m bench.sessions --seconds 1 --rounds 1 --scale 0.1

Each session has a mount, so a process, and one program at work in it. Readers open, read and
close small files of one tree in random order; writers create, write and close small files. One
session alone is set beside all of them at once. Then one session asks for the attributes of
files it has not looked at before, while others write; and of files that another one rewrites.
All is done on a plain directory and on several mounts of plain pyfuse3 too, where nobody tells
anybody of changes.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing as mp
import os
import random
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from bench import machine, trees
from bench.compare import say
from bench.peers import (
    BenchError,
    FusefsStore,
    Peer,
    Plain,
    PyfusePassthrough,
    Workshop,
    run,
    workshop,
)

_KINDS: tuple[type[Peer], ...] = (Plain, PyfusePassthrough, FusefsStore)
_FILES = 20_000
_HOT = 50
_LONGEST_STAT_SECONDS = 30.0
_START_SECONDS = 60.0
_FORK = mp.get_context("fork")


@dataclass(frozen=True)
class Job:
    """What one program does in its session.

    Attributes:
        top: where its session's tree is.
        number: the session.
        names: the files of the tree, relative to `top`.
        seconds: how long.
    """

    top: str
    number: int
    names: Sequence[str]
    seconds: float


Work = Callable[[Job], list[float]]
"""Does a job and returns how long each operation took."""


def read(job: Job) -> list[float]:
    """Open, read and close files in random order."""
    chosen = random.Random(job.number)

    def one(_: int) -> None:
        fd = os.open(f"{job.top}/{chosen.choice(job.names)}", os.O_RDONLY)
        os.read(fd, 65536)
        os.close(fd)

    return _repeat(job, one)


def write(job: Job) -> list[float]:
    """Create, write and close files, a hundred to a folder."""
    place = f"{job.top}/written/{job.number}"
    os.mkdir(place)

    def one(count: int) -> None:
        if count % 100 == 0:
            os.mkdir(f"{place}/{count // 100}")
        fd = os.open(f"{place}/{count // 100}/{count}", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(fd, b"file number %d\n" % count * 20)
        os.close(fd)

    return _repeat(job, one)


def rewrite(job: Job) -> list[float]:
    """Give a few files new content, again and again."""

    def one(count: int) -> None:
        fd = os.open(f"{job.top}/written/hot/{count % _HOT}", os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b"content number %d\n" % count)
        os.close(fd)

    return _repeat(job, one)


def stat_new(job: Job) -> list[float]:
    """Ask for attributes of files that were not asked for before, until there are no more."""
    names = iter(job.names)

    def one(_: int) -> None:
        os.stat(f"{job.top}/{next(names)}")

    return _repeat(job, one, at_most=len(job.names))


def stat_hot(job: Job) -> list[float]:
    """Ask for attributes of the files that are rewritten."""

    def one(count: int) -> None:
        os.stat(f"{job.top}/written/hot/{count % _HOT}")

    return _repeat(job, one)


def _repeat(job: Job, one: Callable[[int], None], at_most: int | None = None) -> list[float]:
    taken = []
    counted = itertools.count() if at_most is None else range(at_most)
    now = time.perf_counter()
    end = now + (job.seconds if at_most is None else _LONGEST_STAT_SECONDS)
    for count in counted:
        one(count)
        before, now = now, time.perf_counter()
        taken.append(now - before)
        if now > end:
            break
    return taken


class Seats:
    """The sessions of one peer."""

    def __init__(self, shop: Workshop, kind: type[Peer], sessions: int, tree: Path) -> None:
        first = shop.peer(kind, f"{kind.name}-0")
        first.fill(tree, "files")
        self.name = kind.name
        others = range(1, sessions)
        # A plain directory is shared as it is.
        self.peers = [first] + [
            first if kind is Plain else shop.peer(kind, f"{kind.name}-{number}", first)
            for number in others
        ]
        self.names = [f"files/{name}" for name in trees.paths(tree)]
        for peer in dict.fromkeys(self.peers):
            peer.mount()

    def clear(self) -> None:
        """Take away what was written, and make the first session's mount cold."""
        top = self.peers[0].top
        run("rm", "-rf", top / "written")
        hot = top / "written" / "hot"
        hot.mkdir(parents=True)
        for number in range(_HOT):
            (hot / str(number)).write_text("first content\n")
        self.peers[0].fresh()

    def work(self, work: Sequence[Work], seconds: float) -> list[list[float]]:
        """Have each session do its work, all at once; the first one says when it ends."""
        barrier = _FORK.Barrier(len(work))
        pipes, processes = [], []
        for number, (peer, function) in enumerate(zip(self.peers, work, strict=False)):
            receiving, sending = _FORK.Pipe(duplex=False)
            job = Job(str(peer.top), number, self.names, seconds)
            process = _FORK.Process(target=_seat, args=(function, job, barrier, sending))
            process.start()
            sending.close()
            pipes.append(receiving)
            processes.append(process)
        try:
            return [pipe.recv() for pipe in pipes]
        except EOFError:
            raise BenchError(f"{self.name}: a session failed") from None
        finally:
            for process in processes:
                process.terminate()
                process.join()


def _seat(work: Work, job: Job, barrier: Barrier, answer: Connection) -> None:
    # The parent ends its sessions itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    barrier.wait(_START_SECONDS)
    answer.send(work(job))


def throughput(all_seats: Sequence[Seats], sessions: int, given: argparse.Namespace) -> str:
    """Return the table of files a second: one session, and all of them."""
    half = sessions // 2
    phases: dict[str, list[Work]] = {
        "1 reader": [read],
        f"{sessions} readers": [read] * sessions,
        "1 writer": [write],
        f"{sessions} writers": [write] * sessions,
        f"{half} readers, {half} writers: read": [read, write] * half,
        f"{half} readers, {half} writers: written": [read, write] * half,
    }
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(given.rounds):
        for label, work in phases.items():
            counted = write if label.endswith(("writer", "writers", "written")) else read
            for seats in all_seats:
                say(f"round {number + 1} of {given.rounds}: {label} on {seats.name}")
                seats.clear()
                taken = seats.work(work, given.seconds)
                done = sum(
                    len(each) / sum(each)
                    for each, function in zip(taken, work, strict=True)
                    if function is counted
                )
                found[label][seats.name].append(done)
    rows = []
    for label, by_peer in found.items():
        row = [label]
        single = "1 writer" if label.endswith(("writer", "writers", "written")) else "1 reader"
        for seats in all_seats:
            middle = statistics.median(by_peer[seats.name])
            alone = statistics.median(found[single][seats.name])
            row += [f"{middle:,.0f}", machine.ratio(middle / alone)]
        rows.append(row)
    heading = ["files a second"]
    for seats in all_seats:
        heading += [seats.name, "/one"]
    return machine.table(heading, rows)


def stats(all_seats: Sequence[Seats], sessions: int, given: argparse.Namespace) -> str:
    """Return the table of how long a stat takes: median and 99th of a hundred."""
    phases: dict[str, list[Work]] = {
        "new to the session, nobody writes": [stat_new],
        "new to the session, 1 writes": [stat_new, write],
        f"new to the session, {sessions - 1} write": [stat_new, *[write] * (sessions - 1)],
        "rewritten by another session": [stat_hot, rewrite],
    }
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for number in range(given.rounds):
        for label, work in phases.items():
            for seats in all_seats:
                say(f"round {number + 1} of {given.rounds}: stat, {label}, on {seats.name}")
                seats.clear()
                cuts = statistics.quantiles(seats.work(work, given.seconds)[0], n=100)
                found[label][seats.name].append((cuts[49], cuts[98]))
    rows = []
    for label, by_peer in found.items():
        row = [label]
        for seats in all_seats:
            for at in (0, 1):
                middle = statistics.median(cuts[at] for cuts in by_peer[seats.name])
                row.append(f"{middle * 1e6:,.0f}")
        rows.append(row)
    heading = ["stat of a file, microseconds"]
    for seats in all_seats:
        heading += [f"{seats.name} p50", "p99"]
    return machine.table(heading, rows)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.sessions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=int, default=8, help="default: 8")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each phase; default: 5")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--scale", type=float, default=1.0, help="of the tree of 20,000 files")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"),
                        help="where the temporary folder is made; default: /var/tmp")
    given = parser.parse_args()
    for line in machine.describe(given.folder):
        print(line)
    print(
        f"{given.sessions} sessions, scale {given.scale}, {given.rounds} rounds of "
        f"{given.seconds} s, medians",
        flush=True,
    )
    try:
        with workshop(given.folder) as shop:
            tree = shop.folder / "tree"
            trees.small_files(tree, int(_FILES * given.scale))
            all_seats = [Seats(shop, kind, given.sessions, tree) for kind in _KINDS]
            print(f"\n{throughput(all_seats, given.sessions, given)}", flush=True)
            print(f"\n{stats(all_seats, given.sessions, given)}")
    except KeyboardInterrupt:
        say("Interrupted; everything is unmounted and removed.")
        return 130
    except BenchError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
