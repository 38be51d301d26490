"""`pip`, `npm` and `make` with small projects of the test's own, off the network."""

from __future__ import annotations

import json
import os
import sys

from tests.tools_in_mount.place import Place, program

# A build backend in the project itself, so that nothing has to be fetched.
BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("small.py")
        about = "small-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n"
                                         "Root-Is-Purelib: true\\n")
        wheel.writestr(f"{about}/entry_points.txt", "[console_scripts]\\nsmall = small:main\\n")
        wheel.writestr(f"{about}/RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "small"
version = "1.0"
"""


def test_pip(place: Place) -> None:
    small = place.below("small")
    small.write("pyproject.toml", PROJECT)
    small.write("backend.py", BACKEND)
    small.write("small.py", "def main():\n    print('small, installed')\n")
    place.run(sys.executable, "-m", "venv", "--without-pip", "environment")
    pip = (sys.executable, "-m", "pip", "--python", "environment/bin/python")
    place.run(*pip, "install", "./small")
    assert place.run("environment/bin/small") == "small, installed\n"
    assert "small" in place.run(*pip, "list")
    place.run(*pip, "uninstall", "--yes", "small")
    assert not (place.folder / "environment/bin/small").exists()


def test_npm(place: Place) -> None:
    npm = program("npm")
    part, app = place.below("part"), place.below("app")
    about = {"name": "part", "version": "1.2.3", "bin": {"part": "main.js"}}
    part.write("package.json", json.dumps(about))
    part.write("main.js", "#!/usr/bin/env node\nconsole.log('part, installed')\n")
    app.write("package.json", json.dumps({"name": "app", "scripts": {"part": "part"}}))
    # As a copy, not as a link to the folder.
    app.run(npm, "install", "--install-links", "../part")
    assert not (app.folder / "node_modules/part").is_symlink()
    assert "part, installed" in app.run(npm, "run", "part")
    app.run(npm, "ci", "--install-links")
    app.run(npm, "uninstall", "part")
    assert not (app.folder / "node_modules/part").exists()


MAKEFILE = """
CFLAGS = -Wall
program: main.o part.o
\t$(CC) -o $@ $^
%.o: %.c part.h
\t$(CC) $(CFLAGS) -c -o $@ $<
clean:
\trm -f program *.o
"""


def test_make(place: Place) -> None:
    place.write("Makefile", MAKEFILE)
    place.write("part.h", "int part(void);\n")
    place.write("part.c", '#include "part.h"\nint part(void) { return 42; }\n')
    main = '#include <stdio.h>\n#include "part.h"\nint main(void) { printf("%d\\n", part()); }\n'
    place.write("main.c", main)
    place.run("make", "-j2")
    assert place.run("./program") == "42\n"
    assert "up to date" in place.run("make")
    # Only what depends on the changed file is made again, also when times differ by little.
    made = {name: os.stat(place.folder / name).st_mtime_ns for name in ("main.o", "part.o")}
    place.write("part.c", '#include "part.h"\nint part(void) { return 43; }\n')
    place.run("make")
    assert place.run("./program") == "43\n"
    assert os.stat(place.folder / "main.o").st_mtime_ns == made["main.o"]
    assert os.stat(place.folder / "part.o").st_mtime_ns > made["part.o"]
    place.run("make", "clean")
    assert sorted(os.listdir(place.folder)) == ["Makefile", "main.c", "part.c", "part.h"]
