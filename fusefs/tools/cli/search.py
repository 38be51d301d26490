"""`fusefs search`: finding passages by meaning and by words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fusefs.tools.cli.options import Options, common_options, open_session, session_option
from fusefs.tools.cli.output import Status, say, say_json, steps

if TYPE_CHECKING:
    from fusefs.session.answers import Found, Hit

_PATIENCE = 10.0
"""Seconds that a person waits for files that are not indexed yet."""


@click.command("search")
@click.argument("query")
@click.argument("path", required=False, default=".")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 200), default=10, show_default=True,
    help="At most so many passages.",
)
@click.option(
    "--mode", type=click.Choice(["hybrid", "meaning", "words"]), default="hybrid",
    show_default=True, help="By what to search: both, or one alone.",
)
@click.option(
    "-g", "--include", metavar="GLOB", multiple=True,
    help="Only files called so, as for grep: '!GLOB' leaves files out. May be repeated.",
)
@session_option
@common_options
@click.pass_context
def search_command(
    ctx: click.Context,
    query: str,
    path: str,
    limit: int,
    mode: str,
    include: tuple[str, ...],
    session_name: str | None,
) -> None:
    """Find the passages that answer QUERY best, below PATH.

    Ask in your own words, or for a name in code: passages are ranked by meaning and by words
    together. Only what the session sees is found, as it is now. Exit status 1: nothing was found
    (by meaning there is always something nearest).

    \b
    Example:
      fusefs search 'where is the retry delay computed?' /project/src
      fusefs search getUserName -n 3 -g '*.py' --session work
    """
    from fusefs.session.answers import Mode
    from fusefs.session.search_setup import searching

    options = ctx.ensure_object(Options)
    with (
        open_session(options, session_name) as session,
        searching(session) as searcher,
        steps() as show,
    ):
        found = searcher.search(
            query, path, limit=limit, mode=Mode(mode), include=include, patience=_PATIENCE,
            tell=show,
        )  # fmt: skip
    for note in found.notes:
        say(f"Note: {note}", err=True)
    if options.json:
        say_json(_document(found))
    elif sys.stdout.isatty():
        _show(found.hits, query)
    elif found.hits:
        say(found.text())
    ctx.exit(Status.OK if found.hits else Status.REFUSED)


def _document(found: Found) -> dict[str, object]:
    complete = found.completeness
    return {
        "hits": [
            {
                "path": hit.path,
                "paths": list(hit.paths),
                "first_line": hit.first_line,
                "last_line": hit.last_line,
                "text": hit.text,
                "score": hit.score,
                "words": hit.words,
                "meaning": hit.meaning,
            }
            for hit in found.hits
        ],
        "files": complete.files,
        "words_pending": complete.words_pending,
        "vectors_pending": complete.vectors_pending,
        "not_text": complete.not_text,
        "too_large": complete.too_large,
        "notes": found.notes,
    }


def _show(hits: list[Hit], query: str) -> None:
    """Show passages to a person: numbered lines, and what was asked for highlighted."""
    from rich.console import Console
    from rich.text import Text

    from fusefs.index.terms import WORDS, query_terms, terms_of
    from fusefs.tools.cli.output import VISIBLE_CONTROLS

    wanted = set(query_terms(query))
    console = Console(highlight=False, soft_wrap=True)
    for number, hit in enumerate(hits):
        others = f"  (also at {', '.join(hit.paths[1:])})" if len(hit.paths) > 1 else ""
        title = Text(f"{hit.path}:{hit.first_line}-{hit.last_line}".translate(VISIBLE_CONTROLS))
        title.stylize("bold cyan")
        console.print(Text("\n" if number else "") + title + Text(others, "dim"))
        for line, text in enumerate(hit.text.split("\n"), start=hit.first_line):
            shown = Text(text.translate(_SHOWN))
            for word in WORDS.finditer(shown.plain):
                if wanted & set(terms_of(word[0])):
                    shown.stylize("bold yellow", *word.span())
            console.print(Text.assemble((f"{line:>6}  ", "dim"), shown))


_SHOWN = {
    code: f"\\x{code:02x}" for code in (*range(9), *range(10, 32), *range(127, 160))
}
"""Control characters of a text but for tabs."""
