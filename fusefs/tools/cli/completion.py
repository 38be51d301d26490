"""`fusefs completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from fusefs.tools.cli.options import Options, common_options
from fusefs.tools.cli.output import say_json

_OFFER = "COMPREPLY+=($value)"
_STAY = "[[ $value == */ ]] && compopt -o nospace"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common_options
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example:
      fusefs completion bash > ~/.local/share/bash-completion/completions/fusefs
      fusefs completion zsh > "${fpath[1]}/_fusefs"
      fusefs completion fish > ~/.config/fish/completions/fusefs.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "fusefs", "_FUSEFS_COMPLETE").source()
    if shell == "bash":
        # After a directory the path goes on.
        script = script.replace(_OFFER, f"{_OFFER}\n            {_STAY}")
    if ctx.ensure_object(Options).json:
        say_json({"shell": shell, "script": script})
    else:
        click.echo(script)
