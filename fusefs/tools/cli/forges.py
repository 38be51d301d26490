"""`fusefs branch`, `switch`, `pr`, `tag`, `release`: what a repository's forge does."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fusefs.tools.cli.completing import complete_path
from fusefs.tools.cli.fetching import watching
from fusefs.tools.cli.groups import Commands
from fusefs.tools.cli.options import Command, Options, common_options, open_session, session_option
from fusefs.tools.cli.output import Status, say, say_json, say_table

if TYPE_CHECKING:
    from fusefs.forge.model import PullRequest
    from fusefs.session.repository import Repository
    from fusefs.session.session import Session

_SHORT = 12
"""Digits of a commit's id that people are shown."""


def _key_option(command: Command) -> Command:
    return click.option(
        "--key",
        metavar="KEY",
        help="Sent again with the same key (a UUID, say), it is done once.",
    )(command)


def _path_argument(command: Command) -> Command:
    return click.argument("path", default=".", shell_complete=complete_path)(command)


def _number_argument(command: Command) -> Command:
    return click.argument("number", type=click.IntRange(min=1))(command)


def _open(session: Session, path: str) -> Repository:
    from fusefs.session.repository import Repository

    return Repository(session, path)


@click.command("branch")
@click.argument("name")
@_path_argument
@_key_option
@session_option
@common_options
@click.pass_obj
def branch_command(
    options: Options, name: str, path: str, key: str | None, session_name: str | None
) -> None:
    """Make the branch NAME on the forge, and have this session's commits go there.

    It begins at the commit that the working copy of the repository at PATH is based on; what is
    staged stays staged. Other sessions stay on their branches.

    \b
    Example:
      fusefs branch mend-parser /project --session work
    """
    from fusefs.session.forging import branch

    with open_session(options, session_name) as session:
        repository = _open(session, path)
        made = branch(repository, name, key=key)
        where, now = repository.absolute(()), repository.branch
    if options.json:
        say_json({"repository": where, "branch": made.name, "commit": made.commit, "now": now})
        return
    say(f"Made: {made.name} at {made.commit[:_SHORT]}")
    say(f"Commits of {where} go to {now} now.")


@click.command("switch")
@click.argument("name")
@_path_argument
@session_option
@common_options
@click.pass_context
def switch_command(ctx: click.Context, name: str, path: str, session_name: str | None) -> None:
    """Go on with the branch NAME: show its newest commit, and have this session's commits go there.

    What is staged goes along. Where the branch has other lines in the same place, the file shows
    both sides as git does, and the exit status is 1: put it right, then commit.

    \b
    Example:
      fusefs switch main /project --session work
    """
    from fusefs.session.forging import switch

    options = ctx.ensure_object(Options)
    with open_session(options, session_name) as session, watching("Fetching") as watch:
        repository = _open(session, path)
        done = switch(repository, name, watch)
        where = repository.absolute(())
        conflicts = [repository.absolute(one) for one in done.conflicts]
        taken = [repository.absolute(one) for one in done.taken]
    if options.json:
        say_json(
            {"repository": where, "branch": name, "base": done.base, "changed": taken,
             "conflicts": conflicts}
        )  # fmt: skip
    else:
        for conflict in conflicts:
            say(f"Conflict: {conflict}", err=True)
        say(f"Commits of {where} go to {name} now, from {done.base[:_SHORT]} on.")
        if conflicts:
            say("Put the files in conflict right, then commit.", err=True)
    ctx.exit(Status.REFUSED if conflicts else Status.OK)


@click.group("pr", cls=Commands)
@common_options
def pr_command() -> None:
    """Open, look at and merge pull requests (merge requests) on a repository's forge.

    For the local forge the instance keeps them.
    """


def _request_facts(request: PullRequest) -> dict[str, Any]:
    return {**asdict(request), "state": str(request.state)}


def _say_request(options: Options, done: str, request: PullRequest) -> None:
    if options.json:
        say_json(_request_facts(request))
        return
    say(f"{done}: #{request.number} {request.title} ({request.head} -> {request.base})")
    if request.url:
        say(request.url)


@pr_command.command("create")
@_path_argument
@click.option("-t", "--title", required=True, help="What it is about, in a line.")
@click.option("-b", "--body", default="", help="What there is to say beside it.")
@click.option("--head", metavar="BRANCH", help="With the commits.  [default: the session's]")
@click.option("--base", metavar="BRANCH", help="To merge into.  [default: the mount's]")
@_key_option
@session_option
@common_options
@click.pass_obj
def pr_create(
    options: Options,
    path: str,
    title: str,
    body: str,
    head: str | None,
    base: str | None,
    key: str | None,
    session_name: str | None,
) -> None:
    """Ask for the session's branch of the repository at PATH to be merged.

    What is staged is not in it: commit first.

    \b
    Example:
      fusefs branch mend-parser /project --session work
      fusefs commit -m 'Mend the parser' /project --session work
      fusefs pr create /project -t 'Mend the parser' --session work
    """
    from fusefs.session.forging import create_pull_request

    with open_session(options, session_name) as session:
        repository = _open(session, path)
        made = create_pull_request(repository, title, body, head=head, base=base, key=key)
    _say_request(options, "Opened", made)


@pr_command.command("list")
@_path_argument
@click.option("--state", type=click.Choice(["open", "closed", "merged", "all"]), default="open",
              show_default=True, help="Which ones.")
@session_option
@common_options
@click.pass_obj
def pr_list(options: Options, path: str, state: str, session_name: str | None) -> None:
    """List the pull requests of the repository at PATH, the newest first.

    \b
    Example:
      fusefs pr list /project
    """
    from fusefs.forge.model import State
    from fusefs.session.forging import pull_requests

    with open_session(options, session_name) as session:
        found = pull_requests(_open(session, path), None if state == "all" else State(state))
    if options.json:
        say_json({"pull_requests": [_request_facts(one) for one in found]})
        return
    say_table(
        [
            (f"#{one.number}", str(one.state), f"{one.head} -> {one.base}", one.author, one.title)
            for one in found
        ],
        heads=("number", "state", "branches", "author", "title"),
    )
    if not found:
        say("None." if state == "all" else f"None is {state}; --state all lists all.", err=True)


@pr_command.command("show")
@_number_argument
@_path_argument
@session_option
@common_options
@click.pass_obj
def pr_show(options: Options, number: int, path: str, session_name: str | None) -> None:
    """Show the pull request NUMBER of the repository at PATH.

    \b
    Example:
      fusefs pr show 7 /project
    """
    from fusefs.session.forging import pull_request

    with open_session(options, session_name) as session:
        one = pull_request(_open(session, path), number)
    if options.json:
        say_json(_request_facts(one))
        return
    rows = [
        ("number", f"#{one.number}"), ("title", one.title), ("state", str(one.state)),
        ("branches", f"{one.head} -> {one.base}"), ("head at", one.commit[:_SHORT]),
        ("merged as", one.merge_commit[:_SHORT]), ("author", one.author),
        ("created", one.created), ("updated", one.updated), ("url", one.url),
    ]  # fmt: skip
    say_table([row for row in rows if row[1]])
    if one.body:
        for line in ("", *one.body.splitlines()):
            say(line)


@pr_command.command("update")
@_number_argument
@_path_argument
@click.option("-t", "--title", help="The new title.")
@click.option("-b", "--body", help="The new text.")
@_key_option
@session_option
@common_options
@click.pass_obj
def pr_update(
    options: Options,
    number: int,
    path: str,
    title: str | None,
    body: str | None,
    key: str | None,
    session_name: str | None,
) -> None:
    """Change title or text of the open pull request NUMBER.

    \b
    Example:
      fusefs pr update 7 /project -t 'Mend the parser for good' --session work
    """
    from fusefs.session.forging import update_pull_request

    with open_session(options, session_name) as session:
        repository = _open(session, path)
        done = update_pull_request(repository, number, title=title, body=body, key=key)
    _say_request(options, "Updated", done)


@pr_command.command("close")
@_number_argument
@_path_argument
@_key_option
@session_option
@common_options
@click.pass_obj
def pr_close(
    options: Options, number: int, path: str, key: str | None, session_name: str | None
) -> None:
    """Close the pull request NUMBER without merging it.

    \b
    Example:
      fusefs pr close 7 /project --session work
    """
    from fusefs.session.forging import close_pull_request

    with open_session(options, session_name) as session:
        done = close_pull_request(_open(session, path), number, key=key)
    _say_request(options, "Closed", done)


@pr_command.command("merge")
@_number_argument
@_path_argument
@click.option("--method", type=click.Choice(["merge", "squash", "rebase"]), default="merge",
              show_default=True, help="A merge commit, one new commit, or each commit again.")
@click.option("-m", "--message", default="", help="Of the commit.  [default: the forge's words]")
@click.option("--at", metavar="COMMIT", default="",
              help="Only if its branch is at this commit (all 40 digits).")
@_key_option
@session_option
@common_options
@click.pass_obj
def pr_merge(
    options: Options,
    number: int,
    path: str,
    method: str,
    message: str,
    at: str,
    key: str | None,
    session_name: str | None,
) -> None:
    """Merge the pull request NUMBER on the forge.

    Working copies stay where they are: `fusefs sync` takes it in, `fusefs switch` goes back.
    In conflict? On the request's branch: `fusefs sync --from main`, put it right, commit.

    \b
    Example:
      fusefs pr merge 7 /project --method squash --session work
      fusefs switch main /project --session work
    """
    from fusefs.forge.model import Method
    from fusefs.session.forging import merge

    with open_session(options, session_name) as session:
        repository = _open(session, path)
        done = merge(repository, number, Method(method), message=message, commit=at, key=key)
    _say_request(options, "Merged", done)


@click.command("tag")
@click.argument("name")
@_path_argument
@click.option("-m", "--message", required=True, help="What it says.")
@click.option("--at", metavar="COMMIT",
              help="An id, a branch, a tag, with ~N or ^N.  [default: the working copy's base]")
@_key_option
@session_option
@common_options
@click.pass_obj
def tag_command(
    options: Options,
    name: str,
    path: str,
    message: str,
    at: str | None,
    key: str | None,
    session_name: str | None,
) -> None:
    """Make the annotated tag NAME on the forge of the repository at PATH. It is never moved.

    \b
    Example:
      fusefs tag v1.0 /project -m 'Version 1.0' --at main --session work
    """
    from fusefs.session.forging import tag

    with open_session(options, session_name) as session:
        made = tag(_open(session, path), name, message, at=at, key=key)
    if options.json:
        say_json(asdict(made))
    else:
        say(f"Tagged: {made.name} at {made.commit[:_SHORT]}")


@click.command("release")
@click.argument("tag")
@_path_argument
@click.option("-t", "--title", default="", help="Its name.  [default: the tag's]")
@click.option("-n", "--notes", default="", help="What is new.")
@click.option("--draft", is_flag=True, help="Not shown to others yet.")
@click.option("--prerelease", is_flag=True, help="Not for everybody yet.")
@_key_option
@session_option
@common_options
@click.pass_obj
def release_command(
    options: Options,
    tag: str,
    path: str,
    title: str,
    notes: str,
    draft: bool,
    prerelease: bool,
    key: str | None,
    session_name: str | None,
) -> None:
    """Publish the tag TAG on the forge of the repository at PATH. The tag must be there.

    \b
    Example:
      fusefs tag v1.0 /project -m 'Version 1.0' --at main --session work
      fusefs release v1.0 /project --notes 'The parser is mended.' --session work
    """
    from fusefs.session.forging import release

    with open_session(options, session_name) as session:
        made = release(
            _open(session, path), tag, title, notes, draft=draft, prerelease=prerelease, key=key
        )
    if options.json:
        say_json(asdict(made))
        return
    say(f"Released: {made.tag}" + (f" {made.name}" if made.name != made.tag else ""))
    if made.url:
        say(made.url)
