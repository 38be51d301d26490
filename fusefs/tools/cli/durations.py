"""Lengths of time and moments, as people write them."""

from __future__ import annotations

import re
import time
from datetime import datetime

import click

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration(text: str) -> int:
    """Return ``90s``, ``15m``, ``12h``, ``30d`` or ``2w`` in seconds.

    Raises:
        click.BadParameter: the text is none of these.
    """
    match = re.fullmatch(r"(\d+)([smhdw])", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no length of time like 90s, 15m, 12h, 30d or 2w.")
    return int(match[1]) * _SECONDS[match[2]]


def moment(text: str) -> int:
    """Return a moment in nanoseconds since the epoch.

    It is given as a length of time before now (``2h``) or as an ISO 8601 date or time, local
    where it names no time zone.

    Raises:
        click.BadParameter: the text is neither.
    """
    if re.fullmatch(r"\d+[smhdw]", text):
        return time.time_ns() - duration(text) * 10**9
    try:
        return int(datetime.fromisoformat(text).timestamp() * 10**6) * 1000
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is no time: give how long ago (90s, 15m, 2h, 30d, 2w), or a date or time "
            "like 2026-03-01 or 2026-03-01T14:30."
        ) from None
