"""A progress bar for what git does with a remote."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusefs.forge.git_process import Progress, Watch


@contextmanager
def watching(title: str) -> Iterator[Watch]:
    """Draw git's progress on stderr if that is a terminal."""
    from fusefs.forge.git_process import Watch

    if not sys.stderr.isatty():
        yield Watch()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def show(progress: Progress) -> None:
            bar.update(
                task,
                description=f"{title}: {progress.phase.lower()}",
                completed=progress.done,
                total=progress.total or None,
            )

        yield Watch(progress=show)
