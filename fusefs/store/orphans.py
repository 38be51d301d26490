"""Nodes that are in no directory but still open somewhere.

A node that a rename replaced, or that the trash gave up, may be open in some process. It
waits below the orphans node until no live process has pinned it.
"""

from __future__ import annotations

import time

from fusefs.store import keys, nodes
from fusefs.store.instance import Instance
from fusefs.store.kv import Writer, after_prefix
from fusefs.store.nodes import Located

GRACE = 60 * 10**9
"""Nanoseconds that other processes have to pin a node they have open."""


def orphan(txn: Writer, located: Located, now: int) -> None:
    """Move a node that was just replaced out of the tree."""
    nodes.take(txn, located.parent, located.name)
    record = located.record._replace(linked=now, ctime=now)
    nodes.place(txn, keys.ORPHANS_ID, keys.number(record.id), record)


def pin(instance: Instance, node_id: int) -> None:
    """Keep an orphan alive while this process lives or until it is unpinned."""
    with instance.kv.write(freeing=True) as txn:
        txn.put(keys.PINS + keys.number(node_id) + keys.number(instance.process), b"")


def unpin(instance: Instance, node_id: int) -> None:
    """Let go of an orphan that this process has closed."""
    with instance.kv.write(freeing=True) as txn:
        txn.delete(keys.PINS + keys.number(node_id) + keys.number(instance.process))


def collect(instance: Instance, *, grace: int = GRACE) -> int:
    """Drop orphans that nobody has open, and the pins of dead processes; return how many."""
    alive = instance.live_processes()
    with instance.kv.read() as txn:
        pins = [key for key, _ in txn.range(keys.PINS, after_prefix(keys.PINS))]
        waiting = list(nodes.children(txn, keys.ORPHANS_ID))
    pinned = {keys.to_number(key[1:]) for key in pins if keys.to_number(key[9:]) in alive}
    dead = [key for key in pins if keys.to_number(key[9:]) not in alive]
    cutoff = time.time_ns() - grace
    done = 0
    for name, record in waiting:
        if record.id in pinned or record.linked > cutoff:
            continue
        drop_subtree(instance, Located(keys.ORPHANS_ID, name, record))
        done += 1
    if dead:
        with instance.kv.write(freeing=True) as txn:
            for key in dead:
                txn.delete(key)
    return done


_CHUNK = 500


def drop_subtree(instance: Instance, located: Located) -> int:
    """Remove a node outside the tree for good, with all below it; return how many nodes.

    Children go first and in short transactions, so that a crash leaves no node without a
    way to it.
    """
    done = 0
    while True:
        with instance.kv.write(freeing=True) as txn:
            below = []
            for found in nodes.subtree(txn, located.record.id):
                below.append(found)
                if len(below) >= _CHUNK:
                    break
            leaves = [found for found in below if nodes.is_empty(txn, found.record.id)]
            for found in leaves:
                nodes.drop(txn, found)
            if not below:
                nodes.drop(txn, located)
                return done + 1
            done += len(leaves)
