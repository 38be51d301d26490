"""`fusefs repo`: repositories mounted in the tree."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from fusefs.tools.cli.completing import complete_mount, complete_path
from fusefs.tools.cli.fetching import watching
from fusefs.tools.cli.groups import Commands
from fusefs.tools.cli.options import (
    Options,
    common_options,
    open_instance,
    open_session,
    session_option,
)
from fusefs.tools.cli.output import say, say_json, say_nothing_if_none, say_table, steps

if TYPE_CHECKING:
    from fusefs.forge.transport import Moves
    from fusefs.session.mounting import Mounted
    from fusefs.session.session import Session

_SHORT = 12
"""Digits of a commit's id that people are shown."""


@click.group("repo", cls=Commands)
@common_options
def repo_command() -> None:
    """Mount repositories in the tree, and look at their history.

    Every session has a working copy of its own: `fusefs status`, `diff`, `commit` and `sync`.
    """


@repo_command.command("add")
@click.argument("url")
@click.argument("tree_path")
@click.option("--branch", metavar="B", help="The branch to work on.  [default: the remote's]")
@click.option("--forge", type=click.Choice(["local", "github", "gitlab", "gitea"]),
              help="What kind of forge it is on (Forgejo is gitea).  [default: by the address]")
@common_options
@click.pass_obj
def repo_add(
    options: Options, url: str, tree_path: str, branch: str | None, forge: str | None
) -> None:
    """Clone the repository at URL and mount it at TREE_PATH, in live mounts too.

    URL is a path, file://, https://, ssh:// or user@host:path. A token is taken from GH_TOKEN,
    GITLAB_TOKEN or GITEA_TOKEN, or from git's credential helpers; never put it into URL.

    \b
    Example:
      fusefs repo add ~/repositories/project.git /project
      fusefs repo add https://github.com/octocat/Hello-World /hello --branch master
    """
    from fusefs.contract.paths import render, resolve
    from fusefs.session.mounting import add

    path = resolve(tree_path)
    with open_instance(options) as instance, watching("Cloning") as watch:
        spec = add(instance, url, path, branch=branch, forge=forge, watch=watch)
    if options.json:
        facts = {"url": spec.url, "branch": spec.branch, "forge": spec.forge}
        say_json({"path": render(path), **facts})
    else:
        say(f"Mounted: {spec.url} ({spec.branch}) at {render(path)}")


@repo_command.command("list")
@common_options
@click.pass_obj
def repo_list(options: Options) -> None:
    """List the mounted repositories, and who has changes staged in them.

    \b
    Example:
      fusefs repo list
    """
    from fusefs.session.mounting import mounted

    with open_instance(options) as instance:
        found = mounted(instance)
    if options.json:
        say_json({"repositories": [_facts(one) for one in found]})
        return
    say_table(
        [
            (_path(one), one.spec.branch, (one.commit or "?")[:_SHORT], one.spec.forge,
             _staged(one), one.spec.url)
            for one in found
        ],
        heads=("path", "branch", "at", "forge", "staged", "url"),
    )  # fmt: skip
    for one in found:
        if one.problem:
            say(f"{_path(one)}: {one.problem}", err=True)
    say_nothing_if_none(found)


def _path(one: Mounted) -> str:
    from fusefs.contract.paths import render

    return render(one.path)


def _staged(one: Mounted) -> str:
    from fusefs.contract.sessions import OPERATOR

    counts = [
        f"{count:,} by {'the owner' if name == OPERATOR.name else name}"
        for name, (_, count) in one.copies.items()
        if count
    ]
    return ", ".join(counts) or "-"


def _facts(one: Mounted) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "path": _path(one),
        "url": one.spec.url,
        "branch": one.spec.branch,
        "forge": one.spec.forge,
        "commit": one.commit,
        "sessions": [
            {"session": name, "base": base, "staged": count}
            for name, (base, count) in one.copies.items()
        ],
    }
    return facts | ({"problem": one.problem} if one.problem else {})


@repo_command.command("fetch")
@click.argument("tree_path", required=False, shell_complete=complete_mount)
@common_options
@click.pass_obj
def repo_fetch(options: Options, tree_path: str | None) -> None:
    """Bring what is new from the remote of the repository at TREE_PATH, or of all.

    Says what moved. Working copies stay as they are: `fusefs sync` moves one.

    \b
    Example:
      fusefs repo fetch /project
    """
    from fusefs.contract.paths import render, resolve
    from fusefs.session.mounting import fetch

    fetched = {}
    with open_instance(options) as instance:
        paths = sorted(instance.mounts.all()) if tree_path is None else [resolve(tree_path)]
        for path in paths:
            with watching(f"Fetching {render(path)}") as watch:
                fetched[render(path)] = fetch(instance, path, watch=watch)
    if options.json:
        say_json({"repositories": [_moves_facts(path, moves) for path, moves in fetched.items()]})
        return
    for where, moves in fetched.items():
        say(f"{where}: {'nothing new' if not moves.refs else ''}".rstrip())
        for line in _moves_lines(moves):
            say(f"  {line}")
    say_nothing_if_none(list(fetched))


def _moves_facts(path: str, moves: Moves) -> dict[str, Any]:
    return {
        "path": path,
        "moved": [
            {"ref": _ref(name), "old": old, "new": new, "rewritten": name in moves.rewritten}
            for name, (old, new) in moves.refs.items()
        ],
    }


def _ref(name: str) -> str:
    return name.removeprefix("refs/remotes/origin/").replace("refs/tags/", "tag ")


def _moves_lines(moves: Moves) -> list[str]:
    lines = []
    for name, (old, new) in moves.refs.items():
        if old is None:
            lines.append(f"{_ref(name)}: new, at {str(new)[:_SHORT]}")
        elif new is None:
            lines.append(f"{_ref(name)}: gone (was at {old[:_SHORT]}, which is kept)")
        else:
            how = " (history was rewritten; the old one is kept)" if name in moves.rewritten else ""
            lines.append(f"{_ref(name)}: {old[:_SHORT]} -> {new[:_SHORT]}{how}")
    return lines


@repo_command.command("rm")
@click.argument("tree_path", shell_complete=complete_mount)
@click.option("--force", is_flag=True, help="Also if sessions have staged changes: they are lost.")
@common_options
@click.pass_obj
def repo_rm(options: Options, tree_path: str, force: bool) -> None:
    """Take the repository at TREE_PATH out of the tree, and of live mounts, and drop its clone.

    What was committed is safe where it was sent. In the tree an empty directory is left.

    \b
    Example:
      fusefs repo rm /project
    """
    from fusefs.contract.paths import render, resolve
    from fusefs.session.mounting import remove

    path = resolve(tree_path)
    with open_instance(options) as instance:
        spec = remove(instance, path, force=force)
    if options.json:
        say_json({"path": render(path), "url": spec.url})
    else:
        say(f"Removed: {render(path)} ({spec.url})")


@repo_command.command("log")
@click.argument("path", default=".", shell_complete=complete_path)
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1),
              help="How many commits, counted from the newest.")
@session_option
@common_options
@click.pass_obj
def repo_log(options: Options, path: str, limit: int, session_name: str | None) -> None:
    """Show the commits that led to the working copy, as `git log` does.

    Below a directory or file in the repository: those that changed it. A session that does not
    see all of the repository is shown the commits that changed something it sees, without ids.

    \b
    Example:
      fusefs repo log /project/src -n 10
    """
    from fusefs.session.history import log, records
    from fusefs.session.repository import Repository

    with open_session(options, session_name) as session:
        repository = Repository(session, path)
        if options.json:
            say_json({"commits": records(repository, limit=limit)})
        else:
            text = log(repository, limit=limit, colour=sys.stdout.isatty())
            click.echo(text, nl=False)


@repo_command.command("show")
@click.argument("path", metavar="PATH[@COMMIT]", shell_complete=complete_path)
@session_option
@common_options
@click.pass_obj
def repo_show(options: Options, path: str, session_name: str | None) -> None:
    """Show a commit and what it changed at or below PATH, as `git show` does.

    COMMIT is an id or its beginning, a branch, a tag or HEAD (what the working copy is based on,
    and the default), with ~N or ^N behind it. Only for sessions that see all of the repository.

    \b
    Example:
      fusefs repo show /project@HEAD~2
      fusefs repo show /project/src@v1.0
    """
    from fusefs.session.history import show
    from fusefs.session.repository import Repository

    with open_session(options, session_name) as session:
        where, commit = _split(session, path)
        repository = Repository(session, where)
        colour = sys.stdout.isatty() and not options.json
        text = show(repository, commit, colour=colour)
    if options.json:
        say_json({"text": text.decode("utf-8", "surrogateescape")})
    else:
        click.echo(text, nl=False)


def _split(session: Session, text: str) -> tuple[str, str | None]:
    """Split ``PATH@COMMIT``; a path that is there may have an ``@`` itself."""
    from fusefs.contract.errors import ContractError

    path, at, commit = text.rpartition("@")
    if at:
        try:
            session.stat(text)
        except ContractError:
            return path or ".", commit
    return text, None


@repo_command.command("restore")
@click.argument("path", shell_complete=complete_path)
@click.option("--new", is_flag=True, help="Also remove files that are new, for good.")
@session_option
@common_options
@click.pass_obj
def repo_restore(options: Options, path: str, new: bool, session_name: str | None) -> None:
    """Drop what is staged at or below PATH: put back what the repository has.

    \b
    Example:
      fusefs repo restore /project/src/main.py --session work
    """
    from fusefs.session.repository import Repository

    with open_session(options, session_name) as session:
        repository = Repository(session, path)
        done = repository.restore(repository.path, new=new)
        back, dropped = ([repository.absolute(path) for path in paths] for paths in done)
    if options.json:
        say_json({"restored": back, "dropped": dropped})
        return
    for one in back:
        say(f"Restored: {one}")
    for one in dropped:
        say(f"Dropped: {one}")


@repo_command.command("worktree")
@click.argument("path", default=".", shell_complete=complete_path)
@click.option("--materialise", is_flag=True,
              help="Write all files into it as the working copy has them.")
@session_option
@common_options
@click.pass_obj
def repo_worktree(
    options: Options, path: str, materialise: bool, session_name: str | None
) -> None:
    """Make a real git worktree of a session's working copy, for tools that want one.

    It lies in the instance's folder, on the branch fusefs/SESSION. Without --materialise it has
    history and no files. It is a copy: what is changed in it stays in it.

    \b
    Example:
      cd "$(fusefs repo worktree /project --session work --materialise)" && git status
    """
    from fusefs.session.repository import Repository
    from fusefs.session.worktree import worktree

    with open_session(options, session_name) as session, steps() as step:
        step("Writing files" if materialise else "Making a worktree")
        made = worktree(Repository(session, path), materialise=materialise)
    if options.json:
        say_json({"folder": str(made.folder), "branch": made.branch})
    else:
        say(str(made.folder))
