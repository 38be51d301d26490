"""`fusefs doctor`: what is wrong with the machine, an instance and its mounts, and mending it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusefs.store.findings import Finding, Verdict
from fusefs.tools.cli import machine
from fusefs.tools.cli.options import Options, common_options, complete_session, open_instance
from fusefs.tools.cli.output import Status, describe_os_error, say, say_json, steps

if TYPE_CHECKING:
    from fusefs.store.instance import Instance

_NAME_ANOTHER = "fusefs --instance DIR, or fusefs init"

Progress = Callable[[str], None]


@click.command("doctor")
@click.option("--session", "session_name", metavar="NAME", shell_complete=complete_session,
              help="Only the mounts of this session, and what all of the instance shares.")
@click.option("--dry-run", is_flag=True, help="Only say what is wrong: change nothing.")
@common_options
@click.pass_context
def doctor_command(ctx: click.Context, session_name: str | None, dry_run: bool) -> None:
    """Find what is wrong and mend it: the machine, the instance, its mounts.

    Says of each thing what was found and done. Takes away mounts whose process died, finishes
    what dead processes left in the store, and tells of mounts that do not answer and how to
    find out why; it ends no process, and touches nobody else's mounts. Safe while sessions are
    mounted. The machine is only looked at.

    Exits with 1 if something remains to be done: the line with the arrow says what.

    \b
    Example:
      fusefs doctor
      fusefs doctor --session work --dry-run
    """
    options = ctx.ensure_object(Options)
    with steps() as progress:
        findings = list(_examine(options, session_name, dry_run=dry_run, progress=progress))
    healthy = all(finding.verdict.well for finding in findings)
    if options.json:
        say_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        _show(findings, healthy=healthy)
    ctx.exit(Status.OK if healthy else Status.REFUSED)


def _show(findings: Iterable[Finding], *, healthy: bool) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        say(f"{finding.verdict:<8}  {finding.name:<{width}}  {finding.detail}")
        if finding.remedy:
            say(f"{'':8}  {'':{width}}  → {finding.remedy}")
    say("All is well." if healthy else "Something remains to be done: see the arrows above.")


def _examine(
    options: Options, session: str | None, *, dry_run: bool, progress: Progress
) -> Iterator[Finding]:
    folder = options.folder
    if session is not None:
        _check_session(folder, session)
    else:
        yield from machine.examine()
        if not _exists(folder):
            yield Finding("instance", Verdict.OPTIONAL, f"none at {folder}", "fusefs init")
            return
    try:
        from fusefs.daemon import mending as mounts
        from fusefs.store import mending as store
        from fusefs.store.instance import InstanceError
    except ImportError as error:
        yield Finding(
            "instance", Verdict.MISSING, f"cannot be opened: {error}", "see the packages above"
        )
        return
    try:
        yield from mounts.examine(folder / "run", session, dry_run=dry_run, progress=progress)
        found = store.examine(folder, dry_run=dry_run, progress=progress)
        yield from found
        # Opening an instance mends.
        if not (dry_run and any(finding.verdict is Verdict.TO_MEND for finding in found)):
            progress("looking at bound folders")
            yield _bound_folders(options)
    except (InstanceError, OSError) as error:
        if session is not None:
            raise
        what = describe_os_error(error) if isinstance(error, OSError) else str(error)
        is_there = _exists(folder / "data.mdb")
        remedy = "be its owner, or restore it from a backup" if is_there else _NAME_ANOTHER
        yield Finding("instance", Verdict.MISSING, what, remedy)


def _exists(path: Path) -> bool:
    """Tell whether something may be there: who may not look cannot know that nothing is."""
    try:
        return path.exists()
    except PermissionError:
        return True


def _check_session(folder: Path, name: str) -> None:
    """Check that the instance has a session, or a mount of one that it had.

    Raises:
        InstanceError: it has neither.
    """
    from fusefs.daemon.mount_lock import locks, read
    from fusefs.store.inspection import inspect
    from fusefs.store.instance import InstanceError

    known = inspect(folder).sessions
    mounted = (read(path) for path in locks(folder / "run"))
    if name not in known and not any(served and served.session == name for served in mounted):
        names = ", ".join(known) or "there are none yet"
        raise InstanceError(f"No such session: {name} (known: {names}).")


def _bound_folders(options: Options) -> Finding:
    with open_instance(options) as instance:
        lost = _unavailable(instance)
    if lost:
        return Finding(
            "instance", Verdict.MISSING, f"bound folders cannot be opened: {', '.join(lost)}",
            "bring the folder back, or fusefs unbind PATH",
        )  # fmt: skip
    return Finding("instance", Verdict.OK, str(options.folder))


def _unavailable(instance: Instance) -> list[str]:
    from fusefs.contract.paths import render
    from fusefs.session.session import Session

    return [render(path) for path in Session(instance).view.tree.unavailable()]
