"""Telling whoever started the daemon how it fares (sd_notify(3), and a pipe)."""

from __future__ import annotations

import os
import socket

READY = b"READY\n"
"""What is written to the descriptor given with ``--ready-fd`` once the view is mounted."""


class ServiceManager:
    """The service manager's socket, if there is one."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")

    def tell(self, state: str) -> None:
        """Send assignments such as ``READY=1``, one a line; nothing listens in vain."""
        if not self._address:
            return
        # A name in the abstract namespace is written with "@" for its NUL.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.sendto(state.encode(), address)
        except OSError:
            self._address = ""  # nobody is there any more

    @property
    def watchdog_pause(self) -> float | None:
        """Seconds between two signs of life, or None where nobody waits for them."""
        wanted = os.environ.get("WATCHDOG_USEC", "")
        if not self._address or not wanted.isdecimal():
            return None
        if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return int(wanted) / 1_000_000 / 3


def write_ready(fd: int) -> bool:
    """Tell the process that waits at the other end of the pipe `fd`, and close it.

    Returns:
        Whether it still waits.
    """
    try:
        os.write(fd, READY)
    except BrokenPipeError:
        return False
    finally:
        os.close(fd)
    return True
