"""Why tables can't be migrated as they are, each cause with one remedy: what many tables have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tableferry.fleet.job import PauseReason
from tableferry.fleet.pausing import remedy_of
from tableferry.fleet.reports import Finding, Preflight
from tableferry.spark.tables import TableName


class Remedy(NamedTuple):
    """What is the matter with a table, in words that hold for all of them, and what to do about it."""

    what: str
    remedy: str


_NOTHING = "there is nothing to migrate: leave it out"
_REWRITE = (
    "add it with rewrite: true, or resume its paused job with --rewrite, so that its rows are rewritten; or "
    "leave it in Hive"
)
_IN_HIVE = "write the table anew as Parquet in Hive, or leave it there"

REMEDIES: Mapping[PauseReason, Remedy] = {
    PauseReason.TABLE_NOT_FOUND: Remedy(
        "There is no such table", "check its name, its schema and your rights"
    ),
    PauseReason.IS_ALREADY_ICEBERG: Remedy("The table is Iceberg already", _NOTHING),
    PauseReason.IS_ALREADY_DELTA: Remedy("The table is Delta already", _NOTHING),
    PauseReason.NO_TARGET_SCHEMA: Remedy(
        "The schema of the new table can't be used", "make it, or ask for the right to use it"
    ),
    PauseReason.IS_VIEW: Remedy("It's a view", "add the tables that it reads, and leave the view out"),
    PauseReason.IS_CSV_TEXT: Remedy("Its rows are text", _REWRITE),
    PauseReason.IS_TRANSACTIONAL: Remedy("It's one of Hive's transactional tables", _IN_HIVE),
    PauseReason.IS_BUCKETED: Remedy("It's bucketed", _REWRITE),
    PauseReason.UNSUPPORTED_FORMAT: Remedy("Its files' format isn't one that stays where it is", _REWRITE),
    PauseReason.NOT_REWRITABLE: Remedy("Spark doesn't read or write its rows as Hive does", _IN_HIVE),
    PauseReason.HAS_TIMESTAMP_COLUMN: Remedy("Its ORC files have timestamps that aren't Iceberg's", _REWRITE),
    PauseReason.UNSUPPORTED_SCHEMA: Remedy(
        "A column's type or name isn't taken as it is",
        "change the column, choose the other format, or leave the table in Hive",
    ),
    PauseReason.UNSUPPORTED_LAYOUT: Remedy(
        "Files or partitions don't lie where the new table would look",
        "move them, or drop the partitions that nobody needs, as the table's line says",
    ),
    PauseReason.SHARED_DIRECTORY: Remedy(
        "Tables share a directory",
        "drop the entries that nobody needs, or give each table a directory of its own",
    ),
    PauseReason.REMOVES_FILES: Remedy(
        "Dropping it removes files that the new table reads",
        "set its property external.table.purge to false",
    ),
    PauseReason.MANAGED_TABLE: Remedy(
        "It's managed, and nothing here makes it external",
        "run the fleet on a cluster whose driver runs this very process, or make it external in Hive",
    ),
    PauseReason.STEP_FAILED: Remedy("It can't be looked at", "fix what the table's line says"),
}
"""What a preflight can find."""


class Cause(NamedTuple):
    """A cause, and the tables that it stops, with what was found of each."""

    reason: PauseReason
    what: str
    remedy: str
    stopped: Sequence[tuple[TableName, Finding]]


def causes(preflights: Sequence[Preflight]) -> list[Cause]:
    """Return what stops tables, that which stops most of them first."""
    stopped: dict[PauseReason, list[tuple[TableName, Finding]]] = {}
    for preflight in preflights:
        for finding in preflight.findings:
            stopped.setdefault(finding.reason, []).append((preflight.table, finding))
    found = [Cause(reason, *_remedy(reason), tables) for reason, tables in stopped.items()]
    return sorted(found, key=lambda cause: -len(cause.stopped))


def _remedy(reason: PauseReason) -> Remedy:
    return REMEDIES.get(reason) or Remedy("It can't be migrated as it is", remedy_of(reason.value))
