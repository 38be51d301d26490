"""`fusefs conformance`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusefs.tools.cli.options import Options, common_options
from fusefs.tools.cli.output import CommandFailed, Failure, Status, say, say_json, steps

if TYPE_CHECKING:
    from fusefs.tools.conformance import Outcome


@click.command("conformance")
@click.argument("files", metavar="[FILE]...", nargs=-1,
                type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--face", type=click.Choice(["api", "mount", "cli", "all"]), default="all",
              show_default=True,
              help="Ask through the Python API, a real mount, or the command line.")
@common_options
@click.pass_context
def conformance_command(ctx: click.Context, files: tuple[Path, ...], face: str) -> None:
    """Hold this installation against the contract's test vectors.

    Without FILE the vectors that come with the package are taken. They run in instances of
    their own, made for the occasion. Exits with 1 if an answer differs.

    \b
    Example:
      fusefs conformance
      fusefs conformance --face mount conformance/fs_access.json
    """
    from fusefs.tools.conformance import FACES, VectorError, load, run

    options = ctx.ensure_object(Options)
    try:
        scenarios = load(files)
    except VectorError as error:
        raise CommandFailed(Failure("FS_USAGE", str(error), Status.USAGE)) from error

    with steps() as progress:
        done = 0

        def report(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            progress(f"{done} cases, {outcome.face}: {outcome.scenario}")
            if outcome.passed or options.json:
                return
            say(f"{outcome.scenario}, case {outcome.case}, {outcome.face}: {outcome.call}")
            say(f"  expected: {outcome.expected}")
            say(f"  got:      {outcome.got}")

        outcomes = run(scenarios, FACES if face == "all" else (face,), report=report)
    failed = sum(not outcome.passed for outcome in outcomes)
    passed = len(outcomes) - failed
    if options.json:
        failures = [asdict(outcome) for outcome in outcomes if not outcome.passed]
        say_json({"passed": passed, "failed": failed, "failures": failures})
    else:
        say(f"{passed} passed, {failed} failed")
    ctx.exit(Status.REFUSED if failed else Status.OK)
