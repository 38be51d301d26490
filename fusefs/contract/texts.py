"""What is text (contract section 7): UTF-8 without a NUL."""

from __future__ import annotations


def is_text(data: bytes) -> bool:
    """Tell whether a file's bytes are text."""
    if b"\0" in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
