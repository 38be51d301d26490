"""Copying a folder of the host into the tree, and a part of the tree out to the host."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fusefs.contract.errors import Blocked, ContractError, InvalidArgument
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path as TreePath
from fusefs.contract.paths import decode, is_at_or_below, render
from fusefs.session.place import Place
from fusefs.session.session import Session
from fusefs.session.stat import DIRECTORY_KINDS, Stat
from fusefs.session.view_reader import CONTROL_NAME
from fusefs.store import nodes
from fusefs.store.bulk import BulkLoader, Meta, copy_large, is_small
from fusefs.store.instance import Instance
from fusefs.tree.backend import Change
from fusefs.tree.host_mounts import is_in_view

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SPECIAL = {stat.S_IFIFO: Kind.FIFO, stat.S_IFSOCK: Kind.SOCKET, stat.S_IFLNK: Kind.SYMLINK}
_REPORT_EVERY = 100


@dataclass(slots=True)
class TransferSummary:
    """What was copied so far. `skipped` names what was not, and why."""

    files: int = 0
    directories: int = 0
    links: int = 0
    bytes: int = 0
    total_files: int | None = None
    skipped: list[tuple[str, str]] = field(default_factory=list)


TransferProgress = TransferSummary
Report = Callable[[TransferProgress], None]


def import_directory(
    session: Session, host_dir: Path | str, tree_path: str, progress: Report
) -> TransferSummary:
    """Copy what is in `host_dir` into the directory `tree_path`, which is made if missing.

    Modes, owners, times, links and ``user.*`` attributes are kept. Directories that are there
    are filled; any other name that is taken is left alone and reported as skipped.

    Raises:
        ContractError: `tree_path` cannot be made, or lies in something bound into the tree.
        OSError: `host_dir` cannot be read.
    """
    path = session.resolve(tree_path)
    for mount in session.view.instance.mounts.all():
        if is_at_or_below(path, mount):
            raise Blocked(
                f"Not imported: {render(path)} is in the repository that is mounted at "
                f"{render(mount)}; copy files there through a mounted session instead."
            )
    existed = session.exists(tree_path)
    session.mkdir(tree_path)
    place = session.place(path)
    if place.backend is not session.view.tree.store:
        raise Blocked(
            f"Not imported: {render(path)} is in a bound folder; copy files there instead."
        )
    summary = TransferSummary()
    importer = _Importer(session.view.instance, session.spec.name, summary, progress)
    assert isinstance(place.key, int)
    top = os.open(host_dir, _OPEN_DIRECTORY & ~os.O_NOFOLLOW)
    try:
        importer.run(top, place.key, path)
        if not existed:
            _take_over(session, place, os.fstat(top))
    finally:
        os.close(top)
    progress(summary)
    return summary


def _take_over(session: Session, place: Place, status: os.stat_result) -> None:
    """Give a directory made for an import the attributes of the folder it stands for."""
    meta = _meta(status)
    session.view.set_attributes(
        place,
        Change(
            mode=meta.mode, uid=meta.uid, gid=meta.gid, atime=meta.atime, mtime=meta.mtime
        ),
    )


class _Importer:
    def __init__(
        self, instance: Instance, actor: str, summary: TransferSummary, progress: Report
    ) -> None:
        self._instance = instance
        self._loader = BulkLoader(instance, actor)
        self._summary = summary
        self._progress = progress
        folder = os.stat(instance.folder)
        self._own = (folder.st_dev, folder.st_ino)

    def run(self, top: int, node: int, path: TreePath) -> None:
        """Copy the folder `top` into the directory `node`."""
        pending: list[tuple[TreePath, int, bool]] = [((), node, True)]
        while pending:
            below, directory, existed = pending.pop()
            try:
                fd = _open_below(top, below)
            except OSError as error:
                self._skip(below, error)
                continue
            try:
                pending.extend(self._copy_entries(fd, directory, path, below, existed))
            finally:
                os.close(fd)
        self._loader.flush()
        for taken, kind, size in self._loader.taken:
            self._summary.skipped.append((render(taken), "already there"))
            if kind == Kind.SYMLINK:
                self._summary.links -= 1
            else:
                self._summary.files -= 1
            self._summary.bytes -= size if kind == Kind.FILE else 0

    def _copy_entries(
        self, fd: int, directory: int, path: TreePath, below: TreePath, existed: bool
    ) -> list[tuple[TreePath, int, bool]]:
        """Copy the entries of one folder; return the folders in it, last first."""
        inner = []
        with os.scandir(fd) as found:
            names = sorted(os.fsencode(entry.name) for entry in found)
        for name in names:
            target = (*path, *below, name)
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if target == (CONTROL_NAME,):
                    raise OSError(0, "the name is reserved")
                if (status.st_dev, status.st_ino) == self._own:
                    raise OSError(0, "the instance itself")
                if stat.S_ISDIR(status.st_mode):
                    known = self._existing_directory(directory, name) if existed else None
                    meta = _meta(status, fd, name)
                    node = known or self._loader.add(directory, target, Kind.DIR, meta)
                    inner.append(((*below, name), node, known is not None))
                    self._summary.directories += known is None
                else:
                    self._copy_entry(fd, name, status, directory, target)
            except OSError as error:
                self._skip((*below, name), error)
        return inner[::-1]

    def _existing_directory(self, parent: int, name: bytes) -> int | None:
        with self._instance.kv.read() as txn:
            record = nodes.child(txn, parent, name)
        if record is None:
            return None
        if record.kind != Kind.DIR:
            raise OSError(0, "already there, and no directory")
        return record.id

    def _copy_entry(
        self, fd: int, name: bytes, status: os.stat_result, parent: int, target: TreePath
    ) -> None:
        kind = _SPECIAL.get(stat.S_IFMT(status.st_mode))
        if kind is not None:
            data = os.readlink(name, dir_fd=fd) if kind == Kind.SYMLINK else b""
            self._loader.add(parent, target, kind, _meta(status), data)
            if kind == Kind.SYMLINK:
                self._summary.links += 1
            else:
                self._summary.files += 1
            return
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "a device")
        file = os.open(name, _READ, dir_fd=fd)
        try:
            status = os.fstat(file)
            meta = _meta(status, file)
            size = status.st_size
            if is_small(size):
                data = os.read(file, size) if size else b""
                self._loader.add(parent, target, Kind.FILE, meta, data)
            else:
                copy, found, size = copy_large(self._instance, file, size)
                self._loader.add_large(parent, target, meta, copy, found, size)
        finally:
            os.close(file)
        self._summary.files += 1
        self._summary.bytes += size
        if self._summary.files % _REPORT_EVERY == 0:
            self._progress(self._summary)

    def _skip(self, below: TreePath, error: OSError) -> None:
        self._summary.skipped.append((render(below), error.strerror or str(error)))


def _open_below(top: int, below: TreePath) -> int:
    """Open a folder below `top` name by name: no link is followed, no path is too long."""
    fd = os.dup(top)
    for name in below:
        try:
            inner = os.open(name, _OPEN_DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def _meta(status: os.stat_result, fd: int | None = None, name: bytes | None = None) -> Meta:
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    if fd is not None:
        where = fd if name is None else b"/proc/self/fd/%d/%s" % (fd, name)
        xattrs = _user_xattrs(where)
    # As with cp(1): whoever could not give files away owns the copies.
    owner, group = status.st_uid, status.st_gid
    if os.geteuid() != 0:
        owner, group = os.geteuid(), os.getegid()
    return Meta(
        stat.S_IMODE(status.st_mode), owner, group, status.st_atime_ns, status.st_mtime_ns, xattrs
    )


def _user_xattrs(where: int | bytes) -> tuple[tuple[bytes, bytes], ...]:
    try:
        names = [name for name in os.listxattr(where) if name.startswith("user.")]
        return tuple((os.fsencode(name), os.getxattr(where, name)) for name in names)
    except OSError:
        return ()


def export_directory(
    session: Session, tree_path: str, host_dir: Path | str, progress: Report
) -> TransferSummary:
    """Copy what is below the directory `tree_path` into `host_dir`, which is made if missing.

    Modes, times, links and ``user.*`` attributes are kept, owners too where this user may set
    them. What is there already is left alone and reported as skipped.

    Raises:
        ContractError: `tree_path` is not a directory that the session can read, or `host_dir`
            is in a mounted view.
        OSError: `host_dir` cannot be made.
    """
    top = session.place(session.resolve(tree_path))
    session.view.open_directory(top).close()
    host = os.fsencode(host_dir)
    _refuse_view(host)
    os.makedirs(host, exist_ok=True)
    summary = TransferSummary()
    depth = len(top.path)
    finished: list[tuple[bytes, Stat]] = []
    for walked in session.walk(tree_path):
        target = b"/".join((host, *walked.path[depth:]))
        try:
            _export_node(session, walked.path, walked.stat, target, summary)
            if walked.stat.kind in DIRECTORY_KINDS:
                finished.append((target, walked.stat))
            else:
                _set_attributes(target, walked.stat)
        except (OSError, ContractError) as error:
            why = error.text if isinstance(error, ContractError) else error.strerror
            summary.skipped.append((render(walked.path), why or str(error)))
        if summary.files % _REPORT_EVERY == 0:
            progress(summary)
    for target, found in reversed(finished):
        _set_attributes(target, found)
    progress(summary)
    return summary


def _refuse_view(host: bytes) -> None:
    """Refuse to copy the tree into a view, which may be one of itself: it would never end."""
    if is_in_view(os.path.realpath(host)):
        raise InvalidArgument(
            f"Not exported: {decode(host)} is in a mounted view. Export to another folder, or "
            "copy inside the view."
        )


def _export_node(
    session: Session, path: TreePath, found: Stat, target: bytes, summary: TransferSummary
) -> None:
    place = session.place(path, follow=False)
    if found.kind in DIRECTORY_KINDS:
        # Parents that the session cannot see are made as well: their names are in the path.
        os.makedirs(target, exist_ok=True)
        summary.directories += 1
    elif found.kind == Kind.SYMLINK:
        os.symlink(session.view.read_link(place), target)
        summary.links += 1
    elif found.kind == Kind.FILE:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _export_file(session, place, target)
        summary.files += 1
        summary.bytes += found.size
    elif found.kind == Kind.FIFO:
        os.mkfifo(target)
        summary.files += 1
    else:
        raise OSError(0, "a socket")
    if found.kind != Kind.SYMLINK:
        for name in session.view.list_xattrs(place):
            os.setxattr(target, name, session.view.get_xattr(place, name))


def _export_file(session: Session, place: Place, target: bytes) -> None:
    file = session.view.open_file(place, write=False)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(target, flags, 0o600), "wb") as writer:
            for chunk in file.chunks():
                writer.write(chunk)
    finally:
        file.close()


def _set_attributes(target: bytes, found: Stat) -> None:
    if os.geteuid() == 0:
        os.chown(target, found.uid, found.gid, follow_symlinks=False)
    if found.kind != Kind.SYMLINK:
        os.chmod(target, found.mode)
    os.utime(target, ns=(found.atime, found.mtime), follow_symlinks=False)
