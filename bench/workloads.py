"""The work that is measured. Each workload returns seconds by what was timed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import trees
from bench.peers import Peer, run

Figures = dict[str, float]

_FIO_READS = 20_000
_MIB = 1 << 20


@dataclass(frozen=True)
class Sizes:
    """How much work there is.

    Attributes:
        files: for walks and reads.
        unpacked: files in the archive.
        tracked: files in the repository.
        small: files to create, and to open.
        large: bytes of the one large file.
        reads: random reads in it.
    """

    files: int
    unpacked: int
    tracked: int
    small: int
    large: int
    reads: int

    @classmethod
    def scaled(cls, scale: float, large_mib: int | None) -> Sizes:
        """Return the full sizes times `scale`; the large file's can be given in MiB."""

        def count(full: int) -> int:
            return max(int(full * scale), 100)

        large = max(int(1024 * scale), 16) if large_mib is None else large_mib
        return cls(
            files=count(20_000),
            unpacked=count(5_000),
            tracked=count(10_000),
            small=count(10_000),
            large=large * _MIB,
            reads=count(_FIO_READS),
        )


@dataclass
class Site:
    """A peer with the trees in it.

    Attributes:
        materials: host folder with what is put in and with lists of paths.
    """

    peer: Peer
    sizes: Sizes
    materials: Path

    @property
    def top(self) -> Path:
        return self.peer.top


def make_materials(folder: Path, sizes: Sizes, wanted: set[str]) -> None:
    """Make the trees that the `wanted` workloads use, on the host."""
    if wanted & {"find", "rg", "cat", "open"}:
        trees.small_files(folder / "files", sizes.files)
        listed = trees.paths(folder / "files")
        (folder / "files.list").write_text("\0".join(f"files/{path}" for path in listed) + "\0")
    if "tar" in wanted:
        trees.small_files(folder / "unpacked", sizes.unpacked)
        run("tar", "cf", folder / "unpacked.tar", "-C", folder, "unpacked")
    if "git" in wanted:
        trees.repository(folder / "repository", sizes.tracked)


def fill(site: Site) -> None:
    """Put the trees into a peer."""
    for name in ("files", "repository"):
        tree = site.materials / name
        if tree.exists():
            site.peer.fill(tree, name)


def find(site: Site) -> Figures:
    def walk() -> float:
        return _timed("find", "files", "-ls", cwd=site.top)

    site.peer.fresh()
    return {"find -ls, cold": walk(), "find -ls, warm": walk()}


def rg(site: Site) -> Figures:
    def search() -> float:
        return _timed("rg", "-c", trees.NEEDLE, "files", cwd=site.top)

    site.peer.fresh()
    return {"rg, cold": search(), "rg, warm": search()}


def cat(site: Site) -> Figures:
    names = site.materials / "files.list"

    def read() -> float:
        return _timed("xargs", "-0", "-a", str(names), "cat", cwd=site.top)

    site.peer.fresh()
    return {"cat, cold": read(), "cat, warm": read()}


def tar(site: Site) -> Figures:
    archive = site.materials / "unpacked.tar"
    site.peer.fresh()
    unpacking = _timed("tar", "xf", str(archive), cwd=site.top)
    site.peer.fresh()
    return {"tar x": unpacking, "rm -r": _timed("rm", "-r", "unpacked", cwd=site.top)}


def large(site: Site) -> Figures:
    blocks = site.sizes.large // _MIB
    site.peer.fresh()
    writing = _timed(
        "dd", "if=/dev/zero", "of=large", "bs=1M", f"count={blocks}", "status=none", cwd=site.top
    )

    def read() -> float:
        return _timed("dd", "if=large", "of=/dev/null", "bs=1M", "status=none", cwd=site.top)

    site.peer.fresh()  # unmounting waits for what still happens to the file after its close
    reading = {"read, cold": read(), "read, warm": read()}
    site.peer.fresh()
    random_reads = {"random 4 KiB, cold": _fio(site), "random 4 KiB, warm": _fio(site)}
    (site.top / "large").unlink()
    return {"write": writing, **reading, **random_reads}


def _fio(site: Site) -> float:
    """Read blocks in an order that is the same each time; contents are in the host's cache."""
    done = subprocess.run(
        [
            "fio", "--name=random", f"--filename={site.top / 'large'}", "--rw=randread",
            "--bs=4k", "--ioengine=psync", "--invalidate=0", "--readonly",
            f"--number_ios={site.sizes.reads}", "--output-format=json",
        ],
        stdout=subprocess.PIPE,
        check=True,
    )  # fmt: skip
    read = json.loads(done.stdout)["jobs"][0]["read"]
    return float(read["total_ios"]) / float(read["iops"])


def git(site: Site) -> Figures:
    def status() -> float:
        return _timed("git", "status", "--porcelain", cwd=site.top / "repository")

    site.peer.fresh()
    status()  # the index learns this peer's inode numbers and times
    site.peer.fresh()
    return {"git status, cold": status(), "git status, warm": status()}


def create(site: Site) -> Figures:
    """Create, write and close files of some hundred bytes, in folders of a hundred."""
    count = site.sizes.small
    site.peer.fresh()
    top = site.top / "created"
    top.mkdir()
    folders = [f"{top}/{number}" for number in range(0, count, 100)]
    for folder in folders:
        os.mkdir(folder)
    began = time.perf_counter()
    for number in range(count):
        fd = os.open(
            f"{folders[number // 100]}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644
        )
        os.write(fd, b"file number %d\n" % number * 20)
        os.close(fd)
    seconds = time.perf_counter() - began
    shutil.rmtree(top)
    return {"create+write+close": seconds}


def open_files(site: Site) -> Figures:
    """Open, read and close small files."""
    listed = (site.materials / "files.list").read_text().split("\0")[: site.sizes.small]

    def read() -> float:
        names = [f"{site.top}/{name}" for name in listed if name]
        began = time.perf_counter()
        for name in names:
            fd = os.open(name, os.O_RDONLY)
            os.read(fd, 65536)
            os.close(fd)
        return time.perf_counter() - began

    site.peer.fresh()
    return {"open+read+close, cold": read(), "open+read+close, warm": read()}


WORKLOADS: dict[str, Callable[[Site], Figures]] = {
    "find": find,
    "rg": rg,
    "cat": cat,
    "open": open_files,
    "create": create,
    "tar": tar,
    "git": git,
    "large": large,
}


def _timed(*command: str, cwd: Path) -> float:
    """Return the seconds that a command takes; its output goes nowhere."""
    # ripgrep says by 1 that it found nothing.
    accepted: Sequence[int] = (0, 1) if command[0] == "rg" else (0,)
    began = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode not in accepted:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode('utf-8', 'replace')[:500]}")
    return seconds
