"""`fusefs init`, `import`, `export`, `bind`, `unbind`: filling an instance and emptying it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusefs.store.findings import human_size
from fusefs.tools.cli.options import Options, common_options, open_instance, open_session
from fusefs.tools.cli.output import Status, say, say_json, say_table

if TYPE_CHECKING:
    from fusefs.session.transfer import TransferProgress, TransferSummary

SHOWN_SKIPS = 20
"""Lines about what was left out, before the rest is only counted."""


@click.command("init")
@common_options
@click.pass_obj
def init_command(options: Options) -> None:
    """Make a new, empty instance.

    \b
    Example:
      fusefs init
      fusefs --instance /srv/tree init
    """
    from fusefs.store.instance import Instance

    Instance.init(options.folder).close()
    if options.json:
        say_json({"instance": str(options.folder)})
    else:
        say(f"New instance: {options.folder}")


@click.command("import")
@click.argument(
    "host_dir", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.argument("tree_path")
@common_options
@click.pass_context
def import_command(ctx: click.Context, host_dir: Path, tree_path: str) -> None:
    """Copy HOST_DIR's content into the tree, as TREE_PATH.

    Modes, owners, times, symbolic links and user extended attributes are kept. What a tree does
    not hold (device nodes), cannot be read or is there already is skipped and named, and the
    exit status is then 1. A file linked twice becomes two files of one content, which is
    stored once.

    \b
    Example:
      fusefs import ~/project /project
    """
    from fusefs.session.transfer import import_directory

    options = ctx.ensure_object(Options)
    with open_session(options, None) as session, _progress("Importing") as progress:
        summary = import_directory(session, host_dir, tree_path, progress)
    _summarize(ctx, "Imported", summary)


@click.command("export")
@click.argument("tree_path")
@click.argument("host_dir", type=click.Path(path_type=Path))
@common_options
@click.pass_context
def export_command(ctx: click.Context, tree_path: str, host_dir: Path) -> None:
    """Copy the content of TREE_PATH into the host's HOST_DIR.

    What is there already is left alone. It, and what the host cannot hold, is skipped and
    named, and the exit status is then 1.

    \b
    Example:
      fusefs export /project ~/project-copy
    """
    from fusefs.session.transfer import export_directory

    options = ctx.ensure_object(Options)
    with open_session(options, None) as session, _progress("Exporting") as progress:
        summary = export_directory(session, tree_path, host_dir, progress)
    _summarize(ctx, "Exported", summary)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[TransferProgress], None]]:
    """Draw a progress bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} files, {task.fields[size]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, size="")

        def show(progress: TransferProgress) -> None:
            bar.update(
                task,
                completed=progress.files,
                total=progress.total_files,
                size=human_size(progress.bytes),
            )

        yield show


def _summarize(ctx: click.Context, done: str, summary: TransferSummary) -> None:
    if ctx.ensure_object(Options).json:
        say_json(
            {
                "files": summary.files,
                "directories": summary.directories,
                "links": summary.links,
                "bytes": summary.bytes,
                "skipped": [{"path": path, "reason": why} for path, why in summary.skipped],
            }
        )
    else:
        _say_summary(done, summary)
    ctx.exit(Status.REFUSED if summary.skipped else Status.OK)


def _say_summary(done: str, summary: TransferSummary) -> None:
    for path, why in summary.skipped[:SHOWN_SKIPS]:
        say(f"Skipped: {path}: {why}", err=True)
    if len(summary.skipped) > SHOWN_SKIPS:
        say(f"Skipped: {len(summary.skipped) - SHOWN_SKIPS} more", err=True)
    counts = (
        (summary.files, "file", "files"), (summary.directories, "directory", "directories"),
        (summary.links, "link", "links"),
    )  # fmt: skip
    parts = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts]
    say(f"{done} {', '.join(parts)}, {human_size(summary.bytes)}")


@click.command("bind")
@click.argument("host_dir", required=False, type=click.Path(path_type=Path))
@click.argument("tree_path", required=False)
@common_options
@click.pass_context
def bind_command(ctx: click.Context, host_dir: Path | None, tree_path: str | None) -> None:
    """Show HOST_DIR, where it is, as TREE_PATH of the tree.

    Nothing is copied: changes on either side are seen on the other. Symbolic links and `..`
    lead out of HOST_DIR for nobody. Prints what is bound; without arguments it does only that.

    \b
    Example:
      fusefs bind ~/project /project
    """
    from fusefs.contract.paths import render, resolve
    from fusefs.session.binding import bind

    options = ctx.ensure_object(Options)
    if host_dir is not None and tree_path is None:
        raise click.UsageError("Missing argument 'TREE_PATH'.", ctx)
    with open_instance(options) as instance:
        if host_dir is not None and tree_path is not None:
            bind(instance, host_dir, resolve(tree_path))
        binds = {render(path): what.source for path, what in instance.binds.all().items()}
    if options.json:
        say_json({"binds": [{"path": path, "source": binds[path]} for path in sorted(binds)]})
    else:
        say_table([(path, binds[path]) for path in sorted(binds)], heads=("path", "is"))


@click.command("unbind")
@click.argument("tree_path")
@common_options
@click.pass_obj
def unbind_command(options: Options, tree_path: str) -> None:
    """Take the bind at TREE_PATH away. The host's directory stays as it is.

    In the tree an empty directory is left.

    \b
    Example:
      fusefs unbind /project
    """
    from fusefs.contract.paths import render, resolve
    from fusefs.session.binding import unbind

    path = resolve(tree_path)
    with open_instance(options) as instance:
        unbind(instance, path)
    if options.json:
        say_json({"path": render(path)})
    else:
        say(f"Unbound: {render(path)}")
