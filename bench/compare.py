"""Compares fusefs with a plain directory, bindfs and plain pyfuse3, side by side in one run.

    python -m bench.compare                      # the full work, three rounds
    python -m bench.compare --scale 0.1          # a quick look
    python -m bench.compare --only find,git --peers plain,bindfs,fusefs

Every round does every workload on every peer, one after the other, each time in another order.
What is printed is how many times as long one peer took as another in the same round, and of that
the median of the rounds. Cold means: the mount is new, and the kernel was made to forget names
and inodes (which needs root). Contents stay in the page cache of the host, for all peers alike:
the file systems are compared, not the disk below them.

Everything is made in one temporary folder, on one file system, and removed at the end, also
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from bench import machine, trees
from bench.peers import (
    PEERS,
    BenchError,
    FusefsStore,
    Peer,
    Workshop,
    drop_caches,
    run,
    workshop,
)
from bench.workloads import WORKLOADS, Figures, Site, Sizes, fill, make_materials

_WALKED = 100_000
_SETTLE_SECONDS = 60.0

Rounds = dict[str, dict[str, list[float]]]
"""Seconds by what was timed, then by peer, a figure for each round."""


def measure(sites: Sequence[Site], only: Sequence[str], rounds: int) -> Rounds:
    """Do the work, interleaved."""
    found: Rounds = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        # Whoever comes first in a round meets another host than whoever comes last.
        turn = number % len(sites)
        order = [*sites[turn:], *sites[:turn]]
        for name in only:
            for site in order:
                say(f"round {number + 1} of {rounds}: {name} on {site.peer.name}")
                figures: Figures = WORKLOADS[name](site)
                for label, seconds in figures.items():
                    found[label][site.peer.name].append(seconds)
    return found


def comparison(found: Rounds, peers: Sequence[str]) -> str:
    """Return the table: the first peer's time, and how many times as long the others take.

    A ratio is taken within each round, of two times that were measured close to each other; the
    median of these is printed. The last column is the worst of the peers' spreads over the
    rounds, longest time by shortest: near 1 on a quiet machine.
    """
    base, *others = peers
    pairs = [(peer, base) for peer in others] + [
        (ours, other)
        for ours in ("fusefs", "bound")
        for other in ("bindfs", "pyfuse3")
        if ours in others and other in others
    ]
    rows = []
    for label, by_peer in found.items():
        row = [label, machine.seconds(statistics.median(by_peer[base]))]
        for ours, other in pairs:
            both = zip(by_peer[ours], by_peer[other], strict=True)
            row.append(machine.ratio(statistics.median(one / two for one, two in both)))
        row.append(machine.ratio(max(max(times) / min(times) for times in by_peer.values())))
        rows.append(row)
    heading = ["", base, *(f"{ours}/{other}" for ours, other in pairs), "spread"]
    return machine.table(heading, rows)


def memory(shop: Workshop, scale: float) -> str:
    """Return what the process of a mount holds, before and after the kernel forgets."""
    files = int(_WALKED * scale)
    say(f"memory: a tree of {files:,} files")
    tree = shop.folder / "walked"
    trees.tiny_files(tree, files)
    peer = shop.peer(FusefsStore, "memory")
    peer.fill(tree, "walked")
    peer.mount()
    rows = [["mounted", *_resident(peer.pid)]]
    run("find", peer.top, "-ls")
    rows.append([f"after a walk of {files:,} files", *_resident(peer.pid)])
    if drop_caches():
        _settle(peer.pid)
        rows.append(["after the kernel dropped its caches", *_resident(peer.pid)])
        run("find", peer.top, "-ls")
        rows.append(["after another walk", *_resident(peer.pid)])
    peer.unmount()
    return machine.table(["memory of the fusefs process", "resident", "its own"], rows)


def _settle(pid: int) -> None:
    """Wait until a process has worked off what the kernel told it to forget."""
    end = time.monotonic() + _SETTLE_SECONDS
    before = -1
    while time.monotonic() < end:
        used = sum(int(word) for word in Path(f"/proc/{pid}/stat").read_text().split()[13:15])
        if used == before:
            return
        before = used
        time.sleep(0.5)


def _resident(pid: int) -> list[str]:
    """Return what is resident, and what of that is the process's own.

    The rest are pages of files, the ordered store's above all, which the host's page cache has
    anyway and takes back when it needs room.
    """
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in status)
    return [f"{int(fields[key].split()[0]) / 1024:.0f} MiB" for key in ("VmRSS", "RssAnon")]


def say(text: str) -> None:
    """Tell how far things are."""
    print(text, file=sys.stderr, flush=True)


def _listed(allowed: Sequence[str], text: str) -> list[str]:
    """Return the names in a list with commas, in the order of `allowed`."""
    given = text.split(",")
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(unknown)}; there are {', '.join(allowed)}"
        )
    return [name for name in allowed if name in given]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    kinds = [kind.name for kind in PEERS]
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    work = [*WORKLOADS, "memory"]
    parser.add_argument("--only", type=lambda text: _listed(work, text), default=work,
                        metavar="WORK,...", help=f"some of: {', '.join(work)}")
    parser.add_argument("--peers", type=lambda text: _listed(kinds, text), default=kinds,
                        metavar="PEER,...", help="some of: " +
                        "; ".join(f"{kind.name} ({kind.about})" for kind in PEERS))
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="how much of the full work; 0.1 for a quick look")
    parser.add_argument("--large", type=int, metavar="MIB",
                        help="size of the large file; default: 1024, scaled")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"),
                        help="where the temporary folder is made; default: /var/tmp")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args()


def main() -> int:
    """Run the comparison."""
    given = arguments()
    kinds = [kind for kind in PEERS if kind.name in given.peers]
    missing = [package for kind in kinds if (package := kind.missing()) is not None]
    if missing:
        say(f"Missing: {', '.join(missing)}. `make bench` installs what is needed.")
        return 1
    for line in machine.describe(given.folder):
        print(line)
    print(f"scale {given.scale}, {given.rounds} rounds, medians", flush=True)
    only = [name for name in given.only if name != "memory"]
    try:
        with workshop(given.folder) as shop:
            if not drop_caches():
                say("Not root: a plain directory cannot be made cold, only mounts.")
            found = _compare(shop, kinds, only, given) if only else {}
            if found:
                print(f"\n{comparison(found, [kind.name for kind in kinds])}", flush=True)
            if "memory" in given.only:
                print(f"\n{memory(shop, given.scale)}")
    except KeyboardInterrupt:
        say("Interrupted; everything is unmounted and removed.")
        return 130
    except BenchError as error:
        say(str(error))
        return 1
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _compare(
    shop: Workshop, kinds: Sequence[type[Peer]], only: Sequence[str], given: argparse.Namespace
) -> Rounds:
    sizes = Sizes.scaled(given.scale, given.large)
    materials = shop.folder / "materials"
    materials.mkdir()
    say("making the trees")
    make_materials(materials, sizes, set(only))
    sites = []
    for kind in kinds:
        say(f"setting up {kind.name}")
        site = Site(shop.peer(kind), sizes, materials)
        fill(site)
        sites.append(site)
    found = measure(sites, only, given.rounds)
    for site in sites:
        site.peer.unmount()
    return found


if __name__ == "__main__":
    # Paths are given to programs that run elsewhere.
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main())
