"""Lengths of time, as people write them."""

from __future__ import annotations

import re

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
