"""Jobs of a fleet, for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.record import JobRecord

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


def job(name: str = "spark_catalog.sales.orders", **columns: Any) -> Job:
    """Make a job of a table."""
    catalog, schema, table = name.split(".")
    given = {"task_id": 1, "created_at": NOW, "last_updated_time": NOW, **columns}
    given["record"] = JobRecord.from_json(columns.get("record", {}))
    return Job(catalog_name=catalog, db_name=schema, tbl_name=table, **given)
