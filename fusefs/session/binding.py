"""Binding a folder of the host into the tree."""

from __future__ import annotations

import os
from pathlib import Path

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.paths import Path as TreePath
from fusefs.contract.paths import decode, is_at_or_below, render
from fusefs.contract.sessions import OPERATOR
from fusefs.session.session import Session
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance
from fusefs.tree.tree import HOST


def bind(instance: Instance, host_dir: Path, path: TreePath) -> None:
    """Bind `host_dir` at `path` of the tree, where a directory is made for it if need be.

    Raises:
        InvalidArgument: `host_dir` is no directory, or it and the instance hold one another.
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
    spec = BindSpec(HOST, str(source))
    bound = instance.binds.all().get(path)
    if bound is not None and bound != spec:
        raise InvalidArgument(
            f"Not bound: {bound.source} is bound at {render(path)} already. "
            f"To take it away: fusefs unbind {render(path)}"
        )
    if bound is None:
        _make_room(Session(instance), path)
        instance.binds.put(path, spec, OPERATOR.name)


def _make_room(session: Session, path: TreePath) -> None:
    """See to an empty directory under what is bound: without one it would be in no listing."""
    if not path:
        return
    text = render(path)
    if session.exists(text):
        if session.list(text):
            raise InvalidArgument(
                f"Not bound: {text} is not empty, and what is in it would be hidden. "
                "Bind at another path."
            )
        return
    for where, spec in session.view.instance.binds.all().items():
        if is_at_or_below(path, where):
            inner = os.path.join(spec.source, *map(decode, path[len(where) :]))
            raise InvalidArgument(
                f"Not bound: {text} is in a bound folder and does not exist. "
                f"Make it first: mkdir -p {inner}"
            )
    session.mkdir(text)
