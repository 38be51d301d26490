"""`fusefs index`: how complete the search index is, and having it made."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fusefs.tools.cli.groups import Commands
from fusefs.tools.cli.options import Options, common_options, open_instance
from fusefs.tools.cli.output import CommandFailed, Failure, Status, say, say_json, say_table

if TYPE_CHECKING:
    from fusefs.session.indexing import Pending
    from fusefs.session.search_setup import Setup

_WATCH_SECONDS = 1.0


@click.group("index", cls=Commands)
@common_options
def index_command() -> None:
    """See and steer the index that `fusefs search` uses.

    It is made in the background: words at once, vectors (for meaning) as a core has time. Nothing
    needs to be done; these commands are for looking, and for having it done now.
    """


@index_command.command("status")
@click.option("--watch", is_flag=True, help="Show it again each second until it is complete.")
@common_options
@click.pass_obj
def index_status(options: Options, watch: bool) -> None:
    """Say how complete the index is.

    With --watch and --json, a line for each look.

    \b
    Example:
      fusefs index status
      fusefs index status --watch
      fusefs index status --json | jq .vectors_pending
    """
    from fusefs.session.index_starter import is_off
    from fusefs.session.search_setup import setup

    with open_instance(options) as instance, setup(instance) as made:
        indexer = made.indexer()
        while True:
            pending = indexer.pending()
            if not pending.is_complete:
                made.library.forget_complete()
                made.start_worker()
            if options.json:
                say_json({**asdict(pending), **_state(made, pending)}, one_line=watch)
            else:
                _say_status(made, pending)
            if not watch or pending.is_complete:
                return
            if made.library.is_paused or is_off():
                raise CommandFailed(
                    Failure("FS_UNAVAILABLE", "Nobody makes the index now: fusefs index resume, "
                            "or fusefs index update.", Status.FAILED)
                )  # fmt: skip
            time.sleep(_WATCH_SECONDS)


def _state(made: Setup, pending: Pending) -> dict[str, object]:
    return {
        "complete": pending.is_complete,
        "model": made.loaded.name,
        "unavailable": made.loaded.unavailable,
        "paused": made.library.is_paused,
        "working": made.is_worked_at(),
        "pieces_per_second": round(made.library.rate, 1),
    }


def _say_status(made: Setup, pending: Pending) -> None:
    def left(count: int) -> str:
        return f"{count:,} contents to do" if count else "complete"

    vectors = left(pending.vectors_pending)
    rate = made.library.rate
    if pending.pieces_pending and not pending.words_pending:
        vectors += f" ({pending.pieces_pending:,} pieces"
        if rate:
            vectors += f", {rate:,.0f}/s, {_human_seconds(pending.pieces_pending / rate)} left"
        vectors += ")"
    if made.loaded.unavailable is not None:
        vectors = f"none: {made.loaded.unavailable}"
    state = "a process is at it" if made.is_worked_at() else "nobody is at it"
    if made.library.is_paused:
        state = "paused; go on: fusefs index resume"
    elif pending.is_complete:
        state = "complete"
    say_table(
        [
            ("files", f"{pending.files:,} ({pending.contents:,} different contents, of which "
                      f"{pending.left_out:,} are no text or too large)"),
            ("words", left(pending.words_pending)),
            ("vectors", vectors),
            ("model", made.loaded.name),
            ("state", state),
        ]
    )  # fmt: skip


def _human_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"about {seconds:.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


@index_command.command("update")
@common_options
@click.pass_context
def index_update(ctx: click.Context) -> None:
    """Make the index complete now, and wait for it.

    Ctrl-C ends it at any time; what was done is kept. Where a process in the background is at it
    already, this waits for that one. Exit status 4: some of it cannot be indexed now.

    \b
    Example:
      fusefs index update
    """
    from fusefs.session import index_worker
    from fusefs.session.search_setup import setup

    options = ctx.ensure_object(Options)
    with open_instance(options) as instance, setup(instance) as made:
        indexer = made.indexer()
        with _bar(made) as show:
            while not (pending := indexer.pending()).is_complete:
                show(pending)
                if made.is_worked_at():
                    time.sleep(_WATCH_SECONDS)
                    continue
                before = indexer.added
                index_worker.work(
                    instance, made.library, indexer, until_complete=True, even_if_paused=True,
                    tell=lambda: show(None),
                )  # fmt: skip
                if indexer.added == before:
                    break  # what is left cannot be read, or embedded, now
        if indexer.unavailable is not None:
            say(f"Nothing is embedded: {indexer.unavailable}", err=True)
        if options.json:
            say_json({**asdict(pending), **_state(made, pending)})
        else:
            _say_status(made, pending)
        ctx.exit(Status.OK if pending.is_complete else Status.FAILED)


@contextmanager
def _bar(made: Setup) -> Iterator[Callable[[Pending | None], None]]:
    """Give a function that shows how far it is, on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda pending: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} of "),
        TextColumn("{task.total:,}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Indexing", total=0)
        looked = 0.0
        most = 0

        def show(pending: Pending | None) -> None:
            nonlocal looked, most
            if pending is None:
                if time.monotonic() - looked < _WATCH_SECONDS:
                    return
                pending = made.indexer().pending()
            looked = time.monotonic()
            left = pending.words_pending + pending.pieces_pending
            most = max(most, left)
            bar.update(task, completed=most - left, total=most)

        yield show


@index_command.command("rebuild")
@common_options
@click.pass_obj
def index_rebuild(options: Options) -> None:
    """Begin the index anew. The present one answers until the new one is complete.

    \b
    Example:
      fusefs index rebuild
    """
    from fusefs.session.search_setup import setup

    with open_instance(options) as instance, setup(instance) as made:
        made.library.rebuild(made.loaded.model)
        made.start_worker()
    _say_done(options, "The index is made anew: fusefs index status --watch")


@index_command.command("pause")
@common_options
@click.pass_obj
def index_pause(options: Options) -> None:
    """Make nothing in the background until `fusefs index resume`.

    Words go on being indexed when somebody searches.

    \b
    Example:
      fusefs index pause
    """
    from fusefs.session.search_setup import setup

    with open_instance(options) as instance, setup(instance) as made:
        made.library.pause()
    _say_done(options, "Paused. Go on: fusefs index resume")


@index_command.command("resume")
@common_options
@click.pass_obj
def index_resume(options: Options) -> None:
    """Go on after `fusefs index pause`.

    \b
    Example:
      fusefs index resume
    """
    from fusefs.session.search_setup import setup

    with open_instance(options) as instance, setup(instance) as made:
        made.library.resume()
        made.start_worker()
    _say_done(options, "Going on.")


@index_command.command("model")
@click.argument("which", required=False, metavar="[DIR|default|none]")
@click.option(
    "--tokenizer", metavar="URL|none",
    help="Cut texts by the tokens of this server of llama.cpp, on this machine.",
)
@common_options
@click.pass_obj
def index_model(options: Options, which: str | None, tokenizer: str | None) -> None:
    """Say which model finds by meaning, or take another one.

    DIR is a folder as sentence-transformers keeps them, with a graph in ONNX. `none` goes by words
    alone. The present index answers until that of the new model is complete.

    \b
    Example:
      fusefs index model
      fusefs index model ~/models/bge-small-en
      fusefs index model default
    """
    from pathlib import Path

    from fusefs.index import loading
    from fusefs.index.embedder.llama import LlamaTokenizer, TokenizerUnavailable
    from fusefs.index.embedder.models import EmbedderUnavailable, load_model
    from fusefs.index.library import Library
    from fusefs.session.search_setup import setup

    with open_instance(options) as instance:
        library = Library(instance.folder)
        if which is not None:
            folder = None
            if which == loading.NO_MODEL:
                folder = which
            elif which != "default":
                folder = str(Path(which).expanduser().absolute())
                try:
                    load_model(Path(folder))
                except EmbedderUnavailable as error:
                    raise click.UsageError(str(error)) from None
            library.set(loading.MODEL, folder)
        if tokenizer is not None:
            if tokenizer != "none":
                try:
                    LlamaTokenizer(tokenizer).identity()
                except TokenizerUnavailable as error:
                    raise click.UsageError(str(error)) from None
            library.set(loading.TOKENIZER, None if tokenizer == "none" else tokenizer)
        if which is not None or tokenizer is not None:
            library.forget_complete()
        with setup(instance) as made:
            made.start_worker()
            loaded = made.loaded
    if options.json:
        say_json({"model": loaded.name, "unavailable": loaded.unavailable})
    else:
        say(loaded.name if loaded.unavailable is None else f"{loaded.name}: {loaded.unavailable}")


def _say_done(options: Options, text: str) -> None:
    if options.json:
        say_json({})
    else:
        say(text)


@index_command.command("work", hidden=True)
@common_options
@click.pass_obj
def index_work(options: Options) -> None:
    """Keep the index complete, and end when there is nothing to do for a while.

    \b
    Example:
      fusefs index work
    """
    from fusefs.session import index_worker
    from fusefs.session.search_setup import setup

    index_worker.be_modest()
    with open_instance(options) as instance, setup(instance) as made:
        index_worker.work(instance, made.library, made.indexer())
