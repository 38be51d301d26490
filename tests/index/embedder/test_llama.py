"""Tokens of a llama.cpp server: a real one over HTTP, with the answers of several vocabularies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fusefs.contract.chunks import cut, cut_by_bytes
from fusefs.index.embedder.alignment import NotAligned, align
from fusefs.index.embedder.llama import LlamaTokenizer, TokenizerUnavailable
from fusefs.index.embedder.models import MINILM_TOKENIZER
from fusefs.index.embedder.served_cuts import CutByServer
from fusefs.index.embedder.tokenizer import Tokenizer
from fusefs.index.loading import WordsAlone

Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


class Server:
    """Answers ``/tokenize`` with what it is told to."""

    def __init__(self) -> None:
        self.answer: Answer = bytes_of_three
        self.asked: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append({"path": self.path, **request})
                status, body = outer.answer(request)
                with suppress(BrokenPipeError):  # who asked waits no longer
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def bytes_of_three(request: dict[str, Any]) -> tuple[int, bytes]:
    """Answer as a vocabulary of bytes does, whose tokens are of three bytes each."""
    data = request["content"].encode()
    pieces = [data[at : at + 3] for at in range(0, len(data), 3)]
    tokens = [{"id": len(piece), "piece": as_piece(piece)} for piece in pieces]
    return 200, json.dumps({"tokens": tokens}).encode()


def as_piece(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(running: Server) -> Server:
    running.answer = bytes_of_three
    running.asked.clear()
    return running


def test_tokens_are_where_their_bytes_are(server: Server) -> None:
    spans = LlamaTokenizer(server.address + "/").spans("ab日本\nc")
    assert spans.ids.tolist() == [3, 3, 3, 1]
    assert list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)) == [
        (0, 3),
        (2, 4),
        (3, 5),
        (5, 6),
    ]
    (asked,) = server.asked
    assert asked == {
        "path": "/tokenize",
        "content": "ab日本\nc",
        "with_pieces": True,
        "parse_special": False,
    }


def test_a_vocabulary_is_known_by_its_tokens(server: Server) -> None:
    tokenizer = LlamaTokenizer(server.address)
    first = tokenizer.identity()
    assert tokenizer.identity() == first
    server.answer = lambda request: (
        200,
        json.dumps({"tokens": [{"id": 7, "piece": request["content"]}]}).encode(),
    )
    assert tokenizer.identity() != first


@pytest.mark.parametrize(
    "answer, reason",
    [
        ((500, b"{}"), "status 500"),
        ((200, b"not JSON"), "something other than tokens"),
        ((200, b"{}"), "something other than tokens"),
        ((200, b'{"tokens": [1, 2]}'), "something other than tokens"),
        ((200, b'{"tokens": [{"id": 1, "piece": [300]}]}'), "something other than tokens"),
        ((200, b'{"tokens": [{"id": 1e99, "piece": "a"}]}'), "something other than tokens"),
        ((200, b'{"tokens": [{"id": 1, "piece": "other"}]}'), "not of the text"),
    ],
)
def test_another_answer_is_no_tokens(
    server: Server, answer: tuple[int, bytes], reason: str
) -> None:
    server.answer = lambda _: answer
    with pytest.raises(TokenizerUnavailable, match=reason):
        LlamaTokenizer(server.address).spans("a text")


def test_a_server_that_is_silent_or_away_gives_no_tokens() -> None:
    server = Server()
    goes_on = threading.Event()
    server.answer = lambda _: (goes_on.wait(60), (200, b""))[1]
    with pytest.raises(TokenizerUnavailable, match="does not answer: timed out"):
        LlamaTokenizer(server.address, timeout=0.05).spans("a text")
    goes_on.set()
    server.close()
    with pytest.raises(TokenizerUnavailable, match=r"does not answer: .*refused"):
        LlamaTokenizer(server.address).spans("a text")


def test_while_a_server_fails_texts_are_cut_by_their_bytes(server: Server) -> None:
    text = "a line of text\n" * 300
    model = CutByServer(WordsAlone("none"), server.address)
    by_tokens = cut(text, [(at, at + 3) for at in range(0, len(text), 3)])
    assert list(model.cut(text)) == by_tokens
    server.answer = lambda _: (503, b"")
    assert list(model.cut(text)) == cut_by_bytes(text) != by_tokens
    server.answer = bytes_of_three
    server.asked.clear()
    assert list(model.cut(text)) == cut_by_bytes(text)
    assert not server.asked
    with mock.patch.object(time, "monotonic", return_value=time.monotonic() + 3600):
        assert list(model.cut(text)) == by_tokens


@pytest.mark.parametrize(
    "address",
    [
        *("https://127.0.0.1:8080", "http://example.org", "http://10.0.0.1", "127.0.0.1:8080"),
        *("http://", "", "file:///tmp", "http://127.0.0.1:port", "http://[::1", "unix:/run/x"),
    ],
)
def test_texts_go_to_no_other_machine(address: str) -> None:
    with pytest.raises(TokenizerUnavailable, match=r"not (an|the) address"):
        LlamaTokenizer(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_texts_may_go_to_this_machine(host: str) -> None:
    LlamaTokenizer(f"http://{host}:1")


@given(text=st.text(), cuts=st.sets(st.integers(0, 60)), space=st.booleans())
def test_pieces_of_bytes_are_found(text: str, cuts: set[int], space: bool) -> None:
    data = b" " * space + text.encode()
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    pieces = [data[first:last] for first, last in pairwise(edges)]
    owners = [place for place, character in enumerate(text) for _ in character.encode()]
    for (start, end), (first, last) in zip(align(text, pieces), pairwise(edges), strict=True):
        inside = owners[max(first - space, 0) : max(last - space, 0)]
        if inside:
            assert (start, end) == (inside[0], inside[-1] + 1)
        else:
            assert start == end


_TOKENIZER = Tokenizer(MINILM_TOKENIZER.read_text())
_NAMES = {id_: name for name, id_ in _TOKENIZER._library.get_vocab().items()}


@settings(deadline=None)
@given(text=st.text(st.sampled_from("aTokenéÅ ,._\n日本語🙂ß\u0301x9"), max_size=40))
@example("unaffable getUserName(naïve) 日本")
def test_pieces_of_words_are_found_where_the_library_finds_them(text: str) -> None:
    spans = _TOKENIZER.spans(text)
    pieces = [spelled_by_llama(_NAMES[int(id_)]) for id_ in spans.ids]
    assume(not (b" " + text.encode()).endswith(b"".join(pieces)))  # could be of bytes as well
    assert [start for start, _ in align(text, pieces)] == spans.starts.tolist()


def spelled_by_llama(name: str) -> bytes:
    """Return what the server says: a space before a word, and nothing within one."""
    if name == "[UNK]":
        return name.encode()
    return (name[2:] if name.startswith("##") and len(name) > 2 else f" {name}").encode()


def test_pieces_of_another_text_are_refused() -> None:
    for pieces in ([b" a"], [b" a", b" text", b" more"], [b"\xff"], []):
        with pytest.raises(NotAligned):
            align("a text", pieces)
    np.testing.assert_array_equal(align("", []), [])
