"""What a mount needs of the machine: is it there, and how to get what is not."""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from fusefs.store.findings import Finding, Verdict

FUSE_DEVICE = Path("/dev/fuse")
FUSE_CONFIG = Path("/etc/fuse.conf")
MIN_OPEN_FILES = 4096


def examine() -> Iterator[Finding]:
    """Look at one thing after another; nothing is changed."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", Verdict.OK, version)
    yield from _packages()
    yield _library()
    yield _device()
    yield _fusermount()
    yield _other_users()
    yield _bubblewrap()
    yield _open_files()


def _packages() -> Iterator[Finding]:
    from importlib import metadata

    try:
        requirements = metadata.requires("fusefs") or []
    except metadata.PackageNotFoundError:
        yield Finding(
            "package fusefs", Verdict.OPTIONAL, "runs from a folder, not installed",
            "pip install .",
        )
        return
    for requirement in requirements:
        if ";" in requirement:  # an extra
            continue
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            yield Finding(f"package {name}", Verdict.OK, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(
                f"package {name}", Verdict.MISSING, "not installed", f"pip install '{requirement}'"
            )


def _library() -> Finding:
    try:
        import_module("fusefs.daemon.serve")
    except ImportError as error:
        return Finding("libfuse3", Verdict.MISSING, str(error), "apt-get install fuse3")
    return Finding("libfuse3", Verdict.OK, "loads")


def _device() -> Finding:
    name = str(FUSE_DEVICE)
    if not FUSE_DEVICE.exists():
        return Finding(
            name, Verdict.MISSING, "not there",
            "modprobe fuse; in a container, start it with --device /dev/fuse",
        )  # fmt: skip
    if os.access(FUSE_DEVICE, os.R_OK | os.W_OK):
        return Finding(name, Verdict.OK, "can be opened")
    return Finding(
        name, Verdict.MISSING, "cannot be opened by this user",
        "as root: chmod 666 /dev/fuse, as distributions have it",
    )


def _fusermount() -> Finding:
    found = shutil.which("fusermount3")
    if found is None:
        needed = Verdict.OPTIONAL if os.geteuid() == 0 else Verdict.MISSING
        return Finding(
            "fusermount3", needed, "not found; ordinary users mount through it",
            "apt-get install fuse3",
        )
    if os.geteuid() == 0 or Path(found).stat().st_mode & 0o4000:
        import subprocess

        version = subprocess.run(
            [found, "--version"], capture_output=True, text=True, check=False
        ).stdout.strip()
        return Finding("fusermount3", Verdict.OK, version.rpartition(" ")[2] or found)
    return Finding(
        "fusermount3", Verdict.MISSING, f"{found} is not setuid root",
        f"as root: chmod u+s {found}; a user namespace of your own needs no setuid",
    )


def _other_users() -> Finding:
    name = "--allow-other"
    if os.geteuid() == 0:
        return Finding(name, Verdict.OK, "root may")
    try:
        lines = FUSE_CONFIG.read_text().splitlines()
    except OSError:
        lines = []
    if any(line.split("#")[0].strip() == "user_allow_other" for line in lines):
        return Finding(name, Verdict.OK, f"user_allow_other stands in {FUSE_CONFIG}")
    return Finding(
        name, Verdict.OPTIONAL, "only the user who mounts can use the mount",
        f"as root: echo user_allow_other >> {FUSE_CONFIG}",
    )


def _bubblewrap() -> Finding:
    if found := shutil.which("bwrap"):
        return Finding("bubblewrap", Verdict.OK, found)
    return Finding(
        "bubblewrap", Verdict.OPTIONAL, "not found; a sandbox around a view uses it",
        "apt-get install bubblewrap",
    )


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= MIN_OPEN_FILES:
        return Finding("open files", Verdict.OK, f"limit {soft}, may be raised to {hard}")
    return Finding(
        "open files", Verdict.OPTIONAL, f"at most {hard} for a process",
        f"raise the hard limit (ulimit -Hn, LimitNOFILE=) to {MIN_OPEN_FILES} or more",
    )
