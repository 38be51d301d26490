"""The command and its subcommands, and how their failures leave the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from fusefs import __version__
from fusefs.tools.cli.groups import Commands
from fusefs.tools.cli.options import common_options
from fusefs.tools.cli.output import (
    VISIBLE_CONTROLS,
    Failure,
    Status,
    classify,
    say,
    say_json,
    terminable,
)

_SECTIONS = {
    "Instance": ("init", "import", "export", "bind", "unbind"),
    "Sessions": ("session", "mount", "mounts", "umount", "explain"),
    "Tree": ("ls", "cat", "stat", "write", "mkdir", "mv", "rm"),
    "Search": ("search", "glob", "grep", "index"),
    "Repositories": ("repo", "status", "diff", "commit", "sync"),
    "Forges": ("branch", "switch", "pr", "tag", "release"),
    "Care": ("log", "trash", "check", "gc", "backup", "restore"),
    "Program": ("doctor", "conformance", "completion"),
}

_MODULES = {
    "init": "transfer",
    "import": "transfer",
    "export": "transfer",
    "bind": "transfer",
    "unbind": "transfer",
    "session": "sessions",
    "mount": "mounts",
    "mounts": "mounts",
    "umount": "mounts",
    "explain": "tree",
    "ls": "tree",
    "cat": "tree",
    "stat": "tree",
    "write": "tree",
    "mkdir": "tree",
    "mv": "tree",
    "rm": "tree",
    "search": "search",
    "index": "index",
    "glob": "finding",
    "grep": "finding",
    "repo": "repositories",
    "status": "staging",
    "diff": "staging",
    "commit": "staging",
    "sync": "staging",
    "branch": "forges",
    "switch": "forges",
    "pr": "forges",
    "tag": "forges",
    "release": "forges",
    "log": "log",
    "trash": "care",
    "check": "care",
    "gc": "care",
    "backup": "backup",
    "restore": "backup",
    "doctor": "doctor",
    "conformance": "conformance",
    "completion": "completion",
}


class _Unread(Exception):
    """The reader of the output has had enough (`fusefs log | head`)."""


@contextmanager
def _unread_told() -> Iterator[None]:
    """Keep a broken pipe from click, which would end the process with the status of a refusal."""
    try:
        yield
    except BrokenPipeError as error:
        raise _Unread from error


class _Commands(Commands):
    """Subcommands, loaded when they are called and shown in sections."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read options; some print something."""
        with _unread_told():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand that is asked for."""
        with _unread_told():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in _SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "help":
            return _help_command
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        loaded = import_module(f"fusefs.tools.cli.{module}")
        command = getattr(loaded, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                commands = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl(
                    [(n, c.get_short_help_str(60)) for n, c in commands if c is not None]
                )


@click.command("help", hidden=True)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def _help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show what `fusefs COMMAND --help` shows."""
    at = ctx.find_root()
    for word in words:
        group = at.command
        if not isinstance(group, click.Group):
            break
        _, command, _ = group.resolve_command(at, [word])
        assert command is not None
        at = click.Context(command, info_name=word, parent=at)
    click.echo(at.get_help())


EPILOG = """\b
Exit status:
  0    done
  1    refused by the session's rules, something was left out, or
       something was found wrong (the text on stderr says what)
  2    wrong usage or argument
  3    the instance, the session or the mountpoint cannot be used
  4    the store or the operating system failed
  130  interrupted (Ctrl-C); 143: terminated; 141: nobody reads the
       output any more, as in `fusefs log | head`

\b
Example:
  fusefs init
  fusefs import ~/project /project
  fusefs session create work --grant /project=ro --grant /project/src=stage
  fusefs mount work ~/view --background
"""


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@click.version_option(__version__, "--version", message="fusefs %(version)s")
@common_options
def app() -> None:
    """Show each session its own view of a tree, as a mount or by command.

    A session sees what it was granted and nothing else; what it may not see does not exist
    for it.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    as_json = "--json" in arguments
    try:
        # click turns the status of `Context.exit` into the result.
        with terminable():
            result = app.main(args=list(arguments), prog_name="fusefs", standalone_mode=False)
            sys.stdout.flush()
    except (BrokenPipeError, _Unread):
        # Nothing is left to flush into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.UNREAD
    except (Exception, KeyboardInterrupt) as error:
        failure = classify(error)
        if failure is None:
            raise
        report(failure, error, as_json=as_json, arguments=arguments)
        return failure.status
    return result if isinstance(result, int) else Status.OK


def report(
    failure: Failure,
    error: BaseException | None = None,
    *,
    as_json: bool,
    arguments: Sequence[str] = (),
) -> None:
    """Tell the caller about `failure`. What is odd in an argument is shown, not obeyed: else a
    name could look like a line of ours."""
    if as_json:
        say_json({"error": {"code": failure.code, "text": failure.text}})
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    elif isinstance(error, click.UsageError):
        click.UsageError(_plain(error.format_message(), arguments), error.ctx).show()
    else:
        for line in _plain(failure.text, arguments).split("\n"):
            say(line, err=True)


def _plain(text: str, arguments: Sequence[str]) -> str:
    for argument in arguments:
        shown = argument.translate(VISIBLE_CONTROLS)
        if shown != argument:
            text = text.replace(argument, shown)
    return text
