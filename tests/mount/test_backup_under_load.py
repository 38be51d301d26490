"""Backups of an instance that is mounted twice and written to all the time."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fusefs.session.session import Session
from fusefs.store.check import check
from fusefs.store.instance import Instance
from tests.conftest import Cli, Mount, Quick

_RECORD = 8 + 32
_LARGE = 200_000


def _certified(version: int, size: int) -> bytes:
    """Return content that says which version it is, and proves that it is whole."""
    body = version.to_bytes(8, "big") + random.Random(version).randbytes(size)
    return body + hashlib.sha256(body).digest()


def _version(data: bytes) -> int | None:
    """Return the version of a content, None if it is not whole."""
    body, digest = data[:-32], data[-32:]
    return int.from_bytes(body[:8], "big") if hashlib.sha256(body).digest() == digest else None


class Worker(threading.Thread):
    """Writes versions of files in a mount, each in its own way, until told to stop.

    Attributes:
        begun, safe: of each file the last version that was begun, and that is closed or synced.
        removed: versions that are a removal.
    """

    def __init__(self, top: Path) -> None:
        super().__init__()
        self.top = top
        self.begun: dict[str, int] = {}
        self.safe: dict[str, int] = {}
        self.removed: set[int] = set()
        self.error: BaseException | None = None
        self.longest = 0.0
        self.ended = threading.Event()
        self._random = random.Random(str(top))
        self._versions = itertools.count(1)

    def run(self) -> None:
        flags = os.O_RDWR | os.O_CREAT
        try:
            with contextlib.ExitStack() as opened:
                held = {}
                for name, size in (("held", 4000), ("held-large", _LARGE)):
                    held[name] = os.open(self.top / name, flags, 0o644), size
                    opened.callback(os.close, held[name][0])
                log = os.open(self.top / "log", flags | os.O_APPEND, 0o644)
                opened.callback(os.close, log)
                ways: list[Callable[[], None]] = [
                    *(lambda n=name: self._in_place(n, *held[n]) for name in held),
                    lambda: self._append(log), self._replace, self._replace, self._remove,
                ]  # fmt: skip
                while not self.ended.is_set():
                    began = time.monotonic()
                    self._random.choice(ways)()
                    self.longest = max(self.longest, time.monotonic() - began)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error

    def _begin(self, name: str) -> int:
        self.begun[name] = version = next(self._versions)
        return version

    def _in_place(self, name: str, fd: int, size: int) -> None:
        version = self._begin(name)
        os.pwrite(fd, _certified(version, size), 0)
        os.fsync(fd)
        self.safe[name] = version

    def _append(self, fd: int) -> None:
        version = self._begin("log")
        os.write(fd, _certified(version, 0))
        os.fsync(fd)
        self.safe["log"] = version

    def _replace(self) -> None:
        name = f"f{self._random.randrange(12)}"
        version = self._begin(name)
        fresh = self.top / "fresh"
        fresh.write_bytes(_certified(version, self._random.choice((10, 5000, 70_000, 300_000))))
        fresh.rename(self.top / name)
        self.safe[name] = version

    def _remove(self) -> None:
        name = f"f{self._random.randrange(12)}"
        if (self.top / name).exists():
            version = self._begin(name)
            self.removed.add(version)
            (self.top / name).unlink()
            self.safe[name] = version


def _wrong(folder: Path, workers: list[Worker], safe: list[dict[str, int]],
           torn: list[str]) -> list[str]:  # fmt: skip
    """Return what a copy lacks of what was safe before it began, and what is not whole in it."""
    wrong = []
    with Instance.open(folder) as copy:
        wrong += check(copy).problems
        session = Session(copy)
        for worker, before in zip(workers, safe, strict=True):
            for name, least in before.items():
                path = f"/{worker.top.name}/{name}"
                data = session.read(path) if session.exists(path) else None
                if name == "log":
                    data = _newest_record(data or b"")
                version = None if data is None else _version(data)
                last = worker.begun[name]
                if data is None:
                    is_right = any(least <= version <= last for version in worker.removed)
                elif version is None:
                    is_right = path in torn
                else:
                    is_right = least <= version <= last
                if not is_right:
                    size = None if data is None else len(data)
                    wrong.append(f"{path}: {version} ({size} bytes), not of {least} to {last}")
    return wrong


def _newest_record(data: bytes) -> bytes:
    records = [data[at : at + _RECORD] for at in range(0, len(data) - _RECORD + 1, _RECORD)]
    versions = [_version(record) for record in records]
    assert None not in versions, "a record of the log is not whole"
    return records[-1] if records else b""


def test_backups_under_load(cli: Cli, process: Cli, mount: Mount, tmp_path: Path) -> None:
    workers = []
    for name in ("a", "b"):
        cli("mkdir", f"/{name}")
        cli("session", "create", name, "--grant", f"/{name}=commit")
        workers.append(Worker(mount(name) / name))
    large = [f"/{worker.top.name}/held-large" for worker in workers]
    folder, rng = tmp_path / "backup", random.Random(1)
    tidying = threading.Event()
    tidy = threading.Thread(target=_tidy, args=(process, tidying))
    for thread in (*workers, tidy):
        thread.start()
    try:
        while any(len(worker.safe) < 10 and not worker.error for worker in workers):
            time.sleep(0.01)
        for _ in range(3):
            safe = [dict(worker.safe) for worker in workers]
            torn = process("backup", folder, "--json").json["being_written"]
            assert _wrong(folder, workers, safe, torn) == []
            killed = subprocess.Popen(
                [sys.executable, "-m", "fusefs", "--instance", cli.instance, "backup", folder],
                stdout=subprocess.DEVNULL,
            )
            time.sleep(rng.random())
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            # Either it had come to its end, or the earlier one is as it was.
            assert _wrong(folder, workers, safe, [*torn, *large]) == []
        safe = [dict(worker.safe) for worker in workers]
        torn = process("backup", folder, "--json").json["being_written"]
    finally:
        tidying.set()
        for worker in workers:
            worker.ended.set()
        for thread in (*workers, tidy):
            thread.join()
    assert [worker.error for worker in workers] == [None, None]
    Quick(tmp_path / "restored")("restore", folder)
    assert _wrong(tmp_path / "restored", workers, safe, torn) == []
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def _tidy(process: Cli, ended: threading.Event) -> None:
    """Empty the trash and collect, all the time."""
    while not ended.is_set():
        process("trash", "empty", "--yes")
        process("gc")
