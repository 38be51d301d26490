"""What libgit2 raises, as OSErrors: the one place where those are made of these."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pygit2


class UnusableBranch(OSError):
    """A branch of the remote leads to no commit that can be read."""

    def __init__(self, name: str) -> None:
        super().__init__(
            errno.EIO, f"the repository's branch {name} is at no commit that can be read"
        )


@contextmanager
def git_errors(what: str = "the repository's clone cannot be used") -> Iterator[None]:
    """Have what libgit2 raises in the block be an OSError. Decorates functions as well.

    Args:
        what: what failed then.

    Raises:
        OSError: EIO; its text is `what` and why.
    """
    try:
        yield
    # KeyError: an object or a reference is missing. ValueError: pygit2 cannot take something.
    except (pygit2.GitError, KeyError, ValueError) as error:
        why = error.args[0] if error.args else type(error).__name__
        raise OSError(errno.EIO, f"{what}: {why}") from None
