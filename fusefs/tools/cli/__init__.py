"""The `fusefs` command."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    from fusefs.tools.cli.app import run

    sys.exit(run(sys.argv[1:]))
