"""Mounting repositories into the tree, and taking them away: what the owner of an instance does."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path as HostPath

from fusefs.contract.errors import Blocked, ContractError, InvalidArgument
from fusefs.contract.paths import Path, is_at_or_below, render
from fusefs.contract.sessions import OPERATOR, SessionSpec
from fusefs.forge.connect import kind_of
from fusefs.forge.credentials import find
from fusefs.forge.git_process import Watch
from fusefs.forge.locks import locked
from fusefs.forge.names import check_ref_name
from fusefs.forge.transport import Moves, Transport
from fusefs.forge.urls import parse
from fusefs.session import rights
from fusefs.session.binding import check_room, make_room
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.store.kv import Reader
from fusefs.store.mounts import MountSpec
from fusefs.store.working_copies import WorkingCopy, is_untouched, working_copies
from fusefs.tree.repository_errors import UnusableBranch
from fusefs.tree.repository_objects import RepositoryObjects
from fusefs.tree.repository_worktree import RepositoryWorktree


class NotMounted(ContractError):
    """No repository is mounted at a path."""

    code = "FS_NOT_FOUND"

    def __init__(self, path: str) -> None:
        super().__init__(f"No repository is mounted at {path}. What is mounted: fusefs repo list")


class StillStaged(ContractError):
    """A repository is not taken away while sessions have staged changes in it."""

    code = "FS_BUSY"

    def __init__(self, path: str, sessions: list[str]) -> None:
        super().__init__(
            f"Not removed: {path} has staged changes of {', '.join(sessions)}, which would be "
            f"lost. To look at them: fusefs status {path} --session NAME. To drop them: "
            f"fusefs repo rm --force {path}"
        )
        self.sessions = sessions


@dataclass(frozen=True)
class Mounted:
    """A mounted repository, for people.

    Attributes:
        commit: where its branch is, as far as the clone knows; None where that cannot be told.
        copies: of each session with a working copy, the commit it is based on and how many
            changes are staged in it.
        problem: what is wrong with its clone, or with its branch; else empty.
    """

    path: Path
    spec: MountSpec
    commit: str | None
    copies: dict[str, tuple[str, int]]
    problem: str = ""


def add(
    instance: Instance,
    url: str,
    path: Path,
    *,
    branch: str | None = None,
    forge: str | None = None,
    watch: Watch | None = None,
) -> MountSpec:
    """Clone the repository at `url` and mount it at `path`; cut off, it leaves nothing.

    Args:
        instance: whose tree it is.
        url: a path, ``file://``, ``https://``, ``ssh://`` or ``user@host:path``.
        path: where in the tree; a directory is made for it if need be.
        branch: the branch to work on; the remote's default branch if missing.
        forge: the kind of forge; found by the address if missing.
        watch: is told how far it has come.

    Raises:
        InvalidArgument: an address, path or forge that cannot be.
        Blocked: the path is taken, or there is no such branch.
        ForgeError: it cannot be fetched; Cancelled.
    """
    remote = parse(url)
    kind = kind_of(remote, forge or "")
    _check_path(instance, path)
    way = Transport(remote, kind, find(remote, kind), watch=watch or Watch())
    chosen = _branch(way, branch)
    spec = MountSpec(instance.mounts.new_id(), remote.url, chosen, kind)
    folder = _clone(instance, spec)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    _sweep(instance)
    with _claimed(folder):
        try:
            way.clone(folder)
            _check_branch(folder, spec)
            _check_path(instance, path)
            make_room(Session(instance), path, "Not mounted")
            # Before it is seen, so that no session sees it with another right first.
            rights.learn(instance, spec)
            instance.mounts.put(path, spec, OPERATOR.name)
        except BaseException:
            if spec not in instance.mounts.all().values():
                rights.forget(instance, spec)
                shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            folder.with_name(folder.name + ".lock").unlink(missing_ok=True)
    return spec


def _check_path(instance: Instance, path: Path) -> None:
    if not path:
        raise InvalidArgument(
            "Not mounted: a repository is mounted below the root of the tree. "
            "Give a path such as /project."
        )
    for where, mounted in instance.mounts.all().items():
        if where == path:
            raise Blocked(
                f"Not mounted: {mounted.url} is mounted at {render(path)} already. "
                f"To take it away: fusefs repo rm {render(path)}"
            )
    for where, bound in instance.binds.all().items():
        if where and is_at_or_below(path, where):
            raise Blocked(
                f"Not mounted: {render(path)} is in {bound.source}, which is bound at "
                f"{render(where)}. Give a path outside it."
            )
    check_room(Session(instance), path, "Not mounted")


def _branch(way: Transport, branch: str | None) -> str:
    """Return the branch to mount, having asked the remote what it has."""
    if branch is not None:
        check_ref_name(branch, "branch")
    shown = way.advertised()
    prefix = "refs/heads/"
    names = [name.removeprefix(prefix) for name in sorted(shown.refs) if name.startswith(prefix)]
    url = way.remote.url
    if not names:
        raise Blocked(
            f"Not mounted: {url} has no commits yet. Push a first one, then mount it."
        )
    chosen = branch or shown.default_branch
    known = f"It has: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."
    if chosen is None or (branch is None and chosen not in names):
        raise Blocked(
            f"Not mounted: {url} does not say which branch is its default. {known} "
            "Choose one with --branch."
        )
    if chosen not in names:
        raise Blocked(f"Not mounted: {url} has no branch {chosen}. {known}")
    return chosen


def _check_branch(folder: HostPath, spec: MountSpec) -> None:
    try:
        RepositoryObjects(os.fspath(folder)).branch(spec.branch)
    except UnusableBranch:
        raise Blocked(
            f"Not mounted: the branch {spec.branch} of {spec.url} is at no commit that can be "
            "read. Mount another one with --branch, or have it put right there."
        ) from None


@contextmanager
def _claimed(folder: HostPath) -> Iterator[bool]:
    """Hold the claim on a clone that no mount speaks of yet; the kernel ends it with the process.

    Yields:
        Whether it could be had.
    """
    with locked(folder.parent / "claims.lock", os.fsencode(folder.name), 0) as mine:
        yield mine


def _sweep(instance: Instance) -> None:
    """Remove what clones left behind that were killed."""
    kept = {_clone(instance, spec).name for spec in instance.mounts.all().values()}
    for folder in (instance.folder / "repositories").glob("*.git*"):
        name = folder.name.partition(".git")[0] + ".git"
        if name in kept:
            continue
        with _claimed(folder.with_name(name)) as mine:
            if mine and folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)
            elif mine:
                folder.unlink(missing_ok=True)


def _clone(instance: Instance, spec: MountSpec) -> HostPath:
    return HostPath(instance.mounts.folder(spec))


def find_mount(instance: Instance, path: Path) -> MountSpec:
    """Return the repository that is mounted at `path`.

    Raises:
        NotMounted: there is none.
    """
    spec = instance.mounts.all().get(path)
    if spec is None:
        raise NotMounted(render(path))
    return spec


def mounted(instance: Instance) -> list[Mounted]:
    """Return all mounted repositories, by path."""
    return [_look(instance, path, spec) for path, spec in sorted(instance.mounts.all().items())]


def _look(instance: Instance, path: Path, spec: MountSpec) -> Mounted:
    with instance.kv.read() as txn:
        copies = working_copies(txn, spec.id)
    try:
        objects = RepositoryObjects(instance.mounts.folder(spec))
        counted = {
            name: (copy.base.hex(), len(_whole(instance, name, path).changes()))
            for name, copy in sorted(copies.items())
        }
    except OSError as error:
        bases = {name: (copy.base.hex(), 0) for name, copy in copies.items()}
        return Mounted(
            path, spec, None, bases, f"its clone cannot be read: {error.strerror or error}"
        )
    try:
        commit = objects.branch(spec.branch).hex()
    except OSError as error:
        return Mounted(path, spec, None, counted, str(error.strerror))
    return Mounted(path, spec, commit, counted)


def _whole(instance: Instance, session: str, path: Path) -> Repository:
    """Return the working copy of a session as it is, whatever the session sees of it."""
    everything: SessionSpec = replace(OPERATOR, name=session)
    return Repository(Session(instance, everything, capped=False), render(path) or "/")


def fetch(instance: Instance, path: Path, *, watch: Watch | None = None) -> Moves:
    """Bring the branches and tags of a mounted repository's remote into the instance's clone.

    A clone that is lost is made again first.

    Raises:
        NotMounted: there is none.
        ForgeError: it cannot be fetched; Cancelled.
    """
    spec = find_mount(instance, path)
    remote = parse(spec.url)
    way = Transport(remote, spec.forge, find(remote, spec.forge), watch=watch or Watch())
    folder = _clone(instance, spec)
    if not folder.exists():
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            way.clone(folder)
        finally:
            folder.with_name(folder.name + ".lock").unlink(missing_ok=True)
    return way.fetch(folder)


def remove(instance: Instance, path: Path, *, force: bool) -> MountSpec:
    """Take a mounted repository away: from the tree, from live mounts, and its clone.

    Args:
        instance: whose tree it is.
        path: where it is mounted.
        force: also if sessions have staged changes, which are lost then.

    Raises:
        NotMounted: there is none.
        StillStaged: sessions have staged changes.
    """
    spec = find_mount(instance, path)

    objects = None
    with contextlib.suppress(OSError):  # a clone that is lost keeps nobody from removing it
        objects = RepositoryObjects(instance.mounts.folder(spec))

    def is_changed(txn: Reader, session: str, copy: WorkingCopy) -> bool:
        if objects is not None:
            with contextlib.suppress(OSError):  # it is damaged
                return bool(_whole(instance, session, path).changes())
        return not is_untouched(txn, copy)

    def check(txn: Reader) -> None:
        copies = working_copies(txn, spec.id).items()
        busy = [_title(name) for name, copy in copies if is_changed(txn, name, copy)]
        if busy:
            raise StillStaged(render(path), sorted(busy))

    if force:
        instance.mounts.remove(path, OPERATOR.name)
    else:
        _check_worktrees(instance, spec, objects)
        instance.mounts.remove(path, OPERATOR.name, check=check)
    _discard(instance, spec)
    return spec


def _check_worktrees(
    instance: Instance, spec: MountSpec, objects: RepositoryObjects | None
) -> None:
    if objects is None:
        return
    for folder in instance.mounts.worktrees(spec).glob("*"):
        if RepositoryWorktree(objects, folder).has_changes():
            raise Blocked(
                f"Not removed: {folder} was changed since it was made. Copy what you want to "
                "keep, then: fusefs repo rm --force PATH"
            )


def _title(session: str) -> str:
    return "the owner (no --session)" if session == OPERATOR.name else session


def _discard(instance: Instance, spec: MountSpec) -> None:
    """Remove a clone. Who is reading from it has its files open, or is told that it is gone."""
    shutil.rmtree(instance.mounts.worktrees(spec), ignore_errors=True)
    folder = _clone(instance, spec)
    gone = folder.with_name(folder.name + ".removed")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
