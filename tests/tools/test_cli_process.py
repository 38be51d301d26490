"""A command in a process of its own says what it says in the process of the tests."""

from __future__ import annotations

import pytest

from fusefs.tools.cli.app import _MODULES
from tests.conftest import Cli, Quick

COMMANDS = {
    "transfer": ["bind", "--json"],
    "sessions": ["session", "show", "narrow"],
    "mounts": ["mounts", "--json"],
    "tree": ["cat", "/Dir1/FILE1.txt", "--session", "narrow"],
    "repositories": ["repo", "list"],
    "staging": ["status", "/Dir1"],
    "forges": ["branch", "list", "/Dir1"],
    "log": ["log", "verify", "--json"],
    "care": ["trash", "list"],
    "backup": ["restore", "/missing", "--json"],
    "doctor": ["doctor", "--session", "nobody"],
    "conformance": ["conformance", "/dev/null"],
    "completion": ["completion", "fish"],
    "finding": ["glob", "**", "/Dir1"],
    "search": ["search", "one", "/Dir1", "--mode", "words"],
    "index": ["index", "status", "--json"],
}
"""A command line of each module."""


@pytest.mark.parametrize("module", sorted(set(_MODULES.values())))
def test_it_says_the_same(filled: Quick, process: Cli, module: str) -> None:
    assert _MODULES[COMMANDS[module][0]] == module
    here, apart = (command(*COMMANDS[module], expect=None) for command in (filled, process))
    assert here == apart
    assert here.out or here.err
