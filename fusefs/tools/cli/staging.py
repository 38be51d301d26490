"""`fusefs status`, `diff`, `commit`, `sync`: working in a mounted repository."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fusefs.tools.cli.completing import complete_path
from fusefs.tools.cli.fetching import watching
from fusefs.tools.cli.options import Options, common_options, open_session, session_option
from fusefs.tools.cli.output import Status, say, say_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fusefs.contract.paths import Path as TreePath
    from fusefs.session.repository import Repository
    from fusefs.session.session import Session
    from fusefs.session.status import Behind


@click.command("status")
@click.argument("path", default=".", shell_complete=complete_path)
@session_option
@common_options
@click.pass_obj
def status_command(options: Options, path: str, session_name: str | None) -> None:
    """Show what is staged in the repository at or below PATH, as `git status --short` does.

    Staged is whatever a session changed and did not commit: `??` is new, ` M` changed, ` D`
    removed, ` T` of another type; `UU` and its like are in conflict until they are put right or
    committed. Paths are relative to the repository. No output: nothing. A first line `## NAME` is
    the branch that commits go to, if it is not the mount's or has moved on (`[behind 2]`, as far
    as was fetched), or a merge that the next commit makes.

    \b
    Example:
      fusefs status /project --session work
    """
    from fusefs.session.repository import Repository
    from fusefs.session.status import behind, status

    with open_session(options, session_name) as session:
        repository = Repository(session, path)
        lines = status(repository, repository.path)
        missing = behind(repository)
        other = repository.tree.copy.merging.hex()
        merging = _commit_id(repository, "merging", other) if other else {}
        if not options.json:
            if missing or merging or repository.branch != repository.spec.branch:
                shown = f", merging {merging['merging'][:12]}" if merging else ""
                say(f"## {repository.branch}{shown}{_behind(missing)}")
            for line in lines:
                say(str(line))
            if missing and sys.stdout.isatty():
                say(f"To take in what others committed: fusefs sync {repository.absolute(())}")
            return
        say_json(
            {
                "repository": repository.absolute(()),
                "branch": repository.branch,
                **_commit_id(repository, "base", repository.tree.copy.base.hex()),
                **merging,
                "behind": missing is not None,
                **({"behind_by": missing.commits} if missing and missing.commits else {}),
                "changes": [
                    {
                        "code": line.code,
                        "path": repository.absolute(line.path),
                        "directory": line.is_directory,
                        "conflict": line.is_conflict,
                    }
                    for line in lines
                ],
            }
        )


def _behind(missing: Behind | None) -> str:
    if missing is None:
        return ""
    return " [behind]" if missing.commits is None else f" [behind {missing.commits:,}]"


def _commit_id(repository: Repository, name: str, commit: str) -> dict[str, str]:
    """Return a commit's id under a name, for a session that may know it."""
    return {name: commit} if repository.is_whole else {}


def open_repository(session: Session, paths: Sequence[str]) -> tuple[Repository, list[TreePath]]:
    """Return the one repository that paths are in, and the paths relative to it.

    Raises:
        ContractError: one is in no repository, or two are in different ones.
    """
    from fusefs.contract.errors import InvalidArgument, NothingToCommit
    from fusefs.session.repository import Repository

    found = [Repository(session, path, outside=NothingToCommit) for path in paths]
    for other in found[1:]:
        if other.mount != found[0].mount:
            raise InvalidArgument(
                f"{paths[0]} and {render_all(other)} are in different repositories: "
                "name those of one at a time."
            )
    return found[0], [repository.path for repository in found]


def render_all(repository: Repository) -> str:
    """Return the path in the tree that a repository was found by."""
    return repository.absolute(repository.path)


@click.command("diff")
@click.argument("paths", metavar="[PATH]...", nargs=-1, shell_complete=complete_path)
@click.option("--binary", is_flag=True, help="With the bytes of binary files.")
@session_option
@common_options
@click.pass_obj
def diff_command(
    options: Options, paths: tuple[str, ...], binary: bool, session_name: str | None
) -> None:
    """Show what is staged at or below PATHs as a patch, as `git diff` does, new files included.

    \b
    Example:
      fusefs diff /project/src --session work
      fusefs diff /project --binary > work.patch   # git apply takes it
    """
    from fusefs.session.repository import Repository

    with open_session(options, session_name) as session:
        patches = []
        for path in paths or (".",):
            repository = Repository(session, path)
            colour = sys.stdout.isatty() and not options.json
            patches.append(repository.diff([repository.path], binary=binary, colour=colour))
    if options.json:
        say_json({"patch": b"".join(patches).decode("utf-8", "surrogateescape")})
    else:
        click.echo(b"".join(patches), nl=False)


@click.command("commit")
@click.option("-m", "--message", "messages", metavar="MSG", multiple=True, required=True,
              help="What the commit says; given again, the next paragraph.")
@click.option("--key", metavar="KEY",
              help="Sent again with the same key (a UUID, say), it is done once.")
@click.argument("paths", metavar="[PATH]...", nargs=-1, shell_complete=complete_path)
@session_option
@common_options
@click.pass_obj
def commit_command(
    options: Options,
    messages: tuple[str, ...],
    key: str | None,
    paths: tuple[str, ...],
    session_name: str | None,
) -> None:
    """Commit what is staged at or below PATHs, and send it to the branch of the repository.

    Without PATHs: what is staged at or below the session's start directory and may be committed.
    If the branch moved meanwhile, nothing is committed and all stays staged: see `fusefs sync`.
    The author is the session's user (`fusefs session user`), without a session git's.

    \b
    Example:
      fusefs commit -m 'Mend the parser' /project --session work
      fusefs commit -m 'Mend the parser' /project --session work --key "$(uuidgen)"
    """
    from fusefs.session.commit_once import commit
    from fusefs.session.committing import left_staged

    with open_session(options, session_name) as session, watching("Committing") as watch:
        repository, tops = open_repository(session, paths or (".",))
        done = commit(
            repository, "\n\n".join(messages), tops if paths else (), key=key, watch=watch
        )
        changed = [repository.absolute(path) for path in done.paths]
        shown = _commit_id(repository, "commit", done.commit)
        left = [repository.absolute(path) for path in left_staged(repository, tops)]
    if options.json:
        more = {"left_staged": left} if left else {}
        say_json({"branch": done.branch, **shown, "paths": changed, **more})
        return
    files = "1 file" if len(changed) == 1 else f"{len(changed):,} files"
    where = f"{done.branch} {shown['commit'][:12]}" if shown else done.branch
    say(f"Committed: [{where}] {messages[0].splitlines()[0]} ({files})")
    for path in left:
        say(f"Left staged, as this session may not commit it: {path}", err=True)


@click.command("sync")
@click.argument("path", default=".", shell_complete=complete_path)
@click.option("--from", "other", metavar="BRANCH",
              help="Merge this branch into what is staged; the next commit is the merge.")
@session_option
@common_options
@click.pass_context
def sync_command(
    ctx: click.Context, path: str, other: str | None, session_name: str | None
) -> None:
    """Take in what others committed to the branch; what is staged stays staged.

    Where both changed the same lines, the file shows both sides as git does, and the exit status
    is 1: put it right, then commit.

    \b
    Example:
      fusefs sync /project --session work
      fusefs sync /project --from main --session work    # a pull request into main conflicts
    """
    from fusefs.session.forging import take_in
    from fusefs.session.repository import Repository
    from fusefs.session.syncing import sync

    options = ctx.ensure_object(Options)
    with open_session(options, session_name) as session, watching("Fetching") as watch:
        repository = Repository(session, path)
        done = sync(repository, watch) if other is None else take_in(repository, other, watch)
        where = repository.absolute(())
        conflicts = [repository.absolute(path) for path in done.conflicts]
        taken = [repository.absolute(path) for path in done.taken]
        shown = _commit_id(repository, "base", done.base)
    if options.json:
        say_json({"repository": where, **shown, "changed": taken, "conflicts": conflicts})
    else:
        for conflict in conflicts:
            say(f"Conflict: {conflict}", err=True)
        files = "1 file" if len(taken) == 1 else f"{len(taken):,} files"
        at = f" at {shown['base'][:12]}" if shown else ""
        say(f"Synced: {where}{at} ({files} changed)" if taken else f"Up to date: {where}{at}")
        if conflicts:
            say("Put the files in conflict right, then commit.", err=True)
    ctx.exit(Status.REFUSED if conflicts else Status.OK)
