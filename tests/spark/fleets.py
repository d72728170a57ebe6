"""A small fleet for the tests: a queue in SQLite, real tables, and a clock that tests advance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tableferry.access.metastore_access import MetastoreAccess
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.modes.close import MarkResult, close, mark_to_close
from tableferry.fleet.modes.migrator import migrate
from tableferry.fleet.modes.preprocessor import preprocess
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.modes.reverter import revert
from tableferry.fleet.modes.shadower import shadow
from tableferry.fleet.modes.worker import Worker
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import named, to_notify
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse import job_tables
from tableferry.fleet.warehouse.context import Warehouse, disable_redaction
from tableferry.spark import session
from tableferry.spark.tables import TableName
from tableferry.testing import FixedClock


@dataclass
class Fleet:
    """A queue with its tables, session and clock."""

    spark: SparkSession
    schema: str
    store: Store
    warehouse: Warehouse
    # One table after the other, so that a test can act between two steps.
    settings: FleetSettings = field(default_factory=lambda: FleetSettings(tables_at_once=1))
    clock: FixedClock = field(default_factory=lambda: FixedClock(datetime(2026, 3, 1, 9, 30, tzinfo=UTC)))
    theirs: SparkSession | None = None

    def name(self, table: str) -> TableName:
        return TableName(("spark_catalog", self.schema, table))

    def add(self, *tables: str, form: TargetFormat = TargetFormat.ICEBERG, **options: Any) -> None:
        days = {"probation_gap_days": 14, **options}
        self.store.add([NewJob(self.name(table), form, **days) for table in tables], self.clock())

    def job(self, table: str) -> Job:
        [job] = self.store.jobs(named([self.name(table)]))
        return job

    def worker(self, name: str = "w", **how: Any) -> Worker:
        return Worker(self.store, lambda: self.warehouse, self.settings, name, self.clock, **how)

    def preprocess(self) -> ModeReport:
        return preprocess(self.worker())

    def notify(self) -> None:
        """Set the dates of notifications, as the communicator does after it sent all."""
        lease = self.settings.lease
        for job in self.store.claim(to_notify(), "communicator", now=self.clock(), lease=lease, limit=1000):
            level = next(n for n in (1, 2, 3) if getattr(job, f"comm_level{n}_date") is None)
            dates: dict[str, Any] = {f"comm_level{level}_date": self.clock()}
            self.store.save(replace(job, **dates), self.clock(), release=True)

    def migrate(self, **how: Any) -> ModeReport:
        return migrate(self.worker(**how))

    def shadow(self) -> ModeReport:
        return shadow(self.worker())

    def revert(self, *tables: str, from_archive: bool = False) -> ModeReport:
        return revert(self.worker(), map(self.name, tables), from_archive=from_archive)

    def to_probation(self, *tables: str, form: TargetFormat = TargetFormat.ICEBERG, **options: Any) -> None:
        """Migrate tables and start their probation."""
        self.add(*tables, form=form, **options)
        self.preprocess()
        self.notify()
        self.clock.turn(days=14)
        assert errors(self.migrate()) == []
        self.notify()

    def to_archive(self, table: str) -> None:
        """End a table's probation, archive its Hive table, and record the notification."""
        self.clock.turn(days=14)
        assert errors(self.preprocess()) == []
        assert errors(self.migrate()) == []
        assert errors(self.preprocess()) == []
        self.notify()

    def mark(self, *tables: str, days: int = 7) -> list[MarkResult]:
        """Mark tables to be closed in some days."""
        at = self.clock() + timedelta(days=days)
        return mark_to_close(self.store, list(map(self.job, tables)), (), at, self.clock(), "ann")

    def close(self, **how: Any) -> ModeReport:
        return close(self.worker(**how))

    def live(self, table: str) -> TableName:
        """Return the new table's name after the switch, and the old name before it."""
        names = Names.of(self.job(table))
        moved = names.target in job_tables.list_job_tables(self.warehouse, names)
        return names.target if moved else names.main

    def rows(self, table: str | TableName) -> list[tuple[Any, ...]]:
        """Return the sorted rows of a table of any format."""
        name = table if isinstance(table, TableName) else self.name(table)
        details = self.spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
        properties = next((row["data_type"] for row in details if row["col_name"] == "Table Properties"), "")
        iceberg = "table_type=iceberg" in properties.lower()
        frame = self.spark.table((self.warehouse.iceberg(name) if iceberg else name).sql)
        return sorted((tuple(row) for row in frame.collect()), key=repr)

    def write(self, table: str, statement: str) -> None:
        """Run a statement on a migrated table, written as {t}, in another session."""
        job = self.job(table)
        name = Names.of(job).target
        if job.target_format is TargetFormat.ICEBERG:
            name = self.warehouse.iceberg(name)
        if self.theirs is None:
            self.theirs = session.beside(self.spark)
            assert self.theirs is not None
        self.theirs.sql(statement.format(t=name.sql))


def errors(report: ModeReport) -> list[str]:
    """Return the errors and pause reasons of a report."""
    return [
        result.error or result.job.pause_reason
        for result in report.jobs
        if result.outcome not in ("done", "planned")
    ]


def fleet(spark: SparkSession, schema: str, folder: Path) -> Fleet:
    """Return an empty fleet on a schema."""
    store = open_store(f"sqlite:///{folder / 'fleet.db'}")
    store.create()
    disable_redaction(spark)
    return Fleet(spark, schema, store, Warehouse(spark, MetastoreAccess(spark)))


@contextmanager
def dynamic_fleet(spark: SparkSession, schema: str, folder: Path) -> Iterator[Fleet]:
    """Provide an empty fleet in a session that writes partitions by their rows' values."""
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        ours = fleet(spark, schema, folder)
        yield ours
        ours.store.close()


def hive_table(
    spark: SparkSession,
    name: str,
    folder: Path | str,
    rows: Iterable[tuple[int, str | None]],
    stored: str = "PARQUET",
) -> None:
    """Create an external Hive table with a number and a time, partitioned by day."""
    spark.sql(
        f"CREATE EXTERNAL TABLE {name} (id INT COMMENT 'its number', at TIMESTAMP) COMMENT 'a table' "
        f"PARTITIONED BY (day STRING) STORED AS {stored} LOCATION '{folder}'"
    )
    values = [
        f"({number}, TIMESTAMP '2026-01-0{number} 10:00:00', {'NULL' if day is None else repr(day)})"
        for number, day in rows
    ]
    if values:
        spark.sql(f"INSERT INTO {name} PARTITION (day) VALUES {', '.join(values)}")
