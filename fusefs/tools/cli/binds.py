"""How binds are written on a command line."""

from __future__ import annotations

from pathlib import Path


def parse_bind(text: str) -> tuple[Path, str]:
    """Split ``HOST_DIR`` or ``HOST_DIR=TREE_PATH``; without a path it is the root."""
    host_dir, equals, path = text.rpartition("=")
    if equals and path.startswith("/") and not Path(text).expanduser().is_dir():
        return Path(host_dir).expanduser(), path
    return Path(text).expanduser(), "/"
