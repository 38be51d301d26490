"""The `fusefs` command."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    _open_standard_streams()
    from fusefs.tools.cli.app import run

    sys.exit(run(sys.argv[1:]))


def _open_standard_streams() -> None:
    """Let nothing else get the descriptor of a standard stream that the caller has closed: what is
    printed would be written into the store."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    # Python has None for a stream that was closed when it began.
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115 - they stay open
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115
