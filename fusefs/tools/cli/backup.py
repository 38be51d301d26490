"""`fusefs backup`, `restore`: copies of a whole instance."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusefs.store.findings import human_size
from fusefs.tools.cli.options import HOST_PATH, Options, common_options, open_instance
from fusefs.tools.cli.output import (
    CommandFailed,
    Failure,
    Status,
    describe_os_error,
    say,
    say_json,
)

if TYPE_CHECKING:
    from fusefs.store.instance import Instance
    from fusefs.tree.instance_backup import BackupProgress, BackupReport

SHOWN = 20
"""Lines of one kind, before the rest is only counted."""


@click.command("backup")
@click.argument("folder", metavar="DIR", type=HOST_PATH)
@common_options
@click.pass_context
def backup_command(ctx: click.Context, folder: Path) -> None:
    """Copy the whole instance to DIR, while sessions are mounted and writing.

    All that was acknowledged before is in it: tree, journal, trash, sessions with their keys.
    DIR is new, or an earlier backup of the same instance, which is replaced in one step once the
    new one is whole; large contents that it has are not copied again.

    A backup is an instance: `fusefs --instance DIR check` verifies it, `ls` and `cat` look into
    it. Host folders that are bound into the tree are not in it. Exits with 1 if something of
    the instance is lost or could not be read.

    \b
    Example:
      fusefs backup /mnt/disk/fusefs-backup
      fusefs --instance /mnt/disk/fusefs-backup check
    """
    from fusefs.tree.instance_backup import backup

    options = ctx.ensure_object(Options)
    with open_instance(options) as instance, _progress("Backing up") as progress:
        _keep_out_of_views(instance, folder)
        try:
            report = backup(instance, folder, progress=progress)
        except OSError as error:
            state = "An earlier backup there is as it was."
            raise _failed("Not backed up", error, state) from error
    if options.json:
        document = asdict(report)
        document["bound"] = [{"path": path, "source": source} for path, source in report.bound]
        say_json(document)
    else:
        _say_backup(report)
    ctx.exit(Status.REFUSED if report.missing else Status.OK)


def _failed(what: str, error: OSError, state: str) -> CommandFailed:
    text = f"{what}: {describe_os_error(error)}. {state}"
    return CommandFailed(Failure("FS_IO", text, Status.FAILED))


def _say_backup(report: BackupReport) -> None:
    _say_some("Missing", report.missing)
    _say_some("Written while it was copied, may be of no one moment", report.being_written)
    _say_some("Not in the backup (a bound host folder)", [source for _, source in report.bound])
    say(
        f"Backed up to {report.folder}: {report.files:,} files, {human_size(report.bytes)} "
        f"({human_size(report.bytes_copied)} copied in {report.seconds:.1f} s)"
    )
    say(
        f"Large contents: {report.objects_copied:,} copied, {report.objects_kept:,} kept, "
        f"{report.objects_removed:,} removed. Newest change: {report.journal}"
    )


def _say_some(what: str, lines: list[str]) -> None:
    for line in lines[:SHOWN]:
        say(f"{what}: {line}", err=True)
    if len(lines) > SHOWN:
        say(f"{what}: {len(lines) - SHOWN} more", err=True)


def _keep_out_of_views(instance: Instance, folder: Path) -> None:
    """Check that `folder` is in no mount of the instance.

    Raises:
        InstanceError: it is.
    """
    from fusefs.daemon.mount_lock import served
    from fusefs.daemon.mountpoint import mounts
    from fusefs.store.instance import InstanceError

    at = folder.expanduser().resolve()
    while not at.exists():
        at = at.parent
    number = at.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    own = {mount.mountpoint for mount in served(instance.folder / "run")}
    for mount in mounts():
        if mount.device == device and mount.point in own:
            raise InstanceError(
                f"{folder} lies in {mount.point}, a mount of the instance itself: "
                "give a folder elsewhere."
            )


@click.command("restore")
@click.argument("backup", metavar="BACKUP_DIR", type=HOST_PATH)
@common_options
@click.pass_context
def restore_command(ctx: click.Context, backup: Path) -> None:
    """Make the instance anew from BACKUP_DIR, a folder that `fusefs backup` made.

    The instance's folder (`--instance`, $FUSEFS_INSTANCE) must be missing or empty; nothing is
    overwritten. The copy is checked, every content by its hash, before it becomes the instance;
    the backup stays as it is. Exits with 1 if the backup is damaged, and restores nothing then.

    What was removed from the tree comes back with `fusefs trash restore`.

    \b
    Example:
      fusefs restore /mnt/disk/fusefs-backup
      fusefs --instance ~/tree-of-monday restore /mnt/disk/fusefs-backup
    """
    from fusefs.tree.instance_restore import DamagedBackup, restore

    options = ctx.ensure_object(Options)
    try:
        with _progress("Restoring") as progress:
            report = restore(backup, options.folder, progress=progress)
    except OSError as error:
        raise _failed("Not restored", error, "The instance's folder is as it was.") from error
    except DamagedBackup as damage:
        if options.json:
            failure = {"code": "FS_DAMAGED", "text": str(damage), "problems": damage.problems}
            say_json({"error": failure})
        else:
            _say_some("Damaged", damage.problems)
            say(str(damage), err=True)
        ctx.exit(Status.REFUSED)
    if options.json:
        say_json(asdict(report))
    else:
        say(
            f"Restored to {report.folder}: {report.files:,} files, "
            f"{report.journal_records:,} changes on record, {report.seconds:.1f} s. "
            "No problems found."
        )


@contextmanager
def _progress(title: str) -> Iterator[Callable[[BackupProgress], None]]:
    """Draw a progress bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def show(progress: BackupProgress) -> None:
            text, total = f"{title}: {progress.step}", progress.total or None
            bar.update(task, description=text, completed=progress.done, total=total)

        yield show
