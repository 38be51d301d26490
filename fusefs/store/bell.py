"""The bell: how processes of an instance wake each other.

Each process binds a datagram socket in the instance's ``run`` folder. Ringing sends every
other one a short message; a lost one only costs the time until the next.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

JOURNAL = b"J"
"""There are new journal records."""
HURRY = b"H"
"""Somebody waits for the writer lock: commit your batch."""
TOUCHED = b"T"
"""Followed by node ids (8 bytes each): their content changed and is not published yet."""

_LONGEST = 8192


class Bell:
    """The socket of one process."""

    def __init__(self, folder: Path, process: int) -> None:
        """Bind ``bell.<process>`` in `folder`."""
        self._directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = _name(process)
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._socket.bind(self._address(self._name))

    def _address(self, name: str) -> str:
        return _address(self._directory, name)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._directory)
        os.close(self._directory)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when somebody rang."""
        return self._socket.fileno()

    def drain(self) -> list[bytes]:
        """Return the messages that came; never waits."""
        messages = []
        with contextlib.suppress(BlockingIOError):
            while True:
                messages.append(self._socket.recv(_LONGEST))
        return messages

    def sweep(self) -> None:
        """Remove the sockets that nobody listens at."""
        for name in deserted(self._directory):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._directory)

    def ring(self, message: bytes) -> None:
        """Send `message` to every other process."""
        for name in os.listdir(self._directory):
            if name.startswith("bell.") and name != self._name:
                self._send(name, message)

    def ring_one(self, process: int, message: bytes) -> None:
        """Send `message` to one process; nobody hears it if that is gone."""
        self._send(_name(process), message)

    def is_alone(self) -> bool:
        """Tell whether no other process would hear it."""
        names = os.listdir(self._directory)
        return not any(name.startswith("bell.") and name != self._name for name in names)

    def _send(self, name: str, message: bytes) -> None:
        try:
            self._socket.sendto(message, self._address(name))
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._directory)
        except OSError:
            # Its queue is full (it will look anyway), or it has just left.
            return


def _name(process: int) -> str:
    return f"bell.{process:016x}"
def deserted(directory: int) -> list[str]:
    """Return the names of the sockets in the folder `directory` that nobody listens at."""
    found = []
    for name in os.listdir(directory):
        if name.startswith("bell."):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as caller:
                try:
                    caller.connect(_address(directory, name))
                except ConnectionRefusedError:
                    found.append(name)
                except OSError:  # it has just left
                    continue
    return found


def _address(directory: int, name: str) -> str:
    # A socket's address holds 108 bytes at most, whatever the folder's path is.
    return f"/proc/self/fd/{directory}/{name}"
