"""A per-session FUSE view of a tree.

    import fusefs

    with fusefs.Instance.open("~/.local/share/fusefs") as instance:
        session = fusefs.Session(instance, instance.sessions.get("work"))
        print(session.listing("/"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusefs.contract.errors import ContractError
    from fusefs.contract.levels import Level
    from fusefs.contract.sessions import OPERATOR, SessionSpec, World
    from fusefs.session.session import Session
    from fusefs.store.instance import Instance, InstanceError

__version__ = "0.1.0"

__all__ = [
    "OPERATOR",
    "ContractError",
    "Instance",
    "InstanceError",
    "Level",
    "Session",
    "SessionSpec",
    "World",
    "__version__",
]

# Loaded on first use, so that `fusefs --help` does not open a database library.
_HOMES = {
    "OPERATOR": "fusefs.contract.sessions",
    "ContractError": "fusefs.contract.errors",
    "Instance": "fusefs.store.instance",
    "InstanceError": "fusefs.store.instance",
    "Level": "fusefs.contract.levels",
    "Session": "fusefs.session.session",
    "SessionSpec": "fusefs.contract.sessions",
    "World": "fusefs.contract.sessions",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
