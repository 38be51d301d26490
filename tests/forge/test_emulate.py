"""The GitHub driver against an emulator that others wrote: the npm package ``emulate``."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from fusefs.forge import errors
from fusefs.forge.credentials import Credential
from fusefs.forge.forge import Forge
from fusefs.forge.github import GitHubDriver
from fusefs.forge.ledger import Ledger
from fusefs.forge.model import Method, Right, State, Tag
from fusefs.forge.secrets import Secret
from fusefs.forge.urls import parse

from .conftest import Keys, Memory

PROGRAM = Path(__file__).parent / "node_modules/emulate/dist/index.js"

TOKEN = "emulated_token_alice"

SEED = {
    "tokens": {
        TOKEN: {"login": "alice", "scopes": ["repo", "user"]},
        "emulated_token_bob": {"login": "bob", "scopes": ["repo", "user"]},
    },
    "github": {
        "users": [{"login": "alice"}, {"login": "bob"}],
        "repos": [
            {"owner": "alice", "name": "project", "auto_init": True},
            {"owner": "alice", "name": "secret", "private": True, "auto_init": True},
        ],
    },
}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The emulator's address."""
    assert PROGRAM.exists(), f"{PROGRAM} is missing: run make setup"
    folder = tmp_path_factory.mktemp("emulate")
    (folder / "seed.json").write_text(json.dumps(SEED))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    node = shutil.which("node")
    assert node is not None
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [node, str(PROGRAM), "start", "--service", "github", "--port", str(port),
             "--seed", "seed.json"],
            cwd=folder,
            stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        give_up = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < give_up
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def driver(emulator: str, token: str = TOKEN, name: str = "alice/project") -> GitHubDriver:
    credential = Credential("x", Secret(token, "x"), "test") if token else None
    return GitHubDriver(parse(f"{emulator}/{name}.git"), credential, user="alice", api=emulator)


def write(emulator: str, branch: str, name: str, text: str) -> str:
    """Commit a file through the emulator's own API; return the commit."""
    answer = httpx2.put(
        f"{emulator}/repos/alice/project/contents/{name}",
        headers={"Authorization": f"Bearer {TOKEN}"},
        json={
            "message": f"Add {name}",
            "content": base64.b64encode(text.encode()).decode(),
            "branch": branch,
        },
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["commit"]["sha"])


def test_rights(emulator: str):
    assert driver(emulator).access().right is Right.WRITE
    assert driver(emulator, "").access().right is Right.READ
    assert driver(emulator, "", "alice/secret").access().right is Right.NONE
    assert driver(emulator, "emulated_token_bob", "alice/secret").access().right is Right.NONE
    assert driver(emulator, name="alice/nothing").access().right is Right.NONE


@pytest.mark.parametrize("method", list(Method))
def test_whole_workflow(emulator: str, tmp_path: Path, method: Method, new_key: Keys):
    at_work = driver(emulator)
    forge = Forge(at_work, Ledger(Memory(), tmp_path / "lock"))
    main = at_work.find_branch("main")
    assert main is not None
    topic = f"topic/{method}"
    key = new_key()
    assert forge.create_branch(topic, main.commit, key=key).commit == main.commit
    assert forge.create_branch(topic, main.commit, key=key).commit == main.commit
    with pytest.raises(errors.AlreadyThere):
        forge.create_branch(topic, main.commit, key=new_key())
    with pytest.raises(errors.AlreadyThere):
        at_work.create_branch(topic, main.commit)
    head = write(emulator, topic, f"{method}.txt", "text\n")

    key = new_key()
    made = forge.create_pull_request(topic, "main", "Title", "Body", key=key)
    assert (made.head, made.base, made.commit, made.body) == (topic, "main", head, "Body")
    assert forge.create_pull_request(topic, "main", "Title", "Body", key=key) == made
    with pytest.raises(errors.AlreadyThere, match=f"#{made.number}"):
        forge.create_pull_request(topic, "main", "Title", key=new_key())
    assert [r.number for r in forge.pull_requests(head=topic)] == [made.number]
    assert forge.pull_requests(head="another") == []
    assert forge.update_pull_request(made.number, title="New", key=new_key()).title == "New"
    with pytest.raises(errors.Refused):
        at_work.merge(replace(made, commit="1234" * 10), method, "")
    key = new_key()
    done = forge.merge(made.number, method, commit=head, key=key)
    after = at_work.find_branch("main")
    assert after is not None
    assert (done.state, done.merge_commit) == (State.MERGED, after.commit)
    assert forge.merge(made.number, method, commit=head, key=key) == done
    with pytest.raises(errors.Refused, match="merged already"):
        forge.merge(made.number, method, key=new_key())

    name = f"v-{method}"
    tag = forge.create_tag(name, after.commit, "First", key=new_key())
    assert tag == Tag(name, after.commit, "First") == at_work.find_tag(name)
    with pytest.raises(errors.AlreadyThere):
        at_work.create_tag(name, main.commit, "Again")
    release = forge.create_release(name, "One", "Notes", draft=True, key=new_key())
    assert (release.tag, release.name, release.notes, release.draft) == (name, "One", "Notes", True)
    assert at_work.find_release(name) == release


def test_close(emulator: str, tmp_path: Path, new_key: Keys):
    at_work = driver(emulator)
    forge = Forge(at_work, Ledger(Memory(), tmp_path / "lock"))
    main = at_work.find_branch("main")
    assert main is not None
    forge.create_branch("closing", main.commit, key=new_key())
    write(emulator, "closing", "closing.txt", "text\n")
    made = forge.create_pull_request("closing", "main", "T", key=new_key())
    assert forge.close_pull_request(made.number, key=new_key()).state is State.CLOSED
    assert forge.pull_requests(head="closing") == []
