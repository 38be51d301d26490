"""Repositories in live mounts: they come and go, say what they are, and people work in them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Cli, Mount
from tests.daemon.conftest import until
from tests.repositories.remote import Remote, git

POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "forge", {"a": "a\n", "d/b": "b\n"})


def test_a_repository_comes_and_goes_while_mounted(cli: Cli, mount: Mount, remote: Remote) -> None:
    cli("session", "create", "s", "--grant", "/=commit")
    view = mount("s")
    assert not (view / "p").exists()
    cli("repo", "add", remote.url, "/p")
    until((view / "p/a").exists)
    assert sorted(os.listdir(view / "p")) == ["a", "d"]
    inside = os.open(view / "p/d", os.O_RDONLY)
    file = (view / "p/d/b").open("rb")
    (view / "p/d/b").write_text("changed\n")
    refused = cli("repo", "rm", "/p", expect=1)
    assert "staged changes of s" in refused.err
    assert (view / "p/a").read_text() == "a\n"
    cli("repo", "rm", "--force", "/p")
    until(lambda: os.listdir(view / "p") == [])
    assert not (view / "p/a").exists()
    for name in ("b", "new"):
        until(partial(is_gone, name, inside))
    with pytest.raises(FileNotFoundError):
        os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=inside)
    assert file.read() == b"changed\n"
    file.close()
    os.close(inside)
    (view / "p/mine").write_text("of the tree\n")
    assert cli("cat", "/p/mine").out == "of the tree\n"
    (view / "p/mine").unlink()
    cli("repo", "add", remote.url, "/p")
    until((view / "p/a").exists)
    assert (view / "p/d/b").read_text() == "b\n"


@pytest.mark.parametrize("grants", [["/p/d=ro"], ["/p=ro", "/p/d=none", "/p/d/b=ro"]])
def test_a_repository_that_is_mounted_anew_is_seen_through_a_passage(
    cli: Cli, mount: Mount, remote: Remote, grants: list[str]
) -> None:
    cli("session", "create", "s", *(f"--grant={grant}" for grant in grants))
    cli("repo", "add", remote.url, "/p")
    view = mount("s")
    inside = os.open(view / "p/d", os.O_PATH)  # the kernel keeps the way to it
    cli("repo", "rm", "/p")
    until(lambda: not (view / "p/d/b").exists())
    cli("repo", "add", remote.url, "/p")
    until((view / "p/d/b").exists)
    os.close(inside)


def is_gone(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory)
    except FileNotFoundError:
        return True
    return False


def test_what_is_in_a_repository_says_so(cli: Cli, mount: Mount, remote: Remote) -> None:
    git(remote.clone, "update-index", "--add", "--cacheinfo", f"160000,{remote.tip()},sub")
    git(remote.clone, "commit", "-q", "-m", "submodule")
    (remote.clone / "sub").mkdir()
    remote.commit("pointer", {"large.bin": POINTER, ".gitattributes": "*.bin filter=lfs\n"})
    cli("repo", "add", remote.url, "/p")
    cli("session", "create", "s", "--grant", "/=commit")
    cli("session", "create", "talk", "--world", "chat", "--grant", "/=ro")
    view = mount("s")

    def told(name: str, attribute: str) -> str:
        return os.getxattr(view / name, f"user.fusefs.{attribute}").decode()

    kinds = {name: told(name, "kind") for name in ("", "p", "p/d", "p/a", "p/sub", "p/large.bin")}
    assert kinds == {
        "": "dir", "p": "mount", "p/d": "dir", "p/a": "file", "p/sub": "submodule",
        "p/large.bin": "lfs pointer",
    }  # fmt: skip
    assert "dir (submodule)" in cli("stat", "/p/sub").out
    assert cli("stat", "/p/large.bin", "--json").json["mark"] == "lfs pointer"
    assert "mark" not in cli("stat", "/p/a", "--json").json
    assert cli("ls", "/", "--session", "talk").out == "p/ [mount]\n"
    assert cli("ls", "/", "--session", "s").out == "p/\n"
    assert {told(name, "branch") for name in ("p", "p/d/b", "p/sub")} == {"main"}
    assert [told(name, "staged") for name in ("p", "p/d", "p/a")] == ["0", "0", "0"]
    for name in ("branch", "staged"):
        with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
            told("", name)
    # A submodule is an empty directory in which nothing can be made.
    assert os.listdir(view / "p/sub") == []
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        (view / "p/sub/new").write_text("x")
    refused = cli("write", "/p/sub/new", "--session", "s", expect=1)
    assert refused.err.startswith("Read-only: /p/sub/new")
    (view / "p/d/b").unlink()
    (view / "p/d/c").write_text("c\n")
    (view / "p/a").write_text("changed\n")
    assert [told(name, "staged") for name in ("p", "p/d", "p/a", "p/d/c")] == ["3", "2", "1", "1"]
    assert cli("status", "/p", "--session", "s").out == " M a\n D d/b\n?? d/c\n"
    cli("commit", "-m", "x", "/p", "--session", "s")
    assert [told(name, "staged") for name in ("p", "p/d", "p/a")] == ["0", "0", "0"]
    assert git(remote.url, "ls-tree", "main", "sub").startswith("160000 commit")


PROJECT = {
    "Makefile": "PYTHON ?= python3\ntest:\n\t$(PYTHON) -m unittest -q\n.PHONY: test\n",
    "shop/__init__.py": "",
    "shop/prices.py": "def total(prices):\n    return sum(prices)\n",
    "tests/__init__.py": "",
    "tests/test_prices.py": "import unittest\nfrom shop.prices import total\n\n\n"
    "class Test(unittest.TestCase):\n    def test_total(self):\n"
    "        self.assertEqual(total([1, 2]), 3)\n",
    ".gitignore": "__pycache__/\n*.pyc\n",
}

WORKFLOW = r"""
set -ex
ls "$BEN/shop-project"   # a working copy begins when it is first looked at
cd "$ANN/shop-project"
make -s test PYTHON=$PYTHON
sed -i 's/sum(prices)/round(sum(prices), 2)/' shop/prices.py
printf 'def tax(price):\n    return price * 0.2\n' > shop/tax.py
make -s test PYTHON=$PYTHON
fusefs status /shop-project --session ann
fusefs commit -m 'Round totals' -m 'And add a tax.' /shop-project --session ann

cd "$BEN/shop-project"
test ! -e shop/tax.py
sed -i 's/sum(prices)/sum(prices, start=0)/' shop/prices.py
mv tests/test_prices.py tests/test_totals.py
make -s test PYTHON=$PYTHON
if fusefs commit -m 'Start at zero' /shop-project --session ben; then exit 8; fi
if fusefs sync /shop-project --session ben; then exit 7; fi
cd "$BEN/shop-project"
grep -q '<<<<<<< staged' shop/prices.py
test -e shop/tax.py -a -e tests/test_totals.py -a ! -e tests/test_prices.py
if make -s test PYTHON=$PYTHON 2>/dev/null; then exit 6; fi
printf 'def total(prices):\n    return round(sum(prices, start=0), 2)\n' > shop/prices.py
make -s test PYTHON=$PYTHON
fusefs diff /shop-project --session ben > "$OUT/ben.patch"
key=$(cat /proc/sys/kernel/random/uuid)
fusefs commit -m 'Start at zero' /shop-project --session ben --key $key
fusefs status /shop-project --session ben > "$OUT/status"

cd "$ANN/shop-project"
rm -r tests/__pycache__
fusefs sync /shop-project --session ann
cd "$ANN/shop-project"
make -s test PYTHON=$PYTHON
diff -r --exclude=__pycache__ . "$BEN/shop-project"
"""


def test_two_sessions_work_on_one_project(
    cli: Cli, mount: Mount, tmp_path: Path
) -> None:
    """With ordinary tools, in two mounts; what came of it is seen with plain git."""
    remote = Remote(tmp_path / "forge", PROJECT)
    cli("repo", "add", remote.url, "/shop-project")
    for name in ("ann", "ben"):
        cli("session", "create", name, "--grant", "/=ro", "--grant", "/shop-project=commit",
            "--user", f"{name.title()} <{name}@example.org>")  # fmt: skip
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", WORKFLOW], check=False, timeout=300, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": path, "ANN": str(mount("ann")), "BEN": str(mount("ben")),
             "PYTHONDONTWRITEBYTECODE": "", "PYTHON": sys.executable, "OUT": str(tmp_path),
             "FUSEFS_INSTANCE": str(cli.instance)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "status").read_text() == ""
    log = git(remote.url, "log", "--format=%an: %s", "main").splitlines()
    assert log == ["Ben: Start at zero", "Ann: Round totals", "Ann: first"]
    assert git(remote.url, "log", "-1", "--format=", "--name-status", "-M", "main").split() == [
        "M", "shop/prices.py", "R100", "tests/test_prices.py", "tests/test_totals.py",
    ]  # fmt: skip
    remote.pull()
    git(remote.clone, "checkout", "-q", "HEAD~1")
    git(remote.clone, "apply", "--index", tmp_path / "ben.patch")
    assert git(remote.clone, "write-tree").strip() == git(
        remote.url, "rev-parse", "main^{tree}"
    ).strip()
    assert git(remote.url, "fsck", "--strict") == ""
    assert "No problems" in cli("check").out
