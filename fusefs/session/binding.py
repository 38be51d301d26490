"""Binding a folder of the host into the tree."""

from __future__ import annotations

import os
from pathlib import Path

from fusefs.contract.errors import Blocked, ContractError, InvalidArgument
from fusefs.contract.paths import Path as TreePath
from fusefs.contract.paths import decode, is_at_or_below, render
from fusefs.contract.sessions import OPERATOR
from fusefs.session.session import Session
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance
from fusefs.tree.host_mounts import is_in_view
from fusefs.tree.tree import HOST

_KINDS = {"dir": "directory", "symlink": "symbolic link"}


class NotBound(ContractError):
    """No folder is bound at a path; the text says what is there."""

    code = "FS_NOT_FOUND"

    def __init__(self, instance: Instance, path: TreePath) -> None:
        text = render(path)
        if path in instance.mounts.all():
            there = f": a repository is mounted there (fusefs repo rm {text} takes it out)"
        else:
            try:
                kind = Session(instance).stat(text).kind.name.lower()
                there = f": there is a {_KINDS.get(kind, kind)} of the tree itself"
            except ContractError:
                there = ", and nothing else is there"
        super().__init__(f"No folder is bound at {text}{there}. What is bound: fusefs bind")


def unbind(instance: Instance, path: TreePath) -> None:
    """Take the bind at `path` away.

    Raises:
        NotBound: there is none.
    """
    if path not in instance.binds.all():
        raise NotBound(instance, path)
    instance.binds.remove(path, OPERATOR.name)


def bind(instance: Instance, host_dir: Path, path: TreePath) -> None:
    """Bind `host_dir` at `path` of the tree, where a directory is made for it if need be.

    Raises:
        InvalidArgument: `host_dir` is no directory, or in a view, or it and the instance hold one
            another.
        ContractError: no directory can be made there.
    """
    source = host_dir.expanduser().resolve()
    if not source.is_dir():
        raise InvalidArgument(f"Not a directory: {host_dir}")
    folder = instance.folder.resolve()
    if source == folder:
        raise InvalidArgument(
            f"Not bound: {source} is the instance itself; a session could reach its files. "
            "Bind another folder."
        )
    if folder.is_relative_to(source):
        raise InvalidArgument(
            f"Not bound: {source} contains the instance {folder}; a session could reach its "
            "files. Bind a folder beside it, or keep the instance elsewhere (--instance)."
        )
    if source.is_relative_to(folder):
        raise InvalidArgument(
            f"Not bound: {source} lies in the instance {folder}. Bind a folder outside it."
        )
    if is_in_view(os.fsencode(source)):
        raise InvalidArgument(
            f"Not bound: {source} is in a mounted view, which could come to wait for itself. "
            "Bind a folder of the host."
        )
    spec = BindSpec(HOST, str(source))
    bound = instance.binds.all().get(path)
    if bound is not None and bound != spec:
        raise Blocked(
            f"Not bound: {bound.source} is bound at {render(path)} already. "
            f"To take it away: fusefs unbind {render(path)}"
        )
    if bound is None:
        make_room(Session(instance), path, "Not bound")
        instance.binds.put(path, spec, OPERATOR.name)


def check_room(session: Session, path: TreePath, refusal: str) -> bool:
    """Check that something may be shown at `path`; tell whether a directory is there.

    Args:
        session: the owner's.
        path: where it is to be.
        refusal: what a refusal begins with, as in ``Not bound``.

    Raises:
        Blocked: something that is there would be hidden, or no directory can be made.
    """
    text = render(path)
    instance = session.view.instance
    for where in instance.mounts.all():
        if is_at_or_below(path, where):
            raise Blocked(
                f"{refusal}: {text} is in the repository that is mounted at {render(where)}. "
                "Give a path outside it."
            )
    if session.exists(text):
        if session.list(text):
            raise Blocked(
                f"{refusal}: {text} is not empty, and what is in it would be hidden. "
                "Give another path."
            )
        return True
    for where, spec in instance.binds.all().items():
        if is_at_or_below(path, where):
            inner = os.path.join(spec.source, *map(decode, path[len(where) :]))
            raise Blocked(
                f"{refusal}: {text} is in a bound folder and does not exist. "
                f"Make it first: mkdir -p {inner}"
            )
    return False


def make_room(session: Session, path: TreePath, refusal: str) -> None:
    """See to an empty directory under what is shown at `path`: without one it would be in no
    listing.

    Raises:
        ContractError: as `check_room`, or no directory can be made there.
    """
    if path and not check_room(session, path, refusal):
        session.mkdir(render(path))
