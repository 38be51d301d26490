"""What the figures were taken on, and tables of them."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

_TOOLS = {
    "bindfs": ("bindfs", "--version"),
    "fio": ("fio", "--version"),
    "ripgrep": ("rg", "--version"),
    "git": ("git", "--version"),
    "libfuse": ("fusermount3", "--version"),
}


def describe(folder: Path) -> list[str]:
    """Return lines that name the machine, the versions, and what else it does at the moment."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    now = datetime.datetime.now(datetime.UTC)
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {version(name)}" for name in ("fusefs", "pyfuse3", "trio", "lmdb")]
    versions += [f"{name} {_said(command)}" for name, command in _TOOLS.items()]
    return [
        f"date: {now:%Y-%m-%d %H:%M} UTC",
        f"machine: {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB",
        f"kernel: {platform.release()}; files on {_file_system(folder)}",
        f"versions: {', '.join(versions)}",
        f"load average at the start (1, 5, 15 minutes): {load}",
    ]


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, aligned to be read as text too; figures stand to the right."""
    widths = [max(len(row[at]) for row in (heading, *rows)) for at in range(len(heading))]

    def line(cells: Sequence[str]) -> str:
        first, *others = [
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join((first, *others))} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(map(line, (heading, rule, *rows)))


def seconds(value: float) -> str:
    """Return a duration with three digits that mean something."""
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def ratio(value: float) -> str:
    """Return a factor with two or three digits that mean something."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _said(command: Sequence[str]) -> str:
    if shutil.which(command[0]) is None:
        return "(not installed)"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    words = (done.stdout or done.stderr).splitlines()[0].split()
    numbers = [word.removeprefix("fio-") for word in words]
    return next((word for word in numbers if word[0].isdigit()), words[-1])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Return the type of the file system that `folder` is on."""
    best, kind = Path("/"), "?"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        top = Path(fields[4])
        if (top == folder or top in folder.parents) and len(top.parts) >= len(best.parts):
            best, kind = top, fields[fields.index("-") + 1]
    return kind
