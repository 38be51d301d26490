"""What a session sees below a directory: fast, for searches over many files.

`Session.walk` makes a `Place` and a `Stat` of each node; here nothing is made of a file but its
path and what its directory says of it. The rules are applied inside the walk, so what is hidden is
neither looked at nor counted, and what the rules say by then holds from then on.
"""

from __future__ import annotations

import errno
from collections.abc import Hashable, Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter
from time import monotonic
from typing import NamedTuple

from fusefs.contract.globs import EVERYTHING, Selection
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import decode
from fusefs.contract.view import Cursor
from fusefs.session.place import Place
from fusefs.session.stat import DIRECTORY_KINDS
from fusefs.session.view_reader import CONTROL_NAME, ViewReader
from fusefs.tree.backend import SCAN_PAGE, Backend, Read, Scanned
from fusefs.tree.tree import Bound

_SOON = 0.001
"""Seconds until it is looked again whether the rules have changed."""
_DIR, _MOUNT = DIRECTORY_KINDS
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
        entries: what is left to go through, of what was listed.
        last: the name to go on with when that is done; b"" for none.
    """

    __slots__ = (
        "backend", "bound", "cursor", "entries", "key", "last", "prefix", "selection", "tag"
    )  # fmt: skip

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
        self.last = b""

    @property
    def is_open(self) -> bool:
        """Whatever is in it is visible."""
        return self.cursor.visible and self.cursor.uniform and self.prefix != b"/"

    def shows(self, name: bytes) -> bool:
        """Tell whether an entry is visible."""
        return self.cursor.child(name).visible and not self.reserves(name)

    def wants_directory(self, name: bytes) -> bool:
        """Tell whether a directory is wanted itself."""
        return self.shows(name) and self.selection.wants_directory(name)

    def reserves(self, name: bytes) -> bool:
        """Tell whether a name is the control file's."""
        return name == CONTROL_NAME and self.prefix == b"/"


Content = tuple[bytes, Read]
"""A file's path as in `Visible`, and what is in it."""


class RuleWatch:
    """The rules of a session while something goes on that must follow them."""

    def __init__(self, view: ViewReader) -> None:
        """Begin with the rules as they are."""
        self._view = view
        self._epoch = view.epoch
        self._look_at = 0.0

    def have_changed(self) -> bool:
        """Tell whether the rules are others since the last time; asked very often."""
        now = monotonic()
        if now >= self._look_at:
            self._view.refresh()
            self._look_at = now + _SOON
        if self._view.epoch == self._epoch:
            return False
        self._epoch = self._view.epoch
        return True


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
        self._top = top
        self._selection = selection
        self._stack: list[_Directory] = []

    def __iter__(self) -> Iterator[Visible]:
        view, top = self._view, self._top
        prefix = b"".join(b"/" + name for name in top.path) + b"/"
        backend = view.backend_of(top)
        here = _Directory(
            prefix, top.cursor, self._selection, backend, top.tag, top.key, top.bound
        )
        self._list(here)
        self._stack = [here]
        have_changed = RuleWatch(view).have_changed
        while self._stack:
            here = self._stack[-1]
            prefix, backend, key = here.prefix, here.backend, here.key
            wants, is_open = here.selection.wants, here.is_open
            for entry in here.entries:
                name, kind = entry.name, entry.kind
                if kind is _DIR or kind is _MOUNT:
                    if here.selection.directories and here.wants_directory(name):
                        yield Visible(prefix + name, backend, key, entry)
                        if have_changed():
                            self._follow_rules()
                    self._enter(here, entry)
                    break
                if (is_open or here.shows(name)) and wants(name):
                    yield Visible(prefix + name, backend, key, entry)
                    if have_changed():
                        self._follow_rules()
                        break
            else:
                if here.last:
                    self._list(here)
                else:
                    self._stack.pop()

    def _enter(self, here: _Directory, entry: Scanned) -> None:
        """Go on in a directory, if there can be something for the session in it."""
        name = entry.name
        cursor = here.cursor.child(name)
        selection = here.selection.enter(name)
        if selection is None or not (cursor.visible or cursor.passage) or here.reserves(name):
            return
        prefix = here.prefix + name + b"/"
        backend, tag, key, bound = here.backend, here.tag, entry.key, None
        if here.bound is not None and name in here.bound.below:
            try:
                backend, tag, node, bound = self._view.tree.child(
                    backend, tag, here.key, here.bound, name
                )
            except OSError as error:
                self._note(prefix, error)
                return
            key = node.key
        below = _Directory(prefix, cursor, selection, backend, tag, key, bound)
        self._list(below)
        self._stack.append(below)

    def _list(self, directory: _Directory) -> None:
        """Go on to what comes next in a directory."""
        if not directory.cursor.visible:
            directory.entries = self._named(directory)
            return
        try:
            page = directory.backend.scan(directory.key, directory.last)
        except OSError as error:
            self._note(directory.prefix, error)
            page = ()
        directory.entries = iter(page)
        directory.last = page[-1].name if len(page) >= SCAN_PAGE else b""

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

    def _follow_rules(self) -> None:
        """Go by the rules as they are now."""
        view = self._view
        for directory in self._stack:
            directory.cursor = view.rules.root
            bound: Bound | None = view.tree.top
            for name in directory.prefix.split(b"/")[1:-1]:
                directory.cursor = directory.cursor.child(name)
                bound = bound and bound.below.get(name)
            directory.bound = bound


_GONE = (errno.ENOENT, errno.ENOTDIR)


def contents(
    files: Iterable[Visible], max_bytes: int, *, links: bool = False
) -> Iterator[Content]:
    """Yield what is in files, or how large those are that have over `max_bytes` bytes.

    Args:
        files: among other nodes, which are passed over.
        max_bytes: the most to read of one.
        links: a link is a file that holds its target.
    """
    kinds = (Kind.FILE, Kind.SYMLINK) if links else (Kind.FILE,)
    for backend, group in groupby(files, attrgetter("backend")):
        while several := list(islice(group, _READ_AT_ONCE)):
            some = [file for file in several if file.entry.kind in kinds]
            left = [(file.directory, file.entry) for file in some]
            paths = map(_path, some)
            while left:
                read = backend.read_files(left, max_bytes)
                left = left[len(read) :]
                yield from zip(islice(paths, len(read)), read, strict=True)


_path = attrgetter("path")
