"""The names that a table goes by during its migration."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.fleet.job import Job, TargetFormat
from tableferry.tables import TableName

_DROPPED_SUFFIX = "_tableferry_dropped"


def dropped_name(copy: TableName) -> TableName:
    """Return the name that a copy has for the moment in which it's dropped, so that no writer finds it."""
    return TableName((*copy.parts[:-1], copy.table + _DROPPED_SUFFIX))


@dataclass(frozen=True)
class Names:
    """The four names of a job's tables.

    Attributes:
        main: What people say, before and after.
        hive: The Hive table's while the copy has the main name.
        archived: The Hive table's after probation.
        copy: The copy's while it hasn't the main name: ``_iceberg`` or ``_delta``.
    """

    main: TableName
    hive: TableName
    archived: TableName
    copy: TableName

    @classmethod
    def of(cls, job: Job) -> Names:
        """Return a job's names."""
        suffix = "_iceberg" if job.target_format is TargetFormat.ICEBERG else "_delta"
        return cls(
            job.name,
            *(
                TableName((job.catalog_name, job.db_name, job.tbl_name + end))
                for end in ("_hive", "_hive_archived", suffix)
            ),
        )

    @property
    def all(self) -> tuple[TableName, ...]:
        """All of them, and the one that the copy has while it's dropped."""
        return (self.main, self.hive, self.archived, self.copy, self.dropped)

    @property
    def dropped(self) -> TableName:
        """The copy's while it's dropped."""
        return dropped_name(self.copy)
