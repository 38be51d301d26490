"""From an address to a repository's forge and its git data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fusefs.contract.errors import InvalidArgument
from fusefs.forge import credentials
from fusefs.forge.forge import Forge
from fusefs.forge.git_process import Limits, Watch
from fusefs.forge.gitea import GiteaDriver
from fusefs.forge.github import GitHubDriver
from fusefs.forge.gitlab import GitLabDriver
from fusefs.forge.ledger import Ledger
from fusefs.forge.local import LocalDriver
from fusefs.forge.local_git import Author
from fusefs.forge.model import Driver
from fusefs.forge.records import Records
from fusefs.forge.rest import Patience
from fusefs.forge.rights import RightsCache
from fusefs.forge.transport import Transport
from fusefs.forge.urls import Remote, parse

_WELL_KNOWN = {
    "github.com": "github",
    "gitlab.com": "gitlab",
    "gitea.com": "gitea",
    "codeberg.org": "gitea",
}

_DRIVERS: dict[str, Callable[..., Driver]] = {
    "github": GitHubDriver,
    "gitlab": GitLabDriver,
    "gitea": GiteaDriver,
}

KINDS = ("local", *_DRIVERS)
"""What `kind` may be; Forgejo is ``gitea``."""


@dataclass(frozen=True)
class Home:
    """What an instance gives to all its forges.

    Attributes:
        records: its store of ordered keys.
        lock_file: a file beside it for the ledger's locks, the same in all its processes.
        rights: the process's cache.
    """

    records: Records
    lock_file: Path
    rights: RightsCache


@dataclass(frozen=True)
class Connection:
    """A repository: its forge, and the way to its git data."""

    remote: Remote
    forge: Forge
    transport: Transport


def connect(
    url: str,
    home: Home,
    author: Author,
    *,
    user: str,
    kind: str = "",
    api: str = "",
    environ: Mapping[str, str] | None = None,
    patience: Patience | None = None,
    limits: Limits | None = None,
    watch: Watch | None = None,
) -> Connection:
    """Return a connection to the repository at `url`; nothing is asked of it yet.

    Args:
        url: see `fusefs.forge.urls`.
        author: commits what the local forge merges and tags.
        user: whose idempotency keys and credentials count.
        kind: one of `KINDS`; needed for hosts that are not well known.
        api: the root of the REST API, where it is not at its usual place.
        environ: where tokens are looked for; the process's own when missing.

    Raises:
        InvalidArgument: the address is none, the kind is needed and missing or unknown, or the
            token would go to `api` over plain http.
    """
    remote = parse(url)
    kind = kind_of(remote, kind)
    credential = credentials.find(remote, kind, environ)
    driver: Driver
    if kind == "local":
        driver = LocalDriver(Path(remote.path), home.records, author)
    else:
        driver = _DRIVERS[kind](
            remote, credential, user=user, api=api.rstrip("/"), patience=patience
        )
    return Connection(
        remote,
        Forge(driver, Ledger(home.records, home.lock_file), home.rights),
        Transport(remote, kind, credential, limits or Limits(), watch or Watch()),
    )


def kind_of(remote: Remote, kind: str = "") -> str:
    """Return the kind of forge that a repository is on.

    Args:
        remote: where it is.
        kind: one of `KINDS`, where it is said; else it is told by the address.

    Raises:
        InvalidArgument: it must be said, is unknown, or cannot be what was said.
    """
    known = "local" if remote.scheme == "path" else _WELL_KNOWN.get(remote.host, "")
    kind = kind or known
    if not kind:
        raise InvalidArgument(
            f"What kind of forge is {remote.host}? Say it: --forge {'|'.join(_DRIVERS)} "
            "(Forgejo is gitea)."
        )
    if kind not in KINDS:
        raise InvalidArgument(f"Unknown kind of forge: {kind}. Use one of {', '.join(KINDS)}.")
    if (kind == "local") != (remote.scheme == "path"):
        raise InvalidArgument(
            f"A forge of kind {kind} is not at {remote.url}: local ones are at a path, "
            "others at an address of a host."
        )
    return kind
