"""Cases about pieces, answered by the contract read word by word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusefs.tools.conformance_chunks import write_out
from tests.contract import naive_chunks as naive


def answer(op: str, fields: Mapping[str, Any]) -> list[list[int]]:
    text = write_out(fields["text"])
    if op == "halve":
        return naive.located(text, naive.halves(text, *fields["piece"]))
    match fields.get("tokens", "bytes"):
        case "bytes":
            measured: naive.Measured = naive.Bytes(text)
        case "characters":
            measured = naive.Starts(text, range(len(text)))
        case "words":
            before = zip(" " + text, text, strict=False)
            starts = [at for at, (a, b) in enumerate(before) if a.isspace() and not b.isspace()]
            measured = naive.Starts(text, starts)
        case unknown:
            raise ValueError(unknown)
    sizes = (fields.get("size", 480), fields.get("overlap", 64), fields.get("least", 40))
    return naive.located(text, naive.pieces(measured, *sizes))
