"""`make install`, and the services of systemd that it installs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
EXPOSURE = 42
"""What `systemd-analyze security` may find at most, in tenths: it calls up to 4.9 "OK"."""

_HIDES_MOUNTS = (
    "Private(?!Users)", "ProtectSystem", "ProtectHome", "ProtectProc", "ProcSubset",
    "ProtectKernel", "ProtectControlGroups", "ProtectHostname", "ReadOnlyPaths", "ReadWritePaths",
    "InaccessiblePaths", "ExecPaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths", "Temporary",
    "Root", "MountFlags", "MountImages", "DynamicUser", "LogNamespace",
)  # fmt: skip
"""Settings that give a service a mount namespace: nobody outside would see its mount."""
_FORBIDS_PRIVILEGES = (
    "NoNewPrivileges", "SystemCall", "Restrict(?!=)", "Protect", "Private", "Lock", "MemoryDeny",
    "DeviceAllow", "Capability",
)  # fmt: skip
"""Settings that forbid a user's service to use fusermount3, which is setuid."""


def make(*words: str) -> None:
    done = subprocess.run(
        ["make", *words], cwd=TOP, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Installed as by who builds a package: somewhere else, and then moved to its place."""
    top = tmp_path_factory.mktemp("install")
    prefix, stage = top / "prefix", top / "stage"
    make("install", f"PREFIX={prefix}", f"DESTDIR={stage}")
    staged = Path(f"{stage}{prefix}")
    for file in staged.rglob("*"):
        assert file.is_symlink() or str(stage).encode() not in (
            file.read_bytes() if file.is_file() else b""
        ), file
    staged.rename(prefix)
    yield prefix
    make("uninstall", f"PREFIX={prefix}")
    assert [file for file in prefix.rglob("*") if not file.is_dir()] == []


def settings(unit: Path) -> list[str]:
    lines = unit.read_text().splitlines()
    return [line for line in lines if "=" in line and not line.startswith("#")]


def analyze(*words: str | Path, runtime: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words], capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
    )  # fmt: skip


def test_the_installed_command_works(installed: Path, tmp_path: Path) -> None:
    command = installed / "bin" / "fusefs"
    for words in (["--version"], ["--instance", tmp_path / "i", "init"]):
        subprocess.run([command, *words], check=True, cwd=tmp_path, capture_output=True)
    completion = (installed / "share/bash-completion/completions/fusefs").read_text()
    assert "_FUSEFS_COMPLETE" in completion
    assert (installed / "share/zsh/site-functions/_fusefs").read_text().startswith("#compdef")
    assert "complete" in (installed / "share/fish/vendor_completions.d/fusefs.fish").read_text()


@pytest.mark.parametrize("kind", ["system", "user"])
def test_the_services_are_sound(installed: Path, tmp_path: Path, kind: str) -> None:
    unit = installed / "lib/systemd" / kind / "fusefs@.service"
    assert f"ExecStart={installed}/bin/fusefs mount" in unit.read_text()
    done = analyze(f"--{kind}", "verify", "--man=no", unit, runtime=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_service_of_the_system_is_confined(installed: Path, tmp_path: Path) -> None:
    unit = installed / "lib/systemd/system/fusefs@.service"
    done = analyze(
        "security", "--offline=true", f"--threshold={EXPOSURE}", unit, runtime=tmp_path
    )
    assert done.returncode == 0, done.stdout


def test_the_views_of_services_can_be_seen() -> None:
    for unit in (TOP / "systemd").rglob("*.service"):
        for line in settings(unit):
            assert not re.match("|".join(_HIDES_MOUNTS), line), line


def test_a_users_service_may_mount() -> None:
    for line in settings(TOP / "systemd/user/fusefs@.service"):
        assert not re.match("|".join(_FORBIDS_PRIVILEGES), line), line
