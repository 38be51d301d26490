"""What is in ``format1.tar.gz``, an instance as fusefs wrote it in format 1.

It was made by running this file with that program (``python -m tests.data.format1 FOLDER``), whose
process ended itself with SIGKILL: the redo log, a draft and a scratch file are as it left them.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fusefs.contract.kinds import Kind
from fusefs.contract.levels import Level
from fusefs.contract.sessions import SessionSpec
from fusefs.session.session import Session
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance
from fusefs.tree.backend import Change, Owner

ARCHIVE = Path(__file__).parent / "format1.tar.gz"
OWNER = Owner(0, 0)
TIME = 1_234_567_890_123_456_789


def lines(count: int, word: bytes = b"line") -> bytes:
    """Return long content that packs well."""
    return b"".join(b"%s %07d\n" % (word, number) for number in range(count))


FILES: dict[bytes, bytes] = {
    b"/docs/readme.txt": b"Read this.\n",
    b"/docs/empty": b"",
    b"/docs/not-utf8-\xff\xfe": b"a name of bytes",
    b"/data/large.bin": lines(20_000),
    b"/data/again.bin": lines(20_000),
    b"/data/larger.bin": lines(30_000, b"more"),
    b"/data/border.bin": bytes(64 << 10),
    b"/data/past.bin": bytes((64 << 10) + 1),
    **{b"/many/%04d" % number: b"%d\n" % number * 20 for number in range(400)},
    # Acknowledged and in the redo log only.
    b"/late/kept.txt": b"acknowledged, not committed",
    b"/late/changed.txt": b"the second version",
    # Being written when the process died.
    b"/open/draft.txt": b"not closed",
    b"/open/scratch.bin": lines(9_000, b"scratch"),
}
MODES = {b"/docs/readme.txt": 0o640, b"/data": 0o711}
LINKS = {b"/docs/link": b"../data/large.bin", b"/docs/dangling": b"/nowhere"}
XATTRS = {
    (b"/docs/readme.txt", b"user.note"): b"kept",
    (b"/docs/readme.txt", b"user.long"): lines(300),
    (b"/data", b"user.empty"): b"",
}
TRASHED = {b"/gone.txt": b"removed\n", b"/gone/deep/file": b"below what was removed\n"}
SESSIONS = {
    "reader": SessionSpec("reader", grants={(b"docs",): Level.RO}, secret=b"1" * 16),
    "writer": SessionSpec(
        "writer", grants={(): Level.STAGE}, floors={(b"data",): Level.RO}, secret=b"2" * 16
    ),
}
BIND = (b"host",), BindSpec("host", "/nonexistent/folder-of-format-1")


def _fill(folder: Path) -> None:
    with Instance.init(folder) as instance:
        session = Session(instance)
        for path, data in FILES.items():
            if not path.startswith((b"/late", b"/open")):
                session.write(path, data)
        session.write(b"/late/changed.txt", b"the first version")
        for path, mode in MODES.items():
            place = session.place(session.resolve(path))
            session.view.set_attributes(place, Change(mode=mode, mtime=TIME))
        for path, target in LINKS.items():
            parent, name = os.path.split(path)
            place = session.place(session.resolve(parent))
            session.view.create(place, name, Kind.SYMLINK, 0o777, OWNER, target=target)
        for (path, name), value in XATTRS.items():
            session.view.set_xattr(session.place(session.resolve(path)), name, value)
        for path, data in TRASHED.items():
            session.write(path, data)
        session.rm(b"/gone.txt")
        session.rm(b"/gone")
        session.mkdir(b"/open")
        session.mkdir(b"/host")
        for spec in SESSIONS.values():
            instance.sessions.put(spec, "-")
        instance.binds.put(*BIND, "-")


def _die_writing(folder: Path) -> None:
    instance = Instance.open(folder, deferred=True)
    session = Session(instance)
    kept = []
    for path in (b"/open/draft.txt", b"/open/scratch.bin"):
        parent, name = os.path.split(path)
        place = session.place(session.resolve(parent))
        _, _, file = session.view.create_file(place, name, 0o644, OWNER, append=False)
        data = FILES[path]
        for at in range(0, len(data), 50_000):
            file.write(at, data[at : at + 50_000])
        kept.append(file)
    instance.commit()
    for path in (b"/late/kept.txt", b"/late/changed.txt"):
        session.write(path, FILES[path])
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> None:
    """Make the instance and end this process."""
    _fill(folder)
    _die_writing(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
