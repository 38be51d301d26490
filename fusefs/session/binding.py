"""Binding a folder of the host into the tree."""

from __future__ import annotations

from pathlib import Path

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.paths import Path as TreePath
from fusefs.contract.paths import render
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
    if folder.is_relative_to(source) or source.is_relative_to(folder):
        raise InvalidArgument(
            f"The instance {folder} and {source} hold one another: a session could reach the "
            "instance's own files. Keep them apart (--instance)."
        )
    # Without a directory under it, what is bound would be in no listing.
    Session(instance).mkdir(render(path))
    instance.binds.put(path, BindSpec(HOST, str(source)), OPERATOR.name)
