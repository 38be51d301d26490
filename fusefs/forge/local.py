"""The local forge: a bare repository, its pull requests and releases records of the instance.

The whole workflow runs with no network and no server. What the user may do is what the
permissions of the repository's files allow. Hooks of the repository run for pushes, as git has it;
branches, tags and merges made here change it directly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fusefs.forge import local_git as git
from fusefs.forge.errors import AlreadyThere, Missing, Moved, Refused
from fusefs.forge.local_git import Author
from fusefs.forge.model import (
    Access,
    Branch,
    Method,
    PullRequest,
    Release,
    Right,
    State,
    Tag,
)
from fusefs.forge.records import (
    NUMBERS,
    RELEASES,
    REQUESTS,
    Reader,
    Records,
    Writer,
    pack,
    repository_key,
    unpack,
)

_TRIES = 10
"""How often a merge starts again because the base moved meanwhile."""


class LocalDriver:
    """A bare repository at a path, as one user. See `fusefs.forge.model.Driver`."""

    kind = "local"

    def __init__(self, path: Path, records: Records, author: Author) -> None:
        """Use the repository at `path`; `author` commits, and is the author of pull requests."""
        self._path = Path(os.path.realpath(path))
        self._records = records
        self._author = author
        self.repository = f"local:{self._path}"
        self.user = author.email
        self.credential = str(os.geteuid())
        self._key = repository_key(self.repository)

    def access(self) -> Access:
        path = self._path
        if not _may(path, os.R_OK | os.X_OK) or not _may(path / "HEAD", os.R_OK):
            return Access(Right.NONE, f"There is no git repository at {path} that you may read.")
        if not _may(path / "objects", os.R_OK | os.X_OK):
            return Access(Right.NONE, f"You may not read {path}/objects.")
        for part in (path, path / "objects", path / "refs", path / "refs" / "heads"):
            if not _may(part, os.W_OK | os.X_OK):
                return Access(Right.READ, f"You may not write to {part}.")
        return Access(Right.WRITE)

    def find_branch(self, name: str) -> Branch | None:
        with git.opened(self._path) as repository:
            commit = git.branch_commit(repository, name)
        return None if commit is None else Branch(name, commit)

    def create_branch(self, name: str, commit: str) -> Branch:
        with git.opened(self._path, self._author) as repository:
            git.make_branch(repository, name, commit)
        return Branch(name, commit)

    def pull_requests(
        self, state: State | None, *, head: str = "", base: str = "", limit: int = 100
    ) -> list[PullRequest]:
        with self._records.read() as snapshot:
            stored = list(self._stored(snapshot, head, base))
        wanted = (
            request
            for request in map(self._as_it_stands, reversed(stored))
            if state in {None, request.state}
        )
        return [request for request, _ in zip(wanted, range(limit), strict=False)]

    def pull_request(self, number: int) -> PullRequest:
        with self._records.read() as snapshot:
            return self._as_it_stands(self._load(snapshot, number))

    def create_pull_request(self, head: str, base: str, title: str, body: str) -> PullRequest:
        with git.opened(self._path) as repository:
            commit, onto = (_standing(git.branch_commit(repository, b), b) for b in (head, base))
            if git.nothing_between(repository, onto, commit):
                raise Refused(f"No commits between {base} and {head}: there is nothing to merge.")
        now = _now()
        with self._records.write() as transaction:
            for stored in self._stored(transaction, head, base):
                request = self._as_it_stands(stored)
                if request.state is State.OPEN:
                    raise AlreadyThere(
                        f"Pull request #{request.number} from {head} into {base} is open already."
                    )
            number = self._next_number(transaction)
            request = PullRequest(
                number,
                title,
                body,
                head,
                base,
                self._author.name,
                State.OPEN,
                created=now,
                updated=now,
                commit=commit,
            )
            self._store(transaction, asdict(request))
        return request

    def edit_pull_request(
        self, number: int, *, title: str | None = None, body: str | None = None, close: bool = False
    ) -> PullRequest:
        with self._records.write() as transaction:
            stored = self._load(transaction, number)
            request = self._as_it_stands(stored)
            if request.state is not State.OPEN:
                raise Refused(f"Pull request #{number} is {request.state} already.")
            request = replace(
                request,
                title=request.title if title is None else title,
                body=request.body if body is None else body,
                state=State.CLOSED if close else State.OPEN,
                updated=_now(),
            )
            self._store(transaction, {**stored, **asdict(request)})
        return request

    def merge(self, request: PullRequest, method: Method, message: str) -> PullRequest:
        for _ in range(_TRIES - 1):
            try:
                return self._merge(request, method, message)
            except Moved:
                head = self.find_branch(request.head)
                if head is None or head.commit != request.commit:
                    raise
        return self._merge(request, method, message)

    def _merge(self, request: PullRequest, method: Method, message: str) -> PullRequest:
        """Merge onto the base as it is now.

        The commit is noted in the record before the base is moved to it: whoever reads the record
        after a crash sees by the base's history whether it came to that.
        """
        number, base = request.number, request.base
        with git.opened(self._path, self._author) as repository:
            head = _standing(git.branch_commit(repository, request.head), request.head)
            if head != request.commit:
                raise Moved(
                    f"Not merged: {request.head} is at {head[:12]} now, not at "
                    f"{request.commit[:12]}. Look at what is new there, then merge again."
                )
            onto = _standing(git.branch_commit(repository, base), base)
            text = message or _message(request, method)
            commit = git.merged(repository, onto, head, method, text, self._author)
            if git.nothing_between(repository, onto, commit):
                raise Refused("Nothing to merge: the base has all of it already.")
            with self._records.write() as transaction:
                stored = self._load(transaction, number)
                now = self._as_it_stands(stored)
                if now.state is not State.OPEN:
                    raise Refused(f"Pull request #{number} is {now.state} already.")
                stored["merging"] = [*stored.get("merging", []), commit]
                self._store(transaction, stored)
            self._records.commit()
            git.move_branch(repository, base, onto, commit, f"merge of #{number}")
        with self._records.write() as transaction:
            done = replace(
                request, state=State.MERGED, merge_commit=commit, commit=head, updated=_now()
            )
            self._store(transaction, asdict(done))
        return done

    def find_tag(self, name: str) -> Tag | None:
        with git.opened(self._path) as repository:
            return git.read_tag(repository, name)

    def create_tag(self, name: str, commit: str, message: str) -> Tag:
        with git.opened(self._path, self._author) as repository:
            git.make_tag(repository, name, commit, message, self._author)
        return Tag(name, commit, message.strip())

    def find_release(self, tag: str) -> Release | None:
        with self._records.read() as snapshot:
            raw = snapshot.get(self._release_key(tag))
        return None if raw is None else Release(**unpack(raw))

    def create_release(self, release: Release) -> Release:
        made = replace(release, created=_now())
        key = self._release_key(release.tag)
        with self._records.write() as transaction:
            if transaction.get(key) is not None:
                raise AlreadyThere(f"There is a release of {release.tag} already.")
            transaction.put(key, pack(asdict(made)))
        return made

    def _as_it_stands(self, stored: dict[str, Any]) -> PullRequest:
        """Return a stored request with what the repository says about it now."""
        fields = {**stored, "state": State(stored["state"])}
        merging = fields.pop("merging", [])
        request = PullRequest(**fields)
        if request.state is State.MERGED or (request.state is State.CLOSED and not merging):
            return request
        with git.opened(self._path) as repository:
            for commit in merging:
                if git.contains(repository, request.base, commit):
                    return replace(request, state=State.MERGED, merge_commit=commit)
            if request.state is State.OPEN:
                request = replace(request, commit=git.branch_commit(repository, request.head) or "")
        return request

    def _stored(self, reader: Reader, head: str, base: str) -> Iterator[dict[str, Any]]:
        """Yield the records from `head` into `base` (empty: any), the oldest first."""
        prefix = REQUESTS + self._key
        for _, value in reader.range(prefix, prefix + b"\xff" * 9):
            stored = unpack(value)
            if head in {"", stored["head"]} and base in {"", stored["base"]}:
                yield stored

    def _load(self, reader: Reader, number: int) -> dict[str, Any]:
        raw = reader.get(self._request_key(number)) if 0 < number < 1 << 63 else None
        if raw is None:
            raise Missing(f"There is no pull request #{number}.")
        stored: dict[str, Any] = unpack(raw)
        return stored

    def _store(self, transaction: Writer, request: dict[str, Any]) -> None:
        transaction.put(self._request_key(request["number"]), pack(request))

    def _next_number(self, transaction: Writer) -> int:
        key = NUMBERS + self._key
        number = int(transaction.get(key) or b"0") + 1
        transaction.put(key, str(number).encode())
        return number

    def _request_key(self, number: int) -> bytes:
        return REQUESTS + self._key + number.to_bytes(8, "big")

    def _release_key(self, tag: str) -> bytes:
        return RELEASES + self._key + tag.encode()


def _standing(commit: str | None, branch: str) -> str:
    if commit is None:
        raise Missing(f"There is no branch {branch}. Push it first.")
    return commit


def _message(request: PullRequest, method: Method) -> str:
    if method is Method.MERGE:
        return f"Merge #{request.number} from {request.head}: {request.title}\n\n{request.body}"
    return f"{request.title} (#{request.number})\n\n{request.body}".rstrip() + "\n"


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
