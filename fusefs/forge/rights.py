"""What users may do on forges, asked for and remembered for a short time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fusefs.forge.model import Access, Driver


class RightsCache:
    """The answers of a process. Safe to use from threads.

    A right that was taken away holds for at most `ttl` seconds for reading, and not at all for
    changes: those ask anew (`fresh`), and so does whoever commits.
    """

    def __init__(self, ttl: float = 60, clock: Callable[[], float] = time.monotonic) -> None:
        """Remember answers for `ttl` seconds."""
        self._ttl = ttl
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[float, Access]] = {}

    def access(self, driver: Driver, *, fresh: bool = False) -> Access:
        """Return the user's access; with `fresh` ask the forge in any case.

        Raises:
            ForgeError: the forge did not answer. What it said earlier no longer counts then.
        """
        name = (driver.repository, driver.credential)
        now = self._clock()
        with self._lock:
            known = self._answers.get(name)
        if known is not None and not fresh and now < known[0]:
            return known[1]
        self.forget(driver)
        answer = driver.access()
        with self._lock:
            self._answers[name] = (now + self._ttl, answer)
        return answer

    def forget(self, driver: Driver) -> None:
        """Drop the answer: the forge has just said something else."""
        with self._lock:
            self._answers.pop((driver.repository, driver.credential), None)
