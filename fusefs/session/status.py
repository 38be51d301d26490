"""What is staged, as `git status --short` says it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fusefs.contract.paths import Path, is_at_or_below
from fusefs.contract.view import Cursor
from fusefs.session.conflicts import unmerged as unmerged_of
from fusefs.session.repository import Repository
from fusefs.tree.repository_changes import Changed
from fusefs.tree.repository_history import VisibleHistory
from fusefs.tree.repository_merge import entry_at
from fusefs.tree.repository_objects import TreeEntry

_TYPE_BITS = 0o170000
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


class Line(NamedTuple):
    """One line of a status.

    Attributes:
        code: two letters, as git-status(1) has them.
        path: relative to the repository.
        is_directory: it stands for all that is new in a directory.
    """

    code: str
    path: Path
    is_directory: bool = False

    @property
    def is_conflict(self) -> bool:
        """Somebody is to decide what stands there."""
        return "U" in self.code or self.code == "AA"

    def __str__(self) -> str:
        return f"{self.code} {quoted(b'/'.join(self.path) + b'/' * self.is_directory)}"


def status(repository: Repository, below: Path = ()) -> list[Line]:
    """Return what the session has staged at or below a path, as far as it sees it.

    A new file stands under the topmost directory in which the base has nothing that the session
    sees; whatever else the base has there makes no difference. What is in conflict stands for
    itself.
    """
    changes = repository.changes([below])
    unmerged = {p: code for p, code in unmerged_of(repository).items() if is_at_or_below(p, below)}
    known = {item.path: Line(_code(item), item.path) for item in changes if item.old is not None}
    known |= {path: Line(code, path) for path, code in unmerged.items()}
    new = [item.path for item in changes if item.old is None and item.path not in unmerged]
    return [known[path] for path in sorted(known)] + _untracked(repository, new, below)


class Behind(NamedTuple):
    """The branch of a working copy has moved on from its base, as far as was fetched.

    Attributes:
        commits: how many commits it has that the base is not built on; None for a session that
            sees a part of the repository, and to which it says that something it sees is changed.
    """

    commits: int | None


def behind(repository: Repository) -> Behind | None:
    """Tell whether a sync would bring something, without asking the remote.

    Returns:
        None if not, or where that cannot be told, as the sync will say: the branch is gone, or has
        commits that cannot be read.
    """
    objects, base = repository.tree.objects, repository.tree.copy.base
    try:
        tip = objects.branch(repository.branch)
        if objects.is_in_history(tip, base):
            return None
        if repository.is_whole:
            return Behind(objects.count_beyond(base, tip))
        history = VisibleHistory(objects, repository.session.view.rules.cursor(repository.mount))
        return None if history.visible_part(tip) == history.visible_part(base) else Behind(None)
    except OSError:
        return None


def _code(changed: Changed) -> str:
    assert changed.old is not None
    if changed.new is None:
        return " D"
    same_type = (changed.old.mode ^ changed.new.mode) & _TYPE_BITS == 0
    return " M" if same_type else " T"


def _untracked(repository: Repository, paths: Iterable[Path], below: Path) -> list[Line]:
    tracked = Tracked(repository)
    lines: dict[Path, Line] = {}
    for path in paths:
        top = tracked.untracked_top(path, below)
        lines.setdefault(top, Line("??", top, is_directory=top != path))
    return sorted(lines.values(), key=lambda line: b"/".join(line.path) + b"/" * line.is_directory)


class Tracked:
    """Tells in which directories the base has something that the session sees."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._objects = repository.tree.objects
        self._known: dict[Path, bool] = {}

    def untracked_top(self, path: Path, below: Path) -> Path:
        """Return the topmost visible directory above `path` that has nothing tracked, or it."""
        top = path
        for depth in range(len(path) - 1, 0, -1):
            above = path[:depth]
            if not is_at_or_below(above, below):
                break
            if self._repository.hides(above) or self.has_any(above):
                break
            top = above
        return top

    def has_any(self, path: Path) -> bool:
        """Tell it of one directory."""
        if path not in self._known:
            entry = entry_at(self._objects, self._repository.base, path)
            cursor = self._repository.session.view.rules.cursor((*self._repository.mount, *path))
            self._known[path] = entry is not None and self._is_seen(entry, cursor)
        return self._known[path]

    def _is_seen(self, entry: TreeEntry, cursor: Cursor) -> bool:
        if not entry.is_tree or cursor.uniform:
            return cursor.visible
        entries = self._objects.entries(entry.oid)
        return any(self._is_seen(below, cursor.child(name)) for name, below in entries.items())


def quoted(name: bytes) -> str:
    """Return a path as git quotes it: in double quotes where it has other than plain characters."""
    plain = all(32 < byte < 127 and byte not in {34, 92} for byte in name)
    if plain:
        return name.decode("ascii")
    text = "".join(
        f"\\{_ESCAPES[byte]}" if byte in _ESCAPES
        else chr(byte) if 32 <= byte < 127
        else f"\\{byte:03o}"
        for byte in name
    )  # fmt: skip
    return f'"{text}"'
