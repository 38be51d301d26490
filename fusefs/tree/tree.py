"""One namespace composed of backends by longest prefix.

The instance's own tree is at the root; whatever is bound elsewhere covers what is there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from fusefs.contract.paths import ROOT, Path, render
from fusefs.store import definitions
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance, InstanceError
from fusefs.tree.backend import Backend, Node
from fusefs.tree.instance_trash import InstanceTrash
from fusefs.tree.journalled_host import JournalledHost
from fusefs.tree.store_tree import StoreTree
from fusefs.tree.unavailable import UnavailableTree

_log = logging.getLogger(__name__)

STORE_TAG = b"store"
"""Tells identities of the instance's own nodes."""
HOST = "host"
"""Name of the backend that serves a folder of the host."""


class Bound:
    """A node of the trie of bound paths.

    Attributes:
        backend: what is bound here, or None on the way to something bound below.
        path, spec: where that is, and what.
        tag: tells the backend's identities from all others'.
        below: the names that lead to something bound.
    """

    __slots__ = ("backend", "below", "path", "spec", "tag")

    def __init__(self) -> None:
        self.backend: Backend | None = None
        self.path: Path = ROOT
        self.spec = BindSpec("", "")
        self.tag = b""
        self.below: dict[bytes, Bound] = {}

    def first(self, path: Path) -> Path | None:
        """Return the first path at or below `path`, this node's, where something is bound."""
        pending = [(path, self)]
        while pending:
            at, bound = pending.pop()
            if bound.backend is not None:
                return at
            pending.extend(((*at, n), b) for n, b in sorted(bound.below.items(), reverse=True))
        return None


class Spot(NamedTuple):
    """A node in its backend.

    Attributes:
        backend: who answers for the node.
        tag: tells this backend's identities from all others'.
        node: the node, as it was when it was looked up.
        bound: what is bound at and below it, or None.
    """

    backend: Backend
    tag: bytes
    node: Node
    bound: Bound | None


class Tree:
    """The tree of an instance, with everything that is bound into it."""

    def __init__(self, instance: Instance) -> None:
        """Compose the tree.

        Raises:
            InstanceError: something bound names a backend that this program does not have.
        """
        self.instance = instance
        self.store = StoreTree(instance)
        self._opened: dict[tuple[Path, BindSpec], Backend] = {}
        self._generation = b""
        self.top = Bound()
        self.rebind()

    def rebind(self) -> bool:
        """Follow a change of what is bound; tell whether there was one."""
        with self.instance.kv.read() as txn:
            generation = definitions.rules_generation(txn)
        if generation == self._generation and self.top.backend is not None:
            return False
        self._generation = generation
        top = Bound()
        top.backend, top.tag = self.store, STORE_TAG
        for path, spec in self.instance.binds.all().items():
            bound = top
            for name in path:
                bound = bound.below.setdefault(name, Bound())
            bound.path, bound.spec = path, spec
            bound.backend = self._open(path, spec)
            bound.tag = os.fsencode(f"{spec.backend}\0{render(path)}\0{spec.source}")
        self.top = top
        return True

    def _open(self, path: Path, spec: BindSpec) -> Backend:
        backend = self._opened.get((path, spec))
        if backend is None:
            factory = _FACTORIES.get(spec.backend)
            if factory is None:
                raise InstanceError(
                    f"Unknown backend {spec.backend!r} at {render(path)}: this fusefs has "
                    f"{', '.join(sorted(_FACTORIES))}."
                )
            try:
                backend = factory(self.instance, path, spec)
            except OSError as error:
                _log.warning(
                    "Cannot open %s, bound at %s: %s. What is below it is unavailable; "
                    "to take it away: fusefs unbind %s",
                    spec.source, render(path), error.strerror, render(path),
                )  # fmt: skip
                return UnavailableTree(spec.source, error)
            self._opened[path, spec] = backend
        return backend

    def unavailable(self) -> list[Path]:
        """Return where folders are bound that cannot be opened."""
        return [
            path
            for path in self.instance.binds.all()
            if isinstance(self.resolve(path).backend, UnavailableTree)
        ]

    def root(self) -> Spot:
        """Return the root of the tree."""
        backend = self.top.backend
        assert backend is not None
        return Spot(backend, self.top.tag, backend.root(), self.top)

    def child(
        self, backend: Backend, tag: bytes, key: Hashable, bound: Bound | None, name: bytes
    ) -> Spot:
        """Return the entry `name` of a directory.

        Raises:
            OSError: as `Backend.lookup`.
        """
        below = None if bound is None else bound.below.get(name)
        if below is not None and below.backend is not None:
            if isinstance(below.backend, UnavailableTree) and below.backend.may_be_back:
                below.backend = self._open(below.path, below.spec)
            return Spot(below.backend, below.tag, below.backend.root(), below)
        return Spot(backend, tag, backend.lookup(key, name), below)

    def resolve(self, path: Path) -> Spot:
        """Return the node at `path`, following no link.

        Raises:
            OSError: ENOENT or ENOTDIR.
        """
        spot = self.root()
        for name in path:
            spot = self.child(spot.backend, spot.tag, spot.node.key, spot.bound, name)
        return spot


def _open_host(instance: Instance, path: Path, spec: BindSpec) -> Backend:
    return JournalledHost(spec.source, InstanceTrash(instance, path), instance, path)


_FACTORIES: Mapping[str, Callable[[Instance, Path, BindSpec], Backend]] = {HOST: _open_host}
