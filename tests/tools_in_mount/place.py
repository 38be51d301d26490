"""A folder in a mount, and programs at work in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

PATIENCE = 100
"""Seconds after which a program counts as hung."""

WORKSPACE = Path("/workspace")


@dataclass(frozen=True)
class Place:
    """A folder that a session may change, and how a program is started in it.

    Attributes:
        folder: the folder, by its path in the mount.
        home: a folder outside every mount, for what programs keep between their runs.
        cage: the granted folder, if programs see only that, at `WORKSPACE`.
    """

    folder: Path
    home: Path
    cage: Path | None = None

    @property
    def inside(self) -> Path:
        """The folder, by its path as programs see it."""
        if self.cage is None:
            return self.folder
        return WORKSPACE / self.folder.relative_to(self.cage)

    def below(self, name: str) -> Place:
        """Return the place of a folder below; it is made if it is missing."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return replace(self, folder=folder)

    def write(self, name: str, text: str) -> Path:
        """Write a file and return its path in the mount."""
        file = self.folder / name
        file.write_text(text)
        return file

    def run(self, *command: str | os.PathLike[str], status: int = 0, **environment: str) -> str:
        """Run a program in the folder, hold its exit status against `status`.

        Returns:
            What it wrote, on standard output and standard error, in order.
        """
        done = subprocess.run(
            [*self._cage(), *command],
            cwd=None if self.cage else self.folder,
            env={**_outer(), **_environment(self.home), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
        text = done.stdout.decode("utf-8", "surrogateescape")
        assert done.returncode == status, f"{done.args}: {done.returncode}\n{text}"
        return text

    def _cage(self) -> Sequence[str | os.PathLike[str]]:
        if self.cage is None:
            return []
        words: list[str | os.PathLike[str]] = [
            "bwrap", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc",
            "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
            "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
            "--unshare-all", "--die-with-parent",
        ]  # fmt: skip
        for prefix in sorted({sys.prefix, sys.base_prefix}):
            words += ["--ro-bind", prefix, prefix]
        words += ["--bind", self.home, self.home]
        words += ["--bind", self.cage, WORKSPACE, "--chdir", self.inside]
        return words


def program(name: str) -> str:
    """Return the path of a program that `.ci/setup.sh` installs."""
    found = shutil.which(name)
    assert found, f"{name} is missing: run .ci/setup.sh system"
    return found


def _outer() -> dict[str, str]:
    """Return this process's environment without what a make around the tests has put there."""
    make = ("MAKE", "MFLAGS")
    return {key: value for key, value in os.environ.items() if not key.startswith(make)}


def _environment(home: Path) -> dict[str, str]:
    """What keeps programs off the network and out of the user's own settings."""
    return {
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_AUTHOR_EMAIL": "ann@example.org",
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "ann@example.org",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PYTHONDONTWRITEBYTECODE": "",
        "UV_OFFLINE": "1",
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_CACHE_DIR": str(home / "uv-cache"),
        "npm_config_offline": "true",
        "npm_config_audit": "false",
        "npm_config_fund": "false",
        "npm_config_update_notifier": "false",
        "npm_config_cache": str(home / "npm-cache"),
    }
