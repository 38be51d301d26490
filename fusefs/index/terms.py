"""The terms under which a text is found by its words.

A word is a run of letters, digits and underscores. Its terms are the word itself and, for an
identifier, its parts: ``getUserName`` and ``get_user_name`` are found by ``user`` and by each
other. Letter case and accents do not count, English inflections neither. Chinese and Japanese are
written without spaces, so there each pair of neighbouring characters is a term, as in Korean.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import Stemmer

VERSION = 1
"""Grows when the terms of a text change: an index made by other terms is built anew."""

LONGEST_BYTES = 64
"""UTF-8 bytes of a term at most; the rest of a longer one does not count."""

WORDS = re.compile(r"\w+")
"""What is a word."""

_BREAKS_APART = bytes(
    byte if WORDS.fullmatch(chr(byte)) and byte < 128 else ord(" ") for byte in range(256)
)
"""Turns all bytes of ASCII into spaces that are in no word."""

_STOP_WORDS = frozenset(
    WORDS.findall(
        "a an and are as at be but by can could did do does for from had has have how i if in into "
        "is it its me my no not of on or our should such that the their then there these they this "
        "to us was we were what when where which who why will with would you"
    )
)
"""English words that say how a question is put and not what it is about. Some of them are keywords
of programming languages, and so stand wherever code does."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PARTS_BEYOND_ASCII = re.compile(r"[^\W\d_]+|\d+")
_UNSPACED = re.compile(
    "[\u3040-\u30ff\uac00-\ud7af\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_MOST_KEPT = 1 << 18
_stem_word = Stemmer.Stemmer("english", 0).stemWord


class _Terms(dict[str, str]):
    """The term that a part of a word in lower case makes, kept for the next time."""

    def __missing__(self, part: str) -> str:
        if len(self) > _MOST_KEPT:
            self.clear()
        term = _stem_word(part) if part.isascii() else part
        if len(term) * 4 > LONGEST_BYTES:
            term = term.encode()[:LONGEST_BYTES].decode(errors="ignore")
        self[part] = term
        return term


_terms = _Terms()


def words_of(text: str) -> list[str]:
    """Return the words of a text, as `WORDS` finds them."""
    if text.isascii():
        # The same, in a third of the time.
        return text.encode().translate(_BREAKS_APART).decode().split()
    return WORDS.findall(text)


def terms_of(word: str) -> tuple[str, ...]:
    """Return the terms of one word, as `WORDS` finds it; each once, in a fixed order."""
    if not word.isascii():
        return _terms_beyond_ascii(word)
    if word.isalpha() and (word.islower() or word.istitle() or word.isupper()):
        return (_terms[word.lower()],)
    parts = _PARTS.findall(word)
    if len(parts) < 2:
        return (_terms[parts[0].lower()],) if parts else ()
    whole = _terms[word.lower().replace("_", "")]
    return tuple(dict.fromkeys([whole, *[_terms[part.lower()] for part in parts]]))


def _terms_beyond_ascii(word: str) -> tuple[str, ...]:
    plain = _without_accents(word)
    if plain.isascii():
        return terms_of(plain)
    parts = _PARTS_BEYOND_ASCII.findall(plain.casefold())
    found = dict.fromkeys(_terms[part] for part in ("".join(parts), *parts) if part)
    for run in _UNSPACED.findall("".join(parts)):
        found.pop(_terms[run], None)
        found.update(dict.fromkeys(run[at : at + 2] for at in range(max(1, len(run) - 1))))
    return tuple(found)


@lru_cache(maxsize=1024)
def query_terms(query: str) -> tuple[str, ...]:
    """Return the terms of a question, in its order, repeated ones as often as they stand there.

    Stop words have none, unless the question is made of nothing else.
    """
    words = words_of(query)
    telling = [word for word in words if word.lower() not in _STOP_WORDS]
    return tuple(term for word in telling or words for term in terms_of(word))


def _without_accents(word: str) -> str:
    apart = unicodedata.normalize("NFKD", word.replace("ß", "ss"))
    return unicodedata.normalize("NFC", "".join(c for c in apart if not unicodedata.combining(c)))
