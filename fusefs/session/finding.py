"""Finding files by name and by text: what every face asks a session for (contract section 9)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fusefs.contract.errors import InvalidArgument, NotADirectory, NotText
from fusefs.contract.globs import Selection, compile_glob, compile_include
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path, decode, render
from fusefs.contract.sessions import World
from fusefs.session.place import Place
from fusefs.session.stat import DIRECTORY_KINDS, Stat
from fusefs.session.view_tree import ViewTree
from fusefs.session.visible_files import Content, Unread, VisibleFiles, contents
from fusefs.tree.backend import Read, join_up_to, publish

if TYPE_CHECKING:
    from fusefs.session.grepping import Grep

MAX_FILE_BYTES = 64 << 20
"""Files larger than this are not searched, unless more is asked for."""


class Globbed(Iterator[str]):
    """The paths that a pattern names, in path order, while they are found.

    Attributes:
        cut: there are more, which the limit leaves out.
    """

    def __init__(self, files: VisibleFiles, limit: int | None) -> None:
        """Give at most `limit` of `files`."""
        self.cut = False
        self._files = files
        self._found = iter(files)
        self._left = limit

    def __next__(self) -> str:
        if self.cut:
            raise StopIteration
        file = next(self._found)
        if self._left is not None:
            self.cut = self._left == 0
            if self.cut:
                raise StopIteration
            self._left -= 1
        return decode(file.path) + "/" * (file.entry.kind in DIRECTORY_KINDS)

    @property
    def unread(self) -> list[Unread]:
        """Directories that could not be listed, so far."""
        return self._files.unread

    @property
    def truncated(self) -> bool:
        """Something was left out: by the limit, or since it could not be listed."""
        return self.cut or bool(self.unread)


class Finder(ABC):
    """The operations of a session that find files.

    Attributes:
        view: the tree as the session sees it.
    """

    view: ViewTree

    @abstractmethod
    def resolve(self, path: str | bytes) -> Path:
        """Return the absolute path that `path` means to this session."""

    @abstractmethod
    def _find(self, path: Path) -> tuple[Place, Stat]:
        """Walk to `path`, following links as paths of the view."""

    def glob(
        self, pattern: str | bytes, path: str | bytes = ".", *, limit: int | None = None
    ) -> Globbed:
        """Find the visible files that a pattern names, in path order.

        Whatever is no directory is a file here; links are not followed. A pattern that ends with
        ``/`` names directories, which are given with a ``/`` as well.

        Args:
            pattern: see `fusefs.contract.globs`; relative to `path`, or absolute.
            path: a directory.
            limit: how many paths to give, None for all.
        """
        compiled = compile_glob(pattern)
        _check_number("limit", limit, least=1)
        top = self._top(compiled.top if compiled.absolute else self.resolve(path))
        if top[1].kind not in DIRECTORY_KINDS:
            raise NotADirectory(render(top[0].path))
        return Globbed(VisibleFiles(self.view, top[0], compiled.selection), limit)

    def grep(
        self,
        pattern: str,
        path: str | bytes = ".",
        *,
        literal: bool = False,
        ignore_case: bool = False,
        include: str | Sequence[str] = (),
        before: int = 0,
        after: int = 0,
        limit: int | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> Grep:
        """Search visible files for lines that match.

        Args:
            pattern: a regular expression of RE2, matched within a line.
            path: a directory, in which links are not followed; or a file.
            literal: `pattern` is the text to look for.
            ignore_case: upper and lower case are alike.
            include: which files to search, as ripgrep's ``--glob`` (see
                `fusefs.contract.globs.compile_include`); `path` is searched if it is a file.
            before: lines to show before each match.
            after: lines to show after it.
            limit: how many lines that match to find (or files, or counts), None for all.
            max_file_bytes: files that are larger are left out, and named.
        """
        # Here, since most uses of a session do without.
        from fusefs.session.grepping import Grep  # noqa: PLC0415
        from fusefs.session.line_patterns import LinePattern  # noqa: PLC0415
        from fusefs.session.texts import Texts  # noqa: PLC0415

        compiled = LinePattern(pattern, literal=literal, ignore_case=ignore_case)
        selection = compile_include([include] if isinstance(include, str) else include)
        for name, number, least in (
            ("before", before, 0), ("after", after, 0), ("limit", limit, 1),
            ("max_file_bytes", max_file_bytes, 0),
        ):  # fmt: skip
            _check_number(name, number, least=least)
        place, stat = self._top(self.resolve(path))
        found, unlisted = self._contents(place, stat, selection, max_file_bytes)
        texts = Texts(self.view, found, max_file_bytes, unlisted)
        return Grep(texts, compiled, before=before, after=after, limit=limit)

    def _top(self, path: Path) -> tuple[Place, Stat]:
        place, stat = self._find(path)
        self.view.check_visible(place)
        return place, stat

    def _contents(
        self, place: Place, stat: Stat, selection: Selection, max_bytes: int
    ) -> tuple[Iterable[Content], Sequence[Unread]]:
        """Return what is in the files at or below `place`, and a growing list of directories that
        cannot be listed."""
        if stat.kind in DIRECTORY_KINDS:
            files = VisibleFiles(self.view, place, selection)
            links = self.view.world == World.CHAT
            return contents(files, max_bytes, links=links), files.unread
        if stat.kind != Kind.FILE:
            raise NotText(render(place.path))
        return [(b"/" + b"/".join(place.path), self._read(place, max_bytes))], ()

    def _read(self, place: Place, max_bytes: int) -> Read:
        file = self.view.open_file(place, write=False)
        try:
            size = file.stat().size
            return size if size > max_bytes else join_up_to(max_bytes, file.chunks())
        except OSError as error:
            return error
        finally:
            publish(file.close())


def _check_number(name: str, number: int | None, *, least: int) -> None:
    if number is not None and number < least:
        raise InvalidArgument(f"Wrong {name}: {number} is less than {least}.")
