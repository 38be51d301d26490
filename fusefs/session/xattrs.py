"""Extended attributes of a view: those that are kept, and those made on demand."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Generator
from typing import TYPE_CHECKING

from fusefs.contract.errors import NotPermitted
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import render
from fusefs.session import marks
from fusefs.session.place import Place

if TYPE_CHECKING:
    from fusefs.session.view_reader import ViewReader

_KEPT = b"user."
_VIRTUAL = b"user.fusefs."
_HASHED_TO_TELL = 1 << 30
"""Bytes of the largest file that is hashed just because somebody asks: about a second's work."""


def get(view: ViewReader, place: Place, name: bytes) -> Generator[None, None, bytes]:
    """Return an attribute of a visible place, pausing where that means to read a large file.

    Raises:
        OSError: ENODATA where there is none, EOPNOTSUPP outside ``user.*``.
    """
    if name.startswith(_VIRTUAL):
        return (yield from _virtual(view, place, name[len(_VIRTUAL) :]))
    _check_namespace(name)
    return view.backend_of(place).get_xattr(place.key, name)


def names(view: ViewReader, place: Place) -> list[bytes]:
    """Return the names of the attributes that are kept.

    The virtual ones are left out, so that tools which copy attributes do not try to.
    """
    kept = view.backend_of(place).list_xattrs(place.key)
    return [name for name in kept if not name.startswith(_VIRTUAL)]


def check_settable(place: Place, name: bytes) -> None:
    """Refuse attributes that are made on demand or of another namespace.

    Raises:
        NotPermitted: for ``user.fusefs.*``.
        OSError: EOPNOTSUPP outside ``user.*``.
    """
    if name.startswith(_VIRTUAL):
        raise NotPermitted(render(place.path), f"given {os.fsdecode(name)}")
    _check_namespace(name)


def _check_namespace(name: bytes) -> None:
    if not name.startswith(_KEPT):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def _virtual(view: ViewReader, place: Place, name: bytes) -> Generator[None, None, bytes]:
    if name == b"level":
        return str(place.cursor.level).encode()
    if name == b"kind":
        mark = marks.mark_of(view, place)
        return (mark or view.stat(place).kind.name.lower()).encode()
    if name in (b"branch", b"staged"):
        found = marks.repository_of(view, place)
        if found is not None:
            return found.branch if name == b"branch" else b"%d" % found.staged()
    if name in (b"sha256", b"version") and view.stat(place).kind == Kind.FILE:
        sha256 = yield from content_hash(view, place)
        return sha256.hex().encode() if name == b"sha256" else version_token(sha256).encode()
    raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))


def version_token(sha256: bytes) -> str:
    """Return the opaque version of a file with this content (contract section 10)."""
    return hashlib.sha256(b"version" + sha256).hexdigest()[:32]


def content_hash(view: ViewReader, place: Place) -> Generator[None, None, bytes]:
    """Return the SHA-256 of a file as it reads now, pausing after each piece that is read.

    Raises:
        OSError: ENODATA where none is known and the file is too large to find out.
    """
    node = view.node_of(place)
    if node.sha256 is not None:
        return node.sha256
    if node.size > _HASHED_TO_TELL:
        raise OSError(errno.ENODATA, "it is not hashed yet")
    digest = hashlib.sha256()
    file = view.open_file(place, write=False)
    try:
        for chunk in file.chunks():
            digest.update(chunk)
            yield
    finally:
        file.close()
    return digest.digest()
