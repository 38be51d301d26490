"""Where a repository is: a path, ``file://``, ``http(s)://``, ``ssh://`` or ``user@host:path``.

Forms as in git-clone(1), "Git URLs".
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from fusefs.contract.errors import InvalidArgument
from fusefs.forge.secrets import mask

_SCP = re.compile(r"(?:(?P<user>[^@/:\s]+)@)?(?P<host>\[[^\]/]+\]|[^@/:\s]+):(?P<path>.+)")
_PROGRAM = re.compile(r"[^/]*::")
"""A program of git's to run: git-remote-ext(1)."""

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f:.]+")


@dataclass(frozen=True)
class Remote:
    """A repository's address.

    Attributes:
        url: for git.
        scheme: ``path``, ``http``, ``https`` or ``ssh``.
        host: in lower case; empty for a path.
        port: None where the URL names none.
        path: of a local repository, absolute; elsewhere as on the host, without slashes at the
            ends and without ``.git``.
    """

    url: str
    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def site(self) -> str:
        """Scheme, host and port: where a credential belongs to."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port is None else f":{self.port}")

    @property
    def is_private(self) -> bool:
        """Whether a token may be sent there: over TLS, or to this very machine."""
        return is_private(self.site)


def is_private(url: str) -> bool:
    """Whether what is sent to an HTTP address can be read by nobody on the way."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (
        parts.scheme == "http" and _is_loopback(parts.hostname or "")
    )


def parse(url: str) -> Remote:
    """Return where `url` points.

    Raises:
        InvalidArgument: it is none, has a user or a password in it, or is of an unknown scheme.
    """
    # "::" names a program of git's to run: git-remote-ext(1).
    if (
        not url
        or url.startswith("-")
        or "::" in url.split("/", maxsplit=1)[0]
        or not url.isprintable()
    ):
        raise InvalidArgument(f"Not an address of a repository: {mask(repr(url))}.")
    if "://" not in url:
        scp = None if url.startswith((".", "/", "~")) else _SCP.fullmatch(url)
        if scp is None:
            path = os.path.abspath(os.path.expanduser(url))
            return Remote(path, "path", "", None, path)
        return _checked(
            Remote(url, "ssh", scp["host"].strip("[]").lower(), None, _slug(scp["path"]))
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidArgument(
            "Not an address of a repository: its port or host is wrong."
        ) from None
    if parts.scheme == "file":
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise InvalidArgument("Not an address on this machine. Use file:///PATH.")
        path = os.path.abspath(unquote(parts.path))
        return Remote(path, "path", "", None, path)
    if parts.scheme not in {"http", "https", "ssh"}:
        raise InvalidArgument(
            f"Repositories are not fetched by {parts.scheme}://. Use a path, https:// or ssh://."
        )
    if ("@" in parts.netloc and parts.scheme != "ssh") or parts.password is not None:
        raise InvalidArgument(
            "Leave user and token out of the address: it is kept and shown. Put the token into "
            "GH_TOKEN, GITLAB_TOKEN or GITEA_TOKEN, or into git's credential helper."
        )
    if parts.query or parts.fragment:
        raise InvalidArgument("An address of a repository has no ? and no # in it.")
    host = (parts.hostname or "").lower()
    return _checked(Remote(url, parts.scheme, host, port, _slug(unquote(parts.path))))


def _checked(remote: Remote) -> Remote:
    if not _HOST.fullmatch(remote.host) or not remote.path:
        raise InvalidArgument(f"Not an address of a repository: {mask(repr(remote.url))}.")
    return remote


def _slug(path: str) -> str:
    return path.strip("/").removesuffix(".git").rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
