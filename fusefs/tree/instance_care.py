"""Verifying and tidying a whole instance: its store, and the clones of mounted repositories."""

from __future__ import annotations

from fusefs.store import check as store_check
from fusefs.store import maintenance
from fusefs.store.check import CheckReport
from fusefs.store.instance import Instance
from fusefs.store.maintenance import GcReport
from fusefs.tree.repository_care import check_repositories, collect_repositories


def check(
    instance: Instance, *, progress: store_check.Progress = lambda step: None
) -> CheckReport:
    """Verify everything in the instance."""
    report = store_check.check(instance, progress=progress)
    progress("checking repositories")
    report.problems += check_repositories(instance)
    return report


def collect(
    instance: Instance, *, progress: maintenance.Progress = lambda step: None
) -> GcReport:
    """Tidy the instance; safe while sessions are mounted."""
    report = maintenance.collect(instance, progress=progress)
    progress("looking for clones that are not mounted")
    report.clones_removed = collect_repositories(instance)
    return report
