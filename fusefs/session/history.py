"""The log of a repository and its commits, for those who see all of it or a part."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import islice

from fusefs.contract.errors import ContractError, InvalidArgument, PartlyHidden
from fusefs.session.repository import Repository
from fusefs.tree.repository_history import Commit, VisibleHistory

_PLAIN = (
    "--no-decorate", "--pretty=medium", "--date=default", "--no-show-signature", "--no-notes",
    "--no-ext-diff", "--no-textconv",
)  # fmt: skip
"""What a user's own settings are not to change: programs read this."""

_FIELDS = ("%H", "%P", "%an <%ae>", "%at", "%B", "")
_REVISION = re.compile(r"(?P<name>[^~^]+)(?P<way>(?:[~^][0-9]{0,6}){0,20})")
_DIGITS = re.compile(r"[0-9a-f]{4,40}")


class NoSuchCommit(ContractError):
    """A commit that neither the branches and tags nor the working copy lead to."""

    code = "FS_NOT_FOUND"

    def __init__(self, wanted: str, path: str) -> None:
        super().__init__(f"No such commit in {path}: {wanted}")


def log(repository: Repository, *, limit: int, colour: bool = False) -> bytes:
    """Return the newest commits before and at the working copy's base, as git-log(1) shows them.

    Below a path inside the repository: those that changed something there. To a session that does
    not see all of the repository, only commits are shown that changed something it sees, and
    nothing that is made of the rest: neither ids nor which commits are merges.
    """
    if not repository.is_whole:
        return b"\n".join(_show(commit) for commit in islice(_visible(repository), limit))
    return _said(repository, ["log", f"-n{limit}"], base_id(repository), colour)


def records(repository: Repository, *, limit: int) -> list[dict[str, object]]:
    """Return the commits that `log` shows, each as a JSON object."""
    if not repository.is_whole:
        return [
            {"author": c.author, "time": c.time, "message": c.message}
            for c in islice(_visible(repository), limit)
        ]
    out = repository.tree.objects.git(
        "log", f"--pretty=format:{'%x00'.join(_FIELDS)}", "--no-show-signature", f"-n{limit}",
        base_id(repository), "--", *_pathspec(repository),
    )  # fmt: skip
    fields = os.fsdecode(out).split("\0")
    return [
        {
            "commit": commit.strip("\n"),  # one stands between two commits
            "parents": parents.split(),
            "author": author,
            "time": int(time or 0),  # empty where a commit says none
            "message": message,
        }
        for commit, parents, author, time, message in zip(*[iter(fields)] * 5, strict=False)
    ]


def show(repository: Repository, commit: str | None, *, colour: bool = False) -> bytes:
    """Return a commit and what it changed, as git-show(1) shows it.

    Args:
        repository: below its path only.
        commit: an id or the beginning of one, a branch or tag, ``HEAD`` (the working copy's
            base), with ``~N`` and ``^N`` behind it; the base if missing.
        colour: with a terminal's colours.

    Raises:
        PartlyHidden: the session does not see all of the repository.
        NoSuchCommit: there is none.
    """
    if not repository.is_whole:
        raise PartlyHidden("a commit", repository.absolute(()))
    found = base_id(repository) if commit is None else find_commit(repository, commit)
    return _said(repository, ["show"], found, colour)


def _said(repository: Repository, command: list[str], commit: str, colour: bool) -> bytes:
    """Return what a command of git shows from a commit on."""
    options = [*command, *_PLAIN, f"--color={'always' if colour else 'never'}"]
    rest = [commit, "--", *_pathspec(repository)]
    try:
        return repository.tree.objects.git(*options, *rest)
    except OSError as error:
        if "fatal: Timestamp" not in str(error):
            raise
    # Before 1970 where its author is: git gives up, and shows it as a number.
    return repository.tree.objects.git(*options, "--date=raw", *rest)


def base_id(repository: Repository) -> str:
    """Return the id of the working copy's base, in hexadecimal."""
    return repository.tree.copy.base.hex()


def _pathspec(repository: Repository) -> list[str]:
    if not repository.path:
        return []
    return [":(top,literal)" + os.fsdecode(b"/".join(repository.path))]


def _visible(repository: Repository) -> Iterator[Commit]:
    cursor = repository.session.view.rules.cursor(repository.mount)
    history = VisibleHistory(repository.tree.objects, cursor, repository.path)
    return history.commits(repository.tree.copy.base)


def _show(commit: Commit) -> bytes:
    lines = commit.message.rstrip("\n").split("\n")
    text = "".join(f"    {line}".rstrip() + "\n" if line else "    \n" for line in lines)
    return f"Author: {commit.author}\nDate:   {_date(commit)}\n\n{text}".encode("utf-8", "replace")


def _date(commit: Commit) -> str:
    """Return a commit's date as git-log(1) writes it, in English whatever the locale."""
    # Dates come again after 400 years: years after 9999 are shown as one that Python knows.
    turns, seconds = divmod(commit.time, _TURN)
    if turns > _LAST_TURN:
        turns, seconds = 0, 0  # as git has it
    offset = timedelta(minutes=commit.offset)
    when = datetime(1970, 1, 1, tzinfo=timezone(offset)) + timedelta(seconds=seconds) + offset
    day = f"{_DAYS[when.weekday()]} {_MONTHS[when.month - 1]} {when.day}"
    return f"{day} {when:%H:%M:%S} {when.year + 400 * turns} {when:%z}"


_TURN = 400 * 31_556_952
"""Seconds of 400 years: the average year has 365.2425 days."""
_LAST_TURN = (1 << 31) // 400
"""A year that does not fit into 32 bits is none to git."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip


def find_commit(repository: Repository, wanted: str) -> str:
    """Return the id of the commit that `wanted` names.

    Only commits count that branches, tags or the base lead to: the clone also has what other
    sessions staged.

    Raises:
        InvalidArgument: it cannot be the name of a commit.
        NoSuchCommit: there is none.
    """
    match = _REVISION.fullmatch(wanted)
    if match is None:
        raise InvalidArgument(
            f"Not a commit: {wanted!r}. Give an id, a branch, a tag or HEAD, with ~N or ^N."
        )
    start = _start(repository, match["name"])
    if start is None:
        raise NoSuchCommit(wanted, repository.absolute(()))
    try:
        spec = f"{start}{match['way']}^{{commit}}"
        found = repository.tree.objects.git("rev-parse", "--verify", "--quiet", spec)
    except OSError:
        raise NoSuchCommit(wanted, repository.absolute(())) from None
    return found.decode().strip()


def _start(repository: Repository, name: str) -> str | None:
    base = base_id(repository)
    if name in {"HEAD", "@"}:
        return base
    objects = repository.tree.objects
    listed = objects.git("for-each-ref", "--format=%(objectname) %(refname)",
                         "refs/remotes/origin", "refs/tags")  # fmt: skip
    lines = (line.split(" ", 1) for line in os.fsdecode(listed).splitlines())
    refs: dict[str, str] = {ref: oid for oid, ref in lines}
    for ref in (f"refs/tags/{name}", f"refs/remotes/origin/{name}"):
        if ref in refs:
            return refs[ref]
    if not _DIGITS.fullmatch(name.lower()):
        return None
    known = objects.git("rev-list", "--remotes=origin", "--tags", base).decode().split()
    found = [commit for commit in known if commit.startswith(name.lower())]
    return found[0] if len(found) == 1 else None
