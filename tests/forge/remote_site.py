"""A small forge with one repository, and ways to it; its fixtures are in conftest.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fusefs.forge.credentials import Credential
from fusefs.forge.forge import Forge
from fusefs.forge.gitea import GiteaDriver
from fusefs.forge.github import GitHubDriver
from fusefs.forge.gitlab import GitLabDriver
from fusefs.forge.ledger import Ledger
from fusefs.forge.rest import Patience
from fusefs.forge.secrets import Secret
from fusefs.forge.urls import parse

from .small_forge.server import Answer, Fault, SmallForge
from .small_forge.world import Repository

TOKEN = "tok_alice_0123456789abcdef"
KINDS = ("github", "gitlab", "gitea")
QUICK = Patience(connect=5, silence=20, total=30, pause=0.001)


def credential(token: str) -> Credential | None:
    return Credential("x", Secret(token, "x"), "test") if token else None


@dataclass
class Site:
    """A small forge and ways to it."""

    small: SmallForge
    ledger: Ledger

    @property
    def repository(self) -> Repository:
        return self.small.repositories["owner/project"]

    @property
    def bare(self) -> Path:
        return self.repository.path

    def driver(
        self,
        kind: str,
        token: str = TOKEN,
        name: str = "owner/project",
        patience: Patience = QUICK,
    ) -> GitHubDriver | GitLabDriver | GiteaDriver:
        remote = parse(f"{self.small.url}/{name}.git")
        who = credential(token)
        if kind == "github":
            return GitHubDriver(remote, who, user="alice", patience=patience)
        if kind == "gitlab":
            return GitLabDriver(remote, who, user="alice", patience=patience, pause=0.001)
        return GiteaDriver(remote, who, user="alice", patience=patience, wait=0.2, pause=0.001)

    def forge(self, kind: str, token: str = TOKEN, name: str = "owner/project") -> Forge:
        return Forge(self.driver(kind, token, name), self.ledger)

    def fail(self, pattern: str, answer: Answer | str, *, times: int = 1, skip: int = 0) -> None:
        self.small.faults.append(Fault(pattern, answer, times, skip))

    def asked(self, pattern: str) -> int:
        return sum(pattern in line for line in self.small.seen)

    def tip(self, branch: str) -> str:
        return self.repository.git("rev-parse", f"refs/heads/{branch}")
