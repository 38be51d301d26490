"""Word of changes that other programs make in a host directory, through inotify(7)."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Hashable
from typing import Literal, NamedTuple

from fusefs.tree import host_calls
from fusefs.tree.host_nodes import HostNode
from fusefs.tree.host_tree import HostTree

_MODIFY = 0x2
_ATTRIB = 0x4
_MOVED_FROM = 0x40
_MOVED_TO = 0x80
_CREATE = 0x100
_DELETE = 0x200
_DELETE_SELF = 0x400
_Q_OVERFLOW = 0x4000
_IGNORED = 0x8000
_ONLYDIR = 0x0100_0000
_EXCL_UNLINK = 0x0400_0000

_ENTRY = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF
_WATCHED = _ENTRY | _MODIFY | _ATTRIB | _ONLYDIR | _EXCL_UNLINK

_HEADER = struct.Struct("=iIII")
_BUFFER = 1 << 16
_CANNOT = (
    errno.ENOSPC, errno.ENOMEM, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP
)  # fmt: skip

EventKind = Literal["entry", "content", "attributes", "overflow"]


class HostEvent(NamedTuple):
    """Something changed, by whomever (our own changes are told as well).

    Attributes:
        directory: the directory watched; the bound folder for an overflow.
        name: the entry; None for the directory itself.
        kind: the name came, went or stands for another node (for the directory itself: it was
            removed), the file's bytes changed, attributes changed, or events were lost and
            everything may have changed.
    """

    directory: HostNode
    name: bytes | None
    kind: EventKind


class HostWatch:
    """Watches directories of one tree. A watch follows its directory wherever it moves."""

    def __init__(self, tree: HostTree) -> None:
        """Raises OSError (EMFILE) where the user has too many watchers already."""
        self._tree = tree
        self._root = tree.root().key
        self._fd = host_calls.inotify_init()
        self._nodes: dict[int, HostNode] = {}
        self._watches: dict[HostNode, int] = {}

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there are events."""
        return self._fd

    def watch(self, key: Hashable) -> bool:
        """Watch the entries of a directory; False if that cannot be relied on.

        So where the user's limit of watches is reached, or where the file system can be changed
        without this kernel's knowledge (network file systems).
        """
        assert isinstance(key, HostNode)
        if key in self._watches:
            return True
        try:
            fd = self._tree.open_node(key)
            try:
                if self._tree.mounts.is_shared(host_calls.mount_id(fd)):
                    return False
                watch = host_calls.inotify_add_watch(
                    self._fd, host_calls.descriptor_path(fd), _WATCHED
                )
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in _CANNOT:
                return False
            raise
        if watch in self._nodes:
            return False  # the directory is bound at two places, and has one watch
        self._nodes[watch] = key
        self._watches[key] = watch
        return True

    def unwatch(self, key: Hashable) -> None:
        """End the watch of a directory, if there is one."""
        assert isinstance(key, HostNode)
        watch = self._watches.pop(key, None)
        if watch is None:
            return
        del self._nodes[watch]
        try:
            host_calls.inotify_rm_watch(self._fd, watch)
        except OSError as error:
            if error.errno != errno.EINVAL:  # it went with its directory
                raise

    def read_events(self) -> list[HostEvent]:
        """Return what happened since, each thing once, in order; never waits."""
        events: dict[HostEvent, None] = {}
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return list(events)
            self._parse(data, events)

    def close(self) -> None:
        """End all watches."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._nodes.clear()
        self._watches.clear()

    def _parse(self, data: bytes, events: dict[HostEvent, None]) -> None:
        offset = 0
        while offset < len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size + length
            name = data[offset - length : offset].rstrip(b"\0") or None
            if mask & _Q_OVERFLOW:
                assert isinstance(self._root, HostNode)
                events[HostEvent(self._root, None, "overflow")] = None
                continue
            node = self._nodes.get(watch)
            if node is None:
                continue  # left over from before `unwatch`
            if mask & _IGNORED:
                del self._nodes[watch]
                if self._watches.get(node) == watch:
                    del self._watches[node]
                continue
            kind: EventKind = (
                "entry" if mask & _ENTRY else "content" if mask & _MODIFY else "attributes"
            )
            # The latest of equal events counts, so that order among different ones holds.
            event = HostEvent(node, name, kind)
            events.pop(event, None)
            events[event] = None
