"""The facade by path: what every face but the mount calls."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fusefs.contract import explain, paths
from fusefs.contract.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidArgument,
    IsADirectory,
    LinkLoop,
    MountBusy,
    NotADirectory,
    NotFound,
    ReadOnly,
)
from fusefs.contract.explain import Explanation
from fusefs.contract.kinds import Kind
from fusefs.contract.levels import Level
from fusefs.contract.links import resolve_target
from fusefs.contract.listing import ListedEntry, listing_lines
from fusefs.contract.paths import Path, render
from fusefs.contract.sessions import OPERATOR, SessionSpec
from fusefs.session.caps import FRESH_SECONDS, keep_fresh
from fusefs.session.finding import Finder
from fusefs.session.handles import ViewFile
from fusefs.session.marks import mark_of
from fusefs.session.place import Place
from fusefs.session.stat import DIRECTORY_KINDS, Stat
from fusefs.session.view_tree import ViewTree
from fusefs.store.instance import Instance
from fusefs.tree.backend import Owner, publish

_LINKS_FOLLOWED = 40
_PAGE = 1000
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755


class Listed(NamedTuple):
    """An entry of a listing."""

    name: str
    stat: Stat


class Walked(NamedTuple):
    """A node that a walk came to."""

    path: Path
    stat: Stat


class Session(Finder):
    """One session at work. Paths are texts, absolute or relative to the start directory.

    Every method raises `ContractError` for what the session may not do or what is not there,
    and `OSError` only where the store itself or the disk failed.

    Attributes:
        view: the tree as the session sees it.
    """

    def __init__(
        self, instance: Instance, spec: SessionSpec = OPERATOR, *, capped: bool = True
    ) -> None:
        """Begin to work; `capped` as in `fusefs.session.view_reader.ViewReader`.

        Forges are asked for the user's rights where the last answer is old, in 5 seconds at most.
        """
        self._asks = capped and spec is not OPERATOR
        self._ask_at = 0.0
        self._keep_fresh(instance)
        self.view = ViewTree(instance, spec, capped=capped)

    def _keep_fresh(self, instance: Instance) -> None:
        if self._asks and time.monotonic() >= self._ask_at:
            keep_fresh(instance)
            self._ask_at = time.monotonic() + FRESH_SECONDS

    def refresh(self) -> None:
        """Follow changed rules, and once a minute the user's rights on forges."""
        self._keep_fresh(self.view.instance)
        self.view.refresh()

    @property
    def spec(self) -> SessionSpec:
        """The session's definition."""
        return self.view.spec

    def resolve(self, path: str | bytes) -> Path:
        """Return the absolute path that `path` means to this session."""
        return paths.resolve(path, self.spec.directory)

    # Finding.

    def _find(self, path: Path, *, follow: bool = True) -> tuple[Place, Stat]:
        """Walk to `path`, following links as paths of the view (contract section 4)."""
        self.refresh()
        for _ in range(_LINKS_FOLLOWED):
            place, stat, rest = self._walk_to_link(path, follow=follow)
            if rest is None:
                return place, stat
            path = (*self._target(place), *rest)
        raise LinkLoop(render(path))

    def _walk_to_link(self, path: Path, *, follow: bool) -> tuple[Place, Stat, Path | None]:
        """Walk towards `path` up to the first link to be followed.

        Returns:
            Where the walk ended, and what of the path is left below a link; None at the end.
        """
        cursor = self.view.rules.cursor(path)
        if not (cursor.visible or cursor.passage):
            raise cursor.unseen(path)
        place, stat = self.view.root, None
        for depth, name in enumerate(path, start=1):
            try:
                place, stat = self.view.child(place, name)
            except NotFound:
                raise NotFound(render(path)) from None
            if stat.kind == Kind.SYMLINK and (follow or depth < len(path)):
                return place, stat, path[depth:]
        return place, stat if stat is not None else self.view.stat(place), None

    def place(self, path: Path, *, follow: bool = True) -> Place:
        """Return the place of an absolute path."""
        return self._find(path, follow=follow)[0]

    def _target(self, place: Place) -> Path:
        return resolve_target(self.view.read_link(place), place.path)

    def _directory(self, path: Path) -> Place:
        place, stat = self._find(path)
        if stat.kind not in DIRECTORY_KINDS:
            raise NotADirectory(render(path))
        return place

    # Looking.

    def stat(self, path: str | bytes, *, follow: bool = True) -> Stat:
        """Return what the session is told about a path."""
        resolved = self.resolve(path)
        place, stat = self._find(resolved, follow=follow)
        self.view.check_visible(place)
        return stat

    def searched(self, path: str | bytes) -> Path:
        """Return the absolute path of what is to be searched: a visible directory or file."""
        place, _ = self._find(self.resolve(path))
        self.view.check_visible(place)
        return place.path

    def mark(self, path: str | bytes) -> str | None:
        """Return what a visible path of a repository is beyond its kind, if anything."""
        place, _ = self._find(self.resolve(path))
        self.view.check_visible(place)
        return mark_of(self.view, place)

    def exists(self, path: str | bytes) -> bool:
        """Tell whether a path is there for the session."""
        try:
            self.stat(path)
        except (NotFound, NotADirectory):
            return False
        return True

    def list(self, path: str | bytes = ".") -> list[Listed]:
        """Return the visible entries of a directory, by name."""
        return [Listed(os.fsdecode(n), s) for n, _, s in self._entries(self.resolve(path))]

    def _entries(self, path: Path) -> Iterator[tuple[bytes, Place, Stat]]:
        place, stat = self._find(path)
        self.view.check_visible(place)
        if stat.kind not in DIRECTORY_KINDS:
            raise NotADirectory(render(path))
        yield from self._entries_of(place)

    def _entries_of(self, place: Place) -> Iterator[tuple[bytes, Place, Stat]]:
        directory = self.view.open_directory(place)
        try:
            after = b""
            while page := directory.entries(after, _PAGE):
                after = page[-1][0]
                yield from page
        finally:
            directory.close()

    def listing(self, path: str | bytes = ".") -> str:
        """Return a directory's listing as text (contract section 8)."""
        return "\n".join(self.listed(path))

    def listed(self, path: str | bytes = ".") -> Sequence[str]:
        """Return the lines of a directory's listing; a name may hold line breaks itself."""
        resolved = self.resolve(path)
        entries = [
            ListedEntry(os.fsdecode(name), stat.kind.name.lower(), stat.level)
            for name, _, stat in self._entries(resolved)
        ]
        level = self.view.rules.cursor(resolved).level
        return listing_lines(entries, world=self.spec.world, directory_level=level)

    def read(self, path: str | bytes) -> bytes:
        """Return a file's bytes, or a directory's listing."""
        resolved = self.resolve(path)
        place, stat = self._find(resolved)
        self.view.check_visible(place)
        if stat.kind in DIRECTORY_KINDS:
            return os.fsencode(self.listing(path))
        file = self.view.open_file(place, write=False)
        try:
            return b"".join(file.chunks())
        finally:
            file.close()

    def read_link(self, path: str | bytes) -> bytes:
        """Return the target of a symbolic link.

        Raises:
            InvalidArgument: it is none.
        """
        resolved = self.resolve(path)
        place, stat = self._find(resolved, follow=False)
        if stat.kind != Kind.SYMLINK:
            self.view.check_visible(place)
            raise InvalidArgument(f"Not a link: {render(resolved)}")
        return self.view.read_link(place)

    def walk(self, path: str | bytes = ".") -> Iterator[Walked]:
        """Yield everything visible below a directory, in path order, following no link.

        What lies below a hidden directory is found too (contract section 5).
        """
        place, stat = self._find(self.resolve(path))
        self.view.check_visible(place)
        if stat.kind not in DIRECTORY_KINDS:
            raise NotADirectory(render(place.path))
        pending = [self._below(place)]
        while pending:
            found = next(pending[-1], None)
            if found is None:
                pending.pop()
                continue
            child, child_stat = found
            if child_stat.level > Level.NONE:
                yield Walked(child.path, child_stat)
            if child_stat.kind in DIRECTORY_KINDS:
                pending.append(self._below(child))

    def _below(self, place: Place) -> Iterator[tuple[Place, Stat]]:
        """Yield what a walk goes to from `place`, in name order: entries, and passages."""
        through = {name for name, cursor in place.cursor.named() if cursor.passage}
        if not place.cursor.visible:
            through |= {name for name, cursor in place.cursor.named() if cursor.visible}
            yield from self._each(place, sorted(through))
            return
        names = sorted(through, reverse=True)
        for name, child, stat in self._entries_of(place):
            while names and names[-1] < name:
                yield from self._each(place, [names.pop()])
            yield child, stat
        yield from self._each(place, reversed(names))

    def _each(self, place: Place, names: Iterable[bytes]) -> Iterator[tuple[Place, Stat]]:
        for name in names:
            try:
                yield self.view.child(place, name)
            except NotFound:
                continue

    def explain(self, path: str | bytes) -> Explanation:
        """Say in words which rules decide what the session may do at `path`."""
        self.refresh()
        resolved = self.resolve(path)
        mounts = self.view.instance.mounts.all()
        in_repository = any(paths.is_at_or_below(resolved, mount) for mount in mounts)
        return explain.explain(self.view.rules.rules, resolved, in_repository=in_repository)

    # Changing.

    def write(self, path: str | bytes, data: bytes) -> None:
        """Make `data` the content of a file, with missing parents."""
        resolved = self._final(self.resolve(path))
        self._check_new(resolved)
        if not resolved:
            raise IsADirectory(render(resolved))
        parent = self._make_parents(resolved)
        file = self._open_or_create(parent, resolved[-1])
        try:
            file.replace(data)
        finally:
            publish(file.close())

    def _open_or_create(self, parent: Place, name: bytes) -> ViewFile:
        try:
            place, _ = self.view.child(parent, name)
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                return self.view.create_file(parent, name, _FILE_MODE, _owner())[2]
            # Another process made it meanwhile.
            place, _ = self.view.child(parent, name)
        return self.view.open_file(place, write=True)

    def _final(self, path: Path) -> Path:
        """Return the path that a write to `path` goes to, through the link it may be."""
        for _ in range(_LINKS_FOLLOWED):
            if not self.view.rules.cursor(path).visible:
                return path
            try:
                place, stat = self._find(path, follow=False)
            except (NotFound, NotADirectory):
                return path
            if stat.kind != Kind.SYMLINK:
                return place.path
            path = self._target(place)
        raise LinkLoop(render(path))

    def _check_new(self, path: Path) -> None:
        """Refuse to make what the rules do not let this session make, before its parents."""
        self.refresh()
        cursor = self.view.rules.cursor(path)
        if cursor.level == Level.NONE:
            raise AccessDenied(render(path))

    def _make_parents(self, path: Path) -> Place:
        """Return the directory that `path` is in, made if need be."""
        with contextlib.suppress(NotFound, NotADirectory):
            return self._directory(path[:-1])
        place, depth = self.view.root, 0
        for depth in range(1, len(path)):
            try:
                place, stat = self._find(path[:depth])
            except NotFound:
                break
            if stat.kind not in DIRECTORY_KINDS:
                raise NotADirectory(render(path[:depth]))
        else:
            return place
        level = self.view.rules.cursor(path).level
        if level < Level.STAGE and place.cursor.visible:
            raise ReadOnly(render(path))
        for name in path[depth - 1 : -1]:
            place, _ = self.view.create(place, name, Kind.DIR, _DIRECTORY_MODE, _owner())
        return place

    def mkdir(self, path: str | bytes) -> None:
        """Make a directory, with missing parents; one that is there is left as it is."""
        resolved = self.resolve(path)
        self._check_new(resolved)
        if not resolved:
            return
        parent = self._make_parents(resolved)
        try:
            _, stat = self.view.child(parent, resolved[-1])
        except NotFound:
            self.view.create(parent, resolved[-1], Kind.DIR, _DIRECTORY_MODE, _owner())
            return
        if stat.kind == Kind.SYMLINK:
            stat = self._find(resolved)[1]
        if stat.kind not in DIRECTORY_KINDS:
            raise AlreadyExists(render(resolved))

    def symlink(self, path: str | bytes, target: str | bytes) -> None:
        """Make a symbolic link at `path` that holds `target`."""
        resolved = self.resolve(path)
        parent, name = self._new_parent(resolved)
        self.view.create(
            parent, name, Kind.SYMLINK, 0o777, _owner(), target=os.fsencode(target)
        )

    def rm(self, path: str | bytes) -> None:
        """Move a file or a directory with all below it to the trash."""
        resolved = self.resolve(path)
        parent, name = self._parent(resolved)
        self.view.remove(parent, name, directory=None)

    def mv(self, path: str | bytes, target: str | bytes) -> None:
        """Move a node; never over another one."""
        source, resolved = self.resolve(path), self.resolve(target)
        parent, name = self._parent(source)
        self.view.child(parent, name)
        new_parent, new_name = self._new_parent(resolved)
        self.view.rename(parent, name, new_parent, new_name, replace=False)

    def _new_parent(self, path: Path) -> tuple[Place, bytes]:
        """Return the directory and name of a path at which something is to be made."""
        self._check_new(path)
        if not path:
            raise AlreadyExists(render(path))
        return self._directory(path[:-1]), path[-1]

    def _parent(self, path: Path) -> tuple[Place, bytes]:
        """Return the directory and name of `path`; the root is in none."""
        cursor = self.view.rules.cursor(path)
        if not (cursor.visible or cursor.passage):
            raise cursor.unseen(path)
        if not path:
            raise MountBusy(render(path)) if cursor.visible else cursor.unseen(path)
        try:
            return self._directory(path[:-1]), path[-1]
        except NotFound:
            raise NotFound(render(path)) from None

def _owner() -> Owner:
    return Owner(os.geteuid(), os.getegid())
