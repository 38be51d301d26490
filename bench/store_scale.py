"""How the store grows: import, lookup, listing, check and gc of 10^4 to 10^6 small files.

    python bench/store_scale.py [FILES ...]

The files are made on the host first, 20 to a directory, each with content of its own, and are
imported as `fusefs import` does. Prints one line of figures for each size.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fusefs.session.session import Session
from fusefs.session.transfer import import_directory
from fusefs.store.check import check
from fusefs.store.instance import Instance
from fusefs.store.maintenance import collect

FILES_PER_DIRECTORY = 20
DIRECTORIES_PER_SHELF = 200
PROBES = 2000


def make_host_tree(top: Path, files: int) -> None:
    for number in range(files // FILES_PER_DIRECTORY):
        folder = top / f"s{number // DIRECTORIES_PER_SHELF}" / f"d{number}"
        folder.mkdir(parents=True)
        for inner in range(FILES_PER_DIRECTORY):
            fd = os.open(folder / f"f{inner}", os.O_WRONLY | os.O_CREAT)
            os.write(fd, b"%d/%d " % (number, inner) * 40)
            os.close(fd)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(files: int, folder: Path) -> None:
    host = folder / "host"
    make_host_tree(host, files)
    instance = Instance.init(folder / "instance")
    session = Session(instance)
    seconds = timed(lambda: import_directory(session, host, "/tree", lambda progress: None))
    shutil.rmtree(host)
    instance.close()

    instance = Instance.open(folder / "instance")
    session = Session(instance)
    chosen = random.Random(1)
    directories = files // FILES_PER_DIRECTORY
    paths = []
    for _ in range(PROBES):
        number = chosen.randrange(directories)
        shelf = number // DIRECTORIES_PER_SHELF
        paths.append(f"/tree/s{shelf}/d{number}/f{chosen.randrange(FILES_PER_DIRECTORY)}")
    lookup = timed(lambda: [session.stat(path) for path in paths]) / PROBES
    parents = [path.rpartition("/")[0] for path in paths]
    listing = timed(lambda: [session.list(path) for path in parents]) / PROBES
    checking = timed(lambda: check(instance))
    collecting = timed(lambda: collect(instance))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    used = instance.sizes()[0] / files
    instance.close()
    print(
        f"{files:>9,} files: import {files / seconds:7,.0f}/s, "
        f"lookup by path {lookup * 1e6:5.0f} us, "
        f"listing of {FILES_PER_DIRECTORY} {listing * 1e6:5.0f} us, "
        f"check {checking:6.1f} s, gc {collecting:6.1f} s, "
        f"store {used:,.0f} bytes/file, peak memory {peak:,.0f} MiB",
        flush=True,
    )


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or [10**4, 10**5, 10**6]
    for files in sizes:
        folder = Path(tempfile.mkdtemp(prefix="fusefs-bench-"))
        try:
            measure(files, folder)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
