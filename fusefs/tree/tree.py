"""One namespace composed of backends by longest prefix.

The instance's own tree is at the root; whatever is bound elsewhere covers what is there.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Hashable, Set
from typing import NamedTuple

from fusefs.contract.paths import ROOT, Path, render
from fusefs.store import definitions
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance, InstanceError
from fusefs.store.mounts import MountSpec
from fusefs.tree.backend import Backend, Node
from fusefs.tree.host_tree import HostTree
from fusefs.tree.instance_trash import InstanceTrash
from fusefs.tree.journalled_host import JournalledHost
from fusefs.tree.store_tree import StoreTree
from fusefs.tree.unavailable import UnavailableTree

_log = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

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
        self.spec: BindSpec | MountSpec = BindSpec("", "")
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
    """The tree of an instance, with everything that is bound into it.

    Attributes:
        on_unbound: called with the backend of a folder that is bound no more.
    """

    def __init__(self, instance: Instance, session: str) -> None:
        """Compose the tree as the session called `session` works in it: of each mounted
        repository it has a working copy of its own.

        Raises:
            InstanceError: something bound names a backend that this program does not have.
        """
        self.instance = instance
        self.store = StoreTree(instance)
        self._session = session
        self._opened: dict[tuple[Path, BindSpec | MountSpec], Backend] = {}
        self._generation = b""
        self.on_unbound: list[Callable[[HostTree], None]] = []
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
        binds = self.instance.binds.all()
        for path, bind in binds.items():
            tag = os.fsencode(f"{bind.backend}\0{render(path)}\0{bind.source}")
            self._bind(top, path, bind, tag)
        for path, mount in self.instance.mounts.all().items():
            self._bind(top, path, mount, STORE_TAG)
        self.top = top
        self._let_go({(path, bind) for path, bind in binds.items()})
        return True

    def _let_go(self, kept: Set[tuple[Path, BindSpec]]) -> None:
        for at, backend in list(self._opened.items()):
            if isinstance(backend, HostTree) and at not in kept:
                del self._opened[at]
                backend.let_go()
                for tell in self.on_unbound:
                    tell(backend)

    def _bind(self, top: Bound, path: Path, spec: BindSpec | MountSpec, tag: bytes) -> None:
        bound = top
        for name in path:
            bound = bound.below.setdefault(name, Bound())
        bound.path, bound.spec, bound.tag = path, spec, tag
        bound.backend = self._open(path, spec)

    def _open(self, path: Path, spec: BindSpec | MountSpec) -> Backend:
        backend = self._opened.get((path, spec))
        if backend is None:
            try:
                backend = self._make(path, spec)
            except OSError as error:
                return _unavailable(path, spec, error)
            self._opened[path, spec] = backend
        return backend

    def _make(self, path: Path, spec: BindSpec | MountSpec) -> Backend:
        if isinstance(spec, MountSpec):
            # Here, since pygit2 takes longer to load than all the rest.
            from fusefs.tree.repository_mount import open_mount  # noqa: PLC0415

            return open_mount(self.instance, self.store, path, spec, self._session)
        if spec.backend != HOST:
            raise InstanceError(
                f"Unknown backend {spec.backend!r} at {render(path)}: this fusefs has {HOST}."
            )
        return JournalledHost(
                spec.source, InstanceTrash(self.instance, path), self.instance, path
            )

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
            return self._top_of(below.backend, below)
        return Spot(backend, tag, backend.lookup(key, name), below)

    def _top_of(self, backend: Backend, bound: Bound) -> Spot:
        """Return the root of what is bound, and who answers for it.

        A repository in which no working copy can begin is unavailable, and nothing beside it is;
        one without its branch is not there at all.
        """
        try:
            root = backend.root()
        except FileNotFoundError:
            raise
        except OSError as error:
            if not isinstance(bound.spec, MountSpec):
                raise
            if error.errno in _NO_ROOM:
                backend = UnavailableTree(render(bound.path), error)
            else:
                backend = bound.backend = _unavailable(bound.path, bound.spec, error)
            root = backend.root()
        tag = bound.tag
        if isinstance(backend, UnavailableTree) and isinstance(bound.spec, MountSpec):
            tag = b"unavailable\0" + b"/".join(bound.path)  # its one node is none of the store's
        return Spot(backend, tag, root, bound)

    def resolve(self, path: Path) -> Spot:
        """Return the node at `path`, following no link.

        Raises:
            OSError: ENOENT or ENOTDIR.
        """
        spot = self.root()
        for name in path:
            spot = self.child(spot.backend, spot.tag, spot.node.key, spot.bound, name)
        return spot


def _unavailable(path: Path, spec: BindSpec | MountSpec, error: OSError) -> UnavailableTree:
    source, undo = (
        (spec.source, "unbind") if isinstance(spec, BindSpec) else (spec.url, "repo rm")
    )
    _log.warning(
        "Cannot open %s, which belongs at %s: %s. What is below it is unavailable; "
        "to take it away: fusefs %s %s",
        source, render(path), error.strerror, undo, render(path),
    )  # fmt: skip
    return UnavailableTree(source, error)
