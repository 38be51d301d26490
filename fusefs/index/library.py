"""The indexes of an instance: the one that answers, and the one that is to take its place.

::

    index/state.json     which is which
    index/NAME/          one index (`fusefs.index.index`)

beside what `fusefs.index.upkeep` keeps. An index made by another model, or by an older program,
answers until the new one is complete.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fusefs.index import terms
from fusefs.index.index import Index
from fusefs.index.model import Model
from fusefs.index.upkeep import Upkeep, read_json, write_json
from fusefs.store.derived_kv import DerivedDamaged

_log = logging.getLogger(__name__)

_NAME = re.compile("[0-9a-f]{16}")

FORMAT = 1
"""Grows when what is in an index changes."""


class Library(Upkeep):
    """The indexes of one instance. For one thread."""

    def __init__(self, instance_folder: Path) -> None:
        """Know of the indexes of the instance in a folder; nothing is opened yet."""
        super().__init__(instance_folder)
        self._opened: dict[str, Index] = {}

    def close(self) -> None:
        """Close what is open."""
        for index in self._opened.values():
            index.close()
        self._opened.clear()

    # Which is which.

    def answering(self, model: Model) -> Index:
        """Return the index that answers; a new one for `model` if there is none, or it cannot be
        opened."""
        name = self._state().get("answers")
        if name is not None:
            try:
                return self._open(name)
            except DerivedDamaged as error:
                _log.error("The search index is made anew: %s", error)
        self._change("answers", model, instead_of=name)
        return self._open(self._state()["answers"])

    def wanted(self, model: Model) -> Index:
        """Return the index that is to be kept complete: the one for `model`, which is made if
        need be and answers once it is (see `take_over`)."""
        answering = self.answering(model)
        following = self._state().get("next")
        if following is not None:
            with suppress(DerivedDamaged):
                index = self._open(following)
                if index.made_by.get("by") == made_by(model):
                    return index
        else:
            try:
                if answering.made_by.get("by") == made_by(model):
                    return answering
            except DerivedDamaged as error:
                self.replace(answering, model, error)
                return self.wanted(model)
        self._change("next", model, instead_of=following)
        return self._open(self._state()["next"])

    def replace(self, index: Index, model: Model, why: DerivedDamaged) -> None:
        """Put a new index for `model` in the place of one that has turned out to be damaged."""
        _log.error("The search index is made anew: %s", why)
        for role, name in self._state().items():
            if name == index.folder.name:
                self._change(role, model, instead_of=name)

    def all(self) -> list[Index]:
        """Return all indexes."""
        return [self._open(name) for name in self._state().values()]

    def take_over(self, index: Index) -> None:
        """Let `index`, which is complete, answer from now on; the one before it is removed."""
        with self.locked():
            state = self._state()
            if state.get("next") == index.folder.name:
                old = state["answers"]
                self._write_state({"answers": index.folder.name})
                self._remove(old)

    def rebuild(self, model: Model) -> None:
        """Begin an index anew; the present one answers until that is complete."""
        self.answering(model)
        self._change("next", model, instead_of=self._state().get("next"))

    def _open(self, name: str) -> Index:
        """Return an index.

        Raises:
            DerivedDamaged: it cannot be opened.
        """
        index = self._opened.get(name)
        if index is None:
            known = self._state()
            for other in [n for n in self._opened if n not in known.values()]:
                self._opened.pop(other).close()
            try:
                dimensions = int(read_json(self.folder / name / "about.json")["dimensions"])
            except (KeyError, ValueError, TypeError, OSError):
                raise DerivedDamaged(f"nothing says what is in {self.folder / name}") from None
            index = self._opened[name] = Index(self.folder / name, dimensions=dimensions)
        return index

    def _change(self, role: str, model: Model, *, instead_of: str | None) -> None:
        """Put a new index in a role, unless another process has been faster."""
        with self.locked():
            state = self._state()
            if state.get(role) != instead_of:
                return
            name = secrets.token_hex(8)
            (self.folder / name).mkdir(mode=0o700)
            made_with = {"dimensions": model.dimensions, "settings": self.settings}
            write_json(self.folder / name / "about.json", made_with)
            index = self._opened[name] = Index(self.folder / name, dimensions=model.dimensions)
            index.made_by = {"by": made_by(model)}
            self.forget_complete()
            self._write_state({**state, role: name})
            if instead_of is not None:
                self._remove(instead_of)

    def _remove(self, name: str) -> None:
        if name in self._opened:
            self._opened.pop(name).close()
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def _state(self) -> dict[str, str]:
        """Return which index is in which role; what is none is in none."""
        return {
            role: name
            for role, name in read_json(self.folder / "state.json").items()
            if isinstance(name, str) and _NAME.fullmatch(name)
        }

    def _write_state(self, state: Mapping[str, str]) -> None:
        write_json(self.folder / "state.json", state)


def made_by(model: Model) -> str:
    """Return what tells an index by this program and `model` from one by others."""
    parts = json.dumps([FORMAT, terms.VERSION, model.identity])
    return hashlib.sha256(parts.encode()).hexdigest()
