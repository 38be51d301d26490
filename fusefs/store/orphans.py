"""Nodes that are in no directory but still open somewhere.

A node that a rename replaced, or that the trash gave up, may be open in some process. It
waits below the orphans node until no live process has pinned it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from fusefs.store import keys, nodes
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.nodes import Located

if TYPE_CHECKING:
    from fusefs.store.instance import Instance

GRACE = 60 * 10**9
"""Nanoseconds that other processes have to pin a node they have open."""


def orphan(txn: Writer, located: Located, now: int) -> None:
    """Move a node that was just replaced out of the tree."""
    nodes.take(txn, located.parent, located.name)
    record = located.record._replace(linked=now, ctime=now)
    nodes.place(txn, keys.ORPHANS_ID, keys.number(record.id), record)


def pin_open(instance: Instance, open_nodes: Iterable[int]) -> None:
    """Bring this process's pins up to date: orphans that it has open, and no others."""
    with instance.kv.read() as txn:
        suffix = keys.number(instance.process)
        pinned = {node for node, process in _pins(txn) if process == instance.process}
        wanted = {node for node in open_nodes if _top(txn, node) is not None}
    if wanted == pinned:
        return
    with instance.kv.write(freeing=True) as txn:
        for node in wanted - pinned:
            txn.put(keys.PINS + keys.number(node) + suffix, b"")
        for node in pinned - wanted:
            txn.delete(keys.PINS + keys.number(node) + suffix)


def _pins(txn: Reader) -> list[tuple[int, int]]:
    """Return the pinned nodes and the processes that pin them."""
    pairs = txn.range(keys.PINS, after_prefix(keys.PINS))
    return [(keys.to_number(key[1:]), keys.to_number(key[9:])) for key, _ in pairs]


def _top(txn: Reader, node_id: int) -> int | None:
    """Return the orphan that a node is or is below, None if there is none."""
    at = node_id
    while True:
        raw = txn.get(keys.node(at))
        if raw is None:
            return None
        parent = keys.to_number(raw)
        if parent == keys.ORPHANS_ID:
            return at
        at = parent


def collect(instance: Instance, *, grace: int = GRACE) -> int:
    """Drop orphans that nobody has open, and the pins of dead processes; return how many."""
    alive = instance.live_processes()
    with instance.kv.read() as txn:
        unwanted = abandoned(txn, alive, grace=grace)
        dead = dead_pins(txn, alive)
    for located in unwanted:
        drop_subtree(instance, located)
    if dead:
        with instance.kv.write(freeing=True) as txn:
            for node, process in dead:
                txn.delete(keys.PINS + keys.number(node) + keys.number(process))
    return len(unwanted)


def abandoned(txn: Reader, alive: set[int], *, grace: int = GRACE) -> list[Located]:
    """Return the orphans that no process of `alive` has open."""
    kept = {_top(txn, node) for node, process in _pins(txn) if process in alive}
    cutoff = time.time_ns() - grace
    return [
        Located(keys.ORPHANS_ID, name, record)
        for name, record in nodes.children(txn, keys.ORPHANS_ID)
        if record.id not in kept and record.linked <= cutoff
    ]


def dead_pins(txn: Reader, alive: set[int]) -> list[tuple[int, int]]:
    """Return the pins of other processes than those of `alive`."""
    return [(node, process) for node, process in _pins(txn) if process not in alive]


_CHUNK = 200


def drop_subtree(instance: Instance, located: Located) -> None:
    """Remove a node outside the tree for good, with all below it.

    Children go first and in short transactions, so that a crash leaves no node without a
    way to it.
    """
    way = [located]
    while way:
        with instance.kv.write(freeing=True) as txn:
            for _ in range(_CHUNK):
                if not way:
                    break
                directory = way[-1].record.id
                child = next(nodes.children(txn, directory), None)
                if child is not None:
                    way.append(Located(directory, *child))
                    continue
                names = list(islice(nodes.superseded(txn, directory), _CHUNK))
                for name in names:
                    txn.delete(keys.superseded(directory, name))
                if names:
                    break  # there may be many more
                nodes.drop(txn, way.pop())
