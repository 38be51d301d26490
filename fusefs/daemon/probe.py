"""Asking a mount whether it is served, without being held up by one that is not.

A process whose request lies with a daemon that is stuck cannot even be killed. So a child
process asks, which is abandoned where no answer comes.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import time
from enum import Enum

PATIENCE = 5.0
"""Seconds to wait for an answer. A daemon may have to wait for a slow disk."""

DEAD = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED)
"""What a mount that nobody serves answers."""
_REAP_SECONDS = 0.2
_UNTOLD = -1

# The kernel never answers statfs(2) by itself, but for users that may not use the mount: with
# zeros. Listing asks for more: the view and what lies below it. Each step writes one line.
_CHILD = """
import os, sys
def step(call):
    try:
        return call()
    except OSError as error:
        return error.errno
point = sys.argv[1]
print(step(lambda: 0 if os.statvfs(point).f_blocks else -1), flush=True)
print(step(lambda: next(os.scandir(point), None) and 0 or 0), flush=True)
"""


class Answer(Enum):
    """What came of asking."""

    SERVED = "it is served"
    DEAD = "nobody serves it any more"
    NONE = "no answer came"
    NO_LISTING = "it is served, but its root cannot be listed in time"
    UNTOLD = "this user may not ask"


def ask(point: str, seconds: float = PATIENCE) -> Answer:
    """Ask the mount at `point` and wait for at most `seconds`."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD, point],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        numbers = _numbers(child.stdout.fileno(), time.monotonic() + seconds)
        _let_go(child)
    if any(number in DEAD for number in numbers):
        return Answer.DEAD
    if numbers[:1] == [_UNTOLD]:
        return Answer.UNTOLD
    return (Answer.NONE, Answer.NO_LISTING, Answer.SERVED)[len(numbers)]


def _numbers(fd: int, give_up: float) -> list[int]:
    """Read the child's lines until it ends or time is up."""
    said = b""
    while (left := give_up - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        piece = os.read(fd, 64)
        if not piece:
            break
        said += piece
    return [int(line) for line in said.split(b"\n")[:-1]]


def _let_go(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and, if it cannot be killed at once, leave it to itself."""
    child.kill()
    try:
        child.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        child.returncode = 0  # nobody is to wait for it again: it ends with the mount
