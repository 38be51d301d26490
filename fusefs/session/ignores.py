"""What a repository's ``.gitignore`` files leave out, as far as the session sees them."""

from __future__ import annotations

import codecs
import os

import pathspec

from fusefs.contract.errors import ContractError
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path
from fusefs.session.session import Session

_NAME = b".gitignore"
_MOST_BYTES = 1 << 20


class Ignores:
    """Tells which new files belong to nobody (gitignore(5)). Hidden files say nothing."""

    def __init__(self, session: Session, mount: Path) -> None:
        self._session = session
        self._mount = mount
        self._specs: dict[Path, pathspec.GitIgnoreSpec | None] = {}
        self._ignored: dict[Path, bool] = {}

    def __contains__(self, path: Path) -> bool:
        """Tell whether `path`, relative to the repository, is ignored, or a directory above."""
        return any(
            self._is_ignored(path[:depth], is_directory=depth < len(path))
            for depth in range(1, len(path) + 1)
        )

    def _is_ignored(self, path: Path, *, is_directory: bool) -> bool:
        if not is_directory:
            return self._match(path, is_directory=False)
        if path not in self._ignored:
            self._ignored[path] = self._match(path, is_directory=True)
        return self._ignored[path]

    def _match(self, path: Path, *, is_directory: bool) -> bool:
        """Ask the nearest file first: the last pattern that matches decides."""
        for depth in reversed(range(len(path))):
            spec = self._spec(path[:depth])
            if spec is None:
                continue
            name = os.fsdecode(b"/".join(path[depth:])) + ("/" if is_directory else "")
            include = spec.check_file(name).include
            if include is not None:
                return include
        return False

    def _spec(self, directory: Path) -> pathspec.GitIgnoreSpec | None:
        if directory not in self._specs:
            self._specs[directory] = self._read(directory)
        return self._specs[directory]

    def _read(self, directory: Path) -> pathspec.GitIgnoreSpec | None:
        path = b"/" + b"/".join((*self._mount, *directory, _NAME))
        try:
            stat = self._session.stat(path, follow=False)
            if stat.kind != Kind.FILE or stat.size > _MOST_BYTES:
                return None  # as git: a link is not followed
            data = self._session.read(path)
        except ContractError:
            return None
        lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
        return pathspec.GitIgnoreSpec.from_lines(
            os.fsdecode(line.removesuffix(b"\r")) for line in lines
        )
