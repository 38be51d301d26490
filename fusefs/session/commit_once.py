"""Commits as faces call them: done once under an idempotency key, and blind to what is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusefs.contract.paths import Path
from fusefs.forge.errors import ForgeError, Moved, Unreachable
from fusefs.forge.git_process import Watch
from fusefs.forge.ledger import Effect, Ledger, Steps
from fusefs.forge.names import check_key
from fusefs.session import rights
from fusefs.session.committing import Committed, Prepared, note, prepare, send
from fusefs.session.forge_records import ForgeRecords
from fusefs.session.repository import Repository
from fusefs.session.syncing import fetch, sync
from fusefs.store.instance import Instance
from fusefs.tree.repository_history import VisibleHistory

_TRIES = 5
"""How often a commit begins anew because something moved that the session does not see."""


def commit(
    repository: Repository,
    message: str,
    paths: Sequence[Path] = (),
    *,
    key: str | None = None,
    watch: Watch | None = None,
) -> Committed:
    """Commit as `fusefs.session.committing.commit` does.

    If the branch moved on in nothing that the session sees, the working copy follows it: else
    whether a commit is refused would tell of what is hidden.

    Args:
        repository: the session's working copy.
        message: the commit message.
        paths: only changes at or below these, relative to the repository; all if there are none.
        key: an idempotency key: a call with the same key and arguments is done once, also if
            the process that sent it died before it could tell.
        watch: is told how far it has come.

    Raises:
        ContractError: as there; and KeyReused, the key stands for a call with other arguments.
    """
    if key is not None:
        check_key(key)
    rights.ask_one(repository)
    repository.catch_up()
    for left in reversed(range(_TRIES)):
        attempt = _Attempt(repository, message, tuple(paths), watch or Watch())
        try:
            return attempt.simply() if key is None else attempt.once(key)
        except Moved:
            if left == 0 or not _follow_unseen(repository):
                raise
        except ForgeError as error:
            if not error.maybe_done and not error.text.startswith("Not committed"):
                error.text += "\nNot committed: the changes stay staged."
            elif isinstance(error, Unreachable):
                where = repository.absolute(())
                error.text += (
                    "\nThe changes stay staged. If this had a key: give it again, with the same "
                    f"key. Else: fusefs sync {where}, then commit what is still staged."
                )
            raise
    raise AssertionError


def _follow_unseen(repository: Repository) -> bool:
    """Move on to the newest commit if it differs in nothing that the session sees."""
    fetch(repository)
    objects = repository.tree.objects
    cursor = repository.session.view.rules.cursor(repository.mount)
    history = VisibleHistory(objects, cursor)
    try:
        tip = objects.branch(repository.branch)
    except FileNotFoundError:
        return False
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
        self._prepared: Prepared | None = None

    def simply(self) -> Committed:
        """Commit."""
        self._look()
        return _unpacked(self._do()).done

    def once(self, key: str) -> Committed:
        """Commit, unless that was done before under this key."""
        repository = self._repository
        effect = Effect(
            "commit", f"mount:{repository.spec.id:x}", repository.session.spec.name, key,
            {"message": self._message, "paths": [_text(path) for path in self._paths]},
        )  # fmt: skip
        steps = Steps(look=self._look, find=self._find, do=self._do)
        return _unpacked(ledger(repository.instance).once(effect, steps)).done

    def _look(self) -> dict[str, Any]:
        """Make the commit; what the ledger keeps of it leads to it whoever sends it."""
        self._prepared = prepare(self._repository, self._message, self._paths)
        return _packed(self._prepared)

    def _find(self, plan: dict[str, Any]) -> dict[str, Any] | None:
        """Return the plan if it was carried out: by a process that died before it said so."""
        self._prepared = _unpacked(plan)
        done = self._prepared.done
        fetch(self._repository)
        objects = self._repository.tree.objects
        try:
            tip = objects.branch(done.branch)
        except FileNotFoundError:
            return None
        if not objects.is_in_history(bytes.fromhex(done.commit), tip):
            return None
        note(self._repository, self._prepared)
        return plan

    def _do(self) -> dict[str, Any]:
        assert self._prepared is not None
        send(self._repository, self._prepared, self._watch)
        return _packed(self._prepared)


def _packed(prepared: Prepared) -> dict[str, Any]:
    done = prepared.done
    paths = [_text(path) for path in done.paths]
    return {"base": prepared.base, "commit": done.commit, "branch": done.branch, "paths": paths}


def _unpacked(plan: dict[str, Any]) -> Prepared:
    paths = (tuple(path.encode("utf-8", "surrogateescape").split(b"/")) for path in plan["paths"])
    return Prepared(plan["base"], Committed(plan["commit"], plan["branch"], tuple(paths)))


def _text(path: Path) -> str:
    return b"/".join(path).decode("utf-8", "surrogateescape")


def ledger(instance: Instance) -> Ledger:
    """Return the record of what the instance asked of forges under idempotency keys."""
    return Ledger(ForgeRecords(instance), instance.folder / "run" / "ledger.lock")
