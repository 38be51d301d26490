"""The objects of a repository, read from its bare clone by object id.

Object ids are raw bytes here. Whatever is read once is kept for a while: trees by their entries,
small blobs by their bytes.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pygit2
from pygit2.enums import FileMode

from fusefs.forge.git_process import run

SMALL_BLOB = 4 << 20
"""Blobs up to this many bytes are read whole, at once."""

_BRANCHES = "refs/remotes/origin/"
_KEPT_BYTES = 32 << 20
_KEPT_TREES = 2_000
_KEPT_SIZES = 200_000


class TreeEntry(NamedTuple):
    """An entry of a tree object.

    Attributes:
        mode: a `pygit2.enums.FileMode` value.
        oid: the object's id.
    """

    mode: int
    oid: bytes

    @property
    def is_tree(self) -> bool:
        """It is a directory."""
        return self.mode == FileMode.TREE


class RepositoryObjects:
    """The object database of one bare clone. For one thread, but for `read_large`."""

    def __init__(self, folder: str) -> None:
        """Open the clone in `folder`.

        Raises:
            OSError: ENOENT where there is none.
        """
        if not Path(folder).is_dir():
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        self.folder = folder
        self.repository = pygit2.Repository(folder)
        self._odb = self.repository.odb
        self._trees: OrderedDict[bytes, dict[bytes, TreeEntry]] = OrderedDict()
        self._sizes: dict[bytes, int] = {}
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()
        self._blob_bytes = 0

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
        known = self._trees.get(tree)
        if known is not None:
            self._trees.move_to_end(tree)
            return known
        found = self.repository.get(pygit2.Oid(raw=tree))
        if not isinstance(found, pygit2.Tree):
            raise _lost(tree)
        entries = dict(
            sorted(
                (entry.raw_name or b"", TreeEntry(int(entry.filemode), entry.id.raw))
                for entry in found
            )
        )
        self._trees[tree] = entries
        if len(self._trees) > _KEPT_TREES:
            self._trees.popitem(last=False)
        return entries

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
            odb = pygit2.Repository(self.folder).odb
        except pygit2.GitError:
            raise _lost(blob) from None  # the mount was taken away
        return _read(odb, blob)

    def write(self, data: bytes) -> bytes:
        """Write a blob and return its id."""
        return self.repository.create_blob(data).raw

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
        output = run(list(arguments), repository=Path(self.folder))
        if output.status != 0:
            raise OSError(None, f"git {arguments[0]}: {output.err.strip()}")
        return os.fsencode(output.out)

    def branch(self, name: str) -> bytes:
        """Return the commit that the remote's branch is at, as far as the clone knows.

        Raises:
            OSError: ENOENT where there is no such branch.
        """
        reference = self.repository.references.get(_BRANCHES + name)
        if reference is None:
            raise OSError(errno.ENOENT, f"the repository has no branch {name}")
        return reference.peel(pygit2.Commit).id.raw

    def is_in_history(self, commit: bytes, tip: bytes) -> bool:
        """Tell whether `commit` is `tip` or one that it is built on; no unknown commit is."""
        ours, theirs = pygit2.Oid(raw=commit), pygit2.Oid(raw=tip)
        if self.repository.get(ours) is None:
            return False
        return ours == theirs or self.repository.descendant_of(theirs, ours)

    def note_branch(self, name: str, commit: bytes) -> None:
        """Note that the remote's branch is at `commit`."""
        self.repository.references.create(_BRANCHES + name, pygit2.Oid(raw=commit), force=True)


def _read(odb: pygit2.Odb, blob: bytes) -> bytes:
    try:
        return odb.read(pygit2.Oid(raw=blob))[1]
    except (KeyError, pygit2.GitError):
        raise _lost(blob) from None


def _lost(oid: bytes) -> OSError:
    return OSError(errno.EIO, f"object {oid.hex()} is not in the repository's clone")
