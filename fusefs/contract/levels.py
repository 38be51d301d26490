"""Access levels of a session on a path (contract section 3)."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """What a session may do at a path; each level includes the ones below it."""

    NONE = 0
    RO = 1
    STAGE = 2
    COMMIT = 3

    @classmethod
    def parse(cls, text: str) -> Level:
        """Return the level called `text` (``none``, ``ro``, ``stage`` or ``commit``).

        Raises:
            ValueError: no level has that name.
        """
        try:
            return _BY_NAME[text]
        except KeyError:
            known = ", ".join(_BY_NAME)
            raise ValueError(f"unknown level {text!r}: use one of {known}") from None

    def __str__(self) -> str:
        return self.name.lower()


_BY_NAME = {level.name.lower(): level for level in Level}
