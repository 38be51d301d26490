"""Arguments of forge operations, checked before anything is asked or done."""

from __future__ import annotations

import re

from fusefs.contract.errors import InvalidArgument

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NOT_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{")
_LONGEST_KEY = 255


def check_ref_name(name: str, what: str) -> str:
    """Return `name` if a branch or tag can be called so (rules of git-check-ref-format(1)).

    Args:
        what: ``branch`` or ``tag``, for the message.

    Raises:
        InvalidArgument: it cannot.
    """
    bad = (
        not name
        or name in {"@", "HEAD"}
        or name.startswith(("-", "/"))
        or name.endswith(("/", "."))
        or _NOT_IN_REF.search(name)
        or any(part.startswith(".") or part.endswith(".lock") for part in name.split("/"))
        or len(name.encode("utf-8", "surrogateescape")) > 200
        or not name.isprintable()
    )
    if bad:
        raise InvalidArgument(
            f"Not a {what} name: {name!r}. Use letters, digits, - _ . and single / between them."
        )
    return name


def check_commit(commit: str) -> str:
    """Return `commit` if it is a full hexadecimal SHA-1. Raises: InvalidArgument."""
    if not _COMMIT.fullmatch(commit):
        raise InvalidArgument(f"Not a commit: {commit!r}. Give all 40 hexadecimal digits.")
    return commit


def check_text(text: str, what: str) -> str:
    """Return `text` if there is something in it. Raises: InvalidArgument."""
    if not text.strip():
        raise InvalidArgument(f"The {what} is empty. Say in a few words what it is about.")
    return text


def check_key(key: str) -> str:
    """Return `key` if it can be an idempotency key. Raises: InvalidArgument."""
    if not key or len(key) > _LONGEST_KEY:
        raise InvalidArgument("An idempotency key has 1 to 255 characters; a UUID serves well.")
    return key
