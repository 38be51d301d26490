"""What is known of an instance's indexes without opening one.

::

    index/complete       up to where in the journal all is indexed
    index/paused         nothing is made in the background while this is there
    index/settings.json  what model makes the indexes
    index/rate.json      how quick that is
    index/lease          which process makes them complete
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusefs.index.lease import Lease


class Upkeep:
    """The state of an instance's indexes, in files.

    Attributes:
        folder: where the indexes are.
        lease: who makes them complete.
    """

    def __init__(self, instance_folder: Path) -> None:
        """Know where it is; nothing is opened."""
        self.folder = instance_folder / "index"
        self.lease = Lease(self.folder / "lease")

    # Being complete.

    @property
    def complete_at(self) -> int:
        """The number of the journal's record up to which all was indexed; -1 for none."""
        try:
            return int((self.folder / "complete").read_text())
        except (FileNotFoundError, ValueError):
            return -1

    @complete_at.setter
    def complete_at(self, seq: int) -> None:
        (self.folder / "complete").write_text(str(seq))

    def forget_complete(self) -> None:
        """Have it found out anew what is to be indexed."""
        (self.folder / "complete").unlink(missing_ok=True)

    # Pausing.

    @property
    def is_paused(self) -> bool:
        """Nothing is to be made in the background."""
        return (self.folder / "paused").exists()

    def pause(self) -> None:
        """Make nothing in the background until `resume`."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        (self.folder / "paused").touch()

    def resume(self) -> None:
        """Go on."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "paused").unlink()

    # Settings.

    @property
    def settings(self) -> dict[str, str]:
        """What makes the indexes, as `fusefs index model` has set it."""
        return read_json(self.folder / "settings.json")

    def set(self, name: str, value: str | None) -> None:
        """Change a setting; None is the default again."""
        with self.locked():
            settings = {**self.settings, name: value}
            write_json(
                self.folder / "settings.json", {k: v for k, v in settings.items() if v is not None}
            )

    @property
    def rate(self) -> float:
        """How many pieces were embedded a second, when that was last done."""
        found = read_json(self.folder / "rate.json").get("pieces_per_second", 0)
        return float(found) if isinstance(found, int | float) else 0.0

    @rate.setter
    def rate(self, rate: float) -> None:
        write_json(self.folder / "rate.json", {"pieces_per_second": rate})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who changes what indexes there are, or settings."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a file, an empty one where there is none or it is damaged."""
    try:
        found = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Put an object into a file, in one step."""
    beside = file.with_name(file.name + ".new")
    beside.write_text(json.dumps(value))
    beside.replace(file)
