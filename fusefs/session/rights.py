"""Asking forges what the user may do in mounted repositories.

What they say is kept in the instance (`fusefs.store.rights`) and is a maximum inside the mount for
every session (`fusefs.session.caps`). Only an answer counts that was given to the user: where there
is no token for a forge's web API, what was known holds. Over ssh nothing can be asked without a
token; there git's own keys decide when a commit is sent.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence

from fusefs.contract.errors import ContractError
from fusefs.contract.levels import Level
from fusefs.forge.connect import Home, connect
from fusefs.forge.credentials import find
from fusefs.forge.errors import ForgeError, Missing
from fusefs.forge.local_git import Author
from fusefs.forge.rest import Patience
from fusefs.forge.rights import RightsCache
from fusefs.forge.urls import parse
from fusefs.session.forge_records import ForgeRecords
from fusefs.session.repository import Repository
from fusefs.store.instance import Instance
from fusefs.store.mounts import MountSpec
from fusefs.store.rights import forget_right, note_right, right_in

OPENING_SECONDS = 5.0
"""How long whoever opens a view waits for forges, all of them together."""
COMMIT_SECONDS = 20.0
"""How long a commit waits for an answer."""

_NOBODY = Author("nobody", "nobody@localhost")  # asking for a right commits nothing
_SYSTEM = "-"
_log = logging.getLogger(__name__)


def home(instance: Instance) -> Home:
    """Return what an instance gives to its forges."""
    return Home(ForgeRecords(instance), instance.folder / "run" / "ledger.lock", RightsCache())


def ask(instance: Instance, spec: MountSpec, seconds: float) -> Level | None:
    """Ask a forge what the user may do; safe in any thread.

    Returns:
        The highest level inside the mount; None if there is no way to ask as the user.

    Raises:
        ForgeError: it does not answer.
    """
    remote = parse(spec.url)
    if remote.scheme == "path":
        _check_there(remote.path)
    elif find(remote, spec.forge) is None:
        return None
    patience = Patience(connect=seconds, silence=seconds, total=seconds)
    connection = connect(
        spec.url, home(instance), _NOBODY, user="", kind=spec.forge, patience=patience
    )
    return connection.forge.access(fresh=True).right.cap


def _check_there(path: str) -> None:
    """Check that a local repository can be asked: its disk may be away. Nobody said a thing then.

    Raises:
        Missing: there is none.
    """
    try:
        os.stat(path)
    except FileNotFoundError:
        raise Missing(f"There is no git repository at {path}.") from None
    except OSError:
        pass  # an answer: what cannot be looked at cannot be read


def ask_all(
    instance: Instance, specs: Sequence[MountSpec], seconds: float
) -> dict[MountSpec, Level | None]:
    """Ask the forges of mounts at once; None for those that did not answer in time.

    Raises nothing, and may be called in any thread.
    """
    answers: queue.SimpleQueue[tuple[MountSpec, Level | None]] = queue.SimpleQueue()

    def ask_one_of_them(spec: MountSpec) -> None:
        level = None
        try:
            level = ask(instance, spec, seconds)
        except ContractError as error:
            _log.warning("the right on %s cannot be asked: %s", spec.url, error.text)
        except Exception:  # noqa: BLE001 - logged; a thread tells nobody else
            _log.exception("asking for the right on %s failed", spec.url)
        answers.put((spec, level))

    for spec in specs:
        # As daemons: an end of the process waits for none of them.
        threading.Thread(target=ask_one_of_them, args=(spec,), daemon=True).start()
    found: dict[MountSpec, Level | None] = dict.fromkeys(specs)
    end = time.monotonic() + seconds
    for _ in specs:
        try:
            spec, level = answers.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        found[spec] = level
    return found


def note_all(instance: Instance, answers: Mapping[MountSpec, Level | None]) -> None:
    """Note answers, those that are none too. The caller commits.

    Only a change is worth waiting for the writer lock.
    """
    for spec, answer in answers.items():
        with instance.kv.read() as txn:
            known = right_in(txn, spec.id).level
        by_git = answer is None and known is None and parse(spec.url).scheme == "ssh"
        level = Level.COMMIT if by_git else answer
        lock = instance.writer_lock
        if level not in (None, known) or lock.held or lock.try_acquire():
            note_right(instance, spec, level, _SYSTEM)


def refresh(
    instance: Instance, specs: Sequence[MountSpec], seconds: float = OPENING_SECONDS
) -> None:
    """Ask the forges of mounts and note what they say."""
    note_all(instance, ask_all(instance, specs, seconds))
    instance.commit()


def learn(instance: Instance, spec: MountSpec) -> None:
    """Ask for the right in a mount that is about to be made."""
    refresh(instance, [spec], COMMIT_SECONDS)


def forget(instance: Instance, spec: MountSpec) -> None:
    """Drop what is known of a mount that was not made after all."""
    forget_right(instance, spec)
    instance.commit()


def ask_one(repository: Repository, *, must_answer: bool = False) -> None:
    """Ask for the right in a repository anew, so that one that was taken away holds no more.

    Args:
        repository: where it is wanted.
        must_answer: raise if the forge does not; else the last answer holds then, and the forge
            decides itself about what it is sent.

    Raises:
        ForgeError: it does not answer.
    """
    level = None
    try:
        level = ask(repository.instance, repository.spec, COMMIT_SECONDS)
    except ForgeError:
        if must_answer:
            raise
    note_all(repository.instance, {repository.spec: level})
    repository.instance.commit()
    repository.session.view.refresh()
