"""The texts of files that are searched: put together, looked through ahead, and accounted for."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice

from fusefs.contract.paths import decode
from fusefs.session.line_patterns import LinePattern
from fusefs.session.text_batches import Batch, FileMatches, to_text
from fusefs.session.view_reader import ViewReader
from fusefs.session.visible_files import Content, RuleWatch, Unread
from fusefs.tree.backend import Read

_FIRST_BYTES, _MOST_BYTES = 64 << 10, 512 << 10
"""Bytes of text that are searched at a time: little at first, so that the first match is soon
there, then more, to be fast."""
_MOST_FILES = 1000
_MOST_AHEAD = 64
_MOST_THREADS = 4


class Texts:
    """Files to search, in path order.

    Attributes:
        searched: how many were, so far.
    """

    def __init__(
        self,
        view: ViewReader,
        contents: Iterable[Content],
        max_bytes: int,
        unlisted: Iterable[Unread] = (),
    ) -> None:
        """Begin with the first.

        Args:
            view: of the session.
            contents: what is in the files.
            max_bytes: what is larger was not read.
            unlisted: directories that could not be listed, growing.
        """
        self.searched = 0
        self._view = view
        self._contents = contents
        self._max_bytes = max_bytes
        self._unread: list[Unread] = []
        self._unlisted = unlisted

    @property
    def unread(self) -> list[Unread]:
        """What could not be searched, so far."""
        return [*self._unread, *self._unlisted]

    def matches(self, pattern: LinePattern) -> Generator[tuple[str, FileMatches], None, None]:
        """Yield path and matches of the files that have some."""
        rules, changed = RuleWatch(self._view), False
        with closing(_looked_through(self._groups(pattern), pattern)) as groups:
            for group in groups:
                for file in group.matches():
                    path = group.paths[file.number]
                    self._account(group, file.number + 1)
                    # What was read before they changed may not be visible any more.
                    changed = rules.have_changed() or changed
                    if not changed or self._is_visible(path):
                        yield decode(path), file
                self._account(group, len(group.paths))

    def _account(self, group: _Group, count: int) -> None:
        """Count the first files of a group as searched, and what was left out among them."""
        self.searched += count - group.accounted
        group.accounted = count
        at_end = count == len(group.paths)
        while group.unread and (at_end or group.unread[0][0] < count):
            self._unread.append(group.unread.popleft()[1])

    def _is_visible(self, path: bytes) -> bool:
        return self._view.rules.cursor(tuple(path.split(b"/")[1:])).visible

    def _groups(self, pattern: LinePattern) -> Generator[_Group, None, None]:
        group, wanted = _Group(), _FIRST_BYTES
        keep_cr = pattern.names_cr
        for path, read in self._contents:
            text = to_text(read, keep_cr=keep_cr) if isinstance(read, bytes) else None
            if text is not None:
                group.paths.append(path)
                group.texts.append(text)
                group.bytes += len(text)
                if group.bytes < wanted and len(group.paths) < _MOST_FILES:
                    continue
                yield group
                group, wanted = _Group(), min(2 * wanted, _MOST_BYTES)
            elif not isinstance(read, FileNotFoundError):
                group.unread.append((len(group.paths), Unread(decode(path), self._why(read))))
        yield group

    def _why(self, read: Read) -> str:
        if isinstance(read, bytes):
            return "not text"
        if isinstance(read, int):
            return f"too large: {read} bytes; the limit is {self._max_bytes}"
        return read.strerror or str(read)


class _Group:
    """Some files.

    Attributes:
        paths, texts: of those that are searched.
        bytes: of their texts together.
        unread: what is left out, each with the number of files before it.
        accounted: how many of the files are counted.
    """

    def __init__(self) -> None:
        self.paths: list[bytes] = []
        self.texts: list[bytes] = []
        self.bytes = 0
        self.unread: deque[tuple[int, Unread]] = deque()
        self.accounted = 0
        self._batch: Batch | None = None

    def search(self, pattern: LinePattern, most: int) -> None:
        """Look for the first matches, `most` at most. In any thread."""
        if self.texts:
            self._batch = Batch(self.texts, pattern)
            self.texts.clear()
            self._batch.search(most)

    def matches(self) -> Iterator[FileMatches]:
        """Yield the files that have a match, once it is searched."""
        return self._batch.matches() if self._batch is not None else iter(())


def _looked_through(
    groups: Generator[_Group, None, None], pattern: LinePattern
) -> Generator[_Group, None, None]:
    """Yield groups in which the first matches were looked for, by threads where that takes long.

    The engine needs no interpreter lock, and everything else does: so threads do this, and where
    matches are so dense that the engine is the least of it, leave them to whoever takes them.
    """
    for group in groups if pattern.is_literal else islice(groups, 1):
        group.search(pattern, 1)
        yield group
    threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS)
    waiting: deque[tuple[_Group, Future[None]]] = deque()
    with closing(_Pool(threads)) as pool:
        for group in groups:
            waiting.append((group, pool.submit(group.search, pattern, _MOST_AHEAD)))
            if len(waiting) > threads:
                yield _done(*waiting.popleft())
        while waiting:
            yield _done(*waiting.popleft())


def _done(group: _Group, search: Future[None]) -> _Group:
    search.result()
    return group


class _Pool(ThreadPoolExecutor):
    """Threads that end with whoever they work for."""

    def close(self) -> None:
        """Wait for what is being done, and forget what is not begun."""
        self.shutdown(cancel_futures=True)
