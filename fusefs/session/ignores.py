"""What a repository's ``.gitignore`` files leave out, as far as the session sees them."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path as HostPath

from fusefs.contract.errors import ContractError
from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path
from fusefs.forge.git_process import run
from fusefs.session.place import Place
from fusefs.session.session import Session

_NAME = b".gitignore"
_HERE = b"./"
_MOST_BYTES = 1 << 20
_PIPE_BYTES = 32 << 10
_PATH_MAX = 4096
"""What the kernel takes for a path, with the NUL at its end."""


def ignored(session: Session, mount: Path, clone: str, paths: Collection[Path]) -> set[Path]:
    """Return those of new files that belong to nobody, as gitignore(5) says; git itself is asked.

    Files that the session does not see say nothing, nor do those at which git could not look, as
    their paths are too long.

    Args:
        session: who looks.
        mount: where the repository is mounted.
        clone: the folder of its clone.
        paths: files, relative to the repository.

    Raises:
        OSError: git failed.
        ForgeError: git is not there, or takes too long.
    """
    rules = dict(_rules(session, mount, paths))
    return _ask(clone, rules, paths) if rules else set()


def _rules(
    session: Session, mount: Path, paths: Collection[Path]
) -> Iterator[tuple[Path, bytes]]:
    """Yield the directories above `paths` that have rules, with those."""
    if not paths:
        return
    view = session.view
    places: dict[Path, Place] = {(): session.place(mount)}
    directories = {path[:depth] for path in paths for depth in range(len(path))}
    # One by one from the top: each is looked up in the one above, however deep it lies.
    for directory in sorted(directories, key=len):
        with contextlib.suppress(ContractError, KeyError):
            if directory:
                above = places[directory[:-1]]
                places[directory] = view.child(above, directory[-1])[0]
            _, stat = view.child(places[directory], _NAME)
            if stat.kind == Kind.FILE and stat.size <= _MOST_BYTES:  # as git: no link is followed
                yield directory, session.read(b"/" + b"/".join((*mount, *directory, _NAME)))


def _ask(clone: str, rules: dict[Path, bytes], paths: Collection[Path]) -> set[Path]:
    """Ask git-check-ignore(1) in a folder that has nothing but the files with the rules.

    Raises:
        OSError: it cannot be made, or git failed; where that was is nobody's concern.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="fusefs-ignores-") as folder:
            for directory, data in rules.items():
                place = os.path.join(os.fsencode(folder), *directory)
                file_name = os.path.join(place, _NAME)
                if len(file_name) >= _PATH_MAX:
                    continue  # nor could git read it
                os.makedirs(place, exist_ok=True)
                with open(file_name, "wb") as file:
                    file.write(data)
            names = [name for some in _pieces(paths) for name in _ask_for(clone, folder, some)]
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(error.errno, f"cannot tell what is ignored: {why}") from None
    return {tuple(name.split(b"/")) for name in names}


def _pieces(paths: Collection[Path]) -> Iterator[bytes]:
    """Yield paths, each with a NUL, so many at a time that question and answer fit into a pipe.

    In front of each stands ``./``: a name that begins with a colon would mean something else to
    git (*pathspec* in gitglossary(7)).
    """
    piece = b""
    for path in paths:
        name = _HERE + b"/".join(path) + b"\0"
        if piece and len(piece) + len(name) > _PIPE_BYTES:
            yield piece
            piece = b""
        piece += name
    yield piece


def _ask_for(clone: str, folder: str, names: bytes) -> list[bytes]:
    output = run(
        [f"--work-tree={folder}", "-c", "core.bare=false", "-c", "core.excludesFile=",
         "check-ignore", "--no-index", "--stdin", "-z"],
        repository=HostPath(clone),
        stdin=os.fsdecode(names),
    )  # fmt: skip
    if output.status not in (0, 1):
        said = output.err.strip().replace(folder, "")
        raise OSError(errno.EIO, f"git check-ignore ended with {output.status}: {said}")
    found = os.fsencode(output.out).split(b"\0")
    return [name.removeprefix(_HERE) for name in found if name]
