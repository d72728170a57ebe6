"""The names that a table goes by during its migration."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.fleet.job import Job, TargetFormat
from tableferry.tables import TableName


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
