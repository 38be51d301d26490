"""Flips bits in an instance and sees what is then served.

``python -m tests.store.flips --rounds 500`` flips one bit a round, in each kind of place in turn,
and in a process of its own opens, lists, reads, writes and checks the instance. It prints, for
each kind of place, how the rounds ended, and whatever was wrong (see `Round`); it exits with 1 if
something wrong was served or a process died. ``--seed`` repeats a run, ``--kind`` keeps to one
kind of place, ``--show`` prints every round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import stat
import struct
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fusefs.contract.errors import ContractError
from fusefs.session.session import Session
from fusefs.store.check import check
from fusefs.store.instance import Instance, InstanceError
from tests.data import format1
from tests.store.pages import Pages

FILES = sorted(os.fsdecode(path) for path in format1.FILES)
KINDS = ("object", "meta", "branch", "leaf", "overflow", "free", "redo", "scratch")
_CLEAR = (OSError, InstanceError, ContractError)
_PATIENCE = 60
_LOGGED = "/late/"
_LOG_HEADER = struct.Struct("<IIQ")


@dataclass
class Round:
    """What came of one flip.

    Attributes:
        wrong: what was served and is not so (a name that is missing counts).
        errors: texts of failures that a user can understand.
        unclear: failures that would be shown with a traceback.
        unread: files that could not be read.
        found: what `check` says; None where the instance could not be opened for it.
        died: the signal that ended the process, or 0.
        step: what the process was last at.
    """

    kind: str
    at: str
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    found: list[str] | None = None
    died: int = 0
    step: str = ""

    @property
    def verdict(self) -> str:
        if self.died:
            return "died"
        if self.wrong:
            # What the log held is lost, and that is said.
            said = self.kind == "redo" and any("redo.damaged" in line for line in self.found or ())
            lost = all(_LOGGED in line or "list" in line for line in self.wrong)
            return "loss said" if said and lost else "wrong"
        if self.unclear:
            return "unclear"
        if self.errors:
            return "error"
        return "right, found" if self.found else "right"


class Report(Round):
    """A round as the process in which it happens sees it: told to the other end of a pipe."""

    def __init__(self, fd: int, result: Round) -> None:
        super().__init__(result.kind, result.at)
        self._fd = fd

    def tell(self, name: str, value: object) -> None:
        os.write(self._fd, json.dumps({name: value}).encode()[:4000] + b"\n")


def make(folder: Path) -> Path:
    """Make an instance in `folder` whose process died, and return it."""
    instance = folder / "instance"
    if (pid := os.fork()) == 0:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
            format1.main(instance)
    os.waitpid(pid, 0)
    for name in ("reserve", "reserve-for-removals"):
        (instance / name).unlink()
    for file in (instance / "run").iterdir():
        file.unlink()
    redo = instance / "redo.log"
    os.truncate(redo, len(redo.read_bytes().rstrip(b"\0")) + 16)
    return instance


def places(instance: Path) -> dict[str, list[tuple[Path, range]]]:
    """Return the bytes in use, by kind of place."""
    data = instance / "data.mdb"
    found = {
        kind: [(data, part) for part in parts] for kind, parts in Pages(data).used.items()
    }
    for kind, pattern in (("object", "objects/*/*"), ("scratch", "scratch/*")):
        files = sorted(instance.glob(pattern))
        found[kind] = [(file, range(file.stat().st_size)) for file in files]
    redo = instance / "redo.log"
    found["redo"] = [(redo, range(_log_bytes(redo.read_bytes())))]
    return found


def _log_bytes(log: bytes) -> int:
    """Return how much of the redo log is records of the last batch."""
    at, (_, _, batch) = 0, _LOG_HEADER.unpack_from(log)
    while at + _LOG_HEADER.size <= len(log):
        size, _, number = _LOG_HEADER.unpack_from(log, at)
        if number != batch:
            break
        at += _LOG_HEADER.size + size
    return at


def flip(kind: str, parts: list[tuple[Path, range]], rng: random.Random) -> Round:
    """Flip one bit of a file in `parts`."""
    file, part = rng.choices(parts, [len(part) for _, part in parts])[0]
    at, bit = rng.choice(part), rng.randrange(8)
    mode = file.stat().st_mode
    file.chmod(0o600)
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1 << bit]))
    file.chmod(stat.S_IMODE(mode))
    return Round(kind, f"{file.name[:12]}:{at}.{bit}")


def run(
    instance: Path, result: Round, *, use: Callable[[Path, Report], None] | None = None
) -> None:
    """Use the damaged instance in a process of its own and note what came of it."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        status = 1
        try:
            signal.alarm(_PATIENCE)
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), 2)
            (use or _use)(instance, Report(writing, result))
            status = 0
        except BaseException:  # noqa: BLE001 (it is told)
            with os.fdopen(writing, "wb", closefd=False) as pipe:
                pipe.write(json.dumps({"unclear": traceback.format_exc()[-600:]}).encode() + b"\n")
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        for line in pipe:
            for name, value in json.loads(line).items():
                if name in ("step", "found"):
                    setattr(result, name, value)
                else:
                    getattr(result, name).append(value)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    result.died = -code if code < 0 else 0


@contextlib.contextmanager
def _noting(report: Report, what: str, *, unread: str = "") -> Iterator[None]:
    report.tell("step", what)
    try:
        yield
    except ContractError as error:
        # A refusal of the contract says that something is so: it is there in truth.
        report.tell("wrong", f"{what}: {error}")
    except _CLEAR as error:
        report.tell("errors", f"{what}: {error}")
        if unread:
            report.tell("unread", unread)
    except Exception as error:  # noqa: BLE001 (it is told)
        where = traceback.extract_tb(error.__traceback__)[-1]
        report.tell("unclear", f"{what}: {error!r} {where.filename[-20:]}:{where.lineno}")


def _expect(report: Report, what: str, found: object, expected: object) -> None:
    if found != expected:
        report.tell("wrong", f"{what}: {str(found)[:60]}")


def _use(folder: Path, report: Report) -> None:
    with _noting(report, "open"), Instance.open(folder) as instance:
        session = Session(instance)
        _read(session, report)
        _write(session, report)
        _read(session, report)
        _definitions(instance, report)
    report.tell("step", "check")
    with _noting(report, "check"), Instance.open(folder) as instance:
        report.tell("found", [problem[:200] for problem in check(instance).problems][:5])


def read_and_check(folder: Path, report: Report) -> None:
    """Use the instance without writing to it."""
    with _noting(report, "open"), Instance.open(folder) as instance:
        _read(Session(instance), report)
        _definitions(instance, report)
    report.tell("step", "check")
    with _noting(report, "check"), Instance.open(folder) as instance:
        report.tell("found", [problem[:200] for problem in check(instance).problems][:5])


def _names(directory: bytes) -> set[bytes]:
    every = {*format1.FILES, *format1.LINKS, b"/docs", b"/data", b"/many", b"/late", b"/open"}
    return {os.path.basename(path) for path in every if os.path.dirname(path) == directory}


def _read(session: Session, report: Report) -> None:
    for directory in (b"/", b"/docs", b"/data", b"/many", b"/late", b"/open"):
        with _noting(report, f"list {directory!r}"):
            found = {os.fsencode(entry.name) for entry in session.list(directory)}
            _expect(report, f"list {directory!r}", _names(directory) - found, set())
            extra = found - _names(directory) - {b"host", b"new", b"written"}
            _expect(report, f"list {directory!r}", extra, set())
    for path, data in format1.FILES.items():
        with _noting(report, f"read {path!r}", unread=os.fsdecode(path)):
            if session.read(path) != data:
                report.tell("wrong", f"read {path!r}: other bytes")
            _expect(report, f"size {path!r}", session.stat(path).size, len(data))
            _expect(report, f"mode {path!r}", session.stat(path).mode,
                    format1.MODES.get(path, 0o644))  # fmt: skip
    for path, target in format1.LINKS.items():
        with _noting(report, f"link {path!r}"):
            place = session.place(session.resolve(path), follow=False)
            _expect(report, f"link {path!r}", session.view.read_link(place), target)
    for (path, name), value in format1.XATTRS.items():
        with _noting(report, f"attribute {path!r}"):
            place = session.place(session.resolve(path))
            _expect(report, f"attribute {path!r}", session.view.get_xattr(place, name), value)


def _write(session: Session, report: Report) -> None:
    for number in range(3):
        with _noting(report, "write"):
            session.write(b"/new/%d" % number, format1.lines(3000 * number))
            _expect(report, "write", session.read(b"/new/%d" % number),
                    format1.lines(3000 * number))  # fmt: skip
            session.rm(b"/new/%d" % number)
    with _noting(report, "move"):
        session.write(b"/written", b"1")
        session.mv(b"/written", b"/new/moved")


def _definitions(instance: Instance, report: Report) -> None:
    with _noting(report, "sessions"):
        for name, spec in format1.SESSIONS.items():
            with contextlib.suppress(KeyError):
                _expect(report, f"session {name}", instance.sessions.get(name), spec)
                continue
            report.tell("wrong", f"session {name}: missing")
    with _noting(report, "binds"):
        path, bind = format1.BIND
        _expect(report, "binds", instance.binds.all(), {path: bind})
    with _noting(report, "journal"):
        for record in instance.journal.since(0):
            assert record.seq


def rounds(
    template: Path,
    kinds: tuple[str, ...],
    count: int,
    seed: int,
    work: Path,
    *,
    use: Callable[[Path, Report], None] | None = None,
) -> Iterator[Round]:
    """Yield `count` rounds on copies of `template`, made in `work`."""
    rng = random.Random(seed)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        folder = work / f"round{number}"
        shutil.copytree(template, folder)
        try:
            result = flip(kind, places(folder)[kind], rng)
            run(folder, result, use=use)
        finally:
            shutil.rmtree(folder)
        yield result


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    verdicts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="flips-") as work:
        template = make(Path(work))
        kinds = tuple(options.kind or KINDS)
        for done in rounds(template, kinds, options.rounds, options.seed, Path(work)):
            verdicts.setdefault(done.kind, Counter())[done.verdict] += 1
            if options.show or done.verdict in ("wrong", "died", "unclear"):
                said = (done.wrong or done.unclear or done.errors)[:2]
                print(done.kind, done.at, done.verdict, done.died, done.step, said, done.found)
    for kind, counter in verdicts.items():
        print(f"{kind:9}", ", ".join(f"{name}: {n}" for name, n in sorted(counter.items())))
    bad = sum(counter["wrong"] + counter["died"] for counter in verdicts.values())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
