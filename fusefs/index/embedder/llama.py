"""Tokens as a llama.cpp server on this machine finds them."""

from __future__ import annotations

import hashlib
import http.client
import json
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from fusefs.index.embedder.alignment import NotAligned, align
from fusefs.index.embedder.spans import TokenSpans

_PROBE = "Tokens of a naïve `probe(text)`, 1234 日本 🙂\n"
_LARGEST_ANSWER = 256 << 20


class TokenizerUnavailable(Exception):
    """There are no tokens, so texts are cut by their bytes; the message tells people why."""


class LlamaTokenizer:
    """Finds the tokens of texts by asking a server. Several threads may use it."""

    def __init__(self, address: str, *, timeout: float = 10.0) -> None:
        """Use the server at an address like ``http://127.0.0.1:8080``.

        Args:
            address: of this machine, since texts are not sent to any other.
            timeout: seconds that the server may be silent.

        Raises:
            TokenizerUnavailable: the address is not of that form.
        """
        try:
            parts = urlsplit(address)
            self._port = parts.port or 80
        except ValueError as error:
            raise TokenizerUnavailable(f"{address} is not an address: {error}.") from error
        if parts.scheme != "http" or not _is_here(parts.hostname or ""):
            raise TokenizerUnavailable(
                f"{address} is not the address of an http server on this machine."
            )
        self._address = address
        self._host = parts.hostname or ""
        self._path = parts.path.rstrip("/") + "/tokenize"
        self._timeout = timeout

    def identity(self) -> str:
        """Return a name for the server's vocabulary: under the same, texts are cut alike.

        Raises:
            TokenizerUnavailable: as `spans` does.
        """
        digest = hashlib.sha256(self.spans(_PROBE).ids.tobytes()).hexdigest()
        return f"llama.cpp {digest[:16]}"

    def spans(self, text: str) -> TokenSpans:
        """Return the tokens of `text`, in which names of special tokens are text.

        Raises:
            TokenizerUnavailable: the server does not answer, or not with tokens of this text.
        """
        request = {"content": text, "with_pieces": True, "parse_special": False}
        answer = self._ask(json.dumps(request).encode())
        try:
            tokens = json.loads(answer)["tokens"]
            ids = np.array([token["id"] for token in tokens], np.int32)
            pieces = [_bytes_of(token["piece"]) for token in tokens]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._unavailable("answers with something other than tokens") from error
        try:
            bounds = align(text, pieces)
        except NotAligned as error:
            raise self._unavailable("answers with tokens that are not of the text") from error
        return TokenSpans(ids, *np.array(bounds, np.int32).reshape(-1, 2).T)

    def _ask(self, body: bytes) -> bytes:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        try:
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read(_LARGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise self._unavailable(f"does not answer: {reason}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise self._unavailable(f"answers with status {response.status}")
        return answer

    def _unavailable(self, what: str) -> TokenizerUnavailable:
        return TokenizerUnavailable(f"The server at {self._address} {what}.")


def _bytes_of(piece: Any) -> bytes:
    """Return a piece, which comes as a text or, where it is only a part of one, as bytes."""
    return piece.encode() if isinstance(piece, str) else bytes(piece)


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
