"""The names of a table during its migration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tableferry.fleet.jobs.job import OldName, TargetFormat
from tableferry.spark.tables import TableName

_DROPPED_SUFFIX = "_tableferry_dropped"
_ARCHIVED_SUFFIX = "_hive_archived"


def dropped_name(copy: TableName) -> TableName:
    """Return the name under which a copy is dropped, so that no writer finds it."""
    return TableName((*copy.parts[:-1], copy.table + _DROPPED_SUFFIX))


def first_name(archived: TableName) -> TableName:
    """Return the name that an archived Hive table had before its migration."""
    return TableName((*archived.parts[:-1], archived.table.removesuffix(_ARCHIVED_SUFFIX)))


class Moving(Protocol):
    """A table to migrate: a job, or a job to add."""

    @property
    def name(self) -> TableName:
        """The table, with catalog and schema."""

    @property
    def target_format(self) -> TargetFormat:
        """The format of the new table."""

    @property
    def target_catalog(self) -> str | None:
        """The catalog of the new table; None for the Hive table's catalog."""

    @property
    def target_schema(self) -> str | None:
        """The schema of the new table; None for the Hive table's schema."""

    @property
    def old_name(self) -> OldName | None:
        """The meaning of the Hive table's name after the switch; None if it is the new table's name."""

    @property
    def rewrite(self) -> bool | None:
        """Whether its rows may be rewritten, if the new table can't keep its files."""


@dataclass(frozen=True)
class Names:
    """The names of a job's tables.

        in place:   t ─> t_hive ─> t_hive_archived           t_iceberg ─> t
        elsewhere:  t ─> t_hive ─> t_hive_archived   lake.t_iceberg ─> lake.t   t is a view of lake.t
                    t ────────────> t_hive_archived  lake.t_iceberg ─> lake.t   or t stays the Hive table

    Attributes:
        main: The Hive table's name before the switch.
        target: The new table's name after the switch; it differs only in another schema or catalog.
        hive: The Hive table's name after the switch.
        archived: The Hive table's name after probation.
        copy: The new table's name before the switch: ``_iceberg`` or ``_delta``.
    """

    main: TableName
    target: TableName
    hive: TableName
    archived: TableName
    copy: TableName

    @classmethod
    def of(cls, job: Moving) -> Names:
        """Return the names of a job's tables."""
        suffix = "_iceberg" if job.target_format is TargetFormat.ICEBERG else "_delta"
        catalog, schema, table = job.name.parts
        new = (job.target_catalog or catalog, job.target_schema or schema)
        hive = table if job.old_name is OldName.TABLE else f"{table}_hive"
        return cls(
            job.name,
            TableName((*new, table)),
            TableName((catalog, schema, hive)),
            TableName((catalog, schema, table + _ARCHIVED_SUFFIX)),
            TableName((*new, table + suffix)),
        )

    @property
    def elsewhere(self) -> bool:
        """Whether the new table is in another schema or catalog."""
        return self.target != self.main

    @property
    def all(self) -> tuple[TableName, ...]:
        """All names, with the name under which the copy is dropped."""
        every = (self.main, self.target, self.hive, self.archived, self.copy, self.dropped)
        return tuple(dict.fromkeys(every))

    @property
    def dropped(self) -> TableName:
        """The name under which the copy is dropped."""
        return dropped_name(self.copy)
