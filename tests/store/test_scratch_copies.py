"""Copies of files to write in, whatever the file systems can do."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest

from fusefs.store.scratch import ScratchFiles


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_of_another_file_system_is_copied(tmp_path: Path, number: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"begin" * 50_000)
    os.truncate(source, 1 << 20)
    with source.open("r+b") as file:
        file.seek((1 << 20) - 3)
        file.write(b"end")
    refusal = OSError(number, os.strerror(number))
    with (
        mock.patch("fcntl.ioctl", side_effect=refusal),
        mock.patch("os.copy_file_range", side_effect=refusal),
    ):
        copy = ScratchFiles(tmp_path).copy(source, 1 << 20)
    assert copy.read_bytes() == source.read_bytes()
