"""Tidying a whole instance, with what sessions asked of forges."""

from __future__ import annotations

from fusefs.session.commit_once import ledger
from fusefs.store.instance import Instance
from fusefs.store.maintenance import GcReport, Progress
from fusefs.tree import instance_care

KEYS_KEPT = 30 * 24 * 3600.0
"""Seconds for which a call under an idempotency key is answered again."""


def collect(instance: Instance, *, progress: Progress = lambda step: None) -> GcReport:
    """Tidy the instance; safe while sessions are mounted."""
    report = instance_care.collect(instance, progress=progress)
    progress("forgetting old idempotency keys")
    report.keys_forgotten = ledger(instance).forget(KEYS_KEPT)
    progress("dropping from the index what nobody sees any more")
    report.unindexed = _tidy_index(instance)
    return report


def _tidy_index(instance: Instance) -> int:
    if not (instance.folder / "index").exists():
        return 0
    # Here, since it takes longer to load than all the rest.
    from fusefs.session.search_setup import setup  # noqa: PLC0415

    with setup(instance) as made:
        return made.indexer().forget()
