"""The names that a table goes by during its migration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tableferry.fleet.jobs.job import OldName, TargetFormat
from tableferry.spark.tables import TableName

_DROPPED_SUFFIX = "_tableferry_dropped"
_ARCHIVED_SUFFIX = "_hive_archived"


def dropped_name(copy: TableName) -> TableName:
    """Return the name that a copy has for the moment in which it's dropped, so that no writer finds it."""
    return TableName((*copy.parts[:-1], copy.table + _DROPPED_SUFFIX))


def first_name(archived: TableName) -> TableName:
    """Return the name that an archived Hive table had before its migration."""
    return TableName((*archived.parts[:-1], archived.table.removesuffix(_ARCHIVED_SUFFIX)))


class Moving(Protocol):
    """A table that is moved, or is to be: a job, or one to add."""

    @property
    def name(self) -> TableName:
        """The table, with catalog and schema."""

    @property
    def target_format(self) -> TargetFormat:
        """What it becomes."""

    @property
    def target_catalog(self) -> str | None:
        """The catalog that the new table is made in; None for the Hive table's own."""

    @property
    def target_schema(self) -> str | None:
        """The schema that the new table is made in; None for the Hive table's own."""

    @property
    def old_name(self) -> OldName | None:
        """What the Hive table's name means after the switch; None if it's the new table's name."""

    @property
    def rewrite(self) -> bool | None:
        """Whether its rows may be rewritten, if its files can't become the new table's."""


@dataclass(frozen=True)
class Names:
    """The names of a job's tables.

        in place:   t ─> t_hive ─> t_hive_archived           t_iceberg ─> t
        elsewhere:  t ─> t_hive ─> t_hive_archived   lake.t_iceberg ─> lake.t   t is a view of lake.t
                    t ────────────> t_hive_archived  lake.t_iceberg ─> lake.t   or t stays the Hive table

    Attributes:
        main: What people say before: the Hive table's, until the switch.
        target: What people say afterwards: the same, unless the new table is in another schema or catalog.
        hive: The Hive table's after the switch.
        archived: The Hive table's after probation.
        copy: The new table's until the switch: ``_iceberg`` or ``_delta``.
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
        """All of them, and the one that the copy has while it's dropped."""
        every = (self.main, self.target, self.hive, self.archived, self.copy, self.dropped)
        return tuple(dict.fromkeys(every))

    @property
    def dropped(self) -> TableName:
        """The copy's while it's dropped."""
        return dropped_name(self.copy)
