"""Sent twice, done once: across calls, processes and crashes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.contract.errors import InvalidArgument
from fusefs.forge import errors
from fusefs.forge.forge import Forge
from fusefs.forge.ledger import Effect, Ledger, Steps
from fusefs.forge.local import LocalDriver
from fusefs.forge.local_git import Author
from fusefs.forge.model import Method, State
from fusefs.forge.records import Records
from fusefs.store.instance import Instance

from .conftest import ALICE, InstanceRecords, commit, git


def effect(key: str = "k", **arguments: object) -> Effect:
    return Effect("thing", "repository", "alice", key, arguments)


class World:
    """Something to change, and a way to fail before or after."""

    def __init__(self) -> None:
        self.things: list[str] = []
        self.fail: errors.ForgeError | None = None
        self.too_late = False

    def steps(self, name: str = "x") -> Steps:
        def do() -> str:
            if self.fail is None or self.too_late:
                self.things.append(name)
            if self.fail is not None:
                raise self.fail
            return name

        return Steps(
            look=lambda: len(self.things),
            find=lambda before: next(iter(self.things[before:]), None),
            do=do,
        )


def test_second_call_gets_the_first_outcome(ledger: Ledger):
    world = World()
    assert ledger.once(effect(), world.steps("a")) == "a"
    assert ledger.once(effect(), world.steps("b")) == "a"
    assert ledger.once(effect("other"), world.steps("c")) == "c"
    assert world.things == ["a", "c"]


def test_key_belongs_to_one_call_one_user_and_one_repository(ledger: Ledger):
    world = World()
    ledger.once(effect(n=1), world.steps())
    with pytest.raises(errors.KeyReused, match="Take a new key"):
        ledger.once(effect(n=2), world.steps())
    for other in (
        Effect("other thing", "repository", "alice", "k", {}),
        Effect("thing", "elsewhere", "alice", "k", {}),
        Effect("thing", "repository", "bob", "k", {}),
    ):
        ledger.once(other, world.steps())
    assert len(world.things) == 4


def test_refused_call_leaves_the_key_free(ledger: Ledger):
    world = World()
    world.fail = errors.Refused("no")
    with pytest.raises(errors.Refused):
        ledger.once(effect(n=1), world.steps())
    world.fail = None
    assert ledger.once(effect(n=2), world.steps("b")) == "b"


def test_lost_answer_is_looked_for_at_once(ledger: Ledger):
    world = World()
    world.fail, world.too_late = errors.TimedOut("late", maybe_done=True), True
    assert ledger.once(effect(), world.steps("a")) == "a"
    assert world.things == ["a"]


def test_unsure_call_is_looked_for_by_its_replay(ledger: Ledger):
    world = World()
    world.fail = errors.TimedOut("late", maybe_done=True)
    with pytest.raises(errors.TimedOut):
        ledger.once(effect(), world.steps("a"))
    world.things.append("a")  # it arrived after all
    world.fail = None
    assert ledger.once(effect(), world.steps("a")) == "a"
    assert world.things == ["a"]


def test_replay_of_what_never_arrived_does_it(ledger: Ledger):
    world = World()
    world.fail = errors.TimedOut("late", maybe_done=True)
    with pytest.raises(errors.TimedOut):
        ledger.once(effect(), world.steps("a"))
    world.fail = None
    assert ledger.once(effect(), world.steps("a")) == "a"
    assert world.things == ["a"]


def test_refusal_of_a_first_try_is_not_taken_for_what_others_made(ledger: Ledger):
    world = World()
    world.fail, world.too_late = errors.AlreadyThere("taken"), True
    with pytest.raises(errors.AlreadyThere):
        ledger.once(effect(), world.steps("a"))


def test_forge_that_cannot_be_asked_after_a_refused_replay_keeps_the_plan(ledger: Ledger):
    world = World()
    world.fail = errors.TimedOut("late", maybe_done=True)
    with pytest.raises(errors.TimedOut):
        ledger.once(effect(), world.steps("a"))
    looked: list[int] = []

    def find(before: int) -> str | None:
        looked.append(before)
        if len(looked) > 1:
            raise errors.Unreachable("gone")
        return None

    def do() -> str:
        raise errors.AlreadyThere("taken")

    with pytest.raises(errors.AlreadyThere):
        ledger.once(effect(), Steps(lambda: 0, find, do))
    world.things.append("a")
    assert ledger.once(effect(), world.steps("a")) == "a"


def test_old_keys_are_forgotten(ledger: Ledger):
    world = World()
    ledger.once(effect(), world.steps("a"))
    assert ledger.forget(3600) == 0
    assert ledger.forget(-1) == 1
    assert ledger.once(effect(), world.steps("b")) == "b"


def test_threads_with_one_key_do_it_once(ledger: Ledger):
    world = World()
    got: list[object] = []
    start = threading.Barrier(8)

    def call() -> None:
        start.wait()
        got.append(ledger.once(effect(), world.steps("a")))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (world.things, got) == (["a"], ["a"] * 8)


def test_call_that_waits_too_long_says_so(records: Records, tmp_path: Path):
    world = World()
    outer = Ledger(records, tmp_path / "forge.lock")
    inner = Ledger(records, tmp_path / "forge.lock", wait=0.05)
    steps = world.steps()

    def nested() -> object:
        return inner.once(effect(), steps)

    with pytest.raises(errors.InProgress, match="still under way"):
        outer.once(effect(), Steps(steps.look, steps.find, nested))


WORKER = """
import os, sys
from pathlib import Path
from fusefs.forge import local_git
from fusefs.forge.errors import ForgeError
from fusefs.forge.forge import Forge
from fusefs.forge.ledger import Ledger
from fusefs.forge.local import LocalDriver
from fusefs.forge.local_git import Author
from fusefs.forge.model import Method
from fusefs.store.instance import Instance
from tests.forge.conftest import InstanceRecords

folder, bare, what, key = sys.argv[1:5]
with Instance.open(folder, deferred=True) as instance:
    records = InstanceRecords(instance)
    driver = LocalDriver(Path(bare), records, Author("Alice", "alice@example.org"))
    forge = Forge(driver, Ledger(records, Path(folder).parent / "forge.lock"))
    tip = driver.find_branch("topic").commit

    def die(*_):
        os._exit(9)

    def after(owner, name):
        done = getattr(owner, name)
        def call(*arguments, **options):
            done(*arguments, **options)
            die()
        setattr(owner, name, call)

    if what == "die-after-create":
        after(LocalDriver, "create_pull_request")
    if what == "die-before-move":
        local_git.move_branch = die
    if what == "die-after-move":
        after(local_git, "move_branch")
    print("ready", flush=True)
    if what == "all":
        for n in range(4):
            branch, at = f"all-{n}", driver.find_branch(f"all-{n}").commit
            forge.create_branch(f"made-{n}", at, key=f"{key}-b{n}")
            print("made", flush=True)
            number = forge.create_pull_request(branch, "main", "T", key=f"{key}-p{n}").number
            print("opened", flush=True)
            merged = forge.merge(number, list(Method)[n % 3], key=f"{key}-m{n}").merge_commit
            print("merged", flush=True)
            forge.create_tag(f"v{n}", merged, "M", key=f"{key}-t{n}")
            forge.create_release(f"v{n}", key=f"{key}-r{n}")
            print("released", flush=True)
        sys.exit()
    sys.stdin.readline()
    try:
        if what in ("create", "die-after-create"):
            print(forge.create_pull_request("topic", "main", "T", key=key).number)
        elif what == "branch":
            print(forge.create_branch("new", tip, key=key).commit)
        elif what == "tag":
            print(forge.create_tag("v1", tip, "One", key=key).commit)
        else:
            print(forge.merge(1, Method.MERGE, key=key).merge_commit)
    except ForgeError as error:
        print(type(error).__name__)
"""

Worker = Callable[[str, str], "subprocess.Popen[str]"]


@pytest.fixture
def worker(tmp_path: Path, records: Records, bare: Path) -> Worker:
    """A function that starts a process which does something as soon as it is told to."""

    def start(what: str, key: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "instance"), str(bare), what, key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    return start


def results(*processes: subprocess.Popen[str]) -> list[str]:
    """Let the processes loose at once; return what each said in the end."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate(timeout=60)[0].strip() for process in processes]


def test_two_processes_with_one_key_make_one(worker: Worker, local: Forge):
    said = results(worker("create", "k"), worker("create", "k"), worker("create", "k"))
    assert said == ["1", "1", "1"]
    assert len(local.pull_requests(None)) == 1


@pytest.mark.parametrize("what", ["create", "branch", "tag"])
def test_two_processes_with_two_keys_make_one_too(
    worker: Worker, local: Forge, bare: Path, what: str
) -> None:
    said = results(worker(what, "k1"), worker(what, "k2"))
    assert said.count("AlreadyThere") == 1
    assert len(local.pull_requests(None)) == (1 if what == "create" else 0)


def test_two_merges_at_once_make_one(worker: Worker, local: Forge, bare: Path):
    commit(bare, "main", {"main.txt": "main\n"})
    local.create_pull_request("topic", "main", "T", key="c")
    said = results(worker("merge", "k1"), worker("merge", "k2"))
    assert said.count("Refused") == 1
    assert len(git(bare, "rev-list", "--merges", "main").split()) == 1
    assert local.pull_request(1).state is State.MERGED


def test_creation_that_died_before_its_record_is_found(worker: Worker, local: Forge):
    process = worker("die-after-create", "k")
    results(process)
    assert process.returncode == 9
    made = local.create_pull_request("topic", "main", "T", key="k")
    assert made.number == 1
    assert len(local.pull_requests(None)) == 1


@pytest.mark.parametrize("where", ["before", "after"])
def test_merge_that_died_is_finished_or_found(
    worker: Worker, local: Forge, bare: Path, where: str
) -> None:
    commit(bare, "main", {"main.txt": "main\n"})
    local.create_pull_request("topic", "main", "T", key="c")
    process = worker(f"die-{where}-move", "k")
    results(process)
    assert process.returncode == 9
    seen = local.pull_request(1)
    assert seen.state is (State.OPEN if where == "before" else State.MERGED)
    done = local.merge(1, Method.MERGE, key="k")
    assert done.merge_commit == git(bare, "rev-parse", "main")
    assert len(git(bare, "rev-list", "--merges", "main").split()) == 1
    assert local.pull_request(1) == done


def test_killed_at_any_moment_everything_is_done_once_in_the_end(
    worker: Worker, local: Forge, bare: Path
) -> None:
    """A program that does the same calls again after each kill, as a caller would."""
    for number in range(4):
        commit(bare, f"all-{number}", {f"all-{number}": "x"}, f"All {number}", start="main")
    for steps in (1, 2, 7, 11):
        process = worker("all", "k")
        assert process.stdout is not None
        for _ in range(steps):
            process.stdout.readline()
        process.kill()
        process.communicate()
    last = worker("all", "k")
    last.communicate(timeout=60)
    assert last.returncode == 0
    requests = local.pull_requests(None)
    assert [(r.number, r.state) for r in requests] == [(n, State.MERGED) for n in (4, 3, 2, 1)]
    subjects = git(bare, "log", "--first-parent", "--format=%s", "main").split("\n")
    assert len(subjects) == 5  # the first commit, and one for each merge
    assert len(git(bare, "tag").split()) == 4
    git(bare, "fsck", "--strict")


def test_merges_while_others_push_lose_nothing(local: Forge, bare: Path):
    for number in range(4):
        commit(bare, f"topic-{number}", {f"t{number}": "x"}, start="main")
        local.create_pull_request(f"topic-{number}", "main", f"T{number}", key=f"c{number}")

    def push() -> None:
        for number in range(6):
            old = git(bare, "rev-parse", "main")
            tree = git(bare, "rev-parse", "main^{tree}")
            new = git(bare, "commit-tree", tree, "-p", old, "-m", f"push {number}")
            git(bare, "update-ref", "refs/heads/main", new, old, check=False)

    pusher = threading.Thread(target=push)
    pusher.start()
    for number in range(4):
        local.merge(number + 1, key=f"m{number}")
    pusher.join()
    files = git(bare, "ls-tree", "--name-only", "main").split()
    assert {f"t{number}" for number in range(4)} <= set(files)


def test_plan_is_durable_before_anything_is_done(records: Records, tmp_path: Path):
    """Opened a second time, as after a loss of power, the store has the plan."""
    with Instance.open(tmp_path / "instance", deferred=True) as instance:
        deferred = InstanceRecords(instance)
        world = World()
        steps = world.steps("a")

        def do() -> str:
            with records.read() as snapshot:
                raw = snapshot.get(effect().name)
            assert raw is not None
            assert b'"planned"' in raw
            return str(steps.do())

        Ledger(deferred, tmp_path / "lock").once(effect(), Steps(steps.look, steps.find, do))
    with records.read() as snapshot:
        assert b'"outcome"' in (snapshot.get(effect().name) or b"")


def test_replay_is_checked_against_the_arguments_first(local: Forge, bare: Path):
    with pytest.raises(InvalidArgument, match="1 to 255"):
        local.create_pull_request("topic", "main", "T", key="")


def test_one_users_key_is_not_anothers(records: Records, ledger: Ledger, bare: Path):
    alice = Forge(LocalDriver(bare, records, ALICE), ledger)
    bob = Forge(LocalDriver(bare, records, Author("Bob", "bob@example.org")), ledger)
    alice.create_pull_request("topic", "main", "T", key="k")
    with pytest.raises(errors.AlreadyThere):
        bob.create_pull_request("topic", "main", "T", key="k")
