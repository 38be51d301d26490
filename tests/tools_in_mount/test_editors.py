"""The ways in which editors replace a file: nothing but the change is to be seen afterwards."""

from __future__ import annotations

import os

import pytest

from tests.tools_in_mount.place import Place

BEFORE, AFTER = "one\ntwo\nthree\n", "one\n2\nthree\n"

# It makes no copies in /tmp, unless told to.
VIM = ("vim", "-es", "-u", "NONE", "-c", "set backupskip=")
EDITORS = {
    # Written over in place, after a copy of the old content.
    "vim copies": [*VIM, "-c", "set backupcopy=yes writebackup swapfile"],
    # Moved away and written anew.
    "vim renames": [*VIM, "-c", "set backupcopy=no writebackup swapfile"],
    # The old content stays, under another name.
    "vim keeps": [*VIM, "-c", "set backup backupcopy=auto backupdir=. fsync"],
    # A new file, moved over the old one.
    "sed": ["sed", "-i", "-e", "s/two/2/"],
    "sed keeps": ["sed", "-i~", "-e", "s/two/2/"],
}


@pytest.mark.parametrize("editor", EDITORS)
def test_a_line_is_changed(place: Place, editor: str) -> None:
    file = place.write("file", BEFORE)
    file.chmod(0o750)
    place.write("other", BEFORE)
    command = [*EDITORS[editor], "file"]
    if command[0] == "vim":
        command += ["-c", "%s/two/2/", "-c", "wq"]
    place.run(*command)
    assert file.read_text() == AFTER
    assert os.stat(file).st_mode & 0o7777 == 0o750
    kept = ["file~"] if "keeps" in editor else []
    assert sorted(os.listdir(place.folder)) == ["file", *kept, "other"]
    for name in kept:
        assert (place.folder / name).read_text() == BEFORE


def test_vim_recovers_what_was_not_saved(place: Place) -> None:
    file = place.write("file", BEFORE)
    # The swap file outlives an editor that is killed.
    place.run(*VIM, "file", "-c", "%s/two/2/", "-c", "preserve",
              "-c", "call system('kill -9 ' . getpid())", status=-9)  # fmt: skip
    assert file.read_text() == BEFORE
    assert ".file.swp" in os.listdir(place.folder)
    place.run(*VIM, "-r", "file", "-c", "wq")
    assert file.read_text() == AFTER
