"""`fusefs session`: defining who sees what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusefs.tools.cli.groups import Commands
from fusefs.tools.cli.options import (
    Command,
    Options,
    common_options,
    complete_session,
    find_session,
    open_instance,
)
from fusefs.tools.cli.output import CommandFailed, Failure, Status, say, say_json, say_table

if TYPE_CHECKING:
    from fusefs.contract.levels import Level
    from fusefs.contract.paths import Path as TreePath
    from fusefs.contract.sessions import SessionSpec
    from fusefs.store.instance import Instance

    Change = Callable[[dict[TreePath, Level]], dict[TreePath, Level]]


_RULE_OPTIONS = (
    click.option("--world", type=click.Choice(["agent", "chat"]),
                 help="An agent's working directory, or a chat's tree without links."
                 "  [default: agent]"),
    click.option("--boundary", metavar="PATH",
                 help="Nothing outside it is visible.  [default: /]"),
    click.option("--start", metavar="PATH",
                 help="Where relative paths begin.  [default: the boundary]"),
    click.option("--grant", "grants", metavar="PATH=LEVEL", multiple=True,
                 help="Level for a path and all below: none, ro, stage, commit. "
                 "The most specific one wins."),
    click.option("--floor", "floors", metavar="PATH=LEVEL", multiple=True,
                 help="Maximum level for a path and all below."),
    click.option("--user", metavar="'NAME <MAIL>'",
                 help="Whose commits they are."),
)  # fmt: skip


def rule_options(command: Command) -> Command:
    """Add the options that define a session."""
    for option in reversed(_RULE_OPTIONS):
        command = option(command)
    return command


def parse_rules(texts: Iterable[str]) -> dict[TreePath, Level]:
    """Read ``PATH=LEVEL`` rules; a later one replaces an earlier one for the same path."""
    from fusefs.contract.sessions import parse_rule

    return dict(parse_rule(text) for text in texts)


def read_session_file(file: Path, name: str | None = None) -> SessionSpec:
    """Return the session that a TOML file describes.

    Its name is `name`, else the file's own ``name``, else that of the file.

    Raises:
        CommandFailed: the file is not TOML.
        InvalidArgument: it does not describe a session.
    """
    import tomllib

    from fusefs.contract.sessions import SessionSpec

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        text = f"Not TOML: {file}: {error}"
        raise CommandFailed(Failure("FS_INVALID_ARGUMENT", text, Status.USAGE)) from error
    return SessionSpec.from_table({"name": file.stem, **table, **({"name": name} if name else {})})


def define(
    base: SessionSpec,
    *,
    world: str | None,
    boundary: str | None,
    start: str | None,
    grants: Iterable[str],
    floors: Iterable[str],
    user: str | None = None,
) -> SessionSpec:
    """Return `base` with the values of `rule_options` on top."""
    from fusefs.contract.paths import resolve
    from fusefs.contract.sessions import World, parse_user

    return replace(
        base,
        world=World(world) if world else base.world,
        boundary=resolve(boundary) if boundary else base.boundary,
        start=resolve(start) if start else base.start,
        grants={**base.grants, **parse_rules(grants)},
        floors={**base.floors, **parse_rules(floors)},
        user=base.user if user is None else parse_user(user),
    )


@click.group("session", cls=Commands)
@common_options
def session_command() -> None:
    """Define sessions: who sees and changes what."""


@session_command.command("create")
@click.argument("name")
@rule_options
@click.option("--from", "file", metavar="FILE.toml",
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Take the definition from a file; options add to it.")
@common_options
@click.pass_obj
def session_create(
    options: Options, /, name: str, file: Path | None, **rules: Any
) -> None:
    """Make the session NAME.

    \b
    Example:
      fusefs session create work --grant /project=ro --grant /project/src=stage
      fusefs session create work --grant /project=commit --user 'Alice <alice@example.org>'
      fusefs session create work --from work.toml
    \b
    A file has the keys of the options:
      boundary = "/project"
      grants = { "/project" = "ro", "/project/src" = "stage" }
    """
    from fusefs.contract.sessions import OPERATOR, SessionSpec

    base = SessionSpec(name) if file is None else read_session_file(file, name)
    spec = define(base, **rules)
    with open_instance(options) as instance:
        if name in instance.sessions.names():
            text = f"There is a session {name} already. `fusefs session grant` changes it."
            raise CommandFailed(Failure("FS_EXISTS", text, Status.INSTANCE))
        instance.sessions.put(spec, OPERATOR.name)
    _show(options, spec)


@session_command.command("show")
@click.argument("name", shell_complete=complete_session)
@common_options
@click.pass_obj
def session_show(options: Options, name: str) -> None:
    """Show how the session NAME is defined.

    \b
    Example:
      fusefs session show work
    """
    with open_instance(options) as instance:
        spec = find_session(instance, name)
    _show(options, spec)


@session_command.command("list")
@common_options
@click.pass_obj
def session_list(options: Options) -> None:
    """List the sessions.

    \b
    Example:
      fusefs session list
    """
    with open_instance(options) as instance:
        specs = [instance.sessions.get(name) for name in instance.sessions.names()]
    if options.json:
        say_json({"sessions": [spec.to_table() for spec in specs]})
        return
    rows = [(spec.name, str(spec.world), _rules_line(spec.grants)) for spec in specs]
    say_table(rows, heads=("name", "world", "grants"))


@session_command.command("grant")
@click.argument("name", shell_complete=complete_session)
@click.argument("rules", metavar="PATH=LEVEL...", nargs=-1, required=True)
@click.option("--floor", is_flag=True, help="Set floors (maximum levels) instead of grants.")
@common_options
@click.pass_obj
def session_grant(options: Options, name: str, rules: tuple[str, ...], floor: bool) -> None:
    """Give the session NAME a level on a path, at once, in live mounts too.

    \b
    Example:
      fusefs session grant work /project/docs=stage
      fusefs session grant work /project/.env=none
      fusefs session grant work --floor /project=ro
    """
    new = parse_rules(rules)
    _change(options, name, floor=floor, change=lambda old: {**old, **new})


@session_command.command("revoke")
@click.argument("name", shell_complete=complete_session)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--floor", is_flag=True, help="Take floors (maximum levels) away instead of grants.")
@common_options
@click.pass_obj
def session_revoke(options: Options, name: str, paths: tuple[str, ...], floor: bool) -> None:
    """Take the grant on a path from the session NAME, at once, in live mounts too.

    What a grant above says then applies; `grant PATH=none` hides the path instead.

    \b
    Example:
      fusefs session revoke work /project/docs
    """
    from fusefs.contract.paths import render, resolve

    gone = [resolve(path) for path in paths]

    def without(old: dict[TreePath, Level]) -> dict[TreePath, Level]:
        for path in gone:
            if path not in old:
                text = f"{name} has no {'floor' if floor else 'grant'} on {render(path)} itself."
                raise CommandFailed(Failure("FS_NOT_FOUND", text, Status.REFUSED))
        return {path: level for path, level in old.items() if path not in gone}

    _change(options, name, floor=floor, change=without)


@session_command.command("user")
@click.argument("name", shell_complete=complete_session)
@click.argument("user", metavar="'NAME <MAIL>'")
@common_options
@click.pass_obj
def session_user(options: Options, name: str, user: str) -> None:
    """Say whose commits those of the session NAME are, from now on.

    \b
    Example:
      fusefs session user work 'Alice Doe <alice@example.org>'
    """
    from fusefs.contract.sessions import OPERATOR, parse_user

    with open_instance(options) as instance:
        spec = replace(find_session(instance, name), user=parse_user(user))
        instance.sessions.put(spec, OPERATOR.name)
    _show(options, spec)


@session_command.command("rm")
@click.argument("name", shell_complete=complete_session)
@click.option("--force", is_flag=True,
              help="Also if it has changes staged in repositories: they are lost.")
@common_options
@click.pass_obj
def session_rm(options: Options, name: str, force: bool) -> None:
    """Remove the session NAME. Its live mounts show nothing from then on.

    \b
    Example:
      fusefs session rm work
    """
    from fusefs.contract.sessions import OPERATOR

    with open_instance(options) as instance:
        find_session(instance, name)
        if not force:
            _check_nothing_staged(instance, name)
        instance.sessions.remove(name, OPERATOR.name)
    if options.json:
        say_json({"removed": name})
    else:
        say(f"Removed: session {name}")


def _check_nothing_staged(instance: Instance, name: str) -> None:
    if not instance.mounts.all():
        return
    from fusefs.contract.paths import render
    from fusefs.session.mounting import mounted

    staged = [
        render(one.path) for one in mounted(instance) if one.copies.get(name, ("", 0))[1]
    ]
    if staged:
        text = (
            f"Not removed: {name} has staged changes in {', '.join(staged)}, which would be lost. "
            f"To look at them: fusefs status {staged[0]} --session {name}. "
            f"To drop them: fusefs session rm --force {name}"
        )
        raise CommandFailed(Failure("FS_BUSY", text, Status.REFUSED))


def _change(options: Options, name: str, *, floor: bool, change: Change) -> None:
    from fusefs.contract.sessions import OPERATOR

    with open_instance(options) as instance:
        spec = find_session(instance, name)
        if floor:
            spec = replace(spec, floors=change(dict(spec.floors)))
        else:
            spec = replace(spec, grants=change(dict(spec.grants)))
        instance.sessions.put(spec, OPERATOR.name)
    _show(options, spec)


def _show(options: Options, spec: SessionSpec) -> None:
    table = spec.to_table()
    if options.json:
        say_json(table)
        return
    from fusefs.contract.paths import render

    rows = [
        ("name", spec.name),
        ("world", str(spec.world)),
        ("boundary", render(spec.boundary)),
        ("start", render(spec.directory)),
    ]
    for title, rules in (("grant", spec.grants), ("floor", spec.floors)):
        rows += [(title, f"{render(path)}={level}") for path, level in sorted(rules.items())]
    rows += [(key, str(table[key])) for key in ("user", "context") if table.get(key)]
    say_table(rows)


def _rules_line(rules: Mapping[TreePath, Level]) -> str:
    from fusefs.contract.paths import render

    return " ".join(f"{render(path)}={level}" for path, level in sorted(rules.items()))
