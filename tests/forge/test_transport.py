"""Git data to and from remotes: real git, by path, HTTP and ssh; refusals, hangs, lost history."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.contract.errors import Cancelled, InvalidArgument
from fusefs.forge import errors
from fusefs.forge.credentials import Credential
from fusefs.forge.git_process import Limits, Progress, Watch
from fusefs.forge.secrets import Secret
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse

from .conftest import commit, git
from .small_forge.server import Answer, Fault, SmallForge, running
from .small_forge.world import Repository

TOKEN = "tok_alice_0123456789abcdef"


@pytest.fixture
def forge(bare: Path) -> Iterator[SmallForge]:
    small = SmallForge(tokens={TOKEN: "alice", "tok_reader": "reader", "tok_nobody": "nobody"})
    repository = Repository.make(bare, "owner/project")
    repository.rights = {"alice": "write", "reader": "read"}
    small.repositories["owner/project"] = repository
    with running(small):
        yield small


def transport(url: str, token: str = TOKEN, **options: Limits | Watch) -> Transport:
    limits = options.pop("limits", Limits(idle=20, total=60))
    credential = Credential("x", Secret(token, "x"), "test") if token else None
    return Transport(parse(url), "github", credential, limits, **options)  # type: ignore[arg-type]


def over_http(forge: SmallForge, token: str = TOKEN, **options: Limits | Watch) -> Transport:
    return transport(f"{forge.url}/owner/project.git", token, **options)


def tip(repository: Path, branch: str) -> str:
    return git(repository, "rev-parse", f"refs/heads/{branch}")


def grown(repository: Path, onto: str, files: dict[str, str], branch: str = "work") -> str:
    """Make a commit on top of one in a clone."""
    return commit(repository, branch, files, start=onto)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ssh that stays here: it runs the command that git sends."""
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n[ "$1" = git@forge ] || '
                      '{ echo "git@$1: Permission denied (publickey)." >&2; exit 255; }\n'
                      'exec sh -c "$2"\n')  # fmt: skip
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("GIT_SSH", str(script))
    monkeypatch.setenv("GIT_SSH_VARIANT", "ssh")


@pytest.mark.parametrize("form", ["path", "file", "http", "ssh", "scp"])
def test_clone_fetch_and_push_by_every_kind_of_address(
    form: str, forge: SmallForge, bare: Path, tmp_path: Path, ssh: None
) -> None:
    url = {
        "path": str(bare),
        "file": f"file://{bare}",
        "http": f"{forge.url}/owner/project.git",
        "ssh": f"ssh://git@forge{bare}",
        "scp": f"git@forge:{bare}",
    }[form]
    way = transport(url)
    shown = way.advertised()
    assert shown.default_branch == "main"
    assert shown.refs == {f"refs/heads/{name}": tip(bare, name) for name in ("main", "topic")}
    clone = tmp_path / "clone.git"
    way.clone(clone)
    assert git(clone, "rev-parse", "refs/remotes/origin/topic") == tip(bare, "topic")
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/main"
    old = tip(bare, "main")
    new = grown(clone, old, {"n": "n"})
    way.push(clone, new, "main", old)
    assert tip(bare, "main") == new
    moves = way.fetch(clone)
    assert moves.refs == {"refs/remotes/origin/main": (old, new)}
    assert moves.rewritten == ()
    assert way.fetch(clone).refs == {}
    way.push(clone, new, "fresh/branch", None)
    assert tip(bare, "fresh/branch") == new


def test_very_many_refs_are_not_left_in_files_of_their_own(bare: Path, tmp_path: Path) -> None:
    """As git-clone(1) has it; a fetch, and whoever looks for a ref, would open each of them."""
    way, clone = transport(str(bare)), tmp_path / "clone.git"
    main = tip(bare, "main")
    git(bare, "-c", "user.name=a", "-c", "user.email=a@a", "tag", "-a", "v1", "-m", "one", main)

    def branch(prefix: str) -> None:
        lines = "".join(f"create refs/heads/{prefix}{n} {main}\n" for n in range(120))
        subprocess.run(["git", "update-ref", "--stdin"], cwd=bare, input=lines.encode(), check=True)

    def loose() -> list[Path]:
        return [path for path in (clone / "refs").rglob("*") if path.is_file()]

    branch("b")
    way.clone(clone)
    assert loose() == []
    assert git(clone, "show-ref", "-d", "--tags") == git(bare, "show-ref", "-d", "--tags")
    refs = {line.split()[1]: line.split()[0] for line in git(clone, "show-ref").splitlines()}
    assert len(refs) == 2 * (1 + 2 + 120)
    for name, value in refs.items():
        kind, _, rest = name.removeprefix("refs/fusefs/incoming/").partition("/")
        if name.startswith("refs/fusefs/incoming/"):
            there = "refs/remotes/origin/" if kind == "heads" else "refs/tags/"
            assert refs[there + rest] == value
            assert git(bare, "rev-parse", f"refs/{kind}/{rest}") == value
    assert way.fetch(clone).refs == {}
    branch("c")
    assert len(way.fetch(clone).refs) == 120
    assert loose() == []
    assert way.fetch(clone).refs == {}
    git(clone, "fsck", "--strict")


def test_progress_is_told_while_it_goes(forge: SmallForge, bare: Path, tmp_path: Path):
    for number in range(5):
        commit(bare, "main", {f"f{number}": os.urandom(3000).hex() for _ in range(3)})
    heard: list[Progress] = []
    over_http(forge, watch=Watch(progress=heard.append)).clone(tmp_path / "clone.git")
    assert any(step.phase.endswith("objects") and 0 < step.total == step.done for step in heard)


def test_clone_never_overwrites_and_leaves_no_half(forge: SmallForge, bare: Path, tmp_path: Path):
    target = tmp_path / "folder" / "clone.git"
    target.parent.mkdir()
    (target.parent / "clone.git.partial").mkdir()  # of one that was killed
    forge.faults.append(Fault("POST .*git-upload-pack", "close", times=9))
    with pytest.raises(errors.Unreachable):
        over_http(forge).clone(target)
    assert [name for name in os.listdir(target.parent) if "lock" not in name] == []
    forge.faults.clear()
    over_http(forge).clone(target)
    with pytest.raises(InvalidArgument, match="Already exists"):
        over_http(forge).clone(target)


def test_push_is_a_compare_and_swap(forge: SmallForge, bare: Path, tmp_path: Path):
    way = over_http(forge)
    clone = tmp_path / "clone.git"
    way.clone(clone)
    old = tip(bare, "main")
    mine = grown(clone, old, {"mine": "m"})
    theirs = commit(bare, "main", {"theirs": "t"})
    with pytest.raises(errors.Moved, match="Nothing is lost here") as caught:
        way.push(clone, mine, "main", old)
    assert not caught.value.maybe_done
    assert tip(bare, "main") == theirs
    # Knowing where it is does not help without building on it.
    way.fetch(clone)
    with pytest.raises(errors.Refused, match="history would be lost"):
        way.push(clone, mine, "main", theirs)
    with pytest.raises(errors.Moved):
        way.push(clone, mine, "main", None)
    assert tip(bare, "main") == theirs
    merged = grown(clone, theirs, {"mine": "m"}, "merged")
    way.push(clone, merged, "main", theirs)
    way.push(clone, merged, "main", theirs)  # once more: it is there
    assert tip(bare, "main") == merged


def test_refused_push_keeps_everything_and_says_what_the_forge_said(
    forge: SmallForge, bare: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "clone.git"
    for way in (over_http(forge), transport(str(bare))):
        shutil.rmtree(clone, ignore_errors=True)
        way.clone(clone)
        forge.repositories["owner/project"].protect("main")
        old = tip(bare, "main")
        mine = grown(clone, old, {"mine": "m"})
        with pytest.raises(errors.Refused) as caught:
            way.push(clone, mine, "main", old)
        assert "GH006: Protected branch update failed" in caught.value.text
        assert "open a pull request" in caught.value.text
        assert not caught.value.maybe_done
        assert tip(bare, "main") == old
        assert git(clone, "rev-parse", "work") == mine


@pytest.mark.parametrize(
    ("token", "error", "words"),
    [
        ("", errors.AuthenticationFailed, "GH_TOKEN and GH_HOST=127.0.0.1:"),
        ("wrong-token-1", errors.AuthenticationFailed, "refused the one it got"),
        ("tok_reader", errors.Forbidden, "does not let you push"),
        ("tok_nobody", errors.Missing, "your credential may not see it"),
    ],
)
def test_who_may_not_push_is_told_why(
    forge: SmallForge, bare: Path, tmp_path: Path, token: str, error: type[Exception], words: str
) -> None:
    clone = tmp_path / "clone.git"
    over_http(forge).clone(clone)
    old = tip(bare, "main")
    mine = grown(clone, old, {"mine": "m"})
    with pytest.raises(error, match=words):
        over_http(forge, token).push(clone, mine, "main", old)
    assert tip(bare, "main") == old


def test_remote_that_hangs_ends_at_the_deadline(forge: SmallForge, bare: Path, tmp_path: Path):
    forge.faults.append(Fault("info/refs", "hang", times=9))
    with pytest.raises(errors.TimedOut, match=r"silent for 0\.3 seconds"):
        over_http(forge, limits=Limits(idle=0.3)).clone(tmp_path / "clone.git")
    with pytest.raises(errors.TimedOut, match=r"within 0\.3 seconds"):
        over_http(forge, limits=Limits(total=0.3)).advertised()


def test_caller_can_stop_it(forge: SmallForge, tmp_path: Path):
    forge.faults.append(Fault("info/refs", "hang", times=9))
    with pytest.raises(Cancelled):
        over_http(forge, watch=Watch(cancelled=forge.hanging.is_set)).clone(tmp_path / "c.git")

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    forge.faults.clear()
    with pytest.raises(KeyboardInterrupt):
        over_http(forge, watch=Watch(progress=stop)).clone(tmp_path / "c.git")
    assert not (tmp_path / "c.git").exists()


@pytest.mark.parametrize("how", ["close", "cut", "hang"])
def test_connection_that_dies_in_a_push_is_looked_after(
    forge: SmallForge, bare: Path, tmp_path: Path, how: str
) -> None:
    clone = tmp_path / "clone.git"
    way = over_http(forge, limits=Limits(idle=1, total=20))
    way.clone(clone)
    old = tip(bare, "main")
    mine = grown(clone, old, {"mine": "m"})
    # curl tries once more by itself where a connection that it used before is closed at once
    forge.faults.append(Fault("POST .*git-receive-pack", how, times=9 if how == "close" else 1))
    if how == "cut":  # it arrived, only the answer was lost
        way.push(clone, mine, "main", old)
        assert tip(bare, "main") == mine
        return
    with pytest.raises(errors.Unreachable) as caught:
        way.push(clone, mine, "main", old)
    assert not caught.value.maybe_done
    assert tip(bare, "main") == old
    forge.faults.clear()
    way.push(clone, mine, "main", old)
    assert tip(bare, "main") == mine


@pytest.mark.parametrize("form", ["path", "http"])
def test_branch_whose_name_is_a_folder_of_another(
    forge: SmallForge, bare: Path, tmp_path: Path, form: str
) -> None:
    way = over_http(forge) if form == "http" else transport(str(bare))
    clone = tmp_path / "clone.git"
    way.clone(clone)
    with pytest.raises(errors.AlreadyThere, match="folder of branches"):
        way.push(clone, tip(bare, "main"), "topic/one", None)


def test_push_that_nobody_can_tell_of_says_so(forge: SmallForge, bare: Path, tmp_path: Path):
    clone = tmp_path / "clone.git"
    way = over_http(forge)
    way.clone(clone)
    old = tip(bare, "main")
    mine = grown(clone, old, {"mine": "m"})
    forge.faults += [
        Fault("POST .*git-receive-pack", "cut"),
        Fault("git-upload-pack", Answer(503, "down"), times=9),
    ]
    with pytest.raises(errors.Unreachable) as caught:
        way.push(clone, mine, "main", old)
    assert caught.value.maybe_done
    assert "cannot be told" in caught.value.text
    forge.faults.clear()
    way.push(clone, mine, "main", old)
    assert tip(bare, "main") == mine


def test_rewritten_and_removed_history_is_kept(forge: SmallForge, bare: Path, tmp_path: Path):
    clone = tmp_path / "clone.git"
    git(bare, "tag", "v1", "main")
    way = over_http(forge)
    way.clone(clone)
    main, topic = tip(bare, "main"), tip(bare, "topic")
    git(bare, "update-ref", "-d", "refs/heads/topic")
    git(bare, "update-ref", "-d", "refs/heads/main")
    new = commit(bare, "main", {"all": "new"})
    git(bare, "tag", "-f", "v1", "main")
    moves = way.fetch(clone)
    assert moves.refs["refs/remotes/origin/main"] == (main, new)
    assert moves.refs["refs/remotes/origin/topic"] == (topic, None)
    assert set(moves.rewritten) == set(moves.refs)
    assert set(moves.refs) == {
        f"refs/{n}" for n in ("remotes/origin/main", "remotes/origin/topic", "tags/v1")
    }
    kept = git(clone, "for-each-ref", "--format=%(objectname)", "refs/fusefs/kept").split()
    assert set(kept) == {main, topic}
    git(clone, "gc", "--quiet", "--prune=now")
    assert git(clone, "cat-file", "-t", topic) == "commit"
    mine = grown(clone, topic, {"mine": "m"})
    with pytest.raises(errors.HistoryLost, match="gone from"):
        way.push(clone, mine, "topic", topic)


def test_branch_that_became_a_folder_of_branches_is_fetched(
    forge: SmallForge, bare: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "clone.git"
    way = over_http(forge)
    way.clone(clone)
    topic = tip(bare, "topic")
    git(bare, "update-ref", "-d", "refs/heads/topic")
    git(bare, "update-ref", "refs/heads/topic/one", topic)
    way.fetch(clone)
    assert git(clone, "rev-parse", "refs/remotes/origin/topic/one") == topic


def test_names_that_are_not_utf8_are_fetched(bare: Path, tmp_path: Path):
    clone = tmp_path / "clone.git"
    way = transport(str(bare))
    way.clone(clone)
    at = tip(bare, "main")
    for name in (b"caf\xe9", "ünï".encode()):
        subprocess.run(
            [b"git", b"-C", os.fsencode(bare), b"update-ref", b"refs/heads/" + name, at.encode()],
            check=True,
        )
    names = {"refs/heads/caf\udce9", "refs/heads/ünï"}
    assert names <= set(way.advertised().refs)
    assert set(way.fetch(clone).refs) == {n.replace("heads", "remotes/origin") for n in names}
    assert way.fetch(clone).refs == {}


def test_clone_that_lost_an_object_says_so(bare: Path, tmp_path: Path):
    clone = tmp_path / "clone.git"
    way = transport(str(bare))
    way.clone(clone)
    shutil.rmtree(clone / "objects")
    (clone / "objects" / "pack").mkdir(parents=True)
    with pytest.raises(errors.ForgeError):
        way.push(clone, tip(bare, "main"), "main", tip(bare, "topic"))


def test_a_push_while_a_fetch_is_under_way_is_not_undone_by_it(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, way = tmp_path / "clone.git", transport(str(bare))
    way.clone(clone)
    before = commit(bare, "main", {"theirs": "t"})
    mine = grown(clone, tip(bare, "topic"), {"mine": "m"})
    fetched = Transport._git

    def noted_meanwhile(self: Transport, arguments: list[str], *others: object) -> object:
        found = fetched(self, arguments, *others)  # type: ignore[arg-type]
        if arguments[0] == "fetch":
            git(clone, "update-ref", "refs/remotes/origin/topic", mine)
        return found

    monkeypatch.setattr(Transport, "_git", noted_meanwhile)
    assert set(way.fetch(clone).refs) == {"refs/remotes/origin/main"}
    assert git(clone, "rev-parse", "refs/remotes/origin/main") == before
    assert git(clone, "rev-parse", "refs/remotes/origin/topic") == mine
    monkeypatch.undo()
    moves = way.fetch(clone)
    assert moves.refs == {"refs/remotes/origin/topic": (mine, tip(bare, "topic"))}


@pytest.mark.parametrize(
    "name", ["remotes/origin/main", "remotes/origin/topic", "fusefs/incoming/heads/main"]
)
def test_locks_of_a_process_that_was_killed_hold_nobody_up(
    bare: Path, tmp_path: Path, name: str
) -> None:
    clone, way = tmp_path / "clone.git", transport(str(bare))
    way.clone(clone)
    git(bare, "update-ref", "-d", "refs/heads/topic")
    new = commit(bare, "main", {"theirs": "t"})
    for lock in (clone / f"refs/{name}.lock", clone / "packed-refs.lock"):
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        os.utime(lock, (time.time() - 10,) * 2)
    moves = way.fetch(clone)
    assert set(moves.refs) == {"refs/remotes/origin/main", "refs/remotes/origin/topic"}
    assert moves.rewritten == ("refs/remotes/origin/topic",)
    assert git(clone, "rev-parse", "refs/remotes/origin/main") == new


def test_fetches_at_once_wait_for_each_other(bare: Path, tmp_path: Path):
    clone = tmp_path / "clone.git"
    transport(str(bare)).clone(clone)
    new = [commit(bare, f"b{number}", {"x": f"{number}"}, start="main") for number in range(5)]
    moved: list[int] = []

    def fetch() -> None:
        moved.append(len(transport(str(bare)).fetch(clone).refs))

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(moved) == [0, 0, 5]
    assert git(clone, "rev-parse", "refs/remotes/origin/b4") == new[4]


def test_remote_that_is_gone_or_empty_changes_nothing_here(
    forge: SmallForge, bare: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "clone.git"
    way = over_http(forge)
    way.clone(clone)
    before = git(clone, "for-each-ref")
    del forge.repositories["owner/project"]
    with pytest.raises(errors.Missing, match="no repository at"):
        way.fetch(clone)
    with pytest.raises(errors.Missing):
        transport(str(tmp_path / "nowhere")).fetch(clone)
    assert git(clone, "for-each-ref") == before
    empty = tmp_path / "empty.git"
    git(tmp_path, "init", "-q", "--bare", str(empty))
    assert transport(str(empty)).advertised().refs == {}
    transport(str(empty)).clone(tmp_path / "clone-of-empty.git")


def test_ssh_without_a_key_is_told_apart(ssh: None, tmp_path: Path):
    with pytest.raises(errors.AuthenticationFailed, match="publickey"):
        transport("ssh://git@elsewhere/x.git").advertised()


def test_host_that_is_not_there(tmp_path: Path):
    with pytest.raises(errors.Unreachable, match="cannot be reached"):
        transport("http://127.0.0.1:1/x.git").advertised()


def test_without_git_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, bare: Path):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(errors.ToolMissing, match="Install git"):
        transport(str(bare)).advertised()


def test_token_is_sent_to_its_own_site_alone(forge: SmallForge, bare: Path, tmp_path: Path):
    other = SmallForge(tokens=forge.tokens, repositories=forge.repositories)
    with running(other):
        forge.faults.append(
            Fault("info/refs", Answer(302, "", {"Location": f"{other.url}/owner/project.git/info/"
                                                           "refs?service=git-upload-pack"}))
        )  # fmt: skip
        with pytest.raises(errors.ForgeError) as caught:
            over_http(forge).advertised()
        assert TOKEN not in caught.value.text
        assert set(other.authorizations) == {""}


def test_token_is_on_no_command_line_and_in_no_file(
    forge: SmallForge, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("git")
    spy = tmp_path / "bin" / "git"
    spy.parent.mkdir()
    spy.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/arguments\nexec {real} "$@"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_TRACE_CURL", str(tmp_path / "trace"))
    way = over_http(forge)
    clone = tmp_path / "clone.git"
    way.clone(clone)
    way.push(clone, grown(clone, tip(bare, "main"), {"m": "m"}), "main", tip(bare, "main"))
    assert "push" in (tmp_path / "arguments").read_text()
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            assert TOKEN.encode() not in Path(folder, name).read_bytes()
