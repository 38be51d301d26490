"""Paths of the tree (contract section 2).

Inside the program a path is a tuple of names, each name bytes; the root is ``()``. Names are
bytes because a kernel hands over any; as text they are UTF-8, and bytes that are not UTF-8
survive the round trip as lone surrogates (PEP 383), whatever the locale.
"""

from __future__ import annotations

from fusefs.contract.errors import InvalidArgument, NameTooLong

Path = tuple[bytes, ...]
"""An absolute, resolved path: its names from the root down; the root is the empty tuple."""

ROOT: Path = ()
NAME_MAX = 255
"""The longest name, in bytes."""


def encode(text: str) -> bytes:
    """Return the bytes of `text`, a name or a path.

    Raises:
        InvalidArgument: the text has a surrogate that stands for no byte.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidArgument(f"Not Unicode: {text!r} has a lone surrogate.") from None


def decode(raw: bytes) -> str:
    """Return the text of `raw`, a name or a path; `encode` is the way back."""
    return raw.decode("utf-8", "surrogateescape")


def resolve(text: str | bytes, start: Path = ROOT) -> Path:
    """Resolve `text` against the directory `start` by its text alone.

    Raises:
        InvalidArgument: the text is empty, has a NUL or is not Unicode.
        NameTooLong: a name is over 255 bytes.
    """
    raw = encode(text) if isinstance(text, str) else text
    if not raw:
        raise InvalidArgument("Empty path: give / for the root or . for the start directory.")
    if b"\0" in raw:
        raise InvalidArgument(f"NUL in path: {decode(raw)!r}")
    names = [] if raw.startswith(b"/") else list(start)
    for name in raw.split(b"/"):
        if name == b"..":
            if names:
                names.pop()
        elif name not in (b"", b"."):
            names.append(name)
            if len(name) > NAME_MAX:
                raise NameTooLong(render(tuple(names)))
    return tuple(names)


def render(path: Path) -> str:
    """Return the absolute text of `path`, as errors and listings show it."""
    return decode(b"/" + b"/".join(path))


def is_at_or_below(path: Path, ancestor: Path) -> bool:
    """Tell whether `path` is `ancestor` or lies below it."""
    return path[: len(ancestor)] == ancestor
