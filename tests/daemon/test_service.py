"""The services of `systemd/`, their lines run by hand as a service manager would run them."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.contract.levels import Level
from fusefs.daemon.mountpoint import is_dead
from tests.daemon.conftest import ROOT, World, is_mounted, until


class Service:
    """A unit file with its specifiers filled in, and a stand-in for the service manager."""

    def __init__(self, unit: Path, world: World, top: Path, manager: socket.socket) -> None:
        world.define("work-1", {(): Level.COMMIT})
        self.manager = manager
        text = unit.read_text().replace("\\\n", " ")
        for written, meant in {
            "/usr/local/bin/fusefs": f"{sys.executable} -m fusefs",
            "%i": "work-1",
            "%h": str(top / "home"),
            "/srv/fusefs": str(top / "srv"),
            "/var/lib/fusefs": str(world.folder),
        }.items():
            text = text.replace(written, meant)
        pairs = [line.partition("=") for line in text.splitlines() if not line.startswith("#")]
        self._lines = {key: value.lstrip("-") for key, _, value in pairs}
        self.point = Path(shlex.split(self._lines["ExecStart"])[-1])
        address = manager.getsockname()
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(top / "home"),
            "FUSEFS_INSTANCE": str(world.folder),
            "FUSEFS_MOUNT_OPTIONS": "--allow-other" if os.geteuid() == 0 else "",
            "NOTIFY_SOCKET": "@" + address[1:].decode(),
            "WATCHDOG_USEC": "300000",
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.log = top / "journal"

    def run(self, key: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self._words(key), env=self._environment, cwd=ROOT, capture_output=True, check=False
        )

    def _words(self, key: str) -> list[str]:
        line = self._lines[key]
        for name, value in self._environment.items():
            line = line.replace(f"${name}", value)
        return shlex.split(line)

    def start(self) -> None:
        self.run("ExecStartPre")  # its line begins with "-": it may fail
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._words("ExecStart"), env=self._environment, cwd=ROOT, stderr=log
            )
        until(lambda: self.manager.recv(100) == b"READY=1")

    def end(self, *numbers: signal.Signals) -> int:
        assert self.process is not None
        for number in numbers:
            self.process.send_signal(number)
        return self.process.wait(20)


@pytest.fixture(params=["systemd/fusefs@.service", "systemd/user/fusefs@.service"])
def service(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(20)
        manager.bind(f"\0fusefs-test-service-{os.getpid()}")
        made = Service(ROOT / request.param, world, tmp_path, manager)
        yield made
        if made.process is not None and made.process.poll() is None:
            made.end(signal.SIGCONT, signal.SIGTERM)
        if is_mounted(made.point):
            subprocess.run(["umount", "-l", made.point], check=True)


def test_from_start_to_stop_by_way_of_the_watchdog(service: Service) -> None:
    service.start()
    (service.point / "f").write_text("kept")
    until(lambda: service.manager.recv(100) == b"WATCHDOG=1")
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)
    until(lambda: state_of(service.process) == "T")
    while True:  # what was on its way
        service.manager.settimeout(1.0)
        try:
            service.manager.recv(100)
        except TimeoutError:
            break
    service.manager.settimeout(20)

    # Stopped, it does not even take the signal of the watchdog.
    assert service.end(signal.SIGABRT, signal.SIGKILL) == -signal.SIGKILL
    assert is_mounted(service.point)
    assert is_dead(str(service.point))
    assert service.run("ExecStartPre").returncode != 0
    service.start()  # over the dead mount
    assert (service.point / "f").read_text() == "kept"

    assert service.end(signal.SIGABRT) == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in service.log.read_text()
    done = service.run("ExecStopPost")
    assert done.returncode == 0
    assert b"unmounted" in done.stdout
    assert not is_mounted(service.point)

    service.start()
    assert (service.point / "f").read_text() == "kept"
    assert service.end(signal.SIGTERM) == 0
    until(lambda: service.manager.recv(100) == b"STOPPING=1")
    assert not is_mounted(service.point)


def state_of(process: subprocess.Popen[bytes] | None) -> str:
    assert process is not None
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
