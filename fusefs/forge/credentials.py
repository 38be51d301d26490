"""Where tokens come from: the environment, then git's credential helpers.

A token of the environment goes only to the host it is for, as the forges' own tools have it:

=========================== ============================== =========================
variables, the first set    host                           another host
=========================== ============================== =========================
``GH_TOKEN GITHUB_TOKEN``   github.com                     ``GH_HOST``
``GITLAB_TOKEN``            gitlab.com                     ``GITLAB_HOST``
``GITEA_TOKEN``             gitea.com                      ``GITEA_HOST``
=========================== ============================== =========================

The host may be written with ``https://`` and a port. Sources: ``gh help environment``, glab's
README, https://git-scm.com/docs/git-credential.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from fusefs.forge.secrets import Secret
from fusefs.forge.urls import Remote

_HELPER_SECONDS = 20
"""A helper may have to wake an agent, but nobody is there to answer a question."""


@dataclass(frozen=True)
class Credential:
    """A user's access to a site.

    Attributes:
        user: for basic authentication; forges take any name with a token.
        source: where it was found, for people.
    """

    user: str
    secret: Secret
    source: str

    @property
    def fingerprint(self) -> str:
        """Tells one credential from another; says nothing about it."""
        return hashlib.sha256(b"fusefs credential\0" + self.secret.reveal().encode()).hexdigest()[
            :16
        ]


@dataclass(frozen=True)
class _Variables:
    tokens: tuple[str, ...]
    host: str
    default_host: str
    user: str


_VARIABLES = {
    "github": _Variables(("GH_TOKEN", "GITHUB_TOKEN"), "GH_HOST", "github.com", "x-access-token"),
    "gitlab": _Variables(("GITLAB_TOKEN",), "GITLAB_HOST", "gitlab.com", "oauth2"),
    "gitea": _Variables(("GITEA_TOKEN",), "GITEA_HOST", "gitea.com", "token"),
}


def find(remote: Remote, kind: str, environ: Mapping[str, str] | None = None) -> Credential | None:
    """Return the credential for a repository, or None.

    Args:
        remote: where it is; a token is never looked for where it could be overheard.
        kind: ``github``, ``gitlab``, ``gitea``; any other has no variables.
        environ: the process's own when missing.
    """
    environ = os.environ if environ is None else environ
    site = _web_site(remote)
    if site is None or not site.is_private:
        return None
    return _from_environment(site, kind, environ) or _from_helpers(site, environ)


def advice(remote: Remote, kind: str) -> str:
    """Return what a person can do to give a credential for `remote`."""
    site = _web_site(remote)
    if remote.scheme == "http" and (site is None or not site.is_private):
        return "Use https:// instead: a token is not sent over plain http."
    names = _VARIABLES.get(kind)
    helper = f"store one in git's credential helper (git credential approve) for {remote.host}"
    if names is None:
        return f"To give a token, {helper}."
    host = "" if remote.host == names.default_host else f" and {names.host}={_named(remote)}"
    return f"To give a token, set {names.tokens[0]}{host}, or {helper}."


def _web_site(remote: Remote) -> Remote | None:
    """Return where the web API of a repository is that git reaches by ssh or http."""
    if remote.scheme == "path":
        return None
    if remote.scheme == "ssh":
        return Remote(
            f"https://{remote.host}/{remote.path}", "https", remote.host, None, remote.path
        )
    return remote


def _named(remote: Remote) -> str:
    return remote.host if remote.port is None else f"{remote.host}:{remote.port}"


def _from_environment(site: Remote, kind: str, environ: Mapping[str, str]) -> Credential | None:
    names = _VARIABLES.get(kind)
    if names is None:
        return None
    host = environ.get(names.host, "").split("://")[-1].strip("/").lower() or names.default_host
    if host != _named(site):
        return None
    for name in names.tokens:
        token = environ.get(name, "").strip()
        if token:
            return Credential(names.user, Secret(token, names.user), name)
    return None


def _from_helpers(site: Remote, environ: Mapping[str, str]) -> Credential | None:
    git = shutil.which("git", path=environ.get("PATH"))
    if git is None:
        return None
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": "", "LC_ALL": "C"}
    wanted = f"protocol={site.scheme}\nhost={_named(site)}\npath={site.path}\n\n"
    try:
        done = subprocess.run(
            [git, "-c", "core.askPass=", "credential", "fill"],
            input=wanted,
            capture_output=True,
            text=True,
            timeout=_HELPER_SECONDS,
            check=False,
            env={**environ, **quiet},
            start_new_session=True,
        )
    except (subprocess.TimeoutExpired, OSError, UnicodeDecodeError):
        return None
    answer = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if done.returncode != 0 or not answer.get("password"):
        return None
    user = answer.get("username", "")
    return Credential(user, Secret(answer["password"], user), "git's credential helper")
