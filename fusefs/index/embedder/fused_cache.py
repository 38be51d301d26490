"""Where faster graphs of models are kept, each made once.

A file's name is made of what went into it and of its own hash, so that a damaged one is noticed and
made anew. That a model cannot be rewritten is kept too. The work is done by a process of its own,
which gives back the few hundred megabytes that it takes.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fusefs.index.embedder.models import EmbedderUnavailable, ModelFiles

VERSION = 1
"""Grows when the graph that is made of a model changes."""

REFUSED = 3
"""How the process ends that does the work, when there is no such graph for the model."""
UNUSABLE = 4
"""And when the model is damaged or not there."""

_TIMEOUT = 600
"""Seconds for what takes three; there may be hardly any time for it."""

_log = logging.getLogger(__name__)


def fused_graph(model: ModelFiles, sha256: str, folder: Path) -> Path | None:
    """Return a faster graph of a model, made now if it is not in `folder`.

    Args:
        model: the model.
        sha256: that its graph should have.
        folder: is made if it is not there. Other models' graphs may be in it.

    Returns:
        The graph's file; None if the model has none, and its own is to be used.

    Raises:
        EmbedderUnavailable: the model is damaged, or it could not be done this time.
    """
    import onnxruntime

    made_of = f"{sha256} {model.pooling} {VERSION} {onnxruntime.__version__}"
    key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    refusal = folder / f"{key}.refused"
    try:
        kept = _kept(folder, key)
        if kept is not None or refusal.exists():
            return kept
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if _kept(folder, key) is None and not refusal.exists():
                _make(model, sha256, folder, key)
        return _kept(folder, key)
    except OSError as error:
        raise EmbedderUnavailable(
            f"The model {model.name} cannot be prepared in {folder}: {error.strerror}."
        ) from error


def _kept(folder: Path, key: str) -> Path | None:
    for path in folder.glob(f"{key}-*.onnx"):
        if path.stem == f"{key}-{_digest(path)}":
            return path
        _log.warning("%s is damaged: it is made anew", path)
        path.unlink(missing_ok=True)
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from making graphs in `folder`; one that dies lets go."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _make(model: ModelFiles, sha256: str, folder: Path, key: str) -> None:
    import subprocess

    for left in folder.glob("*.partial"):  # by one that was killed
        left.unlink(missing_ok=True)
    partial = folder / f"{os.getpid()}.partial"
    command = [
        *(sys.executable, "-P", "-m", "fusefs.index.embedder.rewrite"),
        *(str(model.graph), sha256, str(model.tokenizer)),
        *(model.pooling, str(model.max_length), str(partial)),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode == 0:
            partial.rename(folder / f"{key}-{_digest(partial)}.onnx")
            return
    except subprocess.TimeoutExpired as error:
        raise EmbedderUnavailable(
            f"The model {model.name} was not prepared within {_TIMEOUT} seconds."
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    if done.returncode == UNUSABLE:
        raise EmbedderUnavailable(done.stdout.strip())
    if done.returncode != REFUSED:
        _log.error("preparing the model %s failed: %s", model.name, done.stderr)
        raise EmbedderUnavailable(
            f"Preparing the model {model.name} failed: {_last_line(done.stderr)}"
        )
    _log.warning("the model %s runs as it is, slowly: %s", model.name, done.stdout.strip())
    (folder / f"{key}.refused").write_text(done.stdout)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
