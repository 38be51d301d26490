"""Many kill rounds: ``python -m tests.mount.torture --rounds 100 --seed 7`` (`make torture`).

Prints the seed first, so that what is found can be sought again: the same calls in the same
order, though not killed at the very same moments. What is found leaves the instance where it is.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.mount.killing import Found, Torture
from tests.repositories.killing import KillCommands, make_repository


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill daemons under load, look what is lost.")
    parser.add_argument("--rounds", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), metavar="N")
    parser.add_argument(
        "--repositories", action="store_true",
        help="write in mounted repositories, and kill commits, syncs and restores as well",
    )  # fmt: skip
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fusefs-torture-"))
    print(f"seed {given.seed}, {given.rounds} rounds", flush=True)
    began = time.monotonic()
    commands = None
    if given.repositories:
        (folder / "commands").mkdir()
        commands = KillCommands(folder / "commands", given.seed)
    torture = Torture(folder, given.seed, make_repository if given.repositories else None)
    found = ""
    number = 0
    try:
        for number in range(1, given.rounds + 1):
            torture.round()
            if commands is not None:
                commands.round()
            if number % 10 == 0:
                seconds = time.monotonic() - began
                kills = torture.kills + (0 if commands is None else commands.kills)
                print(f"round {number}: {torture.calls} calls, {kills} kills, "
                      f"{seconds:.0f} s", flush=True)  # fmt: skip
    except Found as error:
        found = str(error)
    finally:
        torture.end()
    if found:
        print(f"round {number} of seed {given.seed} found:\n{found}\nThe instance: {folder}")
        return 1
    shutil.rmtree(folder)
    print("Nothing was lost.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
