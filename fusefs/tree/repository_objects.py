"""The objects of a repository, read from its bare clone by object id.

Object ids are raw bytes here. Whatever is read once is kept for a while: trees by their entries,
small blobs by their bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import pygit2
from pygit2.enums import FileMode, ObjectType, Option

from fusefs.forge.git_process import Limits, run
from fusefs.forge.opening import open_repository
from fusefs.forge.ref_locks import is_full, past_locks
from fusefs.tree.repository_errors import UnusableBranch, git_errors
from fusefs.tree.repository_names import is_unusable

SMALL_BLOB = 4 << 20
"""Blobs up to this many bytes are read whole, at once."""

TREE, LINK, SUBMODULE = int(FileMode.TREE), int(FileMode.LINK), int(FileMode.COMMIT)
BLOB, PROGRAM = int(FileMode.BLOB), int(FileMode.BLOB_EXECUTABLE)

_BRANCHES = "refs/remotes/origin/"
_PINS = "refs/fusefs/work/"
_KEPT_BYTES = 32 << 20
_KEPT_TREES = 2_000
_KEPT_SIZES = 200_000


class TreeEntry(NamedTuple):
    """An entry of a tree object.

    Attributes:
        mode: one of the five that git knows.
        oid: the object's id.
    """

    mode: int
    oid: bytes

    @property
    def is_tree(self) -> bool:
        """It is a directory."""
        return self.mode == TREE


class _Tree(NamedTuple):
    """A tree object: entries by name in byte order, their names, and those none can be shown of."""

    entries: dict[bytes, TreeEntry]
    names: list[bytes]
    unusable: dict[bytes, TreeEntry]


class RepositoryObjects:
    """The object database of one bare clone. For one thread, but for `read_large`."""

    def __init__(self, folder: str) -> None:
        """Open the clone in `folder`.

        Raises:
            OSError: ENOENT where there is none, EIO where it is damaged.
        """
        if not Path(folder).is_dir():
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        self.folder = folder
        # What a working copy refers to must survive the loss of power, as the reference does.
        pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)
        with git_errors("the repository's clone is damaged"):
            self.repository = open_repository(folder, ours=True)
            self._odb = self.repository.odb
        self._trees: OrderedDict[bytes, _Tree] = OrderedDict()
        self._sizes: dict[bytes, int] = {}
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()
        self._blob_bytes = 0

    @git_errors()
    def commit(self, oid: bytes) -> pygit2.Commit:
        """Return a commit.

        Raises:
            OSError: EIO where the clone does not have it.
        """
        found = self.repository.get(pygit2.Oid(raw=oid))
        if not isinstance(found, pygit2.Commit):
            raise _lost(oid)
        return found

    def tree_of(self, commit: bytes) -> bytes:
        """Return the tree of a commit.

        Raises:
            OSError: EIO where the clone does not have the commit.
        """
        return self.commit(commit).tree_id.raw

    def entries(self, tree: bytes) -> dict[bytes, TreeEntry]:
        """Return the entries of a tree, in the order of their names' bytes.

        Raises:
            OSError: EIO where the clone does not have the tree.
        """
        return self._tree(tree).entries

    def entries_after(self, tree: bytes, after: bytes) -> Iterator[tuple[bytes, TreeEntry]]:
        """Yield the entries of a tree whose names come after the name `after`.

        Raises:
            OSError: EIO where the clone does not have the tree.
        """
        found = self._tree(tree)
        for at in range(bisect_right(found.names, after), len(found.names)):
            yield found.names[at], found.entries[found.names[at]]

    def all_entries(self, tree: bytes) -> dict[bytes, TreeEntry]:
        """Return the entries of a tree with those that no directory can have.

        Raises:
            OSError: EIO where the clone does not have the tree.
        """
        found = self._tree(tree)
        return {**found.entries, **found.unusable}

    def _tree(self, oid: bytes) -> _Tree:
        known = self._trees.get(oid)
        if known is not None:
            self._trees.move_to_end(oid)
            return known
        try:
            kind, data = self._odb.read(pygit2.Oid(raw=oid))
        except (KeyError, pygit2.GitError):
            raise _lost(oid) from None
        if kind != ObjectType.TREE:
            raise _lost(oid)
        try:
            tree = self._trees[oid] = _parse(data)
        except ValueError:
            raise _lost(oid) from None
        if len(self._trees) > _KEPT_TREES:
            self._trees.popitem(last=False)
        return tree

    def size(self, blob: bytes) -> int:
        """Return a blob's size in bytes, without reading it.

        Raises:
            OSError: EIO where the clone does not have the blob.
        """
        size = self._sizes.get(blob)
        if size is None:
            try:
                size = self._odb.read_header(pygit2.Oid(raw=blob))[1]
            except (KeyError, pygit2.GitError):
                raise _lost(blob) from None
            if len(self._sizes) >= _KEPT_SIZES:
                self._sizes.clear()
            self._sizes[blob] = size
        return size

    @git_errors()
    def has(self, entry: TreeEntry) -> bool:
        """Tell whether the clone has what an entry names; a submodule is not its to have."""
        return entry.mode == SUBMODULE or pygit2.Oid(raw=entry.oid) in self._odb

    def read(self, blob: bytes) -> bytes:
        """Return a blob's bytes, which are kept for the next one who asks.

        Raises:
            OSError: EIO where the clone does not have the blob.
        """
        data = self._blobs.get(blob)
        if data is not None:
            self._blobs.move_to_end(blob)
            return data
        data = _read(self._odb, blob)
        if len(data) <= SMALL_BLOB:
            self._blobs[blob] = data
            self._blob_bytes += len(data)
            while self._blob_bytes > _KEPT_BYTES:
                self._blob_bytes -= len(self._blobs.popitem(last=False)[1])
        return data

    def read_large(self, blob: bytes) -> bytes:
        """Return a blob's bytes. May take long; in any thread.

        Raises:
            OSError: EIO where the clone does not have the blob.
        """
        try:
            odb = open_repository(self.folder, ours=True).odb
        except pygit2.GitError:
            raise _lost(blob) from None  # the mount was taken away
        return _read(odb, blob)

    @git_errors()
    def merge_base(self, one: bytes, other: bytes) -> bytes | None:
        """Return the newest commit that is in the history of two, None where there is none."""
        found: pygit2.Oid | None = self.repository.merge_base(
            pygit2.Oid(raw=one), pygit2.Oid(raw=other)
        )
        return None if found is None else found.raw

    @git_errors()
    def write(self, data: bytes) -> bytes:
        """Write a blob and return its id."""
        return self.repository.create_blob(data).raw

    @git_errors()
    def write_commit(
        self, tree: bytes, parents: Sequence[bytes], message: str, author: tuple[str, str]
    ) -> bytes:
        """Write a commit that no branch has yet, and return its id.

        Args:
            tree: its tree.
            parents: its parents.
            message: what it says.
            author: name and address of who made it, now.
        """
        who = pygit2.Signature(*author)
        above = [pygit2.Oid(raw=parent) for parent in parents]
        return self.repository.create_commit(
            None, who, who, message, pygit2.Oid(raw=tree), above
        ).raw

    def patch(
        self,
        old: bytes,
        new: bytes,
        *,
        full_ids: bool = False,
        binary: bool = False,
        colour: bool = False,
    ) -> bytes:
        """Return how two trees differ, as git-diff(1) shows it.

        By git itself: libgit2's patches lose bytes that are not UTF-8.

        Args:
            old: a tree.
            new: another one.
            full_ids: show object ids whole: how far git shortens them tells of other objects.
            binary: with the bytes of binary files.
            colour: with a terminal's colours.

        Raises:
            ForgeError: git is not there, or takes too long.
        """
        options = ["--full-index"] * full_ids + ["--binary"] * binary
        return self.git(
            "diff-tree", "-r", "-p", "-M", "--no-ext-diff", "--no-textconv",
            f"--color={'always' if colour else 'never'}", *options, old.hex(), new.hex(),
        )  # fmt: skip

    def git(self, *arguments: str) -> bytes:
        """Return what a git command says that only reads.

        Raises:
            OSError: it failed.
            ForgeError: git is not there, or takes too long.
        """
        output = run(
            list(arguments), repository=Path(self.folder), limits=Limits(idle=Limits.total)
        )
        if output.status != 0:
            raise OSError(None, f"git {arguments[0]}: {output.err.strip()}")
        return os.fsencode(output.out)

    @git_errors()
    def pin(self, working_copy: int, commit: bytes) -> None:
        """Keep a commit from git-gc(1), whatever becomes of the branches, for a working copy.

        Args:
            working_copy: id of its top.
            commit: the commit.

        Raises:
            OSError: among others ENOSPC, at once.
        """
        try:
            self.set_ref(f"{_PINS}{working_copy:x}/{commit.hex()}", commit)
        except OSError as error:
            if is_full(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise

    def pins(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is pinned: working copies and commits."""
        with git_errors():
            names = list(self.repository.references)
        for name in names:
            if name.startswith(_PINS):
                top, _, commit = name.removeprefix(_PINS).partition("/")
                yield int(top, 16), bytes.fromhex(commit)

    @git_errors()
    def unpin(self, working_copy: int, commit: bytes) -> None:
        """Let go of a commit."""
        self.drop_ref(f"{_PINS}{working_copy:x}/{commit.hex()}")

    def set_ref(self, name: str, oid: bytes) -> None:
        """Have a ref of the clone's own point at an object, past locks of dead processes.

        Raises:
            OSError: it cannot be written.
        """
        create, target = self.repository.references.create, pygit2.Oid(raw=oid)
        past_locks(Path(self.folder), lambda: create(name, target, force=True), OSError)

    def drop_ref(self, name: str) -> None:
        """Remove a ref of the clone's own, if it is there, past locks of dead processes.

        Raises:
            OSError: it cannot be removed.
        """
        references = self.repository.references

        def delete() -> None:
            if name in references:
                references.delete(name)

        past_locks(Path(self.folder), delete, OSError)

    @git_errors()
    def branch(self, name: str) -> bytes:
        """Return the commit that the remote's branch is at, as far as the clone knows.

        Raises:
            OSError: ENOENT where there is no such branch; `UnusableBranch`.
        """
        reference = self.repository.references.get(_BRANCHES + name)
        if reference is None:
            raise OSError(errno.ENOENT, f"the repository has no branch {name} any more")
        try:
            return reference.peel(pygit2.Commit).id.raw
        # It is at a file or a directory, or at what git takes for a commit and libgit2 does not.
        except (pygit2.InvalidSpecError, pygit2.InvalidError):
            raise UnusableBranch(name) from None

    @git_errors()
    def is_in_history(self, commit: bytes, tip: bytes) -> bool:
        """Tell whether `commit` is `tip` or one that it is built on; no unknown commit is."""
        ours, theirs = pygit2.Oid(raw=commit), pygit2.Oid(raw=tip)
        if self.repository.get(ours) is None:
            return False
        return ours == theirs or self.repository.descendant_of(theirs, ours)

    @git_errors()
    def count_beyond(self, base: bytes, tip: bytes) -> int:
        """Return how many commits lead to `tip` and not to `base`."""
        return self.repository.ahead_behind(pygit2.Oid(raw=tip), pygit2.Oid(raw=base))[0]

    def note_branch(self, name: str, commit: bytes) -> None:
        """Note that the remote's branch is at `commit`, unless something newer is noted.

        If that cannot be done now, the next fetch does it.
        """
        references, full_name = self.repository.references, _BRANCHES + name
        with contextlib.suppress(pygit2.GitError, OSError):  # others do, or one who was killed
            known = references.get(full_name)
            if known is None:
                references.create(full_name, pygit2.Oid(raw=commit))
            elif not self.is_in_history(commit, known.peel(pygit2.Commit).id.raw):
                known.set_target(pygit2.Oid(raw=commit))


def _parse(data: bytes) -> _Tree:
    """Parse a tree object: ``mode name NUL id``, again and again.

    By hand: making pygit2's objects takes ten times as long, and nobody is answered meanwhile.

    Raises:
        ValueError: it is none.
    """
    found = _ENTRY.findall(data)
    if sum(map(len, chain.from_iterable(found))) + 2 * len(found) != len(data):
        raise ValueError("a tree object is damaged")
    found.sort(key=itemgetter(1))
    modes, names, oids = zip(*found, strict=True) if found else ((), (), ())
    entries = dict(zip(names, map(TreeEntry, map(_mode, modes), oids), strict=True))
    odd = [name for name in entries if not _plain(name)]
    unusable = {
        name: entries.pop(name)
        for name in odd
        if is_unusable(name, link=entries[name].mode == LINK)
    }
    return _Tree(entries, list(entries), unusable)


_ENTRY = re.compile(rb"([0-7]+) ([^\0]*)\0(.{20})", re.DOTALL)
_plain = re.compile(rb"[A-FH-Za-fh-z0-9_][^/\\]{0,200}", re.DOTALL).fullmatch
"""Nearly all names; they can be in every directory."""


@lru_cache(maxsize=64)
def _mode(text: bytes) -> int:
    """Return the mode that git takes a mode of a tree object for (canon_mode of git)."""
    mode = int(text, 8)
    if stat.S_ISREG(mode):
        return PROGRAM if mode & 0o100 else BLOB
    kind = stat.S_IFMT(mode)
    return {stat.S_IFLNK: LINK, stat.S_IFDIR: TREE}.get(kind, SUBMODULE)


def _read(odb: pygit2.Odb, blob: bytes) -> bytes:
    try:
        return odb.read(pygit2.Oid(raw=blob))[1]
    except (KeyError, pygit2.GitError):
        raise _lost(blob) from None


def _lost(oid: bytes) -> OSError:
    return OSError(errno.EIO, f"object {oid.hex()} is not in the repository's clone")
