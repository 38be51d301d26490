"""Races and kills on repositories: ``python -m tests.repositories.torture``
(`make torture-repositories`).

Two sessions race commits; then each kind of command is killed in so many rounds at random moments,
and once at each step. Prints the seed first. What is found leaves the instance where it is.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.repositories.killing_keyed import ACTIONS, KillKeyed
from tests.repositories.racing import Race

_STEPPED = [action for action in ACTIONS if action != "push"]  # its steps are a commit's


def main() -> int:
    parser = argparse.ArgumentParser(description="Race and kill commands on repositories.")
    parser.add_argument("--commits", type=int, default=200, metavar="N", help="of the race")
    parser.add_argument("--rounds", type=int, default=50, metavar="N", help="of each kind of kill")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), metavar="N")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fusefs-torture-"))
    print(f"seed {given.seed}, {given.commits} commits, {given.rounds} rounds", flush=True)
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"{what} ({time.monotonic() - began:.0f} s)", flush=True)

    killed = None
    try:
        race = Race(folder / "race", given.seed, given.commits)
        race.run()
        tell(f"race: {given.commits} commits, {race.moved} refused, {race.conflicts} conflicts")
        killed = KillKeyed(folder / "kill", given.seed)
        for action in ACTIONS:
            for _ in range(given.rounds):
                killed.round(action)
            tell(f"{action}: {killed.kills.get(action, 0)} of {given.rounds} killed")
        for action in _STEPPED:
            tell(f"{action}: killed at each of {killed.steps(action)} steps")
    except AssertionError as error:
        print(f"Seed {given.seed} found:\n{error}\nThe instance: {folder}")
        return 1
    finally:
        if killed is not None:
            killed.end()
    shutil.rmtree(folder)
    print("Nothing was lost, nothing was done twice.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
