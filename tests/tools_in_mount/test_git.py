"""`git` with a repository of some size in a mount."""

from __future__ import annotations

from tests.tools_in_mount.place import Place


def test_a_repository_is_kept_sound(place: Place) -> None:
    origin = Place(place.home, place.home).below(f"origin-{place.folder.parent.name}")
    origin.run("git", "init", "-q", "-b", "main")
    commits = 20
    for number in range(commits):
        for name in ("a", "b/c", f"many/{number}"):
            folder = origin.below(name)
            for file in range(5):
                folder.write(f"file{file}", f"{name} {file} {number}\n" * 50)
        origin.run("git", "add", "--all")
        origin.run("git", "commit", "-q", "-m", f"Commit {number}")
    place.run("git", "clone", "-q", f"file://{origin.folder}", "clone")
    clone = place.below("clone")
    assert clone.run("git", "status", "--porcelain") == ""
    clone.run("git", "switch", "-q", "-c", "topic")
    clone.write("a/file0", "changed\n")
    clone.run("git", "rm", "-q", "-r", "many/0")
    clone.run("git", "mv", "b", "d")
    clone.run("git", "commit", "-q", "-a", "-m", "Change")
    clone.run("git", "switch", "-q", "main")
    clone.write("a/file1", "changed too\n")
    clone.run("git", "commit", "-q", "-a", "-m", "Change too")
    clone.run("git", "merge", "-q", "-m", "Merge", "topic")
    clone.run("git", "gc", "-q", "--prune=now")
    assert clone.run("git", "fsck", "--full", "--strict", "--no-progress") == ""
    assert clone.run("git", "status", "--porcelain") == ""
    assert clone.run("git", "rev-list", "--count", "HEAD").strip() == str(commits + 3)
    tree = clone.run("git", "rev-parse", "HEAD^{tree}")
    copy = origin.below("copy")
    copy.run("git", "clone", "-q", f"file://{clone.folder}", ".")
    assert copy.run("git", "rev-parse", "HEAD^{tree}") == tree
    assert copy.run("git", "fsck", "--full", "--strict", "--no-progress") == ""
