"""Questions with known answers, on data that was written by others for other purposes.

- Debian's manual pages: what `whatis` prints, with the names and without them, is to find the page.
  The section NAME, where it stands, is taken out of the page.
- Functions of installed Python packages: the first line of a docstring is to find the function,
  from which the docstring is taken out. Each is a file of its own.
- The history of a repository: a commit's subject is to find the files that it changed.
"""

from __future__ import annotations

import ast
import gzip
import random
import re
import subprocess
import sysconfig
import tempfile
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MAN_PACKAGES = (
    "apt", "bash", "coreutils", "dpkg", "e2fsprogs", "git-man", "groff-base", "iproute2", "man-db",
    "manpages", "manpages-dev", "openssh-client", "openssl", "procps", "systemd", "util-linux",
)  # fmt: skip
"""Debian packages whose manual pages are taken."""

_SEED = 20
_PAGES = 1_200
_FUNCTIONS = 3_000
_QUESTIONS = 1_000
_MOST_PAGE_BYTES = 60_000
_LEAST_WORDS = 4
_MOST_CHANGED = 5
_DASH = " - "
_SECTION = re.compile(r"^\S", re.MULTILINE)


class Question(NamedTuple):
    """What is asked, and the paths of the documents that answer it."""

    text: str
    answers: frozenset[str]


@dataclass(frozen=True)
class Collection:
    """Documents by path, and questions of several kinds."""

    name: str
    documents: Mapping[str, str]
    questions: Mapping[str, Sequence[Question]]


def man_pages() -> Collection:
    """Return Debian's manual pages, downloaded from where apt has its packages."""
    with tempfile.TemporaryDirectory(prefix="fusefs-bench-") as folder:
        subprocess.run(["apt-get", "download", "-qq", *MAN_PACKAGES], cwd=folder, check=True)
        for package in sorted(Path(folder).glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        # Links, and pages that only include another one, are its other names.
        files = [
            file
            for file in sorted(Path(folder).glob("usr/share/man/man[1-8]/*.gz"))
            if not file.is_symlink()
        ]
        sources = {
            file.name.removesuffix(".gz"): gzip.decompress(file.read_bytes()) for file in files
        }
    names = sorted(name for name, source in sources.items() if not source.startswith(b".so"))
    chosen = random.Random(_SEED).sample(names, _PAGES)
    with ThreadPoolExecutor(2) as threads:
        texts = threads.map(_rendered, (sources[name] for name in chosen))
        pages = dict(zip(chosen, texts, strict=True))
    documents, lines, descriptions = {}, {}, {}
    for name, text in pages.items():
        parted = _without_name(text)
        if parted is not None and len(text) <= _MOST_PAGE_BYTES:
            line, documents[name] = parted
            lines[name], descriptions[name] = line, line.partition(_DASH)[2]
    return Collection(
        "manual pages",
        documents,
        {"description": _questions(descriptions), "names and description": _questions(lines)},
    )


def _rendered(source: bytes) -> str:
    command = ["groff", "-mandoc", "-t", "-Tutf8", "-P-cbou", "-rLL=80n", "-rHY=0"]
    done = subprocess.run(command, input=source, capture_output=True, check=True)
    return done.stdout.decode()


def _without_name(page: str) -> tuple[str, str] | None:
    """Return what is in the section NAME of a page, and the page without it."""
    found = re.search(r"^N(AME|ame)\n", page, re.MULTILINE)
    if found is None:
        return None
    end = _SECTION.search(page, found.end())
    section = " ".join(page[found.end() : end.start() if end else len(page)].split())
    line = section.replace("\u2010", "-")
    if _DASH not in line:
        return None
    return line, page[: found.start()] + (page[end.start() :] if end else "")


def functions() -> Collection:
    """Return functions of the standard library and of installed packages."""
    found: dict[str, tuple[str, str]] = {}
    tops = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib")]
    files = [(top, file.relative_to(top)) for top in tops for file in sorted(top.rglob("*.py"))]
    random.Random(_SEED).shuffle(files)
    for top, inside in files:
        # Below the standard library are packages of the interpreter, which are no part of it.
        if "site-packages" in inside.parts or len(found) > 2 * _FUNCTIONS:
            continue
        for name, asked, source in _functions_of(top / inside):
            found[f"{inside.with_suffix('')}/{name}.py"] = asked, source
    asked_of = Counter(asked for asked, _ in found.values())
    sources = Counter(source for _, source in found.values())
    names = sorted(
        name for name, (asked, source) in found.items() if asked_of[asked] == sources[source] == 1
    )
    chosen = random.Random(_SEED).sample(names, _FUNCTIONS)
    # By its path alone nothing is to be found.
    paths = {name: f"{number:05}.py" for number, name in enumerate(chosen)}
    return Collection(
        "functions",
        {paths[name]: found[name][1] for name in chosen},
        {"docstring": _questions({paths[name]: found[name][0] for name in chosen})},
    )


def _functions_of(file: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, first line of the docstring, and source without it, of a file's functions."""
    try:
        text = file.read_text()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    lines = text.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        asked = (ast.get_docstring(node) or "").strip().partition("\n")[0].strip()
        if len(asked.split()) < _LEAST_WORDS or len(node.body) < 2:
            continue
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        inner = node.body[0]
        if inner.lineno == node.lineno or inner.end_lineno == node.body[1].lineno:
            continue
        source = [*lines[first - 1 : inner.lineno - 1], *lines[inner.end_lineno : node.end_lineno]]
        yield f"{node.lineno}-{node.name}", asked, textwrap.dedent("\n".join(source)) + "\n"


def commits(repository: Path) -> Collection:
    """Return the files of a repository, asked for by the subjects of commits."""
    documents = {}
    for path in _git(repository, "ls-files", "-z").split("\0")[:-1]:
        try:
            documents[path] = (repository / path).read_text()
        except (OSError, UnicodeDecodeError):
            continue
    log = _git(
        repository, "log", "--no-merges", "--name-only", "--no-renames", "--format=%x01%s%x02"
    )
    asked = []
    for entry in log.split("\1")[1:]:
        subject, _, names = entry.partition("\2")
        changed = set(names.split("\n")) - {""}
        answers = frozenset(changed & documents.keys())
        if answers and len(changed) <= _MOST_CHANGED and len(subject.split()) >= _LEAST_WORDS:
            asked.append(Question(subject, answers))
    random.Random(_SEED).shuffle(asked)
    return Collection("commits", documents, {"subject": asked[:_QUESTIONS]})


def _git(repository: Path, *words: str) -> str:
    command = ["git", "-C", str(repository), "-c", "core.quotepath=off", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _questions(asked: Mapping[str, str]) -> list[Question]:
    """Return questions that one document answers; those with several answers are left out."""
    times = Counter(asked.values())
    found = [
        Question(text, frozenset([path]))
        for path, text in asked.items()
        if times[text] == 1 and len(text.split()) >= 2
    ]
    random.Random(_SEED).shuffle(found)
    return found[:_QUESTIONS]
