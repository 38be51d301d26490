"""What an instance defines beside its tree: sessions, and what is bound into the tree."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fusefs.contract.paths import Path, render, resolve
from fusefs.contract.sessions import SECRET_SIZE, SessionSpec
from fusefs.store import journal, keys
from fusefs.store.journal import Op
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.working_copies import end_working_copies

if TYPE_CHECKING:
    from fusefs.store.instance import Instance


def rules_generation(txn: Reader) -> bytes:
    """Return a value that changes whenever a session or a bind does."""
    return txn.get(keys.META_RULES) or b""


Definition = Mapping[str, object] | None


def define(
    instance: Instance, txn: Writer, op: Op, name: str, actor: str, *, before: Definition,
    after: Definition,
) -> None:
    """Journal a definition that changed, so that every process compiles its rules anew.

    `before` and `after` are what it was and is, without secrets; None where there is none.
    """
    seq = journal.append(
        txn, time=time.time_ns(), process=instance.process, actor=actor, op=op,
        path=os.fsencode(name), before=_digest(before), after=_digest(after),
        detail=journal.describe({"before": before, "after": after}),
    )  # fmt: skip
    txn.put(keys.META_RULES, keys.number(seq))
    instance.journalled()


def _digest(definition: Definition) -> bytes:
    return b"" if definition is None else hashlib.sha256(journal.describe(definition)).digest()


class SessionTable:
    """The sessions that an instance defines."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def get(self, name: str) -> SessionSpec:
        """Return the session called `name`.

        Raises:
            KeyError: there is none.
        """
        with self._instance.kv.read() as txn:
            return session_in(txn, name)

    def names(self) -> list[str]:
        """Return the names of all sessions, sorted."""
        with self._instance.kv.read() as txn:
            pairs = txn.range(keys.SESSIONS, after_prefix(keys.SESSIONS))
            return [key[1:].decode() for key, _ in pairs]

    def put(self, spec: SessionSpec, actor: str) -> SessionSpec:
        """Define or redefine a session; it takes effect at once in every face.

        Returns:
            The session with its secret: a new one, or the one it has had.
        """
        with self._instance.kv.write() as txn:
            before = _table_of(txn, spec.name)
            if not spec.secret:
                spec = replace(spec, secret=_secret_of(txn, spec.name))
            value = json.dumps(spec.to_json()).encode()
            txn.put(keys.SESSIONS + spec.name.encode(), value)
            after = spec.to_table()
            define(
                self._instance, txn, Op.SESSION, spec.name, actor, before=before, after=after
            )
        self._instance.commit()
        return spec

    def remove(self, name: str, actor: str) -> None:
        """Remove a session with its working copies; its live mounts show nothing from then on.

        Raises:
            KeyError: there is none.
        """
        with self._instance.kv.write() as txn:
            before = session_in(txn, name).to_table()
            txn.delete(keys.SESSIONS + name.encode())
            end_working_copies(txn, session=name)
            define(self._instance, txn, Op.SESSION, name, actor, before=before, after=None)
        self._instance.commit()


def session_in(txn: Reader, name: str) -> SessionSpec:
    """Return the session called `name` as `txn` has it.

    Raises:
        KeyError: there is none.
    """
    raw = txn.get(keys.SESSIONS + name.encode())
    if raw is None:
        raise KeyError(name)
    return SessionSpec.from_json(json.loads(raw))


def _table_of(txn: Reader, name: str) -> dict[str, object] | None:
    try:
        return session_in(txn, name).to_table()
    except KeyError:
        return None


def _secret_of(txn: Reader, name: str) -> bytes:
    try:
        return session_in(txn, name).secret
    except KeyError:
        return secrets.token_bytes(SECRET_SIZE)


class BindSpec(NamedTuple):
    """What is bound at a path of the tree.

    Attributes:
        backend: which kind of backend serves it.
        source: where that backend finds it (a folder of the host).
    """

    backend: str
    source: str


class BindTable:
    """What is bound into the tree, by path."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def all(self) -> dict[Path, BindSpec]:
        """Return everything that is bound."""
        with self._instance.kv.read() as txn:
            return binds_in(txn)

    def put(self, path: Path, spec: BindSpec, actor: str) -> None:
        """Bind `spec` at `path`."""
        self._change(path, spec, actor)

    def remove(self, path: Path, actor: str) -> None:
        """Take away what is bound at `path`.

        Raises:
            KeyError: nothing is.
        """
        self._change(path, None, actor)

    def _change(self, path: Path, spec: BindSpec | None, actor: str) -> None:
        with self._instance.kv.write() as txn:
            binds = binds_in(txn)
            before = binds.get(path)
            if spec is None:
                del binds[path]
            else:
                binds[path] = spec
            value = {render(where): list(what) for where, what in binds.items()}
            txn.put(keys.META_BINDS, json.dumps(value).encode())
            define(
                self._instance, txn, Op.BIND, render(path), actor,
                before=None if before is None else before._asdict(),
                after=None if spec is None else spec._asdict(),
            )  # fmt: skip
        self._instance.commit()


def binds_in(txn: Reader) -> dict[Path, BindSpec]:
    """Return everything that is bound, as `txn` has it."""
    raw = txn.get(keys.META_BINDS)
    if raw is None:
        return {}
    return {resolve(path): BindSpec(*what) for path, what in json.loads(raw).items()}
