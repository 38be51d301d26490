"""A thin client for the REST APIs of forges: time limits, retries, errors in our words.

Repeated is only what cannot be done twice: questions, and requests that were not sent or that the
forge turned away unread (rate limits). Everything else that goes wrong on the way is
`Unreachable` with `maybe_done`, and the ledger's affair.
"""

from __future__ import annotations

import email.utils
import functools
import json
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from fusefs.contract.errors import InvalidArgument
from fusefs.forge.credentials import Credential, advice
from fusefs.forge.errors import (
    AuthenticationFailed,
    Forbidden,
    ForgeError,
    Missing,
    RateLimited,
    Refused,
    TimedOut,
    Unreachable,
)
from fusefs.forge.urls import Remote, is_private

_TRIES = 4
_MOST_BYTES = 32 << 20
_MOST_REDIRECTS = 3
_PAGE = 50
_MOST_PAGES = 20

Json = Any


@dataclass(frozen=True)
class Patience:
    """How long a call may take, in seconds.

    Attributes:
        connect: to reach the forge.
        silence: between two pieces of its answer.
        total: in all, waits and retries included.
        pause: before the first retry; doubled for each further one.
    """

    connect: float = 10
    silence: float = 30
    total: float = 60
    pause: float = 0.5


@dataclass(frozen=True)
class Answer:
    """What came back: `body` is None where there is none."""

    status: int
    body: Json
    headers: Mapping[str, str]


class Rest:
    """The API of one forge, as one user. Safe to use from threads."""

    def __init__(
        self,
        api: str,
        remote: Remote,
        kind: str,
        credential: Credential | None,
        *,
        headers: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Talk to `api`, the root of the API without a slash at the end.

        Args:
            remote, kind: for advice to people.
            headers: sent each time.

        Raises:
            InvalidArgument: the credential could be overheard on the way to `api`.
        """
        if credential is not None and not is_private(api):
            raise InvalidArgument("A token is not sent over plain http. Use https://.")
        self._api = api
        self._remote = remote
        self._kind = kind
        self._credential = credential
        self._patience = patience or Patience()
        self._sleep = sleep
        self._client = httpx2.Client(
            headers={"User-Agent": "fusefs", "Accept": "application/json", **(headers or {})},
            verify=_tls(trusting=api.startswith("https:")),
        )

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def find(self, path: str, **query: str | int) -> Json | None:
        """Return the body of a GET, or None where nothing is there. Raises: ForgeError."""
        try:
            return self.call("GET", path, query=query).body
        except Missing:
            return None

    def pages(self, path: str, size: str, **query: str | int) -> Iterator[Json]:
        """Yield the items of a list, page by page, at most a thousand.

        Args:
            size: the name of the parameter for the length of a page.
        """
        for page in range(1, _MOST_PAGES + 1):
            body = self.call("GET", path, query={**query, size: _PAGE, "page": page}).body
            yield from body
            if len(body) < _PAGE:
                return

    def call(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        query: Mapping[str, str | int] | None = None,
    ) -> Answer:
        """Do one call.

        Args:
            path: below the root, quoted.
            body: sent as JSON unless None.

        Raises:
            ForgeError: anything but success; `status` says what the forge answered.
        """
        give_up = time.monotonic() + self._patience.total
        for attempt in range(1, _TRIES + 1):
            try:
                return self._once(method, path, body, query, give_up)
            except (RateLimited, Unreachable) as error:
                wait = self._wait(error, method, attempt)
                if wait is None or time.monotonic() + wait > give_up:
                    raise
                self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _wait(self, error: RateLimited | Unreachable, method: str, attempt: int) -> float | None:
        """Return the seconds to wait before the next try; None: there is none."""
        if attempt == _TRIES or (method != "GET" and error.maybe_done):
            return None
        if isinstance(error, RateLimited) and error.wait is not None:
            return error.wait
        return float(self._patience.pause * 2 ** (attempt - 1) * random.uniform(0.8, 1.2))

    def _once(
        self,
        method: str,
        path: str,
        body: Json,
        query: Mapping[str, str | int] | None,
        give_up: float,
    ) -> Answer:
        url = self._api + path
        answer = self._send(method, url, body, query, give_up)
        for _ in range(_MOST_REDIRECTS):
            if answer.status not in {301, 302, 307, 308}:
                break
            # A renamed repository. The token goes to no other site than its own.
            target = urljoin(url, answer.headers.get("location", ""))
            if _site(target) != _site(url):
                raise Missing(f"{self._remote.url} has moved. Use its new address.")
            url = target
            answer = self._send(method, url, body, None, give_up)
        if answer.status >= 300:
            raise self._refusal(method, answer)
        return answer

    def _send(
        self,
        method: str,
        url: str,
        body: Json,
        query: Mapping[str, str | int] | None,
        give_up: float,
    ) -> Answer:
        left = max(give_up - time.monotonic(), 0.01)
        patience = self._patience
        timeout = httpx2.Timeout(min(patience.silence, left), connect=min(patience.connect, left))
        headers = {}
        if self._credential is not None:
            headers["Authorization"] = f"Bearer {self._credential.secret.reveal()}"
        where = self._remote.host
        try:
            with self._client.stream(
                method, url, json=body, params=query, headers=headers, timeout=timeout
            ) as response:
                raw = _read(response, give_up, method)
                status, answered = response.status_code, response.headers
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise Unreachable(f"{where} cannot be reached: {_why(error)}") from None
        except httpx2.TimeoutException:
            raise _late(where, method) from None
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"{where} broke off: {_why(error)}", maybe_done=method != "GET"
            ) from None
        return Answer(status, self._json(raw, status, method), answered)

    def _json(self, raw: bytes, status: int, method: str) -> Json:
        if not raw.strip():
            return None
        try:
            return json.loads(raw)
        except ValueError:
            if status >= 300:
                return {"message": raw[:500].decode("utf-8", "replace")}
            raise Unreachable(
                f"{self._api} did not answer like the API of {self._kind}. Look whether the "
                "address and the kind of the forge are right.",
                maybe_done=method != "GET",
            ) from None

    def _refusal(self, method: str, answer: Answer) -> ForgeError:
        """Return what an answer of 300 and above means. The one place for it."""
        status, said = answer.status, _message(answer.body)
        error: ForgeError
        if status == 401:
            error = AuthenticationFailed(
                f"{self._remote.host} does not take your credential: {said}. "
                + advice(self._remote, self._kind)
            )
        elif _is_rate_limit(answer, said):
            wait = _seconds_to_wait(answer.headers)
            when = "Try again later." if wait is None else f"Try again in {wait:.0f} seconds."
            error = RateLimited(f"Too many requests to {self._remote.host}. {when}", wait)
        elif status == 403:
            error = Forbidden(f"{self._remote.host} does not let you do that: {said}")
        elif status in {404, 410}:
            error = Missing(f"{self._remote.host} has no such thing, or hides it: {said}")
        elif status >= 500:
            error = Unreachable(
                f"{self._remote.host} is in trouble ({status}): {said}. Try again later.",
                maybe_done=method != "GET",
            )
        else:
            error = Refused(f"{self._remote.host} refused: {said}")
        error.status = status
        return error


@functools.cache
def _tls(*, trusting: bool) -> ssl.SSLContext:
    """Return the context for TLS: one for all, since reading the certificates takes a while.

    Args:
        trusting: False reads none, where there is no TLS.
    """
    if trusting:
        return httpx2.create_ssl_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _site(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _read(response: httpx2.Response, give_up: float, method: str) -> bytes:
    """Read the body, but not for ever and not without end."""
    pieces = []
    size = 0
    for piece in response.iter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise Unreachable(
                f"{response.url.host} sent more than {_MOST_BYTES >> 20} MiB.",
                maybe_done=method != "GET",
            )
        if time.monotonic() > give_up:
            raise _late(response.url.host, method)
    return b"".join(pieces)


def _why(error: Exception) -> str:
    return f"{str(error).rstrip('.') or type(error).__name__}. Try again later."


def _late(where: str, method: str) -> TimedOut:
    return TimedOut(
        f"{where} did not answer in time. Try again; if it stays so, look whether it is up.",
        maybe_done=method != "GET",
    )


def _message(body: Json) -> str:
    """Return what a forge says in an error: GitHub's and Gitea's message and errors, GitLab's."""
    if not isinstance(body, dict):
        return str(body or "no reason given")
    said = body.get("message") or body.get("error_description") or body.get("error") or ""
    parts = [said if isinstance(said, str) else _flat(said)]
    errors = body.get("errors")
    if errors:
        parts.append(_flat(errors))
    return "; ".join(part for part in parts if part) or "no reason given"


def _flat(value: Json) -> str:
    if isinstance(value, dict):
        if "message" in value:
            return str(value["message"])
        return ", ".join(f"{name} {_flat(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(_flat(item) for item in value)
    return str(value)


def _is_rate_limit(answer: Answer, said: str) -> bool:
    """GitHub answers 403 too: with no requests left, or for its secondary limits."""
    if answer.status == 429:
        return True
    return answer.status == 403 and (
        answer.headers.get("x-ratelimit-remaining") == "0"
        or "retry-after" in answer.headers
        or "rate limit" in said.lower()
    )


def _seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return what ``Retry-After`` (seconds or a date, RFC 9110) or a ``*-Reset`` header says."""
    after = headers.get("retry-after", "")
    if after.isdigit():
        return float(after)
    if after:
        try:
            when = email.utils.parsedate_to_datetime(after).timestamp()
        except ValueError:
            return None
        return max(when - time.time(), 0)
    reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
    return max(float(reset) - time.time(), 0) if reset.isdigit() else None
