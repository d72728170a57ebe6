"""A Hive table with the table that took its place, and the rows that both should have, kept by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tableferry.fleet.job import TargetFormat
from tableferry.fleet.warehouse.context import Access, Warehouse
from tableferry.fleet.warehouse.shadow import Shadowed, hive_copy, shadow
from tableferry.tables import TableName

Values = tuple[Any, ...]

ICEBERG, DELTA = TargetFormat.ICEBERG, TargetFormat.DELTA

COLUMNS = "id INT, name STRING"
PARTITIONED = f"{COLUMNS}, day STRING, n INT"


class Crash(Exception):
    """The run ends here, as if its process had been killed."""


@dataclass
class Pair:
    """A target and its Hive copy.

    Attributes:
        spark: The session.
        schema: The schema of both.
        folder: Where their files are.
        format: The target's.
        partitioned: Whether by day and n.
        stored: How Hive stores its files.
        rows: What the target should have.
        baseline: The watermark right after the switch.
    """

    spark: SparkSession
    schema: str
    folder: Path
    format: TargetFormat
    partitioned: bool = True
    stored: str = "parquet"
    rows: Counter[Values] = field(default_factory=Counter)
    baseline: str = ""
    name: str = "t"

    @property
    def hive(self) -> str:
        return f"{self.schema}.{self.name}_hive"

    @property
    def target(self) -> str:
        """The target, as statements name it."""
        return f"{'ice.' if self.format is ICEBERG else ''}{self.schema}.{self.name}"

    @property
    def directory(self) -> Path:
        return self.folder / f"{self.name}_hive"

    def sql(self, statement: str) -> list[Any]:
        return self.spark.sql(statement).collect()

    def make(self, *rows: Values, columns: str = "", keys: str = "day STRING, n INT") -> Pair:
        """Make the Hive table with these rows, and the target over its files."""
        by = f"PARTITIONED BY ({keys})" if self.partitioned else ""
        self.sql(
            f"CREATE EXTERNAL TABLE {self.hive} ({columns or COLUMNS}) {by} STORED AS {self.stored} "
            f"LOCATION '{self.directory}'"
        )
        with pytest.MonkeyPatch.context():
            self.spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
            self._insert(self.hive, rows)
            self.spark.conf.unset("hive.exec.dynamic.partition.mode")
        self.rows.update(rows)
        if self.format is ICEBERG:
            every = columns or COLUMNS
            names = ", ".join(key.split()[0] for key in keys.split(", "))
            by = f"PARTITIONED BY ({names})" if self.partitioned else ""
            self.sql(
                f"CREATE TABLE {self.target} ({every}{', ' + keys if by else ''}) USING iceberg {by} "
                f"LOCATION '{self.folder}/{self.name}_iceberg' TBLPROPERTIES ('gc.enabled'='false')"
            )
            self.sql(
                f"CALL ice.system.add_files(table => '{self.target}', source_table => "
                f"'spark_catalog.{self.hive}')"
            )
            self.baseline = str(self.sql(f"SELECT snapshot_id FROM {self.target}.snapshots")[0][0])
        else:
            by = f"PARTITIONED BY ({keys})" if self.partitioned else ""
            self.sql(f"CONVERT TO DELTA parquet.`{self.directory}` {by}")
            self.sql(f"CREATE TABLE {self.target} USING delta LOCATION '{self.directory}'")
            self.baseline = "0"
        return self

    def insert(self, *rows: Values) -> None:
        self._insert(self.target, rows)
        self.rows.update(rows)

    def delete(self, condition: str, gone: Callable[[Values], bool]) -> None:
        self.sql(f"DELETE FROM {self.target} WHERE {condition}")
        self.rows = Counter({row: count for row, count in self.rows.items() if not gone(row)})

    def shadow(self, **options: Any) -> Shadowed:
        """Run it, and hold that the copy has just the rows that it should."""
        found = self.run(**options)
        assert self.read() == self.rows
        return found

    def run(self, *, watermark: str | None = "baseline", dry_run: bool = False) -> Shadowed:
        warehouse = Warehouse(self.spark, cast("Access", None))
        names = (TableName.parse(f"spark_catalog.{self.schema}.{self.name}{end}") for end in ("", "_hive"))
        given = self.baseline if watermark == "baseline" else watermark
        return shadow(warehouse, *names, self.format, given, dry_run=dry_run)

    def crash(self, at: int) -> bool:
        """Run it until just after its change number ``at``; say whether there were as many."""
        with dying(at):
            try:
                self.run()
            except Crash:
                return True
        return False

    def read(self) -> Counter[Values]:
        self.sql(f"REFRESH TABLE {self.hive}")
        return Counter(tuple(row) for row in self.sql(f"SELECT * FROM {self.hive}"))

    def _insert(self, table: str, rows: tuple[Values, ...]) -> None:
        values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
        self.sql(f"INSERT INTO {table} VALUES {values}")


@contextmanager
def dying(at: int) -> Iterator[None]:
    """End a run just after a change of its, counted from 0."""
    count = iter(range(1000))
    real = hive_copy.effect

    def effect(work: Callable[[], Any]) -> Any:
        result = real(work)
        if next(count) == at:
            raise Crash
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hive_copy, "effect", effect)
        yield


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case int():
            return str(value)
    return f"CAST('{value}' AS {type(value).__name__.replace('datetime', 'timestamp')})"
