"""Commits: what is staged, made into a commit of the branch and sent to where it belongs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusefs.contract.errors import InvalidArgument, NotCommitted, NothingStaged
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, is_at_or_below
from fusefs.forge.errors import Moved
from fusefs.forge.git_process import Watch
from fusefs.forge.ledger import Effect, Ledger, Steps
from fusefs.forge.names import check_key
from fusefs.session.remote import author, clone_folder, fetch, transport
from fusefs.session.repository import Repository
from fusefs.session.syncing import sync
from fusefs.store.instance import Instance
from fusefs.store.mounts import WorkingCopy, set_working_copy, working_copy
from fusefs.tree.repository_changes import Changed
from fusefs.tree.repository_history import VisibleHistory

_TRIES = 5
"""How often a commit begins anew because something moved that the session does not see."""


@dataclass(frozen=True)
class Committed:
    """A commit that was made.

    Attributes:
        commit: its id, in hexadecimal.
        branch: the branch that is at it now.
        paths: what it changed, relative to the repository.
    """

    commit: str
    branch: str
    paths: tuple[Path, ...]


def commit(
    repository: Repository,
    message: str,
    paths: Sequence[Path] = (),
    *,
    key: str | None = None,
    watch: Watch | None = None,
) -> Committed:
    """Commit staged changes and send them to the branch that the repository is mounted at.

    Args:
        repository: the session's working copy.
        message: the commit message.
        paths: only changes at or below these, relative to the repository; all if there are none.
        key: an idempotency key: a call with the same key and arguments is done once.
        watch: is told how far it has come.

    Raises:
        NotCommitted: the session may stage but not commit a path that was named, or all there is.
        NothingStaged: nothing is staged.
        InvalidArgument: there is no message.
        Moved: the branch has commits that the working copy does not build on.
        KeyReused: the key stands for a call with other arguments.
        ForgeError: the commit could not be sent.
    """
    if not message.strip():
        raise InvalidArgument("Not committed: a commit needs a message.")
    if key is not None:
        check_key(key)
    for last in reversed(range(_TRIES)):
        attempt = _Attempt(repository, message, tuple(paths), watch or Watch())
        try:
            return attempt.once(key) if key is not None else attempt.simply()
        except Moved as moved:
            if last == 0 or not _follow_unseen(repository):
                raise Moved(
                    f"Not committed: {repository.spec.branch} has moved on since this working "
                    "copy began; the changes stay staged. To take them in: "
                    f"fusefs sync {repository.absolute(())}"
                ) from moved
    raise AssertionError


def _follow_unseen(repository: Repository) -> bool:
    """Move on to the newest commit if it differs in nothing that the session sees.

    Else a commit would be refused, or not, by what is hidden.
    """
    fetch(repository)
    objects = repository.tree.objects
    cursor = repository.session.view.rules.cursor(repository.mount)
    history = VisibleHistory(objects, cursor)
    tip = objects.branch(repository.spec.branch)
    if history.visible_part(tip) != history.visible_part(repository.tree.copy.base):
        return False
    return not sync(repository).conflicts


class _Attempt:
    """One try to commit: what is to be committed is made, then sent, then noted."""

    def __init__(
        self, repository: Repository, message: str, paths: tuple[Path, ...], watch: Watch
    ) -> None:
        self._repository = repository
        self._message = message
        self._paths = paths
        self._watch = watch
        self._plan: dict[str, Any] = {}

    def simply(self) -> Committed:
        """Commit."""
        self._make()
        return _outcome(self._send())

    def once(self, key: str) -> Committed:
        """Commit, unless that was done before under this key."""
        spec = self._repository.spec
        effect = Effect(
            "commit", f"mount:{spec.id:x}", self._repository.session.spec.name, key,
            {"message": self._message, "paths": [_text(path) for path in self._paths]},
        )  # fmt: skip
        steps = Steps(look=self._make, find=self._find, do=self._send)
        return _outcome(ledger(self._repository.instance).once(effect, steps))

    def _make(self) -> dict[str, Any]:
        """Make the commit, which nobody sees yet, and return what there is to know of it."""
        repository = self._repository
        tops = self._paths or (repository.path,)
        chosen = _chosen(repository, tops, named=bool(self._paths))
        if not chosen:
            raise NothingStaged("commit", repository.absolute(repository.path))
        text = self._message if self._message.endswith("\n") else self._message + "\n"
        base = repository.tree.copy.base
        made = repository.tree.objects.write_commit(
            repository.write_tree(chosen), [base], text, author(repository)
        )
        self._plan = {
            "commit": made.hex(),
            "base": base.hex(),
            "branch": repository.spec.branch,
            "paths": [_text(item.path) for item in chosen],
        }
        return self._plan

    def _find(self, plan: dict[str, Any]) -> dict[str, Any] | None:
        """Return the plan if it was carried out: by a process that died before it said so."""
        self._plan = plan
        fetch(self._repository)
        objects = self._repository.tree.objects
        tip = objects.branch(plan["branch"])
        if not objects.is_in_history(bytes.fromhex(plan["commit"]), tip):
            return None
        self._note()
        return plan

    def _send(self) -> dict[str, Any]:
        """Send the commit that was planned; sent again, it is the same one."""
        spec, plan = self._repository.spec, self._plan
        folder = clone_folder(self._repository.instance, spec)
        way = transport(spec, self._watch)
        way.push(folder, plan["commit"], plan["branch"], plan["base"])
        self._repository.tree.objects.note_branch(
            plan["branch"], bytes.fromhex(plan["commit"])
        )
        self._note()
        return plan

    def _note(self) -> None:
        """Count changes from the commit on, unless the working copy has moved on by itself."""
        repository, plan = self._repository, self._plan
        with repository.instance.kv.write() as txn:
            mount, session = repository.spec.id, repository.session.spec.name
            copy = working_copy(txn, mount, session)
            if copy is not None and copy.base.hex() == plan["base"]:
                moved = WorkingCopy(copy.top, bytes.fromhex(plan["commit"]))
                set_working_copy(txn, mount, session, moved)
        repository.instance.commit()
        repository.tree.follow()


def _outcome(plan: dict[str, Any]) -> Committed:
    paths = (tuple(path.encode("utf-8", "surrogateescape").split(b"/")) for path in plan["paths"])
    return Committed(plan["commit"], plan["branch"], tuple(paths))


def _text(path: Path) -> str:
    return b"/".join(path).decode("utf-8", "surrogateescape")


def ledger(instance: Instance) -> Ledger:
    """Return the record of what the instance asked of forges under idempotency keys."""
    return Ledger(instance.kv, instance.folder / "run" / "ledger.lock")


def _chosen(repository: Repository, tops: Sequence[Path], *, named: bool) -> list[Changed]:
    for top in tops:
        cursor = repository.session.view.rules.cursor((*repository.mount, *top))
        if not (cursor.visible or cursor.passage):
            raise cursor.unseen((*repository.mount, *top))
    changes = repository.changes(tops)
    allowed = [item for item in changes if repository.level(item.path) >= Level.COMMIT]
    for top in tops:
        below = [item for item in changes if is_at_or_below(item.path, top)]
        refused = [item for item in below if item not in allowed]
        if refused and (named or not allowed):
            raise NotCommitted(repository.absolute(refused[0].path))
        if repository.level(top) < Level.COMMIT and not below:
            raise NotCommitted(repository.absolute(top))
    return allowed
