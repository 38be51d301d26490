"""Git data to and from a remote: list, clone, fetch, push.

A clone is bare and keeps the remote's branches under ``refs/remotes/origin/`` and its tags. A fetch
first brings everything to ``refs/fusefs/incoming/``, then moves all refs at once; where the remote
rewrote or dropped history, the old commit gets a ref ``refs/fusefs/kept/COMMIT``. So a fetch that
is cut off changes nothing, and none loses anything.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pygit2

from fusefs.contract.errors import InvalidArgument
from fusefs.forge.credentials import Credential
from fusefs.forge.errors import (
    AlreadyThere,
    AuthenticationFailed,
    Forbidden,
    ForgeError,
    HistoryLost,
    InProgress,
    Missing,
    Moved,
    Refused,
    Unreachable,
)
from fusefs.forge.git_errors import from_git, from_push
from fusefs.forge.git_process import Limits, Output, Watch, run
from fusefs.forge.local_git import opened
from fusefs.forge.locks import locked
from fusefs.forge.names import check_commit, check_ref_name
from fusefs.forge.ref_locks import past_locks
from fusefs.forge.urls import Remote

_INCOMING = "refs/fusefs/incoming/"
_KEPT = "refs/fusefs/kept/"
_BRANCHES = "refs/remotes/origin/"
_TAGS = "refs/tags/"

_NO_OBJECT = "0" * 40
_LOCKED = re.compile(r"cannot lock ref|\.lock': File exists")

_MANY = 100
"""Refs that are not left in files of their own when they come at once."""

_DEFINITE = (Refused, AuthenticationFailed, Forbidden, Missing, AlreadyThere)
"""What says for sure that nothing was pushed."""

_LOOK = Limits(idle=10, total=20)
"""For the question what became of a push that failed: the caller has waited already."""


@dataclass(frozen=True)
class Advertised:
    """What a remote shows: full ref names to object ids; the default branch, if it has one."""

    refs: dict[str, str]
    default_branch: str | None


@dataclass(frozen=True)
class Moves:
    """What a fetch moved here: refs to (old, new), None where it was or is not there.

    Attributes:
        rewritten: those whose old commit is not in the new one's history. It is kept.
    """

    refs: dict[str, tuple[str | None, str | None]]
    rewritten: tuple[str, ...]


@dataclass(frozen=True)
class Transport:
    """A way to one remote.

    Attributes:
        kind: of the forge there, for advice about tokens.
        credential: None lets git ask its own helpers.
    """

    remote: Remote
    kind: str = "git"
    credential: Credential | None = None
    limits: Limits = field(default_factory=Limits)
    watch: Watch = field(default_factory=Watch)

    def advertised(self) -> Advertised:
        """Ask the remote for its branches and tags.

        Raises:
            ForgeError: it cannot be asked; Cancelled.
        """
        output = self._git(
            ["ls-remote", "--symref", "--", self.remote.url, "HEAD", "refs/heads/*", "refs/tags/*"],
            "list its branches",
        )
        refs: dict[str, str] = {}
        default = None
        for line in output.out.splitlines():
            value, _, name = line.partition("\t")
            if value.startswith("ref: refs/heads/"):
                default = value.removeprefix("ref: refs/heads/")
            elif name.startswith("refs/"):
                refs[name] = value
        return Advertised(refs, default)

    def clone(self, path: Path) -> None:
        """Make a bare clone at `path`, which is not there; it appears whole or not at all.

        Raises:
            InvalidArgument: something is there.
            ForgeError: it cannot be fetched; Cancelled.
        """
        partial = path.with_name(path.name + ".partial")
        with locked(path.with_name(path.name + ".lock"), b"clone", self.limits.total) as mine:
            if not mine:
                raise InProgress("clone")
            if path.exists():
                raise InvalidArgument(f"Already exists: {path}")
            shutil.rmtree(partial, ignore_errors=True)  # of a clone that was killed
            try:
                self._git(
                    ["clone", "--bare", "--no-local", "--template=", "--progress", "--",
                     self.remote.url, str(partial)],
                    "fetch from it",
                )  # fmt: skip
                with opened(partial, ours=True) as made:
                    made.remotes.delete("origin")
                _adopt_refs(partial)
                default = self.advertised().default_branch
                if default is not None:
                    with opened(partial, ours=True) as repository:
                        repository.set_head(f"refs/heads/{default}")
                os.rename(partial, path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

    def fetch(self, repository: Path) -> Moves:
        """Bring the remote's branches and tags into a bare clone.

        Raises:
            ForgeError: it cannot be fetched, and no branch has changed here; Cancelled.
        """
        with locked(repository / "fusefs-fetch.lock", b"fetch", self.limits.total) as mine:
            if not mine:
                raise InProgress("fetch")
            return self._fetch(repository)

    def _fetch(self, repository: Path) -> Moves:
        with opened(repository, ours=True) as opened_repository:
            before = _here(opened_repository)
        arguments = [
            "fetch",
            "--prune",
            "--no-tags",
            "--progress",
            "--no-write-fetch-head",
            "--",
            self.remote.url,
            f"+refs/heads/*:{_INCOMING}heads/*",
            f"+refs/tags/*:{_INCOMING}tags/*",
        ]
        past_locks(repository, lambda: self._git(arguments, "fetch from it", repository), Moved)
        gone: dict[str, tuple[str | None, str | None]] = {}
        moves = past_locks(repository, lambda: _take_over(repository, before, gone), Moved)
        if len(moves.refs) > _MANY:
            _pack_refs(repository)
        return moves

    def push(self, repository: Path, commit: str, branch: str, expected: str | None) -> None:
        """Move a branch of the remote from `expected` (None: not there) to `commit`.

        Sent again after it was done, it is done: nothing happens.

        Raises:
            Moved: the branch is not at `expected`.
            HistoryLost: the branch is gone.
            Refused: by a rule of the forge, or `commit` is not built on `expected`.
            Unreachable: with `maybe_done` if it cannot be told whether it arrived.
            ForgeError: anything else; Cancelled.
        """
        check_ref_name(branch, "branch")
        check_commit(commit)
        self._must_build_on(repository, commit, expected)
        ref = f"refs/heads/{branch}"
        try:
            output = run(
                [
                    "push",
                    "--porcelain",
                    "--progress",
                    "--no-verify",
                    f"--force-with-lease={ref}:{expected or ''}",
                    "--",
                    self.remote.url,
                    f"{commit}:{ref}",
                ],
                repository=repository,
                remote=self.remote,
                credential=self.credential,
                limits=self.limits,
                watch=self.watch,
            )
            if output.status != 0:
                raise _rejection(output, self.remote, self.kind, branch)
        except ForgeError as error:
            if not self._arrived(error, ref, commit, expected):
                raise

    def _arrived(self, error: ForgeError, ref: str, commit: str, expected: str | None) -> bool:
        """Look after a push that failed where its branch is.

        Raises:
            HistoryLost: it is gone.
            Unreachable: nobody can tell.
        """
        if isinstance(error, _DEFINITE):
            return False
        limits = Limits(min(self.limits.idle, _LOOK.idle), min(self.limits.total, _LOOK.total))
        try:
            now = replace(self, limits=limits, watch=Watch()).advertised().refs.get(ref)
        except ForgeError:
            raise Unreachable(
                f"{self.remote.url} broke off, and it cannot be told whether the push arrived. "
                "Push again later: what is there already is not pushed twice.",
                maybe_done=True,
            ) from None
        if now == commit:
            return True
        if now is None and expected is not None:
            raise HistoryLost(
                f"Not pushed: the branch {ref.removeprefix('refs/heads/')} is gone from "
                f"{self.remote.url}. Your work is kept; push it to a new branch."
            ) from None
        error.maybe_done = False
        return False

    def _must_build_on(self, repository: Path, commit: str, expected: str | None) -> None:
        with opened(repository, ours=True) as opened_repository:
            if opened_repository.get(commit) is None:
                raise Missing(f"There is no commit {commit[:12]} here.")
            if expected is None or expected == commit:
                return
            check_commit(expected)
            known = opened_repository.get(expected) is not None
            if not known or not opened_repository.descendant_of(commit, expected):
                raise Refused(
                    f"Not pushed: {commit[:12]} is not built on {expected[:12]}, so history would "
                    "be lost. Fetch, take in what is new there, then push again."
                )

    def _git(self, arguments: list[str], doing: str, repository: Path | None = None) -> Output:
        output = run(
            arguments,
            repository=repository,
            remote=self.remote,
            credential=self.credential,
            limits=self.limits,
            watch=self.watch,
        )
        if output.status != 0 and _LOCKED.search(output.err):
            # That of a process that was killed: our lock went with it, git's files stay.
            raise Moved(f"Another fetch into {repository} is at work. Try again.")
        if output.status != 0:
            raise from_git(output.err, self.remote, self.kind, doing)
        return output


def _rejection(output: Output, remote: Remote, kind: str, branch: str) -> ForgeError:
    """Return why a push failed: ``!<TAB>from:to<TAB>[rejected] (reason)``, or no such line."""
    for line in output.out.splitlines():
        flag, _, rest = line.partition("\t")
        if flag == "!":
            _, _, summary = rest.partition("\t")
            _, _, reason = summary.partition("(")
            if "unpacker error" in reason or "remote failed to report" in reason:
                break
            return from_push(reason.removesuffix(")") or summary, output.err, remote, branch)
    return from_git(output.err or output.out, remote, kind, "push to it")


def _here(repository: pygit2.Repository) -> dict[str, str]:
    """Return the branches and tags that a clone knows of."""
    return {
        ref.name: str(ref.target)
        for ref in repository.references.iterator()
        if ref.name.startswith((_BRANCHES, _TAGS))
    }


def _moves(repository: pygit2.Repository, before: dict[str, str]) -> Moves:
    """Compare what came in with what is here.

    What is not as `before` the fetch is left alone: a push that came between noted something
    newer.
    """
    here = _here(repository)
    there: dict[str, str] = {}
    for ref in repository.references.iterator():
        if ref.name.startswith(_INCOMING):
            kind, _, rest = ref.name.removeprefix(_INCOMING).partition("/")
            there[(_BRANCHES if kind == "heads" else _TAGS) + rest] = str(ref.target)
    moved = {
        name: (here.get(name), there.get(name))
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name) and here.get(name) == before.get(name)
    }
    rewritten = tuple(name for name, (old, new) in moved.items() if _is_lost(repository, old, new))
    return Moves(moved, rewritten)


def _is_lost(repository: pygit2.Repository, old: str | None, new: str | None) -> bool:
    if old is None:
        return False
    if new is None:
        return True
    try:
        ends = [repository[end] for end in (old, new)]
        if not all(isinstance(end, pygit2.Commit) for end in ends):
            return True  # a moved tag: the old tag object would be gone
        return not repository.descendant_of(new, old)
    except pygit2.InvalidError:
        return True  # git takes it for a commit, libgit2 does not


def _take_over(
    repository: Path,
    before: dict[str, str],
    gone: dict[str, tuple[str | None, str | None]],
) -> Moves:
    """Move the branches and tags of a clone to where they came in, or some to nowhere, or none.

    Args:
        before: as in `_moves`.
        gone: what was moved to nowhere already; what is now is put into it.

    Raises:
        Moved: somebody else moves refs. Tried again it goes on.
    """
    with opened(repository, ours=True) as opened_repository:
        moves = _moves(opened_repository, before)
    kept = sorted({str(moves.refs[name][0]) for name in moves.rewritten})
    going = {name: ends for name, ends in moves.refs.items() if ends[1] is None}
    # First what goes: a branch may have become a folder of branches.
    _move_refs(
        repository,
        [f"update {_KEPT}{old} {old}" for old in kept]
        + [f"delete {name} {old}" for name, (old, _) in going.items()],
    )
    gone.update(going)
    _move_refs(
        repository,
        [
            f"update {name} {new} {old or _NO_OBJECT}"
            for name, (old, new) in moves.refs.items()
            if new is not None
        ],
    )
    refs = dict(sorted({**gone, **moves.refs}.items()))
    return Moves(refs, tuple(sorted({*gone, *moves.rewritten})))


def _adopt_refs(clone: Path) -> None:
    """Have the refs of a clone that git just made where a fetch would put them.

    All in one file (gitrepository-layout(5), ``packed-refs``), as git has them then: thousands of
    refs, each in a file of its own, take longer than all that they lead to.
    """
    _pack_refs(clone)
    packed = clone / "packed-refs"
    if not packed.exists():
        return  # of a remote without any
    refs: dict[bytes, bytes] = {}
    name, header = b"", b""
    for line in packed.read_bytes().splitlines(keepends=True):
        if line.startswith(b"#"):
            header = line
        elif line.startswith(b"^"):
            refs[name] += line  # what the tag above is of
        else:
            name = line.rstrip(b"\n").partition(b" ")[2]
            refs[name] = line
    moved: dict[bytes, bytes] = {}
    for start, kind, to in (("refs/heads/", "heads/", _BRANCHES), (_TAGS, "tags/", _TAGS)):
        old = start.encode()
        for new in (f"{_INCOMING}{kind}".encode(), to.encode()):
            moved |= {
                new + name.removeprefix(old): lines.replace(b" " + old, b" " + new, 1)
                for name, lines in refs.items()
                if name.startswith(old)
            }
    packed.write_bytes(header + b"".join(lines for _, lines in sorted(moved.items())))


def _pack_refs(repository: Path) -> None:
    """Put all refs into one file, where they are found at once. Nothing depends on it."""
    run(["pack-refs", "--all"], repository=repository)


def _move_refs(repository: Path, lines: list[str]) -> None:
    """Do all that `lines` say (git-update-ref(1)) or nothing. Raises: Moved."""
    if not lines:
        return
    commands = "\n".join(["start", *lines, "prepare", "commit", ""])
    output = run(["update-ref", "--stdin"], repository=repository, stdin=commands)
    if output.status != 0:
        raise Moved(f"Refs of {repository} were moved by somebody else. Try again.\n{output.err}")
