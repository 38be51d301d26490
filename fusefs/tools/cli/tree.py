"""`fusefs ls`, `cat`, `stat`, `write`, `mkdir`, `mv`, `rm`, `explain`: the tree by command."""

from __future__ import annotations

import base64
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fusefs.tools.cli.completing import complete_path
from fusefs.tools.cli.options import Options, common_options, open_session, session_option
from fusefs.tools.cli.output import (
    CommandFailed,
    Failure,
    Status,
    human_time,
    say,
    say_json,
    say_table,
)

if TYPE_CHECKING:
    from fusefs.session.session import Session
    from fusefs.session.stat import Stat

_DIRECTORIES = {"DIR", "MOUNT"}
_TYPES = {"DIR": "d", "FILE": "-", "SYMLINK": "l", "FIFO": "p", "SOCKET": "s", "MOUNT": "d"}


@click.command("ls")
@click.argument("path", default=".", shell_complete=complete_path)
@click.option("-l", "--long", "long_format", is_flag=True,
              help="With mode, owner, level, size and time.")
@session_option
@common_options
@click.pass_obj
def ls_command(options: Options, path: str, long_format: bool, session_name: str | None) -> None:
    """List a directory: directories first, with a trailing /.

    \b
    Example:
      fusefs ls /project
      fusefs ls -l /project --session work
    """
    from fusefs.contract.paths import render

    with open_session(options, session_name) as session:
        where = render(session.resolve(path))
        if options.json:
            entries = [
                {"name": entry.name, **_facts(entry.stat)} for entry in session.list(path)
            ]
            say_json({"path": where, "entries": entries})
        elif long_format:
            say_table([_long(entry.name, entry.stat) for entry in session.list(path)])
        else:
            for line in session.listed(path):
                say(line)


def _long(name: str, node: Stat) -> tuple[str, ...]:
    mark = "/" if node.kind.name in _DIRECTORIES else ""
    return (
        stat.filemode(stat.S_IFREG | node.mode).replace("-", _TYPES[node.kind.name], 1),
        f"{node.uid}:{node.gid}",
        str(node.level),
        f"{node.size:>9}",
        human_time(node.mtime),
        name + mark,
    )


def _facts(node: Stat) -> dict[str, Any]:
    return {
        "kind": node.kind.name.lower(),
        "level": str(node.level),
        "mode": f"{node.mode:04o}",
        "uid": node.uid,
        "gid": node.gid,
        "size": node.size,
        "mtime_ns": node.mtime,
        "ctime_ns": node.ctime,
        "atime_ns": node.atime,
    }


@click.command("cat")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True,
                shell_complete=complete_path)
@session_option
@common_options
@click.pass_obj
def cat_command(options: Options, paths: tuple[str, ...], session_name: str | None) -> None:
    """Write the bytes of files to standard output; of a directory, its listing.

    \b
    Example:
      fusefs cat /project/README.md
    """
    from fusefs.contract.paths import render

    with open_session(options, session_name) as session:
        if not options.json:
            for path in paths:
                data = session.read(path)
                if session.stat(path).kind.name in _DIRECTORIES:
                    for line in session.listed(path):
                        say(line)
                else:
                    click.echo(data, nl=False)
            return
        files = [
            {"path": render(session.resolve(path)), **_content(session.read(path))}
            for path in paths
        ]
        say_json({"files": files})


def _content(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


@click.command("stat")
@click.argument("path", shell_complete=complete_path)
@session_option
@common_options
@click.pass_obj
def stat_command(options: Options, path: str, session_name: str | None) -> None:
    """Show what is known of a file or directory.

    \b
    Example:
      fusefs stat /project/README.md --session work
    """
    from fusefs.contract.paths import render

    with open_session(options, session_name) as session:
        where, node = render(session.resolve(path)), session.stat(path)
        mark = session.mark(path)
    if options.json:
        say_json({"path": where, **_facts(node), **({"mark": mark} if mark else {})})
        return
    say_table(
        [
            ("path", where),
            ("kind", node.kind.name.lower() + (f" ({mark})" if mark else "")),
            ("level", str(node.level)),
            ("mode", f"{node.mode:04o}"),
            ("owner", f"{node.uid}:{node.gid}"),
            ("size", str(node.size)),
            ("modified", human_time(node.mtime)),
            ("changed", human_time(node.ctime)),
            ("read", human_time(node.atime)),
        ]
    )


@click.command("write")
@click.argument("path")
@session_option
@common_options
@click.pass_obj
def write_command(options: Options, path: str, session_name: str | None) -> None:
    """Write standard input to a file; missing directories are made.

    \b
    Example:
      echo hello | fusefs write /notes/today.txt
    """
    data = sys.stdin.buffer.read()
    _done(options, "Wrote", session_name, lambda session: session.write(path, data), path)


@click.command("mkdir")
@click.argument("path")
@session_option
@common_options
@click.pass_obj
def mkdir_command(options: Options, path: str, session_name: str | None) -> None:
    """Make a directory, and the missing ones above it.

    \b
    Example:
      fusefs mkdir /notes/2024
    """
    _done(options, "Made", session_name, lambda session: session.mkdir(path), path)


@click.command("mv")
@click.argument("path", shell_complete=complete_path)
@click.argument("target")
@session_option
@common_options
@click.pass_obj
def mv_command(options: Options, path: str, target: str, session_name: str | None) -> None:
    """Move or rename to TARGET, which must not exist yet.

    \b
    Example:
      fusefs mv /notes/today.txt /notes/monday.txt
    """
    _done(options, "Moved", session_name, lambda session: session.mv(path, target), path, target)


@click.command("rm")
@click.argument("path", shell_complete=complete_path)
@session_option
@common_options
@click.pass_obj
def rm_command(options: Options, path: str, session_name: str | None) -> None:
    """Move a file, or a directory with all below it, to the trash.

    \b
    Example:
      fusefs rm /notes/monday.txt
      fusefs trash list
    """
    _done(options, "Removed", session_name, lambda session: session.rm(path), path)


def _done(
    options: Options,
    what: str,
    session_name: str | None,
    act: Callable[[Session], object],
    *paths: str,
) -> None:
    from fusefs.contract.errors import MountBusy
    from fusefs.contract.paths import render

    with open_session(options, session_name) as session:
        try:
            act(session)
        except MountBusy as error:
            if options.json or session_name is not None or error.path == "/":
                raise
            text = f"{error.text}\n{_how_to_remove(session, error.path)}"
            raise CommandFailed(Failure(error.code, text, Status.REFUSED)) from error
        absolute = [render(session.resolve(path)) for path in paths]
    if options.json:
        say_json(dict(zip(("path", "target"), absolute, strict=False)))
    else:
        say(f"{what}: {' -> '.join(absolute)}")


def _how_to_remove(session: Session, path: str) -> str:
    """Tell the owner, who is who mounted it, what takes away what is mounted or bound there."""
    is_bound = session.resolve(path) in session.view.instance.binds.all()
    return f"To take it out of the tree: fusefs {'unbind' if is_bound else 'repo rm'} {path}"


@click.command("explain")
@click.argument("path", shell_complete=complete_path)
@session_option
@common_options
@click.pass_obj
def explain_command(options: Options, path: str, session_name: str | None) -> None:
    """Say which grant, floor and boundary decide what a session may do at PATH.

    \b
    Example:
      fusefs explain /project/src/main.py --session work
    """
    with open_session(options, session_name) as session:
        why = session.explain(path)
    if not options.json:
        for sentence in why.sentences:
            say(sentence)
        return
    say_json(
        {
            "path": why.path,
            "level": str(why.level),
            "visible": why.visible,
            "passage": why.passage,
            "grant": _rule(why.grant_path, why.grant_level),
            "floor": _rule(why.floor_path, why.floor_level),
            "cap": _rule(why.cap_path, why.cap_level),
            "boundary": why.boundary,
            "inside_boundary": why.inside_boundary,
            "sentences": why.sentences,
        }
    )


def _rule(path: str | None, level: object) -> dict[str, str] | None:
    return None if path is None else {"path": path, "level": str(level)}
