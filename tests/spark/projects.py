"""Small migration projects on disk whose tables are in one schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.tables import append, clean_log, rows_of, schema_folder

from tableferry import pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.pipelines import FinishReport, RunReport, StatusReport, VerifyReport
    from tableferry.pipelines.model.plan import Plan

Json = dict[str, Any]


class Project:
    """A project's folder, the schema of its tables, and the commands.

    Methods accept table names without the schema.
    """

    def __init__(self, root: Path, schema: str, spark: SparkSession) -> None:
        self.root, self.schema, self.spark = root, schema, spark
        self.state = root / "state"
        self.write("pipeline_configs/global.json", {"table_migration_state_volume_path": "state"})

    def write(self, name: str, content: str | Json) -> Path:
        """Write a file of the project; a mapping becomes JSON."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    def spec(self, name: str, content: str | Json, ending: str = "json") -> Path:
        """Write a data flow spec."""
        return self.write(f"dataflows/d/dataflowspec/{name}_main.{ending}", content)

    def standard(
        self,
        name: str,
        source: str | Json,
        *,
        cdc: Json | None = None,
        migration: Json | None = None,
        **extra: Any,
    ) -> Path:
        """Write a spec of one flow into the table ``name``.

        Args:
            name: The target.
            source: The source table, or the complete sourceDetails.
            cdc: The cdcSettings.
            migration: The migration's sourceDetails; the legacy table is ``<name>_legacy`` by default.
            extra: Other keys of the spec.
        """
        spec: Json = {
            **self._common(name, "standard", cdc, migration),
            "sourceSystem": "erp",
            "sourceType": "delta",
            "sourceViewName": f"v_{name}",
            "sourceDetails": self.delta(source) if isinstance(source, str) else source,
            "mode": "stream",
        }
        return self.spec(name, {**spec, **extra})

    def flow(
        self,
        name: str,
        flows: Mapping[str, Json],
        *,
        staging: Mapping[str, Json] | None = None,
        cdc: Json | None = None,
        migration: Json | None = None,
        **extra: Any,
    ) -> Path:
        """Write a spec of one flow group."""
        group = {"flowGroupId": "main", "stagingTables": staging or {}, "flows": flows}
        return self.spec(name, {**self._common(name, "flow", cdc, migration), "flowGroups": [group], **extra})

    def delta(self, table: str, **more: Any) -> Json:
        """Return the sourceDetails of a Delta table."""
        return {"database": self.schema, "table": table, "cdfEnabled": False, **more}

    def migration(self, name: str, source: Json | None = None, **more: Any) -> Json:
        """Return the tableMigrationDetails of a target; by default the hand-over is assumed from versions."""
        if not (source or {}).get("checkpointLocation"):
            more = {"handOver": "version", **more}
        details = {"database": self.schema, "table": f"{name}_legacy", **(source or {})}
        return {"enabled": True, "catalogType": "hms", "sourceDetails": details, **more}

    def create(self, table: str, columns: str, *rows: tuple[object, ...], properties: str = "") -> None:
        """Create a table (version 0) and insert its rows (version 1)."""
        tail = f" TBLPROPERTIES ({properties})" if properties else ""
        self.spark.sql(f"CREATE TABLE {self._full(table)} ({columns}) USING delta{tail}")
        if rows:
            self.insert(table, *rows)

    def insert(self, table: str, *rows: tuple[object, ...]) -> None:
        """Commit rows to a table, with delta-rs if possible."""
        if self._is_here(table):
            append(self._folder / table.lower(), rows)
            return
        values = ", ".join(f"({', '.join(_literal(value) for value in row)})" for row in rows)
        self.spark.sql(f"INSERT INTO {self._full(table)} VALUES {values}")

    def clean_log(self, table: str) -> None:
        """Remove all commits of a table but the newest, as Delta's log cleanup does with old commits."""
        clean_log(self.folder(table))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return a table's rows, sorted, with delta-rs if possible."""
        if self._is_here(table):
            actual = rows_of(self._folder / table.lower(), columns)
        else:
            frame = self.spark.table(self._full(table)).select(*columns or ["*"])
            actual = [tuple(row) for row in frame.collect()]
        return sorted(actual, key=repr)

    def plan(self, **options: Any) -> Plan:
        return pipelines.plan(self.root, self.spark, **options)

    def run(self, **options: Any) -> RunReport:
        return pipelines.run(self.root, self.spark, **options)

    def status(self, **options: Any) -> StatusReport:
        return pipelines.status(self.root, self.spark, **options)

    def verify(self, **options: Any) -> VerifyReport:
        return pipelines.verify(self.root, self.spark, **options)

    def finish(self, **options: Any) -> FinishReport:
        return pipelines.finish(self.root, self.spark, **options)

    def phases(self) -> dict[str, str]:
        """Return each target's phase by its short name."""
        return {target.target.table: target.phase for target in self.status().plan.targets}

    def folder(self, table: str) -> Path:
        """Return the location of a table."""
        location = self.spark.sql(f"DESCRIBE DETAIL {self._full(table)}").collect()[0]["location"]
        return Path(str(location).removeprefix("file:"))

    def contents(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return everything that a command could change: the project's files, and each table's commits."""
        files = {
            str(path.relative_to(self.root)): path.read_bytes() if path.is_file() else b"a folder"
            for path in self.root.rglob("*")
            if "__pycache__" not in str(path)
        }
        logs = self._folder.glob("*/_delta_log")
        return files, {log.parent.name: len(list(log.glob("*.json"))) for log in logs}

    @contextmanager
    def nothing_written(self) -> Iterator[None]:
        """Check that a block changes no file of the project and commits to no table."""
        files, commits = self.contents()
        yield
        files_after, commits_after = self.contents()
        assert files_after == files
        assert commits_after == commits

    def _common(self, name: str, kind: str, cdc: Json | None, migration: Json | None) -> Json:
        actual: Json = {
            "dataFlowId": name,
            "dataFlowGroup": "g",
            "dataFlowType": kind,
            "targetFormat": "delta",
            "targetDetails": {"database": self.schema, "table": name},
        }
        if cdc is not None:
            actual["cdcSettings"] = cdc
        if migration is not None:
            actual["tableMigrationDetails"] = self.migration(name, migration)
        return actual

    @cached_property
    def _folder(self) -> Path:
        return schema_folder(self.spark, self.schema)

    def _is_here(self, table: str) -> bool:
        """Return whether delta-rs can use the table; it takes a hundredth of Spark's time."""
        return find_spec("deltalake") is not None and (self._folder / table.lower() / "_delta_log").is_dir()

    def _full(self, table: str) -> str:
        return table if "." in table else f"{self.schema}.{table}"


def delta_view(details: Json) -> Json:
    """Return a streaming view of a Delta table."""
    return {"mode": "stream", "sourceType": "delta", "sourceDetails": details}


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "\\'") + "'" if isinstance(value, str) else str(value)
