"""`fusefs glob` and `grep`: finding files by name and by text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fusefs.tools.cli.completing import complete_path
from fusefs.tools.cli.options import Options, common_options, open_session, session_option
from fusefs.tools.cli.output import Status, as_shown, lines_printed, say, say_json

if TYPE_CHECKING:
    from fusefs.session.grepping import Grep, Line
    from fusefs.session.line_patterns import LinePattern
    from fusefs.session.visible_files import Unread

_limit_option = click.option(
    "-m", "--limit", type=click.IntRange(min=1), metavar="N",
    help="Stop after N results, and say whether there are more.",
)  # fmt: skip
_MOST_NAMED = 10


@click.command("glob")
@click.argument("pattern")
@click.argument("path", default=".", shell_complete=complete_path)
@_limit_option
@session_option
@common_options
@click.pass_context
def glob_command(
    ctx: click.Context, pattern: str, path: str, limit: int | None, session_name: str | None
) -> None:
    """Find files by name, in path order; exits with 1 if there is none.

    \b
    PATTERN is relative to PATH, or begins with / at the root of the tree:
      *       any characters of a name, a dot at its beginning too
      ?       one character          [a-z]   one of them ([!a-z]: one of all others)
      {a,b}   either                 **      any number of directories, also none
    One that ends with / finds directories.

    \b
    Example:
      fusefs glob '**/*.py' /project
      fusefs glob '/project/{src,test}/**/*.[ch]' --session work
    """
    options = ctx.ensure_object(Options)
    with open_session(options, session_name) as session:
        found = session.glob(pattern, path, limit=limit)
        if options.json:
            paths = list(found)
            say_json({"paths": paths, **_left_out(found.unread, found.truncated)})
            ctx.exit(Status.OK if paths else Status.REFUSED)
        status = Status.REFUSED
        with lines_printed() as print_line:
            for name in found:
                print_line(as_shown(name))
                status = Status.OK
        _say_left_out(found.unread, limit if found.cut else None)
    ctx.exit(status)


@click.command("grep")
@click.argument("pattern")
@click.argument("path", default=".", shell_complete=complete_path)
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are alike.")
@click.option("-F", "--literal", is_flag=True, help="PATTERN is a text, not a pattern.")
@click.option("-g", "--include", metavar="GLOB", multiple=True,
              help="Search only files called so ('*.py'), or at such a path below PATH "
                   "('src/**'); '!GLOB' leaves files out. May be repeated; the last one counts.")
@click.option("-n", "--line-number", is_flag=True, expose_value=False, hidden=True)  # always so
@click.option("-l", "--files-with-matches", "names_only", is_flag=True, help="Print paths only.")
@click.option("-c", "--count", "count_only", is_flag=True,
              help="Print for each file how many lines match.")
@click.option("-A", "--after-context", "after", type=click.IntRange(min=0), metavar="N",
              help="Print N lines after each match.")
@click.option("-B", "--before-context", "before", type=click.IntRange(min=0), metavar="N",
              help="Print N lines before each match.")
@click.option("-C", "--context", type=click.IntRange(min=0), metavar="N", default=0,
              help="Both.")
@_limit_option
@session_option
@common_options
@click.pass_context
def grep_command(
    ctx: click.Context,
    pattern: str,
    path: str,
    ignore_case: bool,
    literal: bool,
    include: tuple[str, ...],
    names_only: bool,
    count_only: bool,
    after: int | None,
    before: int | None,
    context: int,
    limit: int | None,
    session_name: str | None,
) -> None:
    """Search the text of files, in path order; exits with 1 if nothing is found.

    PATTERN is a regular expression of RE2 and matches within a line. PATH is a directory or a file.
    Links are not followed. Files that are not UTF-8 text or over 64 MiB are left out, which is
    said on stderr.

    \b
    Example:
      fusefs grep 'TODO|FIXME' /project -g '*.py' -C 2
      fusefs grep -F 'def main(' /project --session work
      fusefs grep -c import /project/src
    """
    if names_only and count_only:
        raise click.UsageError("-l and -c cannot be had together.", ctx)
    options = ctx.ensure_object(Options)
    with open_session(options, session_name) as session:
        found = session.grep(
            pattern,
            path,
            literal=literal,
            ignore_case=ignore_case,
            include=include,
            before=context if before is None else before,
            after=context if after is None else after,
            limit=limit,
        )
        if options.json:
            say_json(_document(found, names_only, count_only))
        else:
            with lines_printed() as print_line:
                if names_only:
                    for name in found.files():
                        print_line(as_shown(name))
                elif count_only:
                    for count in found.counts():
                        print_line(as_shown(f"{count.path}:{count.lines}"))
                else:
                    _print_lines(found, print_line)
            _say_left_out(found.unread, limit if found.cut else None)
    ctx.exit(Status.OK if found.matched else Status.REFUSED)


def _document(found: Grep, names_only: bool, count_only: bool) -> dict[str, Any]:
    results: dict[str, Any]
    if names_only:
        results = {"files": list(found.files())}
    elif count_only:
        results = {"counts": [count._asdict() for count in found.counts()]}
    else:
        results = {"lines": [_line_document(line) for line in found]}
    return {
        **results,
        "files_searched": found.searched,
        "files_matched": found.matched,
        **({} if names_only else {"lines_matched": found.lines}),
        **_left_out(found.unread, found.truncated),
    }


def _line_document(line: Line) -> dict[str, Any]:
    document = {
        "path": line.path, "line": line.number, "text": line.text, "match": line.is_match
    }  # fmt: skip
    if line.left_out_before or line.left_out_after:
        document["left_out_before"] = line.left_out_before
        document["left_out_after"] = line.left_out_after
    return document


def _left_out(unread: Sequence[Unread], truncated: bool) -> dict[str, Any]:
    return {"unread": [what._asdict() for what in unread], "truncated": truncated}


def _say_left_out(unread: Sequence[Unread], limit: int | None) -> None:
    """Tell a person what was left out, and by which limit."""
    if len(unread) <= _MOST_NAMED:
        for what in unread:
            say(f"Left out: {what.path} ({what.reason})", err=True)
    else:
        say(f"Left out: {len(unread):,} files; --json names them and says why.", err=True)
    if limit is not None:
        say(f"There is more: this is what --limit {limit} lets through.", err=True)


def _print_lines(found: Grep, print_line: Callable[[str], None]) -> None:
    shown = _in_colour(found.pattern) if _is_coloured() else _plain
    last: Line | None = None
    for line in found:
        is_next = last is not None and (line.path, line.number) == (last.path, last.number + 1)
        if found.has_context and last is not None and not is_next:
            print_line("--")
        print_line(shown(line))
        last = line


def _plain(line: Line) -> str:
    mark = ":" if line.is_match else "-"
    return as_shown(f"{line.path}{mark}{line.number}{mark}{_text(line, line.text)}")


def _text(line: Line, text: str) -> str:
    """Return the text of a line, and how much of it is not there."""
    before = f"[{line.left_out_before:,} characters]" if line.left_out_before else ""
    after = f"[{line.left_out_after:,} characters]" if line.left_out_after else ""
    return f"{before}{text}{after}"


def _is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _in_colour(pattern: LinePattern) -> Callable[[Line], str]:
    """Return what shows a line on a terminal, as others of its kind do."""

    def shown(line: Line) -> str:
        mark = click.style(":" if line.is_match else "-", fg="cyan")
        parts, at = [], 0
        for start, end in pattern.spans(line.text) if line.is_match else ():
            parts += [as_shown(line.text[at:start])]
            parts += [click.style(as_shown(line.text[start:end]), fg="red", bold=True)]
            at = end
        text = _text(line, "".join([*parts, as_shown(line.text[at:])]))
        path = click.style(as_shown(line.path), fg="magenta")
        return f"{path}{mark}{click.style(str(line.number), fg='green')}{mark}{text}"

    return shown
