"""Opening repositories with libgit2, which asks whose they are.

Somebody else's may be a trap: its configuration is obeyed. A clone of an instance is trusted as the
instance is, whoever of its user and root made it. libgit2 asks for the whole process or not at all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pygit2
from pygit2.enums import Option

_OPENING = threading.Lock()


@contextmanager
def trusting(*, ours: bool) -> Iterator[None]:
    """Have what is opened in the block be anybody's if it is `ours`; one block at a time."""
    with _OPENING:
        pygit2.option(Option.SET_OWNER_VALIDATION, not ours)
        try:
            yield
        finally:
            pygit2.option(Option.SET_OWNER_VALIDATION, True)


def open_repository(folder: str | os.PathLike[str], *, ours: bool) -> pygit2.Repository:
    """Open a repository.

    Args:
        folder: where it is.
        ours: it is in an instance's folder; else it must belong to who asks.

    Raises:
        GitError: it is none, is damaged, or belongs to somebody else.
    """
    with trusting(ours=ours):
        return pygit2.Repository(os.fspath(folder))
