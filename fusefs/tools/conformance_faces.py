"""The faces that conformance vectors run through: a session's methods, and system calls."""

from __future__ import annotations

import errno
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Protocol

from fusefs.contract.errors import ContractError
from fusefs.contract.kinds import Kind
from fusefs.contract.levels import Level
from fusefs.contract.listing import ListedEntry, format_listing
from fusefs.contract.paths import Path, render
from fusefs.contract.sessions import World
from fusefs.daemon.mountpoint import MountError, detach, locate, mounted_at
from fusefs.daemon.readiness import READY
from fusefs.tools.conformance_chunks import cut_text, halve_piece

_MOUNT_TIMEOUT = 60
"""Seconds that mounting or unmounting may take."""


class MountFailed(Exception):
    """The mount did not come up; the message is the command's own."""


class Described(Protocol):
    """What the vectors look at in a stat or a listed entry."""

    @property
    def kind(self) -> Kind:
        """The kind of node."""
        ...

    @property
    def level(self) -> Level:
        """The session's level there."""
        ...


class Named(Protocol):
    """A listed entry."""

    @property
    def name(self) -> str:
        """The entry's name."""
        ...

    @property
    def stat(self) -> Described:
        """What it is."""
        ...


class SessionLike(Protocol):
    """The operations of `fusefs.Session` that vectors use. Each raises a ContractError."""

    def stat(self, path: str) -> Described:
        """Describe the node."""
        ...

    def list(self, path: str) -> Iterable[Named]:
        """List a directory."""
        ...

    def listing(self, path: str) -> str:
        """List a directory as text."""
        ...

    def read(self, path: str) -> bytes:
        """Read a file, or a directory's listing."""
        ...

    def write(self, path: str, data: bytes) -> object:
        """Make or replace a file and its missing parents."""
        ...

    def mkdir(self, path: str) -> object:
        """Make a directory and its missing parents."""
        ...

    def rm(self, path: str) -> object:
        """Remove a file, or a directory with all below."""
        ...

    def mv(self, path: str, target: str) -> object:
        """Move, never overwriting."""
        ...

    def symlink(self, path: str, target: str) -> object:
        """Make a symbolic link at `path`."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call answered: `ok` where it succeeded, else what the refusal said.

    Attributes:
        ok: a listing's lines, a file's text, ``{"kind", "level"}`` of a stat, or None.
        error, code: the refusal's text and identifier; None on the mount, which has neither.
        errno: the name of the system call's error, as ``EACCES``; None for success.
    """

    ok: object = None
    error: str | None = None
    code: str | None = None
    errno: str | None = None

    def meets(self, expect: Mapping[str, object], face: str) -> bool:
        """Tell whether this is the answer that a case expects on `face`."""
        if face == "mount":
            wanted = expect.get("errno")
            if wanted == "EROFS" and os.geteuid() != 0 and self.errno == "EACCES":
                return True  # the kernel's own check of the mode bits came first
            return self.errno == wanted and (wanted is not None or self._is(expect, face))
        if "error" in expect or "code" in expect:
            return all(
                expect.get(key, said) == said and said is not None
                for key, said in (("error", self.error), ("code", self.code))
            )
        return self.error is None and self._is(expect, face)

    def _is(self, expect: Mapping[str, object], face: str) -> bool:
        wanted = expect.get("ok")
        if face == "mount" and isinstance(wanted, list):
            wanted = sorted(_bare_name(line) for line in wanted)
        if face == "mount" and isinstance(wanted, Mapping):
            # Mode bits show what may be changed, not whether it may be committed.
            level = "stage" if wanted["level"] == "commit" else wanted["level"]
            kind = "dir" if wanted["kind"] == "mount" else wanted["kind"]
            wanted = {"kind": kind, "level": level}
        return self.ok == wanted

    def __str__(self) -> str:
        return self.error or self.errno or spell(self.ok)


class Face(Protocol):
    """A way in."""

    def call(self, op: str, fields: Mapping[str, object]) -> Answer:
        """Make the call of a case and return its answer, a refusal included."""
        ...


def spell(value: object) -> str:
    """Return a successful answer as people read it."""
    return "success" if value is None else repr(value)


class SessionFace:
    """A session's methods."""

    def __init__(self, session: SessionLike) -> None:
        self._session = session

    def call(self, op: str, fields: Mapping[str, object]) -> Answer:
        """Make the call of a case; anything but a `ContractError` meets no expectation."""
        try:
            return Answer(self._do(op, fields))
        except ContractError as error:
            name = errno.errorcode.get(error.errno, str(error.errno))
            return Answer(error=error.text, code=error.code, errno=name)
        except Exception as error:  # noqa: BLE001 - a finding to be reported, with the others
            return Answer(error=f"{type(error).__name__} was raised: {error}")

    def _do(self, op: str, fields: Mapping[str, object]) -> object:
        session, path = self._session, str(fields.get("path", ""))
        match op:
            case "list":
                return _lines(session.listing(path))
            case "read":
                return session.read(path).decode()
            case "stat":
                found = session.stat(path)
                return {"kind": found.kind.name.lower(), "level": str(found.level)}
            case "write":
                session.write(path, str(fields["content"]).encode())
            case "mkdir":
                session.mkdir(path)
            case "rm":
                session.rm(path)
            case "mv":
                session.mv(path, str(fields["target"]))
            case "symlink":
                session.symlink(path, str(fields["target"]))
            case "format":
                return _format(fields)
            case "cut":
                return cut_text(fields)
            case "halve":
                return halve_piece(fields)
            case _:
                raise ValueError(f"unknown operation {op!r}")
        return None


class MountFace:
    """System calls in a mount.

    Args:
        root: the mountpoint.
        start: where relative paths begin.
    """

    def __init__(self, root: FilePath, start: Path) -> None:
        self._root = str(root)
        self._start = self._root + render(start).rstrip("/")

    def call(self, op: str, fields: Mapping[str, object]) -> Answer:
        """Make the system calls of a case; `OSError` is an answer."""
        try:
            return Answer(self._do(op, fields))
        except OSError as error:
            return Answer(errno=errno.errorcode.get(error.errno or 0, str(error)))

    def _real(self, text: str) -> str:
        return self._root + text if text.startswith("/") else f"{self._start}/{text}"

    def _do(self, op: str, fields: Mapping[str, object]) -> object:
        path = self._real(str(fields["path"]))
        match op:
            case "list":
                return sorted(os.listdir(path))  # noqa: PTH208
            case "read":
                return _read(path)
            case "stat":
                return _stat(path)
            case "write":
                _write(path, str(fields["content"]).encode())
            case "mkdir":
                os.mkdir(path)  # noqa: PTH102
            case "rm":
                _remove(path, recursive=bool(fields.get("recursive")))
            case "mv":
                os.rename(path, self._real(str(fields["target"])))  # noqa: PTH104
            case "symlink":
                os.symlink(str(fields["target"]), path)  # noqa: PTH211
            case _:
                raise ValueError(f"unknown operation {op!r}")
        return None


@contextmanager
def mounted(instance: FilePath, session: str, mountpoint: FilePath) -> Iterator[FilePath]:
    """Mount the view of `session` at `mountpoint`, made for it, until the context ends.

    The daemon is a child of this process. It gives up by itself when this process is ended
    before the view is mounted.

    Raises:
        MountFailed: the mount did not come up, or did not go away.
    """
    mountpoint.mkdir()
    reading, writing = os.pipe()
    # A file, not a pipe that somebody would have to empty.
    with os.fdopen(reading, "rb") as pipe, tempfile.TemporaryFile() as said:
        command = ("mount", "--ready-fd", str(writing), "--", session, str(mountpoint))
        try:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "fusefs", *command],
                env={**os.environ, "FUSEFS_INSTANCE": str(instance)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                pass_fds=[writing],
                # Ctrl-C is for this process, which then ends the daemon when it is done.
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            if not select.select([pipe], [], [], _MOUNT_TIMEOUT)[0]:
                raise MountFailed(f"mounting took over {_MOUNT_TIMEOUT} s")
            word = pipe.readline()
            if word != READY:
                said.seek(0)
                message = (word or said.read()).decode(errors="replace").strip()
                raise MountFailed(f"mounting failed: {message}")
            yield mountpoint
        finally:
            _end(daemon, locate(mountpoint))


def _end(daemon: subprocess.Popen[bytes], point: str) -> None:
    """Let a daemon unmount and finish; at least nothing stays mounted at `point`."""
    daemon.terminate()
    try:
        daemon.wait(_MOUNT_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise MountFailed(f"unmounting took over {_MOUNT_TIMEOUT} s") from None
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()
        if mounted_at(point) is not None:
            with suppress(MountError):
                detach(point)


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(descriptor, 1 << 20):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode()


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _remove(path: str, *, recursive: bool) -> None:
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)  # noqa: PTH108
    elif recursive:
        shutil.rmtree(path)
    else:
        os.rmdir(path)  # noqa: PTH106


_FORMATS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "dir"),
    (stat.S_ISREG, "file"),
    (stat.S_ISLNK, "symlink"),
    (stat.S_ISFIFO, "fifo"),
    (stat.S_ISSOCK, "socket"),
)


def _stat(path: str) -> dict[str, str]:
    mode = os.lstat(path).st_mode
    kind = next((name for is_kind, name in _FORMATS if is_kind(mode)), "unknown")
    if kind == "dir" and stat.S_IMODE(mode) == 0o111:
        level = "none"
    else:
        level = "stage" if mode & 0o222 else "ro"
    return {"kind": kind, "level": level}


def _bare_name(line: str) -> str:
    """Return the name in a line of a listing."""
    for mark in (" [read-only]", " [mount]", "/"):
        line = line.removesuffix(mark)
    return line


def _format(fields: Mapping[str, object]) -> list[str]:
    """Format the listing that a ``format`` case describes; needs no tree."""
    entries = fields["entries"]
    if not isinstance(entries, list):
        raise TypeError(f"not a list of entries: {entries!r}")
    text = format_listing(
        (ListedEntry(name, kind, Level.parse(level)) for name, kind, level in entries),
        world=World(str(fields["world"])),
        directory_level=Level.parse(str(fields["directory_level"])),
    )
    return _lines(text)


def _lines(listing: str) -> list[str]:
    return listing.split("\n") if listing else []
