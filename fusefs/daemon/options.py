"""How a view is mounted."""

from __future__ import annotations

import errno
from dataclasses import dataclass

PASSAGE_ERRNOS = (errno.EACCES, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class MountOptions:
    """Options of one mount.

    Attributes:
        allow_other: other users may use the mount too; modes and owners still apply to them.
        owner: (uid, gid): show everything as theirs, and make new nodes theirs.
            Giving a node to anybody else is then refused with EPERM.
        passage_errno: what looking up an unseen name directly in a passage answers. EACCES is
            the contract's answer; ENOENT is for tools that take EACCES for fatal.
        xattrs: serve extended attributes. Without them each ``write(2)`` saves a question
            (``security.capability``) that the kernel asks first.
        deadline: seconds after which a request that still waits is answered with ETIMEDOUT.
    """

    allow_other: bool = False
    owner: tuple[int, int] | None = None
    passage_errno: int = errno.EACCES
    xattrs: bool = True
    deadline: float = 30.0

    def __post_init__(self) -> None:
        if self.passage_errno not in PASSAGE_ERRNOS:
            raise ValueError("passage_errno is EACCES or ENOENT")
        if not self.deadline > 0:
            raise ValueError("the deadline is a number of seconds above 0")
