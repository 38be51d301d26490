"""A small forge on 127.0.0.1: smart HTTP by git's own http-backend, REST routes beside it, faults.

The faces of GitHub (``/api/v3``), GitLab (``/api/v4``) and Gitea (``/api/v1``) show the same
repositories.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from .world import ENVIRONMENT, Repository


@dataclass
class Call:
    """A REST call. `path` is below the face's root and not unquoted; `query` has single values."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    login: str | None


@dataclass
class Answer:
    """What the forge answers; `body` None sends none."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Fault:
    """Something that goes wrong with the calls that match.

    Attributes:
        pattern: searched in ``METHOD /path?query``.
        answer: sent instead; or one of ``hang``, ``close`` (before anything is done), ``cut``
            (done, but the answer is lost), ``drip`` (the answer comes by single bytes).
        times: how often; each time is used up.
        skip: how many matching calls go well first.
    """

    pattern: str
    answer: Answer | str
    times: int = 1
    skip: int = 0


Face = Callable[["SmallForge", Call], Answer]


@dataclass
class SmallForge:
    """The forge. Tokens stand for logins."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    faces: dict[str, Face] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """``METHOD /path?query`` of everything asked."""
    authorizations: list[str] = field(default_factory=list)
    watchers: list[Callable[[str, Call, Answer], None]] = field(default_factory=list)
    """Told of each REST call that was answered without a fault, with the face's root."""
    released: threading.Event = field(default_factory=threading.Event)
    """Ends what hangs."""
    hanging: threading.Event = field(default_factory=threading.Event)
    """Set once something hangs."""
    crashes: list[str] = field(default_factory=list)
    """What went wrong in the forge itself."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def right(self, name: str, login: str | None) -> str:
        """Return ``none``, ``read`` or ``write``."""
        repository = self.repositories.get(name)
        if repository is None:
            return "none"
        right = repository.rights.get(login or "", "none" if repository.private else "read")
        return "read" if right == "write" and repository.archived else right

    def take_fault(self, line: str) -> Fault | None:
        """Return the fault that is due for a call."""
        with self.lock:
            for fault in self.faults:
                if re.search(fault.pattern, line) and fault.times > 0:
                    if fault.skip > 0:
                        fault.skip -= 1
                        return None
                    fault.times -= 1
                    return fault
        return None


@contextlib.contextmanager
def running(forge: SmallForge) -> Iterator[SmallForge]:
    """Serve until the block ends."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Keep what is wrong with the forge itself; clients that break off are expected."""
            if not isinstance(sys.exc_info()[1], (ConnectionError, ValueError)):
                forge.crashes.append(traceback.format_exc())

    Handler = type("Handler", (_Handler,), {"forge": forge})  # noqa: N806
    server = Server(("127.0.0.1", 0), cast(Any, Handler))
    forge.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield forge
    finally:
        forge.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    forge: SmallForge

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle_any(self) -> None:
        forge = self.forge
        line = f"{self.command} {self.path}"
        with forge.lock:
            forge.seen.append(line)
            forge.authorizations.append(self.headers.get("Authorization", ""))
        fault = forge.take_fault(line)
        if fault is not None and isinstance(fault.answer, Answer):
            self._body()
            return self._send(fault.answer)
        kind = None if fault is None else fault.answer
        if kind == "hang":
            forge.hanging.set()
            forge.released.wait(60)
            return self._break_off()
        if kind == "close":
            self._body()
            return self._break_off()
        face = next((root for root in forge.faces if self.path.startswith(root + "/")), None)
        if face is None:
            return self._git(cut=kind == "cut")
        answer = self._rest(face)
        if kind == "cut":
            return self._break_off()
        return self._send(answer, drip=kind == "drip")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

    def _break_off(self) -> None:
        """Reset the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
        self.rfile.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            pieces = []
            while size := int(self.rfile.readline().strip() or b"0", 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _login(self) -> tuple[str | None, bool]:
        """Return who asks (None: nobody) and whether the credential, if any, is good."""
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic":
            value = base64.b64decode(value).decode().partition(":")[2]
        if not value:
            return None, True
        login = self.forge.tokens.get(value)
        return login, login is not None

    def _rest(self, root: str) -> Answer:
        raw = self._body()
        parts = urlsplit(self.path[len(root) :])
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        login, good = self._login()
        if not good:
            return Answer(
                401, {"message": "Bad credentials", "documentation_url": "", "status": "401"}
            )
        body = json.loads(raw) if raw else None
        call = Call(self.command, parts.path, query, body, login)
        with self.forge.lock:
            answer = self.forge.faces[root](self.forge, call)
        for watcher in self.forge.watchers:
            watcher(root, call, answer)
        return answer

    def _send(self, answer: Answer, *, drip: bool = False) -> None:
        text = isinstance(answer.body, str)
        raw = answer.body.encode() if text else json.dumps(answer.body).encode()
        raw = b"" if answer.body is None else raw
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value.replace("{url}", self.forge.url))
        self.send_header("Content-Type", "text/html" if text else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if not drip:
            self.wfile.write(raw)
            return
        for byte in raw:
            if self.forge.released.wait(0.05):
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()

    def _git(self, *, cut: bool) -> None:
        parts = urlsplit(self.path)
        match = re.fullmatch(r"/(.+?)\.git(/.*)", unquote(parts.path))
        body = self._body()
        login, good = self._login()
        name = match[1] if match else ""
        right = self.forge.right(name, login)
        wants_write = "git-receive-pack" in self.path
        if not good or (login is None and (right == "none" or wants_write)):
            return self._send(Answer(401, "", {"WWW-Authenticate": 'Basic realm="forge"'}))
        if right == "none" or match is None:
            return self._send(Answer(404, "Repository not found."))
        if wants_write and right != "write":
            return self._send(Answer(403, f"Permission to {name}.git denied to {login}."))
        repository = self.forge.repositories[name]
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=True,
            timeout=60,
            env={
                **ENVIRONMENT,
                "GIT_PROJECT_ROOT": str(Path(repository.path)),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": match[2],
                "REQUEST_METHOD": self.command,
                "QUERY_STRING": parts.query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "CONTENT_LENGTH": str(len(body)),
                "REMOTE_USER": login or "",
                "REMOTE_ADDR": "127.0.0.1",
            },
        )
        if cut:
            return self._break_off()
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        return None
