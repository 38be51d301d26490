"""Where things stand in the ordered store.

========= =============================== ==========================================
prefix    rest of the key                 value
========= =============================== ==========================================
``m``     name                            single values (format, counters, rules ...)
``e``     parent id, name                 the node's record: one scan lists a directory
``n``     node id                         parent id and name: where the record stands
``c``     SHA-256                         small content
``b``     SHA-256, chunk (4 bytes)        checksums of large content, one a block
``d``     node id                         draft: small content being written
``s``     node id                         scratch: large content being written
``x``     node id, attribute name         extended attribute
``h``     directory id, name              nothing: what the directory's tree object has there
                                          counts no more
``t``     trash id                        trash record
``p``     old parent id, trash id         trash by directory
``r``     directory id                    the current run of removals in a directory
``o``     node id, process                a process holds this detached node open
``j``     sequence                        journal record
``S``     session name                    session definition
``w``     mount id, session name          working copy of a repository
``R``     mount id                        the user's right on its forge
``W``     id of a working copy's top      mount id, path of the mount
``U``     id of a working copy's top      what is unmerged in it
``F``     see `fusefs.forge.records`      what forges keep
========= =============================== ==========================================

Ids and sequences are 8 bytes, big endian, so that byte order is number order.
"""

from __future__ import annotations

ROOT_ID = 1
TRASH_ID = 2
ORPHANS_ID = 3
WORKING_ID = 4
FIRST_FREE_ID = 16

META_FORMAT = b"mformat"
META_INSTANCE = b"minstance"
META_NEXT_ID = b"mnext"
META_JOURNAL = b"mjournal"
META_RULES = b"mrules"
META_BINDS = b"mbinds"
META_MOUNTS = b"mmounts"
META_COMMIT = b"mcommit"
"""The number of the transaction that wrote last: tells a meta page that is not what it was."""
META_UPGRADE = b"mupgrade"
"""How far an upgrade from format 1 has come; not sealed."""

ASKED_FOR_ALWAYS = ((META_RULES, bytes(8)), (META_BINDS, b"{}"))
"""Read at every operation, and so always there: to prove that a key is absent takes longer."""

ENTRIES = b"e"
NODES = b"n"
CONTENT = b"c"
BLOCK_SUMS = b"b"
DRAFTS = b"d"
SCRATCHES = b"s"
XATTRS = b"x"
SUPERSEDED = b"h"
TRASHED = b"t"
TRASHED_FROM = b"p"
REMOVAL_RUNS = b"r"
PINS = b"o"
JOURNAL = b"j"
SESSIONS = b"S"
WORKING = b"w"
WORKING_TOPS = b"W"
UNMERGED = b"U"
RIGHTS = b"R"


def number(value: int) -> bytes:
    """Return `value` as 8 bytes, big endian."""
    return value.to_bytes(8, "big")


def to_number(raw: bytes) -> int:
    """Return the number in the first 8 bytes of `raw`."""
    return int.from_bytes(raw[:8], "big")


def entry(parent: int, name: bytes) -> bytes:
    """Return the key of a directory entry."""
    return ENTRIES + parent.to_bytes(8, "big") + name


def entries(parent: int) -> bytes:
    """Return the prefix of all entries of a directory."""
    return ENTRIES + parent.to_bytes(8, "big")


def node(node_id: int) -> bytes:
    """Return the key of a node's place."""
    return NODES + node_id.to_bytes(8, "big")


def draft(node_id: int) -> bytes:
    """Return the key of a node's draft."""
    return DRAFTS + node_id.to_bytes(8, "big")


def scratch(node_id: int) -> bytes:
    """Return the key of a node's scratch record."""
    return SCRATCHES + node_id.to_bytes(8, "big")


def superseded(directory: int, name: bytes) -> bytes:
    """Return the key that tells an entry of a directory's tree object is not its entry any more."""
    return SUPERSEDED + directory.to_bytes(8, "big") + name


def working_top(node_id: int) -> bytes:
    """Return the key that tells which mount the top of a working copy belongs to."""
    return WORKING_TOPS + node_id.to_bytes(8, "big")


def unmerged(node_id: int) -> bytes:
    """Return the key of what is unmerged in the working copy with this top."""
    return UNMERGED + node_id.to_bytes(8, "big")


def xattr(node_id: int, name: bytes) -> bytes:
    """Return the key of an extended attribute."""
    return XATTRS + node_id.to_bytes(8, "big") + name
