"""Programs that look for project files upwards, started right below a passage.

What lies above the granted folder answers ``EACCES`` (or ``ENOENT``, with the mount's option); in
a container that has only the granted folder there is nothing above it. `git`, `python`, `node`,
`npm`, `make` and `rg` work in all of them; `uv` and `pytest` take ``EACCES`` for fatal.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.tools_in_mount.conftest import Views, folder_name
from tests.tools_in_mount.place import Place, program

EVERYWHERE = ["tree", "host", "tree in a container"]
WITH_OPTION = ["tree with the option", "host with the option", "tree in a container"]


@pytest.fixture(params=EVERYWHERE)
def below(views: Views, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A folder of the test's own, by the words of the parameter."""
    area, _, manner = request.param.partition(" ")
    view = views.missing if manner == "with the option" else views.first
    granted = view / "top" / area
    cage = granted if manner == "in a container" else None
    made = Place(granted, views.home, cage).below(folder_name(request))
    yield made
    shutil.rmtree(made.folder)


with_option = pytest.mark.parametrize("below", WITH_OPTION, indirect=True)


def test_git(below: Place) -> None:
    outside = below.run("git", "status", status=128)
    assert "not a git repository" in outside
    below.run("git", "init", "-q", "-b", "main")
    below.write("file", "text\n")
    assert below.run("git", "status", "--porcelain") == "?? file\n"
    below.run("git", "add", "file")
    below.run("git", "commit", "-q", "-m", "One")
    deep = below.below("a/b")
    assert deep.run("git", "log", "--format=%an %s") == "Ann One\n"
    assert deep.run("git", "status", "--porcelain") == ""
    assert deep.run("git", "rev-parse", "--show-toplevel").strip() == str(below.inside)


def test_python(below: Place) -> None:
    below.write("module.py", "answer = 42\n")
    below.write("test_module.py", TEST_MODULE)
    found = below.run(sys.executable, "-c", "import module; print(module.answer)")
    assert found == "42\n"
    assert list(below.folder.glob("__pycache__/module.*.pyc"))
    assert "OK" in below.run(sys.executable, "-m", "unittest", "-v")
    below.run(sys.executable, "-m", "venv", "--without-pip", "environment")
    prefix = below.run("environment/bin/python", "-c", "import sys; print(sys.prefix)")
    assert prefix.strip() == str(below.inside / "environment")


TEST_MODULE = """
import unittest, module

class Test(unittest.TestCase):
    def test_answer(self):
        self.assertEqual(module.answer, 42)
"""


@with_option
def test_pytest(below: Place) -> None:
    below.write("test_one.py", "def test_one():\n    pass\n")
    assert "1 passed" in below.run(
        sys.executable, "-m", "pytest", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"
    )


@with_option
def test_uv(below: Place, uv: str) -> None:
    below.run(uv, "init", "--name", "project", "--bare", "--vcs", "none")
    below.write("main.py", "import sys; print(sys.prefix)\n")
    below.run(uv, "venv")
    below.run(uv, "lock")
    prefix = below.run(uv, "run", "--quiet", "main.py")
    assert prefix.strip() == str(below.inside / ".venv")


def test_node(below: Place) -> None:
    below.write("main.js", "console.log(require('./part.js'))\n")
    below.write("part.js", "module.exports = 'by require'\n")
    below.write("main.mjs", "import part from './part.js'; console.log(part)\n")
    below.write("missing.js", "try { require('none') } catch (e) { console.log(e.code) }\n")
    assert below.run("node", "main.js") == "by require\n"
    assert below.run("node", "main.mjs") == "by require\n"
    assert below.run("node", "missing.js") == "MODULE_NOT_FOUND\n"


def test_npm(below: Place) -> None:
    npm = program("npm")
    part, app = below.below("part"), below.below("app")
    part.write("package.json", json.dumps({"name": "part", "version": "1.0.0"}))
    part.write("index.js", "module.exports = 'by npm'\n")
    app.run(npm, "init", "-y")
    app.run(npm, "install", "../part")
    assert "part@1.0.0" in app.run(npm, "ls")
    assert app.run("node", "-p", "require('part')") == "by npm\n"


def test_make(below: Place) -> None:
    assert "no makefile found" in below.run("make", status=2)
    below.write("Makefile", "out: in\n\tcp in out\n")
    below.write("in", "text\n")
    assert below.run("make") == "cp in out\n"
    assert "up to date" in below.run("make")


def test_ripgrep(below: Place) -> None:
    # It reads ignore files of every folder above.
    below.below(".git")
    below.write(".gitignore", "ignored\n")
    below.write("ignored", "needle\n")
    below.write("found", "needle\n")
    assert below.run("rg", "needle", ".") == "./found:needle\n"
    assert below.below("deep").run("rg", "needle", ".", status=1) == ""
