"""What a session sees below a directory: fast, for searches over many files.

`Session.walk` makes a `Place` and a `Stat` of each node; here nothing is made of a file but its
path and what its directory says of it. The rules are applied inside the walk, so what is hidden is
neither looked at nor counted, and what the rules say by then holds from then on.
"""

from __future__ import annotations

import errno
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import NamedTuple

from fusefs.contract.globs import EVERYTHING, Selection
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import decode
from fusefs.contract.sessions import World
from fusefs.contract.view import Cursor
from fusefs.session.place import Place
from fusefs.session.stat import DIRECTORY_KINDS
from fusefs.session.view_reader import CONTROL_NAME, ViewReader
from fusefs.tree.backend import Backend, Read, Scanned
from fusefs.tree.tree import Bound

_REFRESH = 256
"""Names gone through until it is looked whether the rules have changed."""
_READ_AT_ONCE = 256


class Visible(NamedTuple):
    """A node that a session sees.

    Attributes:
        path: names from the root, each behind a ``/``.
        backend: who answers for it.
        directory: the key of the directory it is in.
        entry: what that says of it.
    """

    path: bytes
    backend: Backend
    directory: Hashable
    entry: Scanned

    @property
    def text(self) -> str:
        """The path as text."""
        return decode(self.path)


class Unread(NamedTuple):
    """What a search could not look into.

    Attributes:
        path: as text.
        reason: why, in a few words.
    """

    path: str
    reason: str


class _Directory:
    """A directory that a walk is in.

    Attributes:
        prefix: its path, and a ``/``.
        cursor: what the rules say there.
        selection: what is wanted in it.
        backend, tag, key, bound: as of a `fusefs.session.place.Place`.
        entries: what is left to go through.
    """

    __slots__ = ("backend", "bound", "cursor", "entries", "key", "prefix", "selection", "tag")

    def __init__(
        self,
        prefix: bytes,
        cursor: Cursor,
        selection: Selection,
        backend: Backend,
        tag: bytes,
        key: Hashable,
        bound: Bound | None,
    ) -> None:
        self.prefix = prefix
        self.cursor = cursor
        self.selection = selection
        self.backend = backend
        self.tag = tag
        self.key = key
        self.bound = bound
        self.entries: Iterator[Scanned] = iter(())


Content = tuple[bytes, Read]
"""A file's path as in `Visible`, and what is in it."""


class VisibleFiles:
    """Goes through what a session sees below a directory, in path order. Iterate once.

    Directories come only if the selection wants them; links are not followed, and in a chat they
    are files.

    Attributes:
        unread: directories that could not be listed, so far.
    """

    def __init__(self, view: ViewReader, top: Place, selection: Selection = EVERYTHING) -> None:
        """Begin at the visible directory `top`."""
        self.unread: list[Unread] = []
        self._view = view
        self._epoch = view.epoch
        self._top = top
        self._selection = selection

    def __iter__(self) -> Iterator[Visible]:
        view, top = self._view, self._top
        prefix = b"".join(b"/" + name for name in top.path) + b"/"
        backend = view.backend_of(top)
        here = _Directory(
            prefix, top.cursor, self._selection, backend, top.tag, top.key, top.bound
        )
        stack = [self._listed(here)]
        left = _REFRESH
        while stack:
            here = stack[-1]
            prefix, cursor, backend, key = here.prefix, here.cursor, here.backend, here.key
            wants, directories = here.selection.wants, here.selection.directories
            is_open = cursor.uniform and cursor.visible and prefix != b"/"
            for entry in here.entries:
                name = entry.name
                is_visible = is_open or (
                    cursor.child(name).visible and (prefix != b"/" or name != CONTROL_NAME)
                )
                if entry.kind in DIRECTORY_KINDS:
                    if is_visible and directories and here.selection.wants_directory(name):
                        yield Visible(prefix + name, backend, key, entry)
                    below = self._enter(here, entry)
                    if below is not None:
                        stack.append(below)
                        break
                elif is_visible and wants(name):
                    yield Visible(prefix + name, backend, key, entry)
                left -= 1
                if not left:
                    left = _REFRESH
                    view.refresh()
                if view.epoch != self._epoch:
                    self._follow_rules(stack)
                    break
            else:
                stack.pop()

    def _enter(self, here: _Directory, entry: Scanned) -> _Directory | None:
        """Return a directory to go through, None if there is nothing for the session in it."""
        name = entry.name
        cursor = here.cursor.child(name)
        if not (cursor.visible or cursor.passage):
            return None
        selection = here.selection.enter(name)
        if selection is None:
            return None
        prefix = here.prefix + name + b"/"
        if here.bound is None or name not in here.bound.below:
            return self._listed(
                _Directory(prefix, cursor, selection, here.backend, here.tag, entry.key, None)
            )
        try:
            spot = self._view.tree.child(here.backend, here.tag, here.key, here.bound, name)
        except OSError as error:
            self._note(prefix, error)
            return None
        return self._listed(
            _Directory(
                prefix, cursor, selection, spot.backend, spot.tag, spot.node.key, spot.bound
            )
        )

    def _listed(self, directory: _Directory) -> _Directory:
        if directory.cursor.visible:
            directory.entries = chain.from_iterable(self._pages(directory))
        else:
            directory.entries = self._named(directory)
        return directory

    def _pages(self, directory: _Directory) -> Iterator[Sequence[Scanned]]:
        try:
            yield from directory.backend.scan(directory.key)
        except OSError as error:
            self._note(directory.prefix, error)

    def _named(self, directory: _Directory) -> Iterator[Scanned]:
        """Yield what the rules name in a passage, which cannot be listed."""
        bound = directory.bound
        for name, cursor in directory.cursor.named():
            if not (cursor.visible or cursor.passage):
                continue
            if bound is not None and name in bound.below and bound.below[name].backend is not None:
                yield Scanned(name, Kind.DIR, None, None, None)
                continue
            try:
                node = directory.backend.lookup(directory.key, name)
            except OSError as error:
                self._note(directory.prefix + name + b"/", error)
            else:
                yield Scanned(name, node.kind, node.key, None, node.sha256)

    def _note(self, prefix: bytes, error: OSError) -> None:
        if error.errno not in _GONE:
            self.unread.append(Unread(decode(prefix[:-1]), error.strerror or str(error)))

    def _follow_rules(self, stack: Sequence[_Directory]) -> None:
        """Go by the rules as they are now."""
        self._epoch = self._view.epoch
        for directory in stack:
            directory.cursor = self._view.rules.root
            bound: Bound | None = self._view.tree.top
            for name in directory.prefix.split(b"/")[1:-1]:
                directory.cursor = directory.cursor.child(name)
                bound = bound and bound.below.get(name)
            directory.bound = bound


_GONE = (errno.ENOENT, errno.ENOTDIR)


def contents(files: Iterable[Visible], max_bytes: int) -> Iterator[Content]:
    """Yield what is in files, or how large those are that have over `max_bytes` bytes."""
    for backend, group in groupby(files, attrgetter("backend")):
        while some := list(islice(group, _READ_AT_ONCE)):
            while some:
                found = [(file.directory, file.entry) for file in some]
                read = backend.read_files(found, max_bytes)
                yield from zip(map(_path, some), read, strict=False)
                del some[: len(read)]


_path = attrgetter("path")


def is_searched(file: Visible, world: World) -> bool:
    """Tell whether a node has text of its own that can be searched."""
    kind = file.entry.kind
    return kind == Kind.FILE or (kind == Kind.SYMLINK and world == World.CHAT)
