"""`repo`, `status`, `diff`, `commit`, `sync`: repositories at the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli, Quick, on_terminal
from tests.repositories.remote import Remote, git

FILES = {"README": "read me\n", "src/a.py": "one\ntwo\nthree\n", "docs/b.md": "text\n"}


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    command = Quick(tmp_path / "instance")
    command("init")
    return command


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "forge", FILES)


@pytest.fixture
def project(cli: Cli, remote: Remote) -> Cli:
    """An instance with a repository at /project and sessions that see all or a part of it."""
    cli("repo", "add", remote.url, "/project")
    cli("session", "create", "all", "--grant", "/=ro", "--grant", "/project=commit",
        "--user", "Alice Doe <alice@example.org>")  # fmt: skip
    cli("session", "create", "part", "--grant", "/project/src=commit")
    return cli


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_a_repository_from_clone_to_commit(project, remote):
    listed = project("repo", "list", "--json").json["repositories"]
    assert [(r["path"], r["url"], r["branch"], r["forge"]) for r in listed] == [
        ("/project", str(remote.url), "main", "local")
    ]
    assert listed[0]["commit"] == remote.tip()
    work = ("--session", "all")
    assert project("cat", "/project/src/a.py", *work).out == FILES["src/a.py"]
    assert project("status", "/project", *work).out == ""
    project("write", "/project/src/a.py", *work, stdin=b"one\n2\nthree\n")
    project("write", "/project/new/deep/c.py", *work, stdin=b"c\n")
    project("rm", "/project/docs/b.md", *work)
    assert project("status", "/project", *work).out == " D docs/b.md\n M src/a.py\n?? new/\n"
    assert project("status", "/project/src", *work).out == " M src/a.py\n"
    listed = project("repo", "list", "--json").json["repositories"][0]
    assert [(s["session"], s["staged"]) for s in listed["sessions"]] == [("all", 3)]
    assert "3 by all" in project("repo", "list").out

    patch = project("diff", "/project", *work).out
    assert "\n-two\n+2\n" in patch and "+++ b/new/deep/c.py" in patch
    assert "src" not in project("diff", "/project/docs", "/project/new", *work).out
    subprocess.run(["git", "apply", "--check"], cwd=remote.clone, input=patch.encode(), check=True)

    done = project("commit", "-m", "Say it in digits", "-m", "More.", "/project", *work)
    assert done.out == f"Committed: [main {remote.tip()[:12]}] Say it in digits (3 files)\n"
    assert git(remote.url, "log", "-1", "--format=%an <%ae> %cn|%B", "main").strip() == (
        "Alice Doe <alice@example.org> Alice Doe|Say it in digits\n\nMore."
    )
    assert project("status", "/project", *work).out == ""
    again = project("commit", "-m", "Again", "/project", *work, expect=1)
    assert again.err == "Nothing to commit: nothing is staged in /project.\n"
    assert git(remote.url, "fsck") == ""
    log = project("repo", "log", "/project", *work).out
    assert log == git(remote.url, "log", "--no-decorate", "main")
    shown = project("repo", "show", "/project@HEAD~1", *work).out
    assert shown == git(remote.url, "show", "main~1")
    for name in ("main~1", remote.tip()[:7], remote.tip()):
        one = project("repo", "show", f"/project/src@{name}", *work).out
        assert one == git(remote.url, "show", name, "--", "src"), name
    assert "No problems" in project("check").out


def test_refusals_in_the_contracts_words(project):
    project("session", "create", "stager", "--grant", "/=ro", "--grant", "/project=stage")
    work = ("--session", "stager")
    project("write", "/project/README", *work, stdin=b"changed\n")
    for paths in (["/project"], ["/project/README"]):
        refused = project("commit", "-m", "x", *paths, *work, expect=1)
        assert refused.err == (
            f"Not committed: this session may change {'/project/README'} but not commit it; "
            "the change stays staged.\n"
        )
    outside = project("commit", "-m", "x", "/", *work, expect=1)
    assert outside.err == "Nothing to commit: / is not in a repository.\n"
    code = project("commit", "-m", "x", "/", *work, "--json", expect=1).json["error"]["code"]
    assert code == "FS_NOT_FOUND"
    for words in (["status"], ["diff"], ["sync"], ["repo", "log"], ["repo", "restore"]):
        refused = project(*words, "/", *work, expect=1)
        assert refused.err.startswith("Not in a repository: /. Give a path of the tree")
    assert project("commit", "-m", " ", "/project", *work, expect=2).err
    assert project("status", "/project", *work).out == " M README\n"
    hidden = project("status", "/project/README", "--session", "part", expect=1)
    assert hidden.err == "Access denied: /project/README is not open to this session.\n"


def test_a_part_is_shown_without_what_tells_of_the_rest(project, remote):
    remote.commit("docs only", {"docs/b.md": "other\n"})
    project("repo", "fetch", "/project")
    work = ("--session", "part")
    project("write", "/project/src/a.py", *work, stdin=b"mine\n")
    done = project("commit", "-m", "mine", "/project/src", *work, "--json").json
    assert done == {"branch": "main", "paths": ["/project/src/a.py"]}
    # What moved meanwhile is hidden: nobody can tell that it did.
    remote.pull()
    remote.commit("docs again", {"docs/b.md": "third\n"})
    project("write", "/project/src/a.py", *work, stdin=b"mine again\n")
    said = project("commit", "-m", "again", "/project/src", *work).out
    assert said == "Committed: [main] again (1 file)\n"
    assert git(remote.url, "show", "main:docs/b.md") == "third\n"
    assert project("sync", "/project/src", *work).out == "Up to date: /project\n"
    log = project("repo", "log", "/project/src", *work).out
    subjects = [line.strip() for line in log.splitlines() if line.startswith("    ")]
    assert subjects == ["again", "mine", "first"]
    assert "commit " not in log
    told = project("repo", "log", "/project/src", *work, "--json").json["commits"]
    assert {key for commit in told for key in commit} == {"author", "time", "message"}
    for words in (["repo", "show", "/project/src"], ["repo", "worktree", "/project/src"]):
        assert "this session sees a part of it" in project(*words, *work, expect=1).err


def test_what_others_committed_is_taken_in(project, remote):
    work = ("--session", "all")
    project("write", "/project/src/a.py", *work, stdin=b"one\nmine\nthree\n")
    remote.commit("others", {"src/a.py": "one\ntheirs\nthree\n", "docs/b.md": "more\n"})
    refused = project("commit", "-m", "x", "/project", *work, expect=1)
    assert "fusefs sync --session all /project" in refused.err
    done = project("sync", "/project", *work, expect=1)
    assert done.out == f"Synced: /project at {remote.tip()[:12]} (2 files changed)\n"
    assert done.err.startswith("Conflict: /project/src/a.py\n")
    both = project("cat", "/project/src/a.py", *work).out
    assert "<<<<<<< staged\nmine\n=======\ntheirs\n>>>>>>> origin/main\n" in both
    assert project("cat", "/project/docs/b.md", *work).out == "more\n"
    project("write", "/project/src/a.py", *work, stdin=b"one\nboth\nthree\n")
    project("commit", "-m", "both", "/project", *work)
    assert git(remote.url, "log", "--format=%s", "main").split() == ["both", "others", "first"]
    assert project("sync", "/project", *work, "--json").json["changed"] == []


def test_restore_puts_back_and_keeps_what_is_new(project):
    work = ("--session", "all")
    project("write", "/project/src/a.py", *work, stdin=b"x\n")
    project("rm", "/project/docs", *work)
    project("write", "/project/src/new.py", *work, stdin=b"new\n")
    done = project("repo", "restore", "/project", *work).out
    assert done == "Restored: /project/docs/b.md\nRestored: /project/src/a.py\n"
    assert project("status", "/project", *work).out == "?? src/new.py\n"
    refused = project("repo", "restore", "/project", *work, expect=1)
    assert "restore --session all --new /project" in refused.err
    project("repo", "restore", "/project", "--new", *work)
    assert project("status", "/project", *work).out == ""


def test_a_worktree_shows_the_truth(project, remote):
    work = ("--session", "all")
    remote.commit("more", {
        ".gitattributes": "*.txt text eol=crlf\n", "windows.txt": "a\nb\n", ".gitignore": "*.o\n",
        "lib/x.py": "x\n", "lib/y.py": "y\n", "run.sh": "run\n", "ünï codé": "u\n",
    })  # fmt: skip
    project("sync", "/project", *work)
    empty = project("repo", "worktree", "/project", *work).out.strip()
    assert listing(Path(empty)) == [".git"]
    assert git(Path(empty), "log", "--format=%s").split() == ["more", "first"]
    for name in ("new/deep/a", "new/b", "lib/z.py", "made.o", "out/made.o", "sp ace/q\"uote"):
        project("write", f"/project/{name}", *work, stdin=b"new\n")
    project("write", "/project/lib/x.py", *work, stdin=b"changed\r\n")
    project("write", "/project/windows.txt", *work, stdin=b"a\nb\nc\n")
    project("rm", "/project/docs", *work)
    project("mv", "/project/ünï codé", "/project/möved", *work)
    folder = Path(project("repo", "worktree", "/project", *work, "--materialise").out.strip())
    assert str(folder) == empty
    assert git(folder, "branch", "--show-current").strip() == "fusefs/all"
    assert project("status", "/project", *work).out == git(folder, "status", "--short")
    assert (folder / "out/made.o").read_text() == "new\n"
    git(folder, "add", "-A")
    assert project("diff", "/project", *work).out == git(folder, "diff", "--cached")
    git(folder, "reset", "-q")
    # It follows the working copy, but never over what somebody did in it.
    project("rm", "/project/new", *work)
    project("repo", "worktree", "/project", *work, "--materialise")
    assert not (folder / "new").exists()
    (folder / "README").write_text("by hand\n")
    refused = project("repo", "worktree", "/project", *work, "--materialise", expect=1)
    assert f"rm -r {folder}" in refused.err
    assert "README" not in project("status", "/project", *work).out


def test_where_a_repository_cannot_be_mounted(project, remote, tmp_path):
    (tmp_path / "host").mkdir()
    project("bind", tmp_path / "host", "/bound")
    project("write", "/full/file", stdin=b"x")
    before = listing(project.instance / "repositories")
    for url, path, said, status in (
        (remote.url, "/project", "fusefs repo rm /project", 1),
        (remote.url, "/project/inside", "in the repository that is mounted at /project", 1),
        (remote.url, "/bound/inside", "bound at /bound", 1),
        (remote.url, "/full", "is not empty", 1),
        (remote.url, "/", "below the root", 2),
        ("https://me:hunter22@example.org/x.git", "/x", "Leave user and token out", 2),
        ("ssh://me:hunter22@example.org/x.git", "/x", "out of the address", 2),
        ("https://example.org/x.git", "/x", "--forge github|gitlab|gitea", 2),
        ("git@example.org:x.git", "/x", "What kind of forge is example.org?", 2),
    ):
        refused = project("repo", "add", url, path, expect=status)
        assert said in refused.err
        assert "hunter22" not in refused.err
    assert "is in the repository" in project(
        "bind", tmp_path / "host", "/project/inside", expect=1
    ).err
    wrong = project("repo", "add", remote.url, "/x", "--branch", "nope", expect=1)
    assert "has no branch nope. It has: main." in wrong.err
    missing = project("repo", "add", tmp_path / "nothing.git", "/x", expect=1)
    assert missing.err == f"There is no git repository at {tmp_path / 'nothing.git'}.\n"
    git(tmp_path, "init", "-q", "--bare", tmp_path / "empty.git")
    empty = project("repo", "add", tmp_path / "empty.git", "/x", expect=1)
    assert "has no commits yet" in empty.err
    assert listing(project.instance / "repositories") == before
    assert project("ls", "/").out.split() == ["bound/", "full/", "project/"]


def test_branches_and_addresses(cli, remote):
    git(remote.clone, "checkout", "-q", "-b", "feature/x")
    remote.commit("feature", {"f": "f\n"}, branch="feature/x")
    cli("repo", "add", f"file://{remote.url}", "/a/b", "--branch", "feature/x")
    assert cli("cat", "/a/b/f").out == "f\n"
    fetched = cli("repo", "fetch", "/a/b").out
    assert fetched == "/a/b: nothing new\n"
    old = remote.tip("feature/x")
    new = remote.commit("more", {"f": "g\n"}, branch="feature/x")
    git(remote.clone, "push", "-q", "origin", "HEAD:refs/heads/other", "HEAD:refs/tags/v1")
    fetched = cli("repo", "fetch").out
    assert f"  feature/x: {old[:12]} -> {new[:12]}\n" in fetched
    assert f"  other: new, at {new[:12]}\n" in fetched
    assert f"  tag v1: new, at {new[:12]}\n" in fetched
    assert cli("cat", "/a/b/f").out == "f\n"
    assert cli("repo", "show", "/a/b@v1").out == git(remote.url, "show", "v1")
    cli("sync", "/a/b")
    assert cli("cat", "/a/b/f").out == "g\n"
    cli("write", "/a/b/f", stdin=b"mine\n")
    env = {"GIT_AUTHOR_NAME": "Own Er", "GIT_AUTHOR_EMAIL": "owner@example.org"}
    Quick(cli.instance, env)("commit", "-m", "x", "/a/b")
    assert git(remote.url, "log", "-1", "--format=%an %ae", "feature/x") == (
        "Own Er owner@example.org\n"
    )


def test_a_backup_has_what_no_remote_has(project, remote, tmp_path):
    work = ("--session", "all")
    project("write", "/project/src/a.py", *work, stdin=b"zero\none\ntwo\nthree\n")
    project("write", "/project/new", *work, stdin=b"new\n")
    remote.commit("others", {"src/a.py": "one\ntwo\nthree\nfour\n"})
    project("sync", "/project", *work)
    project("repo", "worktree", "/project", *work)
    project("backup", tmp_path / "backup")
    project("restore", tmp_path / "backup", "--instance", tmp_path / "restored")
    remote.url.rename(tmp_path / "away")
    restored = Quick(tmp_path / "restored")
    assert restored("cat", "/project/src/a.py", *work).out == "zero\none\ntwo\nthree\nfour\n"
    assert restored("status", "/project", *work).out == " M src/a.py\n?? new\n"
    assert "others" in restored("repo", "log", "/project", *work).out
    (tmp_path / "away").rename(remote.url)
    restored("repo", "worktree", "/project", *work)
    restored("commit", "-m", "mine", "/project", *work)
    assert git(remote.url, "show", "main:new") == "new\n"
    assert "No problems" in restored("check").out


def test_what_cannot_be_sent_stays_staged(project, remote):
    work = ("--session", "all")
    project("write", "/project/README", *work, stdin=b"mine\n")
    hook = remote.url / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho no: policy\nexit 1\n")
    hook.chmod(0o755)
    refused = project("commit", "-m", "x", "/project", *work, expect=1)
    assert "no: policy" in refused.err
    assert refused.err.startswith("Not committed: ") and "stay staged" in refused.err
    remote.url.rename(remote.url.with_name("away"))
    gone = project("commit", "-m", "x", "/project", *work, expect=1)
    assert "There is no git repository at" in gone.err and "stay staged" in gone.err
    assert project("status", "/project", *work).out == " M README\n"


def test_taking_a_repository_away(project):
    refusal = "Not removed: /project is a mount; whoever mounted it removes it.\n"
    hint = "To take it out of the tree: fusefs repo rm /project\n"
    assert project("rm", "/project", expect=1).err == refusal + hint
    assert project("rm", "/project", "--session", "all", expect=1).err == refusal
    assert project("mv", "/project", "/q", "--json", expect=1).json["error"]["text"] == refusal[:-1]
    assert project("unbind", "/project", expect=1).err == (
        "No folder is bound at /project: a repository is mounted there (fusefs repo rm /project "
        "takes it out). What is bound: fusefs bind\n"
    )
    assert "it can be read, changed and committed." in project("explain", "/project/docs").out
    project("write", "/project/README", "--session", "all", stdin=b"x")
    busy = project("session", "rm", "all", expect=1)
    assert "staged changes in /project" in busy.err
    refused = project("repo", "rm", "/project", expect=1)
    assert "staged changes of all" in refused.err and "--force" in refused.err
    assert project("repo", "rm", "/project", "--json", expect=1).json["error"]["code"] == "FS_BUSY"
    project("repo", "rm", "--force", "/project")
    assert project("repo", "list", "--json").json == {"repositories": []}
    assert listing(project.instance / "repositories") == ["claims.lock"]
    assert project("ls", "/project").out == ""
    assert "No problems" in project("check").out


def test_an_interrupted_clone_leaves_nothing(cli, remote, tmp_path):
    """Stopped by Ctrl-C, or killed: then the next one sweeps up."""
    slow = tmp_path / "bin"
    slow.mkdir()
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    (slow / "git").write_text(
        "#!/bin/sh\ncase \"$*\" in 'clone '*) for target; do :; done; mkdir \"$target\"; "
        f"echo > {ready}; exec sleep 60;; esac\n"
        f'exec {os.fspath(Path("/usr/bin/git"))} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    environment = {"PATH": f"{slow}:{os.environ['PATH']}", "FUSEFS_INSTANCE": str(cli.instance)}
    for number in (signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen(
            [sys.executable, "-m", "fusefs", "repo", "add", remote.url, "/project"],
            env={**os.environ, **environment}, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        ready.read_text()
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        if number == signal.SIGINT:
            assert process.returncode == 130 and said.strip() == b"Cancelled."
            assert listing(cli.instance / "repositories") == ["claims.lock"]
    assert len(listing(cli.instance / "repositories")) > 1
    assert cli("ls", "/").out == ""
    cli("repo", "add", remote.url, "/project")
    assert len(listing(cli.instance / "repositories")) == 2


def test_progress_and_colour_are_for_terminals(project, remote):
    environment = ["env", "TERM=xterm", f"FUSEFS_INSTANCE={project.instance}",
                   sys.executable, "-m", "fusefs"]  # fmt: skip
    project("write", "/project/README", stdin=b"x\n")
    status, shown = on_terminal([*environment, "diff", "/project"])
    assert status == 0 and "\x1b[32m+\x1b[m\x1b[32mx" in shown
    status, shown = on_terminal([*environment, "repo", "add", str(remote.url), "/second"])
    assert status == 0 and "Cloning" in shown
    assert "\x1b" not in project("diff", "/project").out


def test_who_a_session_commits_as(cli):
    cli("session", "create", "s", "--grant", "/=ro", "--user", "A B <a@b>")
    assert "A B <a@b>" in cli("session", "show", "s").out
    assert cli("session", "user", "s", "C <c@d>", "--json").json["user"] == "C <c@d>"
    assert cli("session", "show", "s", "--json").json["user"] == "C <c@d>"
    for wrong in ("<only@mail>", "two <a@b> <c@d>", "line\nend <a@b>"):
        assert "Not a user" in cli("session", "user", "s", wrong, expect=2).err


def test_status_shows_what_is_in_conflict_until_it_is_put_right(project, remote):
    work = ("--session", "all")
    for name, text in (("README", b"mine\n"), ("src/a.py", b"mine\n"), ("added", b"mine\n")):
        project("write", f"/project/{name}", *work, stdin=text)
    project("rm", "/project/docs/b.md", *work)
    remote.commit("theirs", {
        "README": "theirs\n", "src/a.py": None, "added": "theirs\n", "docs/b.md": "theirs\n",
        "src/other": "x\n",
    })  # fmt: skip
    project("sync", "/project", *work, expect=1)
    shown = ["UU README", "AA added", "DU docs/b.md", "UD src/a.py"]
    assert project("status", "/project", *work).out.splitlines() == shown
    told = project("status", "/project", *work, "--json").json["changes"]
    assert [(one["code"], one["conflict"]) for one in told] == [(c[:2], True) for c in shown]
    assert project("status", "/project/docs", *work).out == "DU docs/b.md\n"
    assert "?? " not in project("sync", "/project", *work).out  # another one changes nothing
    assert project("status", "/project", *work).out.splitlines() == shown
    # Put right: written without marks, removed again, changed.
    project("write", "/project/README", *work, stdin=b"both\n")
    project("rm", "/project/docs/b.md", *work)
    project("write", "/project/src/a.py", *work, stdin=b"all new\n")
    assert project("status", "/project", *work).out.splitlines() == [
        " M README", "AA added", " D docs/b.md", "?? src/a.py",
    ]  # fmt: skip
    project("write", "/project/added", *work, stdin=b"both\n")
    project("commit", "-m", "Merge", "/project", *work)
    assert project("status", "/project", *work).out == ""


def test_what_a_merge_left_is_settled_by_a_commit(project, remote):
    work = ("--session", "all")
    project("write", "/project/src/a.py", *work, stdin=b"mine\n")
    project("write", "/project/README", *work, stdin=b"mine\n")
    remote.commit("theirs", {"src/a.py": None, "docs/c.md": "x\n"})
    project("sync", "/project", *work, expect=1)
    project("commit", "-m", "Readme", "/project/README", *work)
    assert project("status", "/project", *work).out == "?? src/\n"


def test_status_says_that_a_branch_has_moved_on(project, remote):
    work = ("--session", "all")
    project("status", "/project", *work)
    project("status", "/project/src", "--session", "part")
    for number in range(2):
        remote.commit("hidden from one", {"docs/b.md": f"{number}\n"})
    assert project("status", "/project", *work).out == ""  # not fetched yet
    project("repo", "fetch", "/project")
    assert project("status", "/project", *work).out == "## main [behind 2]\n"
    told = project("status", "/project", *work, "--json").json
    assert (told["behind"], told["behind_by"]) == (True, 2)
    for path in ("/project", "/project/src"):
        assert project("status", path, "--session", "part").out == ""
        assert project("status", path, "--session", "part", "--json").json["behind"] is False
    remote.commit("seen by both", {"src/a.py": "x\n"})
    project("repo", "fetch", "/project")
    assert project("status", "/project/src", "--session", "part").out == "## main [behind]\n"
    told = project("status", "/project/src", "--session", "part", "--json").json
    assert told["behind"] is True and "behind_by" not in told
    project("sync", "/project", *work)
    assert project("status", "/project", *work).out == ""


def test_what_is_put_back_and_what_is_dropped(project):
    work = ("--session", "all")
    project("write", "/project/new", *work, stdin=b"x")
    refused = project("repo", "restore", "/project", *work, expect=1)
    assert refused.err == (
        "Nothing to restore: in /project only new files are staged. To remove them, for good: "
        "fusefs repo restore --session all --new /project\n"
    )
    project("rm", "/project/src", *work)
    project("write", "/project/README", *work, stdin=b"x")
    # One file out of a directory that is removed.
    assert project("repo", "restore", "/project/src/a.py", *work).out == (
        "Restored: /project/src/a.py\n"
    )
    assert project("cat", "/project/src/a.py", *work).out == FILES["src/a.py"]
    assert project("repo", "restore", "--new", "/project", *work).out == (
        "Restored: /project/README\nDropped: /project/new\n"
    )
    project("write", "/project/new", *work, stdin=b"x")
    told = project("repo", "restore", "--new", "/project", *work, "--json").json
    assert told == {"restored": [], "dropped": ["/project/new"]}
    assert project("repo", "restore", "/project", *work, expect=1).err == (
        "Nothing to restore: nothing is staged in /project.\n"
    )


def test_what_a_commit_leaves_staged_is_named(project):
    project("session", "create", "some", "--grant", "/project=stage",
            "--grant", "/project/src=commit")  # fmt: skip
    work = ("--session", "some")
    for name in ("README", "src/a.py"):
        project("write", f"/project/{name}", *work, stdin=b"x")
    done = project("commit", "-m", "x", "/project/src", *work)
    assert done.err == ""
    project("write", "/project/src/a.py", *work, stdin=b"y")
    spec = project("session", "create", "here", "--grant", "/project=stage", "--start", "/project",
                   "--grant", "/project/src=commit")  # fmt: skip
    assert spec.status == 0
    for name in ("README", "src/a.py"):
        project("write", f"/project/{name}", "--session", "here", stdin=b"z")
    project("sync", "/project", "--session", "here", expect=None)
    rest = ("/project/src/a.py", "--session", "here")
    told = project("commit", "-m", "w", *rest, "--json").json
    assert "left_staged" not in told
    project("write", *rest, stdin=b"v")
    done = project("commit", "-m", "y", "--session", "here")
    assert "(1 file)" in done.out
    assert done.err == "Left staged, as this session may not commit it: /project/README\n"


def test_a_hook_that_refuses_is_told_in_one_voice(project, remote):
    work = ("--session", "all")
    hook = remote.url / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho Not on a Friday.\nexit 1\n")
    hook.chmod(0o755)
    project("write", "/project/README", *work, stdin=b"x")
    refused = project("commit", "-m", "x", "/project", *work, expect=1).err
    assert refused.startswith(f"Not committed: {remote.url} refused it on main; the changes stay")
    assert "Not on a Friday." in refused and "fusefs branch --session all NAME /project" in refused
    assert "pushed" not in refused and refused.count("Not committed") == 1


def test_paths_at_which_nothing_is_mounted(project, tmp_path):
    for words in (["rm"], ["fetch"]):
        refused = project("repo", *words, "/project/src", expect=1).err
        assert refused == (
            "No repository is mounted at /project/src. What is mounted: fusefs repo list\n"
        )
    (tmp_path / "host").mkdir()
    refused = project("import", tmp_path / "host", "/project/new", expect=1).err
    assert "is in the repository that is mounted at /project" in refused
    assert "new" not in project("ls", "/project").out


def test_what_is_odd_in_an_argument_is_shown(project):
    name = "/nope\nCommitted: [main] all\x1b[2J"
    for words in (["cat", name], ["status", name], ["repo", "rm", name], [name]):
        said = project(*words, expect=None).err
        assert "\\nCommitted" in said and "\x1b" not in said
        assert "\nCommitted" not in said
    told = project("cat", name, "--json", expect=1).json
    assert told["error"]["text"].endswith(name)


def test_gc_forgets_old_idempotency_keys(project, monkeypatch):
    work = ("--session", "all")
    project("write", "/project/README", *work, stdin=b"x")
    project("commit", "-m", "x", "/project", *work, "--key", "k")
    assert project("gc", "--json").json["keys_forgotten"] == 0
    assert "Committed" in project("commit", "-m", "x", "/project", *work, "--key", "k").out
    monkeypatch.setattr("fusefs.session.upkeep.KEYS_KEPT", -1)
    assert "1 idempotency keys" in project("gc").out
    assert project("gc").out == "Nothing to collect.\n"
    project("commit", "-m", "x", "/project", *work, "--key", "k", expect=1)
