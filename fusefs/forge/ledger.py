"""Sent twice, done once: what was asked of a forge under an idempotency key, and what came of it.

No forge of ours knows idempotency keys, so the instance keeps them (contract section 11). An effect
is the operation, the repository, the user and the caller's key. Before a forge is asked to change
anything, a *plan* is recorded durably, with what was there before; afterwards, the outcome. Whoever
comes with the same key gets that outcome. Whoever finds a plan without one (the process died, the
answer was lost) looks at the forge first: what is there now and was not before is what the plan
made. Calls with the same key wait for each other, across processes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fusefs.forge.errors import ForgeError, InProgress, KeyReused
from fusefs.forge.locks import locked
from fusefs.forge.records import KEYS, Records, pack, unpack

Json = Any
"""Whatever `json` writes."""


@dataclass(frozen=True)
class Effect:
    """One call under an idempotency key.

    Attributes:
        operation: what a person calls it, as in ``pull request``.
        repository: `Driver.repository`.
        user: `Driver.user`: one user's key never answers with another's outcome.
        arguments: the call's, as JSON.
    """

    operation: str
    repository: str
    user: str
    key: str
    arguments: Json

    @property
    def name(self) -> bytes:
        """The key of its record."""
        parts = [self.operation, self.repository, self.user, self.key]
        return KEYS + hashlib.sha256(pack(parts)).digest()

    @property
    def fingerprint(self) -> str:
        """Tells other arguments under the same key."""
        return hashlib.sha256(pack(self.arguments)).hexdigest()


@dataclass(frozen=True)
class Steps:
    """How an effect comes about.

    Attributes:
        look: returns what is there before; raises what stands in the way of a first try.
        find: given that, returns what the effect made, or None.
        do: makes it.
    """

    look: Callable[[], Json]
    find: Callable[[Json], Json | None]
    do: Callable[[], Json]


class Ledger:
    """The effects of an instance."""

    def __init__(self, records: Records, lock_file: Path, *, wait: float = 120) -> None:
        """Use the instance's records.

        Args:
            lock_file: a file beside them, made when missing; all processes must name the same.
            wait: seconds that a call waits for another one with the same key.
        """
        self._records = records
        self._lock_file = lock_file
        self._wait = wait

    def once(self, effect: Effect, steps: Steps) -> Json:
        """Return the outcome of `effect`, bringing it about unless that was done before.

        Raises:
            KeyReused: the key stands for other arguments.
            InProgress: another call with this key took too long.
            ForgeError: from the steps. If nothing was done, the key is free again.
        """
        with locked(self._lock_file, effect.name, self._wait) as mine:
            if not mine:
                raise InProgress(effect.operation)
            record = self._get(effect)
            if record is None:
                record = {
                    "fingerprint": effect.fingerprint,
                    "operation": effect.operation,
                    "planned": time.time(),
                    "before": steps.look(),
                }
                self._put(effect, record)
                return self._finish(effect, record, self._do(effect, record, steps, again=False))
            if record["fingerprint"] != effect.fingerprint:
                raise KeyReused(effect.operation)
            if "outcome" in record:
                return record["outcome"]
            found = steps.find(record["before"])
            if found is None:
                found = self._do(effect, record, steps, again=True)
            return self._finish(effect, record, found)

    def forget(self, age: float) -> int:
        """Drop what is older than `age` seconds; return how many. Its keys are new again."""
        oldest = time.time() - age
        end = KEYS[:-1] + bytes([KEYS[-1] + 1])
        with self._records.write() as transaction:
            old = [
                key
                for key, value in transaction.range(KEYS, end)
                if unpack(value)["planned"] < oldest
            ]
            for key in old:
                transaction.delete(key)
        return len(old)

    def _do(self, effect: Effect, record: dict[str, Json], steps: Steps, *, again: bool) -> Json:
        try:
            return steps.do()
        except ForgeError as error:
            # After a plain refusal of a first try nothing was done; what is there, others made.
            if again or error.maybe_done:
                found = self._found_after(error, record, steps)
                if found is not None:
                    return found
            if not error.maybe_done:
                with self._records.write() as transaction:
                    transaction.delete(effect.name)
            raise

    @staticmethod
    def _found_after(error: ForgeError, record: dict[str, Json], steps: Steps) -> Json | None:
        """Look whether it was done in spite of `error`: by this try, or by one given up before."""
        try:
            return steps.find(record["before"])
        except ForgeError:
            # The forge cannot be asked now; a replay will. What the caller must hear is the first.
            error.maybe_done = True
            return None

    def _finish(self, effect: Effect, record: dict[str, Json], outcome: Json) -> Json:
        self._put(effect, {**record, "outcome": outcome})
        return outcome

    def _get(self, effect: Effect) -> dict[str, Json] | None:
        with self._records.read() as snapshot:
            raw = snapshot.get(effect.name)
        return None if raw is None else cast(dict[str, Json], unpack(raw))

    def _put(self, effect: Effect, record: dict[str, Json]) -> None:
        with self._records.write() as transaction:
            transaction.put(effect.name, pack(record))
        self._records.commit()
