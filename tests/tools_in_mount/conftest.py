"""Fixtures: one instance whose sessions are mounted once for all tests of this folder.

Everything happens below two passages: the sessions are granted ``/top/tree``, a folder of the
instance's own tree, and ``/top/host``, a bound folder of the host, and nothing else.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Cli, Quick, unmount
from tests.tools_in_mount.place import PATIENCE, Place

AREAS = ("tree", "host")
GRANTS = [word for area in AREAS for word in ("--grant", f"/top/{area}=stage")]


@dataclass(frozen=True)
class Views:
    """Mounts of sessions with the same grants.

    Attributes:
        first: the mount that most tests work in.
        second: the mount of another session.
        missing: the mount whose passages answer ``ENOENT``.
        home: a folder outside of them.
    """

    cli: Cli
    first: Path
    second: Path
    missing: Path
    home: Path


def make_instance(top: Path) -> Cli:
    """Make an instance in `top` with both areas and the session ``first``."""
    (top / "host").mkdir()
    cli = Quick(top / "instance")
    cli("init")
    cli("mkdir", "/top/tree")
    cli("bind", top / "host", "/top/host")
    cli("session", "create", "first", *GRANTS)
    return cli


@pytest.fixture(scope="session")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    top = tmp_path_factory.mktemp("tools")
    cli = make_instance(top)
    cli("session", "create", "second", *GRANTS)
    made = Views(cli, top / "first", top / "second", top / "missing", top / "home")
    made.home.mkdir()
    try:
        for mountpoint, session, *options in (
            (made.first, "first"),
            (made.second, "second"),
            (made.missing, "first", "--passage-errno", "ENOENT"),
        ):
            mountpoint.mkdir()
            cli.mount(session, mountpoint, *options)
        yield made
    finally:
        for mountpoint in (made.first, made.second, made.missing):
            unmount(mountpoint)
    # Whatever the programs did, it left a sound instance.
    assert "No problems" in cli("check").out


def folder_name(request: pytest.FixtureRequest) -> str:
    """A name for a folder of the test's own."""
    return re.sub(r"\W+", "-", request.node.name).strip("-")


@pytest.fixture(params=AREAS)
def place(views: Views, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A folder of the test's own in the first mount, in each area."""
    made = Place(views.first / "top" / request.param, views.home).below(folder_name(request))
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="session")
def uv(views: Views) -> str:
    """The path of `uv`: the one of the system, or one that pip installs for these tests."""
    found = shutil.which("uv")
    if found is None:
        target = views.home / "uv"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--target", target, "uv>=0.5,<1"],
            check=True, timeout=PATIENCE,
        )  # fmt: skip
        found = str(target / "bin/uv")
    return found
