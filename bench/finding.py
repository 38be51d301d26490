"""`grep` and `glob` beside ripgrep and find(1) on a plain copy of the same files, all in memory.

    python -m bench.finding                  # 20,000 files
    python -m bench.finding 5000 --rounds 3

The files are the text files of the Python that runs this, and of what is installed in it, again and
again with another last line until there are enough. They are in the instance's own tree, in a bound
folder and in a mounted repository. Each figure is the median of the rounds, in which everything
takes turns; `api` is a session that is open, `command` a whole command line.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import machine
from fusefs.session.binding import bind
from fusefs.session.mounting import add
from fusefs.session.session import Session
from fusefs.session.transfer import import_directory
from fusefs.session.visible_files import VisibleFiles
from fusefs.store.instance import Instance

_MOST_BYTES = 1 << 20
_PLACES = {"store": "/store", "folder": "/folder", "repository": "/repository"}
PATTERNS = {
    "rare text": ("zebra_quux", ("-F",)),
    "text": ("def __init__", ("-F",)),
    "common text": ("import", ("-F",)),
    "rare pattern": (r"[a-z]+_quux\d+", ()),
    "pattern": (r"self\.[a-z]+\(", ()),
    "slow pattern": (r"^\s*return\b.*None$", ()),
    "any case": ("zebra_QUUX", ("-i",)),
}
"""Patterns, with options that ripgrep and fusefs have in common."""
GLOBS = {"**/*.py": ("-name", "*.py"), "**/test_*.py": ("-name", "test_*.py")}

Work = Callable[[], object]


def texts() -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes of text files that are installed."""
    for place in ("purelib", "stdlib"):
        top = sysconfig.get_path(place)
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.path.islink(path) or os.path.getsize(path) > _MOST_BYTES:
                    continue
                data = Path(path).read_bytes()
                if b"\0" not in data and _is_utf8(data):
                    yield os.path.relpath(path, top), data


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def make_files(top: Path, count: int) -> int:
    """Make `count` files below `top`; return their bytes."""
    made = total = copy = 0
    while made < count:
        for name, data in texts():
            if made == count:
                break
            path = top / f"copy{copy}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(data + b"# copy %d\n" % copy)
                made += 1
                total += path.stat().st_size
        copy += 1
    return total


def make_instance(folder: Path, plain: Path) -> Instance:
    """Make an instance that has the files in each place."""
    instance = Instance.init(folder / "instance")
    session = Session(instance)
    import_directory(session, plain, _PLACES["store"], lambda progress: None)
    bind(instance, plain, (b"folder",))
    source = folder / "source.git"
    git = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")
    work = (*git, f"--git-dir={source}", f"--work-tree={plain}")
    subprocess.run([*git, "init", "-q", "--bare", "-b", "main", str(source)], check=True)
    subprocess.run([*work, "add", "-A", "-f", "."], check=True)
    subprocess.run([*work, "commit", "-q", "-m", "all"], check=True)
    subprocess.run([*git, f"--git-dir={source}", "repack", "-q", "-a", "-d"], check=True)
    add(instance, str(source), (b"repository",))
    instance.commit()
    return instance


def count_lines(command: Sequence[str]) -> int:
    # With the compiled modules that an installed program has.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, env=environment)
    return done.stdout.count(b"\n")


def medians(works: dict[str, Work], rounds: int) -> tuple[dict[str, float], dict[str, object]]:
    """Return for each work how long it takes, and what it returned."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    answers: dict[str, object] = {}
    for _ in range(rounds + 1):  # the first warms up
        for name, work in works.items():
            began = time.perf_counter()
            answers[name] = work()
            taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(times[1:]) for name, times in taken.items()}, answers


def grep_works(
    session: Session, folder: Path, pattern: str, options: tuple[str, ...]
) -> dict[str, Work]:
    literal, ignore_case = "-F" in options, "-i" in options

    def api(path: str) -> Work:
        return lambda: sum(
            1 for _ in session.grep(pattern, path, literal=literal, ignore_case=ignore_case)
        )

    plain = str(folder / "plain")
    command = (
        sys.executable, "-m", "fusefs", "grep", "--instance", str(folder / "instance"),
        *options, "--", pattern, _PLACES["store"],
    )  # fmt: skip
    return {
        "rg": lambda: count_lines(("rg", "-uuu", "-n", *options, "--", pattern, plain)),
        **{f"api, {name}": api(path) for name, path in _PLACES.items()},
        "command, store": lambda: count_lines(command),
    }


def glob_works(
    session: Session, folder: Path, pattern: str, found_by: tuple[str, ...]
) -> dict[str, Work]:
    def api(path: str) -> Work:
        return lambda: sum(1 for _ in session.glob(pattern, path))

    command = (
        sys.executable, "-m", "fusefs", "glob", "--instance", str(folder / "instance"),
        pattern, _PLACES["store"],
    )  # fmt: skip
    return {
        "find": lambda: count_lines(("find", str(folder / "plain"), *found_by)),
        **{f"api, {name}": api(path) for name, path in _PLACES.items()},
        "command, store": lambda: count_lines(command),
    }


def rows(
    kinds: dict[str, dict[str, Work]], reference: str, rounds: int
) -> tuple[list[str], list[list[str]]]:
    """Return a table of times, with ratios to a reference."""
    heading, lines = [], []
    for kind, works in kinds.items():
        times, answers = medians(works, rounds)
        if len(set(answers.values())) > 1:
            print(f"{kind}: not the same is found: {answers}", file=sys.stderr)
        heading = ["", "found", *works]
        line = [kind, f"{answers[reference]:,}", machine.seconds(times[reference])]
        for name in list(works)[1:]:
            factor = machine.ratio(times[name] / times[reference])
            line.append(f"{machine.seconds(times[name])} ({factor})")
        lines.append(line)
    return heading, lines


def walk(session: Session, path: str) -> Work:
    top = session.place(session.resolve(path))
    return lambda: sum(1 for _ in VisibleFiles(session.view, top))


def first_walk(instance: Instance, path: str) -> Work:
    return lambda: walk(Session(instance), path)()  # noqa: PLW0108 - a session of its own each time


def measure(folder: Path, count: int, rounds: int) -> None:
    total = make_files(folder / "plain", count)
    print(f"{count:,} files, {total / (1 << 20):.0f} MiB", flush=True)
    with make_instance(folder, folder / "plain") as instance:
        session = Session(instance)
        walks = {name: walk(session, path) for name, path in _PLACES.items()}
        walks["store, the first time"] = first_walk(instance, _PLACES["store"])
        times, _ = medians(walks, rounds)
        for name, taken in times.items():
            print(f"visible files, {name}: {count / taken:,.0f} a second", flush=True)
        greps = {
            name: grep_works(session, folder, *pattern) for name, pattern in PATTERNS.items()
        }
        globs = {name: glob_works(session, folder, name, words) for name, words in GLOBS.items()}
        for kinds, reference in ((greps, "rg"), (globs, "find")):
            print()
            print(machine.table(*rows(kinds, reference, rounds)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=int, nargs="?", default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fusefs-bench-"))
    try:
        print("\n".join(machine.describe(folder)))
        measure(folder, given.files, given.rounds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
