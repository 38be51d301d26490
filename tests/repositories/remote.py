"""Git repositories for tests: a bare one that stands for a remote, and a clone that others use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "LC_ALL": "C.UTF-8",
}


def git(folder: Path, *arguments: str | Path, when: int | None = None) -> str:
    """Run git in a folder and return what it says.

    Args:
        when: the time of a commit, in seconds since 2024 began.
    """
    dates = {}
    if when is not None:
        stamp = f"{1704067200 + when} +0000"
        dates = {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}
    done = subprocess.run(
        ["git", "-C", folder, *arguments], env={**os.environ, **IDENTITY, **dates},
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (arguments, done)
    return done.stdout.decode("utf-8", "surrogateescape")


class Remote:
    """A bare repository, and a clone of it in which somebody else works.

    Attributes:
        url: the bare repository.
        clone: the other's clone.
        clock: when the last commit was made; see `git`.
    """

    def __init__(self, folder: Path, files: Mapping[str, str] | None = None) -> None:
        self.url, self.clone = folder / "remote.git", folder / "clone"
        folder.mkdir(exist_ok=True)
        git(folder, "init", "-q", "--bare", "-b", "main", self.url)
        git(folder, "clone", "-q", self.url, self.clone)
        self.clock = 0
        if files:
            self.commit("first", files)

    def commit(self, message: str, files: Mapping[str, str | None], *, branch: str = "main") -> str:
        """Commit contents by name (None: no such file), push, and return the commit's id."""
        for name, text in files.items():
            file = self.clone / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                file.unlink()
            else:
                file.write_text(text)
        self.clock += 60
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-q", "--allow-empty", "-m", message, when=self.clock)
        git(self.clone, "push", "-q", "origin", f"HEAD:{branch}")
        return git(self.clone, "rev-parse", "HEAD").strip()

    def pull(self) -> None:
        """Bring the other's clone up to date."""
        git(self.clone, "pull", "-q", "--ff-only", "origin", "main")

    def tip(self, branch: str = "main") -> str:
        """Return where a branch of the remote is."""
        return git(self.url, "rev-parse", branch).strip()
