"""`fusefs mount` and `fusefs umount`."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from fusefs.tools.cli.options import (
    HOST_PATH,
    Options,
    common_options,
    complete_session,
    find_session,
    open_instance,
)
from fusefs.tools.cli.output import say, say_json, say_nothing_if_none, say_table
from fusefs.tools.cli.sessions import define, read_session_file, rule_options

AD_HOC = "adhoc"
"""Name of the session of an ad hoc mount."""


_RULES_NEED_A_BIND = (
    " To mount a folder of the host by rules on the command line, name it: "
    "fusefs mount --bind HOST_DIR --grant PATH=LEVEL MOUNTPOINT"
)


def owner(text: str) -> tuple[int, int]:
    """Return user and group id of ``UID:GID``, given as numbers or names.

    Raises:
        click.BadParameter: the text is not that, or a name is not known here.
    """
    import grp
    import pwd

    user, colon, group = text.partition(":")
    try:
        if not colon:
            raise KeyError(text)
        uid = int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
        gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise click.BadParameter(f"{text!r} is no UID:GID of numbers or known names.") from None
    return uid, gid


@click.command("mount")
@click.argument("places", metavar="[NAME] MOUNTPOINT", nargs=-1, required=True,
                shell_complete=complete_session)
@click.option("--background", "in_background", is_flag=True,
              help="Return when mounted; the log goes to the instance's run/NAME.log.")
@click.option("--allow-other", is_flag=True,
              help="Let other users in too; the modes of files still apply.")
@click.option("--set-owner", metavar="UID:GID", type=owner,
              help="Show every file as owned by these, whoever owns it.")
@click.option("--passage-errno", type=click.Choice(["EACCES", "ENOENT"]), default="EACCES",
              show_default=True,
              help="What a passage answers about names in it: ENOENT helps programs that take "
              "EACCES for fatal while they look upwards for their files.")
@click.option("--no-xattrs", is_flag=True,
              help="Serve no extended attributes: each write then costs one question less.")
@click.option("--session-file", metavar="FILE.toml",
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Define the session (again) from this file, then mount it.")
@click.option("--bind", "binds", metavar="HOST_DIR[=PATH]", multiple=True,
              help="Mount a host directory without an instance of your own.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="Log lines as key=value pairs, or one JSON object a line.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
              help="From which level on is logged; debug has each refusal.  [default: info; on a "
              "terminal warning]")
@rule_options
@click.option("--ready-fd", type=int, hidden=True)
@click.option("--throw-away", is_flag=True, hidden=True)
@common_options
@click.pass_context
def mount_command(
    ctx: click.Context,
    /,
    places: tuple[str, ...],
    in_background: bool,
    ready_fd: int | None,
    throw_away: bool,
    **given: Any,
) -> None:
    """Mount the view of the session NAME at MOUNTPOINT.

    Runs in the foreground until it is unmounted, interrupted (Ctrl-C) or terminated, and
    unmounts cleanly. With --bind the session is made up on the spot: its instance is thrown
    away at the unmount, and with it the trash; the host directory keeps what was done to it.

    \b
    Example:
      fusefs mount work ~/view --background
      fusefs mount --session-file work.toml ~/view
      fusefs mount --bind ~/project --grant /=ro --grant /src=stage ~/view
    """
    from fusefs.tools.cli import adhoc, background

    options = ctx.ensure_object(Options)
    with background.failures_to(ready_fd):
        request = _prepare(ctx, options, places, given, throw_away=throw_away)
        hides = ready_fd is None and not options.json and _has_content(request.mountpoint)
        with adhoc.in_use(request.folder) if request.throw_away else nullcontext():
            try:
                if in_background:
                    background.start(request.arguments, request.log)
                else:
                    request.serve(ready_fd, lambda: _tell_mounted(options, request, hides=hides))
            except BaseException:
                if request.throw_away:
                    shutil.rmtree(request.folder, ignore_errors=True)
                raise
    if options.json:
        say_json({"session": request.session, "mountpoint": str(request.mountpoint)})
    elif in_background:
        say(f"Mounted: {request.session} at {request.mountpoint}")
        if hides:
            _tell_hidden(request)


def _has_content(folder: Path) -> bool:
    from fusefs.daemon.mountpoint import locate, mounted_at

    if mounted_at(locate(folder)) is not None:
        return False  # to be refused; and it may be stuck
    try:
        return any(folder.iterdir())
    except OSError:
        return False  # what is wrong with it, the mount will say


def _tell_mounted(options: Options, request: _Request, *, hides: bool) -> None:
    """Tell a person in front of a mount in the foreground that it is there."""
    if sys.stderr.isatty() and not options.json:
        say(f"Mounted: {request.session} at {request.mountpoint}; Ctrl-C unmounts it.", err=True)
    if hides:
        _tell_hidden(request)


def _tell_hidden(request: _Request) -> None:
    say(f"What {request.mountpoint} holds itself is hidden until the unmount.", err=True)


@dataclass(frozen=True, slots=True)
class _Request:
    """A session of an instance, to be mounted.

    Attributes:
        flags: the options that say how.
        throw_away: remove the instance at the unmount.
    """

    folder: Path
    session: str
    mountpoint: Path
    flags: dict[str, Any]
    throw_away: bool

    @property
    def log(self) -> Path:
        """Where a mount in the background writes."""
        return self.folder / "run" / f"{self.session}.log"

    def arguments(self, ready_fd: int) -> list[str]:
        """Return the command line of a process that serves this in the foreground."""
        words = ["--instance", str(self.folder), "mount", "--ready-fd", str(ready_fd)]
        if self.flags["allow_other"]:
            words.append("--allow-other")
        if self.flags["set_owner"]:
            words += ["--set-owner", ":".join(map(str, self.flags["set_owner"]))]
        if self.flags["no_xattrs"]:
            words.append("--no-xattrs")
        words += ["--passage-errno", self.flags["passage_errno"]]
        words += ["--log-format", self.flags["log_format"]]
        if self.flags["log_level"]:
            words += ["--log-level", self.flags["log_level"]]
        if self.throw_away:
            words.append("--throw-away")
        return [*words, "--", self.session, str(self.mountpoint)]

    def serve(self, ready_fd: int | None, on_ready: Callable[[], None]) -> None:
        """Mount and serve until it is unmounted."""
        from fusefs.daemon import logs
        from fusefs.daemon.options import MountOptions
        from fusefs.daemon.serve import serve
        from fusefs.tree.backend import Owner

        # A person in front of a terminal is told in words that it is mounted.
        usual = "warning" if sys.stderr.isatty() else "info"
        logs.set_up(self.session, self.flags["log_format"], self.flags["log_level"] or usual)
        how = MountOptions(
            allow_other=self.flags["allow_other"],
            owner=Owner(*self.flags["set_owner"]) if self.flags["set_owner"] else None,
            passage_errno=getattr(errno, self.flags["passage_errno"]),
            xattrs=not self.flags["no_xattrs"],
        )
        from fusefs.tools.cli import adhoc

        with adhoc.thrown_away(self.folder) if self.throw_away else nullcontext():
            serve(
                self.folder, self.session, self.mountpoint, how,
                ready_fd=ready_fd, on_ready=on_ready,
            )  # fmt: skip


def _prepare(
    ctx: click.Context,
    options: Options,
    places: tuple[str, ...],
    given: dict[str, Any],
    *,
    throw_away: bool,
) -> _Request:
    """Find or make the session that is asked for."""
    binds, file = given.pop("binds"), given.pop("session_file")
    rules = {key: given.pop(key) for key in ("world", "boundary", "start", "grants", "floors")}
    if len(places) != (1 if binds or file else 2):
        wanted = "MOUNTPOINT alone" if binds or file else "NAME and MOUNTPOINT"
        hint = "" if binds or file or not any(rules.values()) else _RULES_NEED_A_BIND
        raise click.UsageError(f"Give {wanted}.{hint}", ctx)
    mountpoint = Path(places[-1]).absolute()
    if any(rules.values()) and not binds:
        raise click.UsageError(
            "--world, --boundary, --start, --grant and --floor go with --bind; "
            "`fusefs session` defines a session of an instance.",
            ctx,
        )
    if not binds and not file:
        with open_instance(options) as instance:
            find_session(instance, places[0])
        return _Request(options.folder, places[0], mountpoint, given, throw_away)

    from fusefs.contract.sessions import OPERATOR, SessionSpec
    from fusefs.tools.cli import adhoc

    spec = read_session_file(file) if file else SessionSpec(AD_HOC)
    if binds:
        spec = define(spec, **rules)
        if not spec.grants:
            raise click.UsageError("Nothing is granted: add --grant PATH=LEVEL.", ctx)
        return _Request(adhoc.make(spec, binds), spec.name, mountpoint, given, throw_away=True)
    with open_instance(options) as instance:
        if spec.name in instance.sessions.names():
            # The inode numbers of a mount that is there already hang on the secret.
            spec = replace(spec, secret=instance.sessions.get(spec.name).secret)
        instance.sessions.put(spec, OPERATOR.name)
    return _Request(options.folder, spec.name, mountpoint, given, throw_away)


@click.command("mounts")
@common_options
@click.pass_obj
def mounts_command(options: Options) -> None:
    """List the live mounts of the instance.

    \b
    Example:
      fusefs mounts
    """
    from fusefs.daemon.mount_lock import served
    from fusefs.store.instance import check_exists

    # Not opened: one that must be upgraded cannot be while it is mounted.
    check_exists(options.folder)
    live = [mount._asdict() for mount in served(options.folder / "run")]
    if options.json:
        say_json({"mounts": live})
    else:
        rows = [(mount["session"], str(mount["pid"]), mount["mountpoint"]) for mount in live]
        say_table(rows, heads=("session", "process", "mountpoint"))
        say_nothing_if_none(rows)


@click.command("umount")
@click.argument("mountpoint", type=HOST_PATH)
@click.option("--lazy", is_flag=True,
              help="Also while programs use it: they go on with what they have open.")
@common_options
@click.pass_obj
def umount_command(options: Options, mountpoint: Path, lazy: bool) -> None:
    """Unmount a view and wait until all its changes are safe.

    \b
    Example:
      fusefs umount ~/view
    """
    from fusefs.daemon.unmount import umount

    # Before the unmount: it may take the working directory away.
    mountpoint = Path(os.path.abspath(mountpoint))  # noqa: PTH100 - ".." goes too
    umount(mountpoint, lazy=lazy)
    if options.json:
        say_json({"mountpoint": str(mountpoint)})
    else:
        say(f"Unmounted: {mountpoint}")
