"""How soon one mount's change is seen through another: milliseconds from close to read.

    python -m bench.coherence [WRITES]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_DEFAULT_WRITES = 200


def fusefs(instance: Path, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", "fusefs", "--instance", instance, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def delays(first: Path, second: Path, writes: int) -> list[float]:
    """Return the milliseconds until each of `writes` changes was readable in `second`."""
    found = []
    (first / "f").write_bytes(b"0")
    for number in range(1, writes + 1):
        wanted = b"%d" % number
        (first / "f").write_bytes(wanted)
        began = time.perf_counter()
        while True:
            try:
                if (second / "f").read_bytes() == wanted:
                    break
            except FileNotFoundError:
                pass
        found.append((time.perf_counter() - began) * 1000)
    return found


def main() -> None:
    writes = int(sys.argv[1]) if len(sys.argv) > 1 else _DEFAULT_WRITES
    with tempfile.TemporaryDirectory(prefix="fusefs-bench-") as name:
        folder = Path(name)
        instance = folder / "instance"
        fusefs(instance, "init")
        fusefs(instance, "session", "create", "s", "--grant", "/=stage")
        mounts = [folder / "first", folder / "second"]
        try:
            for mount in mounts:
                mount.mkdir()
                fusefs(instance, "mount", "s", mount, "--background")
            found = sorted(delays(mounts[0], mounts[1], writes))
        finally:
            for mount in mounts:
                if os.path.ismount(mount):
                    fusefs(instance, "umount", mount)
    print(
        f"{writes} writes: seen through the other mount after {statistics.median(found):.1f} ms "
        f"(median), {found[int(len(found) * 0.99)]:.1f} ms (p99), {found[-1]:.1f} ms (longest)"
    )


if __name__ == "__main__":
    main()
