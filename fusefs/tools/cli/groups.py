"""Groups of commands that know what was probably meant."""

from __future__ import annotations

from difflib import get_close_matches

import click

_LIKENESS = 0.7
"""How much alike two words must be (`difflib`), from 0 to 1."""


class Commands(click.Group):
    """Subcommands; an unknown one is answered with those that are spelt nearly so."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand that the first word names."""
        word = args[0]
        if word.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, word):
            return super().resolve_command(ctx, args)
        near = get_close_matches(word, self.list_commands(ctx), cutoff=_LIKENESS)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(f"No such command '{word}'.{hint}", ctx)
