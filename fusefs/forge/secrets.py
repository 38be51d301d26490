"""Tokens: kept out of every text.

A token lives in a `Secret`, which shows itself as ``***``. Every secret that this process made is
also known here by its spellings (plain, as in a URL, as in HTTP basic authentication), so that
`mask` takes it out of what others wrote: git's standard error, a forge's answer.
"""

from __future__ import annotations

import base64
import re
import weakref
from urllib.parse import quote, quote_plus

MASK = "***"

_SHORTEST = 4
"""Characters below which masking would tear up ordinary texts; no forge's tokens are that short."""

_IN_URL = (
    (re.compile(r"\b(https?)://[^/\s@'\"]+@"), rf"\1://{MASK}@"),
    (re.compile(r"://([^/\s@:'\"]+):[^/\s@'\"]+@"), rf"://\1:{MASK}@"),
)
"""The user of an ``ssh://`` address is no secret; one of ``https://`` may be a token."""

_known: weakref.WeakSet[Secret] = weakref.WeakSet()


class Secret:
    """A token or password. Only `reveal` gives it.

    Two of the same value are not equal: each is known here by itself, for as long as it lives.
    """

    __slots__ = ("__weakref__", "_user", "_value")

    def __init__(self, value: str, user: str = "") -> None:
        """Keep `value`; `user` is the name it is sent with in basic authentication, if any."""
        self._value = value
        self._user = user
        _known.add(self)

    def reveal(self) -> str:
        """Return the value, for the wire alone."""
        return self._value

    def spellings(self) -> set[str]:
        """Return the forms in which the value may turn up in a text."""
        if len(self._value) < _SHORTEST:
            return set()
        basic = base64.b64encode(f"{self._user}:{self._value}".encode()).decode()
        return {self._value, quote(self._value, safe=""), quote_plus(self._value), basic}

    def __repr__(self) -> str:
        return MASK

    def __reduce__(self) -> str:
        raise TypeError("a secret is not stored")


def mask(text: str) -> str:
    """Return `text` without any secret of this process, and without passwords in URLs."""
    spellings = {form for secret in list(_known) for form in secret.spellings()}
    for form in sorted(spellings, key=len, reverse=True):
        text = text.replace(form, MASK)
    for pattern, instead in _IN_URL:
        text = pattern.sub(instead, text)
    return text
