"""Open files and directories of a view; each operation is held against the rules of its moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fusefs.contract.errors import NotPermitted
from fusefs.session.place import Place
from fusefs.session.stat import Stat
from fusefs.tree.backend import Directory, File, Node, Publication
from fusefs.tree.tree import Spot

if TYPE_CHECKING:
    from fusefs.session.view_reader import ViewReader

_CHUNK = 1 << 20


class ViewDirectory:
    """An open directory of a view: only visible entries come."""

    def __init__(self, view: ViewReader, place: Place, directory: Directory) -> None:
        self._view = view
        self._directory = directory
        self.place = place

    def entries(self, after: bytes, limit: int) -> Sequence[tuple[bytes, Place, Stat]]:
        """Return at most `limit` visible entries whose names sort after `after`."""
        view, place = self._view, self.place
        view.check_visible(place)
        cursor, bound = place.cursor, place.bound
        backend = view.backend_of(place)
        found: list[tuple[bytes, Place, Stat]] = []
        while len(found) < limit:
            page = self._directory.entries(after, limit - len(found))
            if not page:
                break
            is_last = len(page) < limit - len(found)
            after = page[-1].name
            for entry in page:
                child_cursor = cursor.child(entry.name)
                if not child_cursor.visible or view.is_reserved(place, entry.name):
                    continue
                spot = Spot(backend, place.tag, entry.node, None)
                if bound is not None and entry.name in bound.below:
                    try:
                        spot = view.tree.child(backend, place.tag, place.key, bound, entry.name)
                    except FileNotFoundError:
                        continue
                child = view.intern(place, entry.name, child_cursor, spot)
                found.append(
                    (entry.name, child, view.stat_node(child, child_cursor, spot.node))
                )
            if is_last:
                break
        return found

    def close(self) -> None:
        """Give the handle back."""
        self._directory.close()


class ViewFile:
    """An open file of a view; each operation is held against the rules of its moment.

    Attributes:
        found: the node as it was when it was opened; None where it was made then.
    """

    def __init__(
        self,
        view: ViewReader,
        place: Place,
        file: File,
        *,
        append: bool,
        found: Node | None = None,
    ) -> None:
        self.found = found
        self._view = view
        self._file = file
        self._append = append
        self.place = place
        self.read = file.read
        self.pending_copy = file.pending_copy
        self.flush = file.flush
        self.sync_data = file.sync_data

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return bytes, or None where `read` has to wait for them."""
        self._view.check_visible(self.place)
        return self._file.read_nowait(offset, size)

    def read_whole(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at `offset`, waiting for them if need be."""
        data = self.read_nowait(offset, size)
        return self.read(offset, size) if data is None else data

    def chunks(self) -> Iterator[bytes]:
        """Yield the whole content, piece by piece."""
        offset = 0
        while chunk := self.read_whole(offset, _CHUNK):
            yield chunk
            offset += len(chunk)

    def write(self, offset: int, data: bytes) -> int:
        """Write all of `data`."""
        self._view.check_change(self.place)
        return self._file.write(offset, data, append=self._append)

    def truncate(self, size: int) -> None:
        """Set the size in bytes."""
        self._view.check_change(self.place)
        self._file.truncate(size)

    def replace(self, data: bytes) -> None:
        """Make `data` the whole content."""
        self._view.check_change(self.place)
        self._file.replace(data)

    def stat(self) -> Stat:
        """Return what the session is told about the file, also after it was removed."""
        self._view.check_visible(self.place)
        return self._view.stat_node(self.place, self.place.cursor, self._file.node())

    def close(self) -> Publication | None:
        """Give the handle back; what is returned must be prepared and finished."""
        return self._file.close()


class LinkText:
    """A symbolic link in a chat, where it reads as a file holding its target (section 4)."""

    def __init__(self, path: str, node: Node, target: bytes) -> None:
        self._path = path
        self._node = node
        self._target = target

    def node(self) -> Node:
        """Return the link's node."""
        return self._node

    def read_nowait(self, offset: int, size: int) -> bytes:
        """Return bytes of the target."""
        return self._target[offset : offset + size]

    read = read_nowait

    def pending_copy(self) -> Callable[[], None] | None:
        """Nothing is ever copied."""
        return None

    def write(self, offset: int, data: bytes, *, append: bool = False) -> int:
        """Refuse: there are no links to be made in a chat."""
        raise NotPermitted(self._path, "a link")

    def truncate(self, size: int) -> None:
        """Refuse, as `write`."""
        raise NotPermitted(self._path, "a link")

    def replace(self, data: bytes) -> None:
        """Refuse, as `write`."""
        raise NotPermitted(self._path, "a link")

    def flush(self) -> None:
        """Nothing was written."""

    sync_data = flush

    def close(self) -> Publication | None:
        """Nothing is held."""
        return None
