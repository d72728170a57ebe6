"""Why tables can't be migrated as they are, each cause with one remedy: what many tables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tableferry.errors.catalogue import conditions, fill
from tableferry.fleet.jobs.job import PauseReason
from tableferry.fleet.jobs.pauses import remedy_of
from tableferry.fleet.reports import PauseFinding, Preflight
from tableferry.spark.tables import TableName


class Cause(NamedTuple):
    """A cause, and the tables that it stops, with what was found of each."""

    reason: PauseReason
    what: str
    remedy: str
    stopped: Sequence[tuple[TableName, PauseFinding]]


def causes(preflights: Sequence[Preflight]) -> list[Cause]:
    """Return what stops tables, that which stops most of them first."""
    stopped: dict[PauseReason, list[tuple[TableName, PauseFinding]]] = {}
    for preflight in preflights:
        for finding in preflight.findings:
            stopped.setdefault(finding.reason, []).append((preflight.table, finding))
    found = [Cause(reason, _problem(reason), remedy_of(reason), tables) for reason, tables in stopped.items()]
    return sorted(found, key=lambda cause: -len(cause.stopped))


def _problem(reason: PauseReason) -> str:
    return fill(conditions()[reason].message, {"table": "The table"}).removesuffix(".")
