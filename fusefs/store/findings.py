"""What somebody who looks after things has found, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a thing that was looked at is.

    `MISSING` keeps a mount from working, `BROKEN` is wrong and was not mended, `TO_MEND` is
    wrong and was left alone because nothing was to be changed.
    """

    OK = "ok"
    OPTIONAL = "optional"
    MENDED = "mended"
    TO_MEND = "to mend"
    MISSING = "missing"
    BROKEN = "broken"

    @property
    def well(self) -> bool:
        """Nothing is left to be done."""
        return self in {Verdict.OK, Verdict.OPTIONAL, Verdict.MENDED}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: the thing.
        verdict: how it is.
        detail: what was found and, where it was mended, what was done.
        remedy: what to do; empty where all is well.
    """

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong that the program can mend itself.

    Attributes:
        name: the thing.
        detail: what is wrong with it.
        deed: what mending does, as a participle: "replayed".
    """

    name: str
    detail: str
    deed: str

    def to_mend(self) -> Finding:
        """Return the finding where nothing is to be changed."""
        return Finding(
            self.name, Verdict.TO_MEND, self.detail, f"without --dry-run it is {self.deed}"
        )

    def mended(self) -> Finding:
        """Return the finding once it is mended."""
        return Finding(self.name, Verdict.MENDED, f"{self.detail}: {self.deed}")

    def remains(self, why: str, remedy: str) -> Finding:
        """Return the finding where mending failed."""
        detail = f"{self.detail}; mending failed: {why}" if why else self.detail
        return Finding(self.name, Verdict.BROKEN, detail, remedy)


def human_size(size: int) -> str:
    """Return a number of bytes in units of 1,024 with one decimal: ``1.5 MiB``."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
