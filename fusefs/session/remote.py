"""The way from a session's working copy to the repository it came from."""

from __future__ import annotations

import getpass
import re
from pathlib import Path as HostPath

from fusefs.contract.sessions import OPERATOR
from fusefs.forge.credentials import find
from fusefs.forge.errors import ForgeError
from fusefs.forge.git_process import Watch
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session.repository import Repository
from fusefs.store.instance import Instance
from fusefs.store.mounts import MountSpec

_IDENT = re.compile(r"(?P<name>.*) <(?P<address>[^<>]+)> [0-9]+ [+-][0-9]{4}")


def transport(spec: MountSpec, watch: Watch | None = None) -> Transport:
    """Return the way to a mounted repository's remote."""
    remote = parse(spec.url)
    return Transport(remote, spec.forge, find(remote, spec.forge), watch=watch or Watch())


def clone_folder(instance: Instance, spec: MountSpec) -> HostPath:
    """Return where the instance's clone of a mounted repository is."""
    return HostPath(instance.mounts.folder(spec))


def fetch(repository: Repository, watch: Watch | None = None) -> None:
    """Bring the branches of the remote into the instance's clone.

    Raises:
        ForgeError: it cannot be fetched.
    """
    spec = repository.spec
    transport(spec, watch).fetch(clone_folder(repository.instance, spec))


def author(repository: Repository) -> tuple[str, str]:
    """Return name and address of the session's user, given as ``Name <address>``.

    For the owner of the instance they are those that git is set to.
    """
    spec = repository.session.spec
    if spec.name == OPERATOR.name:
        return _own_author(repository)
    name, bracket, address = spec.user.partition("<")
    name, address = _plain(name), _plain(address)
    if not bracket and "@" in name:
        return name.partition("@")[0] or spec.name, name
    name = name or spec.name
    return name, address or f"{name.replace(' ', '.')}@localhost"


def _plain(text: str) -> str:
    """Return text without what git has no way to write into a commit."""
    return "".join(c for c in text if c.isprintable() and c not in "<>").strip()


def _own_author(repository: Repository) -> tuple[str, str]:
    try:
        said = repository.tree.objects.git("var", "GIT_AUTHOR_IDENT").decode(errors="replace")
    except (OSError, ForgeError):
        said = ""
    match = _IDENT.fullmatch(said.strip())
    if match is not None and match["name"].strip():
        return match["name"].strip(), match["address"]
    return getpass.getuser(), f"{getpass.getuser()}@localhost"
