"""The names that a table goes by during its migration."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.fleet.job import Job, OldName, TargetFormat
from tableferry.tables import TableName

_DROPPED_SUFFIX = "_tableferry_dropped"


def dropped_name(copy: TableName) -> TableName:
    """Return the name that a copy has for the moment in which it's dropped, so that no writer finds it."""
    return TableName((*copy.parts[:-1], copy.table + _DROPPED_SUFFIX))


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
    def of(cls, job: Job) -> Names:
        """Return a job's names."""
        suffix = "_iceberg" if job.target_format is TargetFormat.ICEBERG else "_delta"
        old = (job.catalog_name, job.db_name)
        new = (job.target_catalog or job.catalog_name, job.target_schema or job.db_name)
        return cls(
            job.name,
            TableName((*new, job.tbl_name)),
            job.name if job.old_name is OldName.TABLE else TableName((*old, job.tbl_name + "_hive")),
            TableName((*old, job.tbl_name + "_hive_archived")),
            TableName((*new, job.tbl_name + suffix)),
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
