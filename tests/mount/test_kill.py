"""The daemon killed at random moments under load: nothing that was closed or synced is lost."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
from pathlib import Path

from fusefs.daemon import mount_lock
from tests.conftest import Cli, unmount

ROUNDS = 10
_SIZES = (10, 1000, 60_000, 70_000, 300_000)
_NAMES = [f"f{number}" for number in range(30)]

Contents = dict[str, str | None]
"""Names to hashes of what must be there; None for nothing."""


class Load:
    """Writes, replaces and removes files in a mount until the mount is gone.

    Attributes:
        kept: what every finished call has left.
        unsure: name and outcomes of the call that did not return: either is right.
    """

    def __init__(self, top: Path, seed: int, kept: Contents) -> None:
        self.top = top
        self.random = random.Random(seed)
        self.kept = dict(kept)
        self.unsure: tuple[str, set[str | None]] | None = None
        self.busy = threading.Event()
        self._left_until_busy = self.random.randrange(3, 60)

    def run(self) -> None:
        try:
            while True:
                self._change(self.random.choice(_NAMES))
                self._left_until_busy -= 1
                if self._left_until_busy == 0:
                    self.busy.set()
        except OSError:
            self.busy.set()

    def _change(self, name: str) -> None:
        before = self.kept.get(name)
        if before is not None and self.random.random() < 0.2:
            self.unsure = (name, {before, None})
            os.unlink(self.top / name)
            self.kept[name] = None
        else:
            data = self.random.randbytes(self.random.choice(_SIZES))
            digest = hashlib.sha256(data).hexdigest()
            fresh = self.top / "fresh"
            with open(fresh, "wb") as writer:
                writer.write(data)
                if self.random.random() < 0.3:
                    writer.flush()
                    os.fsync(writer.fileno())
            self.unsure = (name, {before, digest})
            os.rename(fresh, self.top / name)
            self.kept[name] = digest
        self.unsure = None


def test_nothing_closed_is_lost(cli: Cli, tmp_path: Path) -> None:
    cli("session", "create", "s", "--grant", "/=commit")
    top = tmp_path / "view"
    top.mkdir()
    kept: Contents = {}
    for number in range(ROUNDS):
        cli("mount", "s", top, "--background")
        load = Load(top, number, kept)
        thread = threading.Thread(target=load.run)
        thread.start()
        assert load.busy.wait(60)
        os.kill(_daemon(cli.instance, top), signal.SIGKILL)
        thread.join(60)
        assert not thread.is_alive()
        unmount(top)
        assert "No problems" in cli("check").out
        cli("mount", "s", top, "--background")
        found = {name: _digest(top / name) for name in _NAMES}
        unmount(top)
        kept = load.kept
        if load.unsure is not None:
            name, outcomes = load.unsure
            assert found[name] in outcomes
            kept[name] = found[name]
        assert found == {name: kept.get(name) for name in _NAMES}


def _daemon(instance: Path, top: Path) -> int:
    (pid,) = [s.pid for s in mount_lock.served(instance / "run") if s.mountpoint == str(top)]
    return pid


def _digest(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None
