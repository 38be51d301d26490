"""What git says on standard error, as our errors.

git has no codes for these; it is run in the C locale, and the words here are those of its sources
(remote-curl.c, http.c, connect.c, transport.c, builtin/send-pack.c, refs/files-backend.c), curl's
and ssh's.
"""

from __future__ import annotations

import re

from fusefs.forge.credentials import advice
from fusefs.forge.errors import (
    AlreadyThere,
    AuthenticationFailed,
    Forbidden,
    ForgeError,
    HistoryLost,
    Missing,
    Moved,
    Refused,
    Unreachable,
)
from fusefs.forge.urls import Remote

_KINDS: list[tuple[type[ForgeError], str]] = [
    (Forbidden, r"dubious ownership|safe\.directory"),
    (
        AuthenticationFailed,
        r"Authentication failed|could not read (?:Username|Password)|terminal prompts disabled"
        r"|returned error: 401|Permission denied \((?:publickey|password|keyboard)"
        r"|Host key verification failed",
    ),
    (
        Forbidden,
        r"returned error: 403|Write access to repository not granted|Permission to .* denied",
    ),
    (HistoryLost, r"couldn't find remote ref|not our ref|unadvertised object|bad object"),
    (
        Missing,
        r"Repository not found|repository '.*' not found|does not appear to be a git repository"
        r"|returned error: 404|does not exist",
    ),
    (Forbidden, r"Permission denied|insufficient permission"),
    (
        Unreachable,
        r"Could not resolve|Failed to connect|Couldn't connect|Connection (?:refused|reset|timed)"
        r"|[Tt]imed out|unexpected disconnect|hung up|early EOF|RPC failed"
        r"|returned error: (?:5\d\d|429)"
        r"|Empty reply|transfer closed|SSL|TLS|certificate|No route to host|Network is unreachable"
        r"|Could not read from remote repository|invalid server response|protocol error"
        r"|not valid: is this a git repository",
    ),
]

_MOVED = re.compile(
    r"stale info|fetch first|non-fast-forward|cannot lock ref|failed to update ref"
    r"|incorrect old value|reference already exists|is at [0-9a-f]{40}"
)

_TEXTS: dict[type[ForgeError], str] = {
    AuthenticationFailed: "{where} wants a credential, or refused the one it got. {advice}",
    Forbidden: "{where} does not let you {doing}.",
    HistoryLost: "{where} no longer has what was asked for. Fetch again.",
    Missing: "There is no repository at {where}, or your credential may not see it.",
    Unreachable: "{where} cannot be reached, or broke off. Try again later.",
}


def from_git(stderr: str, remote: Remote, kind: str, doing: str) -> ForgeError:
    """Return what went wrong.

    Args:
        stderr: all that git said.
        remote: for the text.
        kind: of the forge, for advice about tokens.
        doing: completes "git could not ...", as in ``fetch from it``.
    """
    for error, pattern in _KINDS:
        if re.search(pattern, stderr):
            if error is Missing and remote.scheme == "path":
                return Missing(f"There is no git repository at {remote.url}.")
            text = _TEXTS[error].format(where=remote.url, doing=doing, advice=advice(remote, kind))
            return error(f"{text}\n{_said(stderr)}")
    return ForgeError(f"git could not {doing} ({remote.url}):\n{_said(stderr)}")


def from_push(reason: str, stderr: str, remote: Remote, branch: str) -> ForgeError:
    """Return why a push of one branch was rejected.

    Args:
        reason: git's, between the parentheses of ``git push --porcelain``.
        stderr: all that git said; lines of the other side begin with ``remote:``.
    """
    if "; cannot create" in stderr:
        return AlreadyThere(
            f"Not pushed: no branch can be called {branch} beside the present ones, for a name "
            "cannot be both a branch and a folder of branches. Take another name."
        )
    if _MOVED.search(reason) and "hook" not in reason:
        return Moved(
            f"Not pushed: {branch} has moved on {remote.url}. Fetch, take in what is new there, "
            "then push again. Nothing is lost here."
        )
    theirs = [
        line.removeprefix("remote:").strip()
        for line in stderr.splitlines()
        if line.startswith("remote:")
    ]
    said = "\n".join(line for line in theirs if line)
    return Refused(
        f"Not pushed: {remote.url} refused {branch}: {reason}. Your work is kept; push it to "
        f"another branch and open a pull request, or ask whoever runs the forge.\n{said}",
        f"{reason}\n{said}",
    )


def _said(stderr: str) -> str:
    """Return the last lines that say something."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return "\n".join(lines[-5:])
