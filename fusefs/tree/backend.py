"""The seam between the tree and the places where nodes really live.

A backend stores nodes and answers for them; it knows nothing of sessions, views or levels
(`fusefs.session` decides, backends obey). Failures that a caller can bring about are raised as
`OSError` with the errno a local file system would give (ENOENT, EEXIST, ENOTEMPTY, ENOSPC,
EXDEV ...); the session turns them into the contract's errors, which name paths.

Everything here is synchronous and called from one thread, but for the methods marked *may
block*: those can take longer than some hundred microseconds, so the daemon runs them in a
worker thread, and they touch nothing but files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fusefs.contract.kinds import Kind


class Node(NamedTuple):
    """What is known of one node at one moment; times are nanoseconds since the epoch.

    Attributes:
        key: the node's identity inside its backend; what the backend's methods take. It stays
            the same through renames, and is never used again for another node.
        mode: permission bits (``0o7777`` at most), without the file type.
        size: bytes; for a link, the length of its target; 0 for a directory.
        sha256: hash of the content, or None where it is not known without reading it.
        linked: when the entry got its present name and place (0: not known).
        xattrs: the node has extended attributes.
        object_id: id of the content in its repository, where that alone has it.
    """

    key: Hashable
    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    atime: int
    mtime: int
    ctime: int
    sha256: bytes | None = None
    linked: int = 0
    xattrs: bool = False
    object_id: bytes | None = None


class Entry(NamedTuple):
    """A directory entry with its node, as a listing yields it."""

    name: bytes
    node: Node


class Scanned(NamedTuple):
    """A directory entry as a search comes to it: only what is known without looking further.

    Attributes:
        key: as `Node.key`, for a directory; for others it may be None.
        size: bytes of a file, or None.
        content: what tells a file's bytes from all others: their SHA-256 (32 bytes) or the id of
            an object of the repository (20 bytes); None where only reading them would tell.
    """

    name: bytes
    kind: Kind
    key: Hashable
    size: int | None
    content: bytes | None


Found = tuple[Hashable, Scanned]
"""The key of a directory, and an entry of it."""

Read = bytes | int | OSError
"""All of a file's bytes; or how many they are, where that is over a limit; or why it cannot be
read: among others FileNotFoundError."""


SCAN_PAGE = 1000
"""Entries that `Backend.scan` returns, at least, where there are so many."""
READ_AT_ONCE = 2 << 20
"""Bytes after which `Backend.read_files` stops."""


def join_up_to(limit: int, pieces: Iterable[bytes]) -> bytes | int:
    """Return pieces of a file put together; how many bytes they are, once that is over `limit`."""
    found, total = [], 0
    for piece in pieces:
        found.append(piece)
        total += len(piece)
        if total > limit:
            return total
    return b"".join(found)


def read_some(reads: Iterator[Read]) -> list[Read]:
    """Return the first of `reads`, and more until `READ_AT_ONCE` bytes are read."""
    found, total = [], 0
    for read in reads:
        found.append(read)
        total += len(read) if isinstance(read, bytes) else 0
        if total > READ_AT_ONCE:
            break
    return found


class Owner(NamedTuple):
    """Who a new node belongs to."""

    uid: int
    gid: int


class Actor(NamedTuple):
    """On whose behalf a change is made, for the journal and the trash.

    Attributes:
        session: the session's name, or ``-`` for the person at the CLI.
    """

    session: str


PERSON = Actor("-")
"""The person at the CLI."""


@dataclass(frozen=True, slots=True)
class Change:
    """New attributes of a node; None leaves one as it is. Times in nanoseconds."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    atime: int | None = None
    mtime: int | None = None
    ctime: int | None = None


class Publication(Protocol):
    """What is left to do after the last close of a large changed file."""

    def prepare(self) -> None:
        """Do the long part (hashing). May block; touches only files; safe in any thread."""
        ...

    def finish(self) -> bool:
        """Do the short part, on the backend's own thread. Harmless if others were faster.

        Returns:
            Whether that is all; if not, both parts are to be done once more.
        """
        ...

    def is_wanted(self) -> bool:
        """Tell whether anybody has a use for it, on the backend's own thread."""
        ...

    def give_up(self) -> None:
        """Let both parts end at once with nothing done; no byte is lost. From any thread."""
        ...


def publish(publication: Publication | None) -> None:
    """Do all that the last close of a file left to do, if anything. May block."""
    while publication is not None:
        publication.prepare()
        if publication.finish():
            return


class File(Protocol):
    """An open regular file. All handles of a node see the same bytes at once."""

    def node(self) -> Node:
        """Return the node as it is now, also after it was unlinked."""
        ...

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Like `read`, but None where the bytes would have to be waited for."""
        ...

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at `offset`, fewer only at the end. May block, in any
        thread, once `read_nowait` said None."""
        ...

    def pending_copy(self) -> Callable[[], None] | None:
        """Return the work to be done before the next write or truncation, if there is any that
        takes long (copying the base of a large file). It may run in any thread."""
        ...

    def write(self, offset: int, data: bytes, *, append: bool = False) -> int:
        """Write all of `data` at `offset` (`append`: at the end as it is now)."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (sparsely) to `size` bytes."""
        ...

    def replace(self, data: bytes) -> None:
        """Make `data` the whole content, for small content in one step."""
        ...

    def flush(self) -> None:
        """Make what was written survive the death of this process (close(2) waits for it)."""
        ...

    def sync_data(self) -> None:
        """Send the file's own bytes to disk. May block, in any thread. `Backend.sync`
        afterwards makes the metadata durable as well."""
        ...

    def close(self) -> Publication | None:
        """Give the handle back. For the last handle of a changed file: what is left to do."""
        ...


class Directory(Protocol):
    """An open directory: names come in byte order, and none is missed or given twice that
    stays in place while others come and go."""

    def entries(self, after: bytes, limit: int) -> Sequence[Entry]:
        """Return at most `limit` entries whose names sort after `after` (b"" for the first);
        fewer only where there are no more."""
        ...

    def close(self) -> None:
        """Give the handle back."""
        ...


class Backend(Protocol):
    """A tree of nodes. `parent` and `key` are node keys; names are bytes."""

    def identity(self, key: Hashable) -> bytes:
        """Return bytes that tell this node from every other, now and later, of this backend."""
        ...

    volatile: bool
    """Nodes change behind our back, without a journal record: caches must be short or watched."""

    def root(self) -> Node:
        """Return the top node."""
        ...

    def stat(self, key: Hashable) -> Node:
        """Return the node `key`."""
        ...

    def lookup(self, parent: Hashable, name: bytes) -> Node:
        """Return the node called `name` in `parent`."""
        ...

    def open_directory(self, key: Hashable) -> Directory:
        """Open the directory `key` for listing."""
        ...

    def scan(self, key: Hashable, after: bytes = b"") -> Sequence[Scanned]:
        """Return entries of the directory `key`, those after the name `after`, in name order:
        faster than listing it. Fewer than `SCAN_PAGE` only where there are no more."""
        ...

    def read_files(self, files: Sequence[Found], limit: int) -> Sequence[Read]:
        """Return what is in files (or, of links, their targets) that `scan` found, as it is now
        or was then: of the first of them, and of more until `READ_AT_ONCE` bytes are read. Never
        more than `limit` bytes of one."""
        ...

    def open_file(self, key: Hashable, *, write: bool, actor: Actor = PERSON) -> File:
        """Open the regular file `key`; `actor` is who will have changed it."""
        ...

    def read_link(self, key: Hashable) -> bytes:
        """Return the target of the symbolic link `key`."""
        ...

    def create(self, parent: Hashable, name: bytes, kind: Kind, mode: int, owner: Owner,
               actor: Actor, *, target: bytes = b"") -> Node:
        """Make a node of `kind`; EEXIST where the name is taken. `target` is for links."""
        ...

    def set_attributes(self, key: Hashable, change: Change, actor: Actor) -> Node:
        """Apply `change` in one step and return the node after it."""
        ...

    def remove(
        self, parent: Hashable, name: bytes, actor: Actor, *, directory: bool | None
    ) -> None:
        """Move the entry to the trash.

        `directory` True is ``rmdir(2)`` (ENOTDIR, ENOTEMPTY), False is ``unlink(2)`` (EISDIR),
        None removes either kind with everything below.
        """
        ...

    def rename(self, parent: Hashable, name: bytes, new_parent: Hashable, new_name: bytes,
               actor: Actor, *, replace: bool, exchange: bool = False) -> None:
        """Move an entry as ``renameat2(2)`` does; without `replace`, EEXIST on a taken name."""
        ...

    def get_xattr(self, key: Hashable, name: bytes) -> bytes:
        """Return an extended attribute; ENODATA where there is none."""
        ...

    def list_xattrs(self, key: Hashable) -> Sequence[bytes]:
        """Return the names of all extended attributes."""
        ...

    def set_xattr(self, key: Hashable, name: bytes, value: bytes, actor: Actor) -> None:
        """Set an extended attribute (names begin with ``user.``)."""
        ...

    def remove_xattr(self, key: Hashable, name: bytes, actor: Actor) -> None:
        """Remove an extended attribute; ENODATA where there is none."""
        ...

    def sync(self) -> None:
        """Make every change made so far survive the loss of power."""
        ...
