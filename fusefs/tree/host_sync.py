"""Making names and attributes of host nodes durable."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from fusefs.tree import host_calls
from fusefs.tree.host_nodes import HostNode
from fusefs.tree.host_paths import reopen

# From here on one syncfs(2) is cheaper than syncing node by node.
_MANY = 64


class Unsynced:
    """The nodes whose entries or attributes changed since the last `sync`."""

    def __init__(self) -> None:
        self._nodes: set[HostNode] = set()

    def add(self, *nodes: HostNode) -> None:
        """Note nodes that changed."""
        if len(self._nodes) <= _MANY:
            self._nodes.update(nodes)

    def sync(self, root_fd: int, open_node: Callable[[HostNode], int]) -> None:
        """Make the changes durable; `open_node` returns an ``O_PATH`` descriptor of a node."""
        nodes, self._nodes = self._nodes, set()
        if len(nodes) > _MANY or not all(_sync_node(node, open_node) for node in nodes):
            _sync_all(root_fd)


def _sync_node(node: HostNode, open_node: Callable[[HostNode], int]) -> bool:
    """Sync one node; False where our rights do not suffice."""
    try:
        node_fd = open_node(node)
    except FileNotFoundError:
        return True  # with its name went what there was to keep
    try:
        if stat.S_IFMT(os.fstat(node_fd).st_mode) not in (stat.S_IFDIR, stat.S_IFREG):
            return True  # the directory's sync keeps it
        try:
            fd = reopen(node_fd, os.O_RDONLY | os.O_NONBLOCK)
        except PermissionError:
            return False
    finally:
        os.close(node_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def _sync_all(root_fd: int) -> None:
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root_fd)
    try:
        host_calls.syncfs(fd)
    finally:
        os.close(fd)
