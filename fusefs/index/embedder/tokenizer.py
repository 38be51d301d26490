"""Tokens as a model's own tokenizer finds them, quickly.

The library divides one or two megabytes of text a second. A tokenizer of the BERT kind (clean,
split at white space and punctuation, then WordPiece) looks at each word alone, so what it makes of
a word can be kept: here the library divides each distinct word once, and numpy does the rest.
Any other tokenizer is asked for the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fusefs.index.embedder.spans import Ids, TokenSpans, joined
from fusefs.index.embedder.word_cache import WordCache

if TYPE_CHECKING:
    import tokenizers

_BLOCK = 1 << 18
"""Bytes of text that are looked at together, so that the arrays stay small."""
_MOST_AT_ONCE = 1 << 14
"""Characters that the library is given together: it needs some hundred bytes for each."""
_NEAREST = 64
"""Characters before a place among which there is one that tells of the word it may be in."""
_PADDING = bytes(16)

_SPACE, _MARK, _WORD = range(3)
_SPACES = b"\t\n\r "
_MARKS = rb"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"""
_Numbers = NDArray[np.int64]

_KINDS = bytes(
    _SPACE if byte in _SPACES else _MARK if byte in _MARKS else _WORD for byte in range(256)
)
_BORDER = re.compile(rb"[%s%s]" % (_SPACES, re.escape(_MARKS)))
_LAST_BORDER = re.compile(rb".*" + _BORDER.pattern, re.DOTALL)
"""Up to the last border: `.*` takes all there is, and gives back what it must."""


class Tokenizer:
    """Finds the tokens of texts. Threads wait for each other.

    A text must have no surrogates. Names of special tokens in it, like ``[CLS]``, are those tokens,
    as they are for the library.
    """

    def __init__(self, definition: str) -> None:
        """Take what is in a file ``tokenizer.json``.

        Raises:
            ValueError: it is not one.
        """
        from tokenizers import Tokenizer as Library

        try:
            self._library: tokenizers.Tokenizer = Library.from_str(definition)
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(str(error)) from error
        self._library.no_truncation()
        self._library.no_padding()
        self._lock = Lock()
        self._words = WordCache(self._divide) if _is_by_word(self._library) else None

    def spans(self, text: str) -> TokenSpans:
        """Return the tokens of `text`, without those that a model wants around it."""
        with self._lock:
            return joined(list(self._spans(text)))

    @cached_property
    def frame(self) -> tuple[Ids, Ids]:
        """The tokens that the model wants before and after a text."""
        inside = self._library.encode("a", add_special_tokens=False).ids
        framed = self._library.encode("a").ids
        size = len(inside)
        at = next(n for n in range(len(framed)) if framed[n : n + size] == inside)
        return np.array(framed[:at], np.int32), np.array(framed[at + size :], np.int32)

    def _spans(self, text: str) -> Iterator[TokenSpans]:
        if self._words is None:
            for start, end in _blocks(text):
                yield self._ask(text[start:end]).at(start)
            return
        start = 0
        for found in self._special.finditer(text):
            yield from self._by_word(text[start : found.start()], start, self._words)
            start = found.end()
            yield self._ask(found.group()).at(found.start())
        yield from self._by_word(text[start:], start, self._words)

    @cached_property
    def _special(self) -> re.Pattern[str]:
        """Finds names of special tokens: the first, and of those that begin there the longest."""
        names = [token.content for token in self._library.get_added_tokens_decoder().values()]
        names.sort(key=len, reverse=True)
        return re.compile("|".join(map(re.escape, names)) or "(?!)")

    def _by_word(self, text: str, offset: int, words: WordCache) -> Iterator[TokenSpans]:
        """Yield the tokens of a text without special ones, which begins at `offset`."""
        data = text.encode() + _PADDING
        for start, end, word_starts, word_ends in _blocks_of_words(data):
            spans, counts = words.spans(data, start + word_starts, start + word_ends)
            shifts, size = word_starts, end - start
            if not text.isascii():
                before = _characters_before(data, start, end)
                shifts, size = before[word_starts], int(before[-1])
            shifts = np.repeat((shifts + offset).astype(np.int32), counts)
            yield TokenSpans(spans.ids, spans.starts + shifts, spans.ends + shifts)
            offset += size

    def _divide(self, words: Sequence[str]) -> tuple[TokenSpans, _Numbers]:
        """Return the tokens of words, counted from each word's start, and how many each has."""
        divided: list[TokenSpans] = []
        counts: list[_Numbers] = []
        for group in _groups(words):
            if len(group[0]) > _MOST_AT_ONCE:
                divided.append(self._ask_for_long(group[0]))
                counts.append(np.array([len(divided[-1].ids)]))
                continue
            spans = self._ask("\n".join(group))
            starts = np.cumsum([0, *(len(word) + 1 for word in group)])
            count = np.diff(np.searchsorted(spans.starts, starts))
            shifts = np.repeat(starts[:-1], count).astype(np.int32)
            divided.append(TokenSpans(spans.ids, spans.starts - shifts, spans.ends - shifts))
            counts.append(count)
        return joined(divided), np.concatenate(counts)

    def _ask(self, text: str) -> TokenSpans:
        return _spans_of(self._library.encode(text, add_special_tokens=False))

    def _ask_for_long(self, text: str) -> TokenSpans:
        """Return the tokens of a text that is too long to be asked for at once.

        A word that is cut through is asked for again with what follows it. One that is longer than
        that is unknown, however it goes on. (It could be known only if the tokenizer leaves out
        thousands of its characters.)
        """
        found: list[TokenSpans] = []
        start, unended = 0, False
        while start < len(text):
            end = _before_letter(text, start, start + _MOST_AT_ONCE)
            encoding = self._library.encode(text[start:end], add_special_tokens=False)
            spans = _spans_of(encoding).at(start)
            heads = np.unique(np.array(encoding.word_ids, np.int64), return_index=True)[1]
            if unended and len(heads) and spans.starts[0] == start and self._goes_on(text, start):
                rest = int(heads[1]) if len(heads) > 1 else len(spans.ids)
                found[-1].ends[-1] = spans.ends[rest - 1]
                spans, heads = spans.between(rest, len(spans.ids)), heads[1:] - rest
            if len(heads) and end < len(text):
                last = int(heads[-1])
                unended = spans.starts[last] == start
                if not unended:
                    end = int(spans.starts[last])
                    spans = spans.between(0, last)
            if len(spans.ids):
                found.append(spans)
            start = end
        return joined(found)

    def _goes_on(self, text: str, at: int) -> bool:
        """Tell whether the word that is before a place goes on there."""
        nearest = range(at - 1, max(at - _NEAREST, -1), -1)
        before = next((place for place in nearest if text[place].isalnum()), at - 1)
        around = self._library.encode(text[before : at + 1], add_special_tokens=False)
        return len(set(around.word_ids)) < 2


def _is_by_word(library: tokenizers.Tokenizer) -> bool:
    """Say whether ASCII white space and punctuation always part words, and nothing crosses them."""
    from tokenizers import models, normalizers, pre_tokenizers

    return (
        isinstance(library.normalizer, normalizers.BertNormalizer)
        and isinstance(library.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(library.model, models.WordPiece)
        and not any(
            token.lstrip or token.rstrip or token.single_word or token.normalized
            for token in library.get_added_tokens_decoder().values()
        )
    )


def _spans_of(encoding: tokenizers.Encoding) -> TokenSpans:
    ids = np.array(encoding.ids, np.int32)
    offsets = np.fromiter(chain.from_iterable(encoding.offsets), np.int32, 2 * len(ids))
    return TokenSpans(ids, offsets[::2], offsets[1::2])


def _blocks_of_words(data: bytes) -> Iterator[tuple[int, int, _Numbers, _Numbers]]:
    """Yield stretches of padded `data`, and where words start and end in each.

    A word is a mark or what is between marks and spaces. A stretch ends where a word does.
    """
    start, size = 0, len(data) - len(_PADDING)
    while start < size:
        end = min(start + _BLOCK, size)
        if end < size and not _BORDER.match(data, end):
            end = _last_border(data, start, end)
        kinds = np.frombuffer(data[start:end].translate(_KINDS), np.uint8)
        word = np.zeros(len(kinds) + 2, bool)
        word[1:-1] = kinds == _WORD
        mark = kinds == _MARK
        starts = np.flatnonzero(mark | (word[1:-1] & ~word[:-2]))
        ends = np.flatnonzero(mark | (word[1:-1] & ~word[2:])) + 1
        yield start, end, starts, ends
        start = end


def _last_border(data: bytes, start: int, end: int) -> int:
    """Return where the last word of `data` before `end` starts or, if it is the only one, ends."""
    if found := _LAST_BORDER.match(data, start, end):
        return found.end()
    found = _BORDER.search(data, end, len(data) - len(_PADDING))
    return found.start() if found else len(data) - len(_PADDING)


def _characters_before(data: bytes, start: int, end: int) -> _Numbers:
    """Return how many characters of UTF-8 are before each byte of a stretch, and in all of it."""
    before = np.zeros(end - start + 1, np.int64)
    np.cumsum(np.frombuffer(data, np.uint8, end - start, start) & 0xC0 != 0x80, out=before[1:])
    return before


def _before_letter(text: str, start: int, end: int) -> int:
    """Return `end`, or if there is one a place before it that a letter or digit follows."""
    if end >= len(text):
        return len(text)
    return next((at for at in range(end, start, -1) if text[at].isalnum()), end)


def _groups(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield words in groups that can be asked for at once; one that is too long is alone."""
    group: list[str] = []
    size = 0
    for word in words:
        size += len(word) + 1
        if group and size > _MOST_AT_ONCE:
            yield group
            group, size = [], len(word) + 1
        group.append(word)
    if group:
        yield group


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield stretches of a text that are asked for one by one: whole lines, if they are not long.

    What a tokenizer makes of a line seldom depends on the one before it.
    """
    start = 0
    while start < len(text):
        end = start + _MOST_AT_ONCE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield start, min(end, len(text))
        start = end
