"""What README and docs show is true: the commands are run, the names they mention exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import click
import pytest

from fusefs.tools.cli.app import app
from tests.conftest import mountpoints, unmount

TOP = Path(__file__).parents[2]
DOCUMENTS = sorted([TOP / "README.md", *TOP.glob("docs/*.md"), TOP / "CONTRIBUTING.md"])


def tour() -> list[str]:
    """The commands of the README's tour, one a line."""
    text = (TOP / "README.md").read_text()
    section = text.split("## A tour of five minutes")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def test_the_tour_works_when_pasted(tmp_path):
    script = ["failures=0"]
    for line in tour():
        if line.startswith("make setup"):
            continue  # that is how these tests came to run
        wanted = "-ne" if "# refused" in line else "-eq"
        script += [
            f"echo {shlex.quote('$ ' + line)}",
            line,
            f"test $? {wanted} 0 || {{ echo NOT AS SHOWN: {shlex.quote(line)}; failures=1; }}",
        ]
    script.append("exit $failures")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)], cwd=TOP, check=False, timeout=300, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path), "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    finally:
        for mountpoint in mountpoints():
            if Path(mountpoint).is_relative_to(tmp_path):
                unmount(Path(mountpoint))
    assert done.returncode == 0, done.stdout
    assert "# ours" in done.stdout
    assert "No problems found." in done.stdout


def test_the_demo(tmp_path):
    done = subprocess.run(
        [TOP / "docs/demo.sh", Path(sys.executable).parent / "fusefs"], check=False, timeout=300,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_options_exist(document):
    """Every `fusefs ...` in the documents names a command, and options that it has."""
    text = document.read_text().replace("\\|", "|").replace("\\\n", " ")
    blocks = re.findall(r"`(fusefs [^`\n]+)`", text)
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        blocks += re.findall(r"(?:^|&& |; )(fusefs [^\n#;&|]+)", block, re.MULTILINE)
    for line in blocks:
        command: click.Command = app
        context = click.Context(app)
        for before, word in pairwise(line.split()):
            if isinstance(command, click.Group) and not word.startswith("-"):
                if before.startswith("-"):
                    continue  # an option's value
                if word in {"COMMAND", "NAME"} or word.isupper():
                    break
                found = command.get_command(context, word.rstrip(",;"))
                assert found is not None, line
                command = found
            elif word.startswith("--"):
                known = {option for param in command.params for option in param.opts}
                assert word.partition("=")[0].rstrip(",;)") in known | {"--help"}, line
