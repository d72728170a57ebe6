"""A target and its Hive copy, with a model of the rows that both should contain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tableferry.fleet.hive_copy.update_plan import Action, ShadowResult
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.shadow_runs.update_hive_copy import shadow
from tableferry.fleet.warehouse.context import Access, Warehouse
from tableferry.spark import session
from tableferry.spark.tables import TableName

Values = tuple[Any, ...]

ICEBERG, DELTA = TargetFormat.ICEBERG, TargetFormat.DELTA


class Crash(Exception):
    """Ends a run as if its process were killed."""


@dataclass
class Pair:
    """A target and its Hive copy.

    Attributes:
        spark: The session.
        schema: The schema of both.
        folder: The folder of their files.
        format: The format of the target.
        columns: The columns without the partition columns.
        keys: The partition columns; empty for an unpartitioned table.
        stored: The file format of the Hive table, or the clause that defines it.
        options: The properties of the target.
        rows: The expected rows of the target, partition columns last.
        baseline: The watermark right after the switch.
    """

    spark: SparkSession
    schema: str
    folder: Path
    format: TargetFormat
    columns: str = "id INT, name STRING"
    keys: str = "day STRING, n INT"
    stored: str = "PARQUET"
    options: dict[str, str] = field(default_factory=dict)
    rows: Counter[Values] = field(default_factory=Counter)
    baseline: str = ""

    @property
    def hive(self) -> str:
        return f"{self.schema}.t_hive"

    @property
    def target(self) -> str:
        """The target's name in statements."""
        return f"{'ice.' if self.format is ICEBERG else ''}{self.schema}.t"

    @property
    def directory(self) -> Path:
        return self.folder / "t_hive"

    @property
    def names(self) -> list[str]:
        """The names of the columns, partition columns last."""
        return [*named(self.columns), *named(self.keys)]

    def sql(self, statement: str) -> list[Any]:
        return self.spark.sql(statement).collect()

    def make(self, *rows: Values) -> Pair:
        """Create the Hive table with these rows, and the target over its files."""
        by = f"PARTITIONED BY ({self.keys})" if self.keys else ""
        stored = self.stored if " " in self.stored else f"STORED AS {self.stored}"
        self.sql(f"CREATE TABLE {self.hive} ({self.columns}) {stored} {by} LOCATION '{self.directory}'")
        with session.settings(self.spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "a test"):
            self._insert("INTO", self.hive, rows)
        self.rows.update(rows)
        options = ", ".join(f"'{key}' = '{value}'" for key, value in self.options.items())
        if self.format is ICEBERG:
            by = f"PARTITIONED BY ({', '.join(named(self.keys))})" if self.keys else ""
            columns = f"{self.columns}, {self.keys}".strip(", ")
            self.sql(
                f"CREATE TABLE {self.target} ({columns}) USING iceberg {by} "
                f"LOCATION '{self.folder}/t_iceberg' "
                f"TBLPROPERTIES ('gc.enabled' = 'false'{', ' if options else ''}{options})"
            )
            source = f"table => '{self.target}', source_table => 'spark_catalog.{self.hive}'"
            self.sql(f"CALL ice.system.add_files({source})")
            self.baseline = str(self.sql(f"SELECT snapshot_id FROM {self.target}.snapshots")[0][0])
        else:
            self.sql(f"CONVERT TO DELTA parquet.`{self.directory}` {by}")
            self.sql(f"CREATE TABLE {self.target} USING delta LOCATION '{self.directory}'")
            self.baseline = "0"
            if options:
                self.sql(f"ALTER TABLE {self.target} SET TBLPROPERTIES ({options})")
        return self

    def insert(self, *rows: Values) -> None:
        self._insert("INTO", self.target, rows)
        self.rows.update(rows)

    def overwrite(self, *rows: Values) -> None:
        """Replace the partitions of these rows, or the whole table."""
        with session.settings(self.spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}, "a test"):
            self._insert("OVERWRITE", self.target, rows)
        width = len(named(self.keys))
        replaced = {row[len(row) - width :] for row in rows}
        self.forget(lambda row: row[len(row) - width :] in replaced)
        self.rows.update(rows)

    def delete(self, condition: str, gone: Callable[[Values], bool]) -> None:
        self.sql(f"DELETE FROM {self.target} WHERE {condition}")
        self.forget(gone)

    def forget(self, gone: Callable[[Values], bool]) -> None:
        self.rows = Counter({row: times for row, times in self.rows.items() if not gone(row)})

    def compact(self) -> None:
        if self.format is ICEBERG:
            options = "options => map('rewrite-all', 'true')"
            self.sql(f"CALL ice.system.rewrite_data_files(table => '{self.target}', {options})")
        else:
            self.sql(f"OPTIMIZE {self.target}")

    def add_column(self, name: str) -> None:
        self.sql(f"ALTER TABLE {self.target} ADD COLUMNS ({name} INT)")
        self.columns += f", {name} INT"
        at = len(named(self.columns)) - 1
        self.rows = Counter({(*row[:at], None, *row[at:]): times for row, times in self.rows.items()})

    def rename_column(self, name: str, to: str) -> None:
        self.sql(f"ALTER TABLE {self.target} RENAME COLUMN {name} TO {to}")
        self.columns = re.sub(rf"\b{name} ", f"{to} ", self.columns)

    def drop_column(self, name: str) -> None:
        at = self.names.index(name)
        self.sql(f"ALTER TABLE {self.target} DROP COLUMN {name}")
        self.columns = ", ".join(part for part in self.columns.split(", ") if part.split()[0] != name)
        dropped: Counter[Values] = Counter()
        for row, times in self.rows.items():
            dropped[(*row[:at], *row[at + 1 :])] += times
        self.rows = dropped

    def widen_column(self, name: str) -> None:
        self.sql(f"ALTER TABLE {self.target} ALTER COLUMN {name} TYPE BIGINT")
        self.columns = self.columns.replace(f"{name} INT", f"{name} BIGINT")

    def shadow(self, **options: Any) -> ShadowResult:
        """Run shadow, and assert that the copy has the expected rows."""
        result = self.run(**options)
        assert self.read() == self.rows
        return result

    def done(self) -> dict[str, tuple[Action, int | None]]:
        """Run shadow, and return the action and number of rows for each partition."""
        result = self.shadow()
        assert result.comparison_reason == ""
        return {change.partition: (change.action, change.rows) for change in result.updates}

    def run(self, *, dry_run: bool = False) -> ShadowResult:
        warehouse = Warehouse(self.spark, cast("Access", None))
        name = TableName(("spark_catalog", self.schema, "t"))
        hive = TableName(("spark_catalog", self.schema, "t_hive"))
        return shadow(warehouse, name, hive, self.format, self.baseline, dry_run=dry_run)

    def crash(self, at: int) -> bool:
        """Run shadow until its change number ``at`` is done; return whether the run had that many changes."""
        with dying(at):
            try:
                self.run()
            except Crash:
                return True
        return False

    def read(self) -> Counter[Values]:
        self.sql(f"REFRESH TABLE {self.hive}")
        # The copy lacks an added column until a snapshot has it.
        existing = self.spark.table(self.hive).columns
        names = (name if name in existing else "NULL" for name in self.names)
        return Counter(tuple(row) for row in self.sql(f"SELECT {', '.join(names)} FROM {self.hive}"))

    def synced_folders(self) -> set[str]:
        """Return the directories of rewritten partitions that contain files."""
        root = Path(f"{self.directory}_sync")
        files = (path for path in root.rglob("*") if path.is_file() and path.name[0] not in "._")
        return {str(file.parent.relative_to(root)) for file in files}

    def _insert(self, how: str, table: str, rows: tuple[Values, ...]) -> None:
        values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
        named = "" if table == self.hive else f"({', '.join(self.names)})"
        self.sql(f"INSERT {how} {table} {named} VALUES {values}")


@contextmanager
def dying(at: int) -> Iterator[None]:
    """End a run immediately after its change number ``at``, counted from 0."""
    number = count()
    real = Warehouse.effect

    def effect(warehouse: Warehouse, work: Callable[[], Any], **how: Any) -> Any:
        result = real(warehouse, work, **how)
        if next(number) == at:
            raise Crash
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Warehouse, "effect", effect)
        yield


def named(columns: str) -> list[str]:
    """Return the names in a list of columns with their types."""
    return [part.split()[0] for part in re.split(r", (?=[a-z])", columns)] if columns else []


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bool() | int():
            return str(value)
    kind = {"datetime": "TIMESTAMP", "date": "DATE", "Decimal": "DECIMAL(10, 2)"}[type(value).__name__]
    return f"CAST('{value}' AS {kind})"
