"""What changed in an Iceberg table: from its metadata file, and the manifests of the snapshots in between."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tableferry import session
from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shadow.changes import Added, Changes
from tableferry.fleet.warehouse.shadow.conditions import sql_type, texts
from tableferry.fleet.warehouse.shadow.iceberg_metadata import Metadata, Snapshot
from tableferry.fleet.warehouse.shadow.marks import Marks
from tableferry.fleet.warehouse.shadow.partitions import Partition
from tableferry.fleet.warehouse.versions import NO_SNAPSHOT
from tableferry.hive.locations import literal
from tableferry.hive.sql import quoted, text
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# More names in one condition than this, and comparing all partitions is quicker.
_FILES_NAMED = 1000
_STAGES, _OURS = "write.wap.enabled", "tableferry.staging"


@dataclass(frozen=True)
class IcebergTarget:
    """An Iceberg table at its current snapshot.

    Attributes:
        spark: The session.
        name: The table in Iceberg's catalog.
        metadata: What its metadata file says.
    """

    spark: SparkSession
    name: TableName
    metadata: Metadata

    @classmethod
    def read(cls, spark: SparkSession, name: TableName) -> IcebergTarget:
        """Read the table's current metadata file.

        Raises:
            TableError: There is no such table, or its metadata may not be read.
        """
        try:
            spark.sql(f"REFRESH TABLE {name.sql}")
            newest = f"SELECT file FROM {name.sql}.metadata_log_entries ORDER BY timestamp DESC, file DESC"
            file = spark.sql(f"{newest} LIMIT 1").collect()[0][0]
            frame = spark.read.format("binaryFile").load(literal(file)).select("content")
            content = bytes(frame.collect()[0][0])
        except SPARK_ERRORS as error:
            raise TableError(
                f"the Iceberg table {name} can't be read ({first_line(error)}): check its name and "
                "your rights"
            ) from error
        plain = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        return cls(spark, name, Metadata.parse(json.loads(plain)))

    @property
    def id(self) -> str:
        """What no other table has."""
        return self.metadata.uuid

    @property
    def version(self) -> str:
        """The current snapshot."""
        return self.metadata.current

    @property
    def shared(self) -> None:
        """It writes into its own directory alone."""

    @property
    def stands_for(self) -> Mapping[str, str]:
        """What Hive's types become in it, where it lacks them."""
        return {"tinyint": "int", "smallint": "int", "timestamp": "timestamp_ntz"}

    def columns(self) -> dict[str, str]:
        """Return the columns and their types at the current snapshot."""
        return {field.name: sql_type(field.dataType) for field in self.rows().schema}

    def rows(self) -> DataFrame:
        """Return the rows of the current snapshot."""
        return self._at(self.version)

    def changes(self, marks: Marks, kinds: Mapping[str, str], partition_columns: Sequence[str]) -> Changes:
        """Return what happened since the watermark.

        Args:
            marks: What an earlier run left.
            kinds: The types of the Hive table's columns.
            partition_columns: Those of them that it's partitioned by.
        """
        if marks.watermark is None:
            return Changes(everything="there is no watermark")
        snapshots = self.metadata.since(marks.watermark)
        if snapshots is None:
            return Changes(everything=f"snapshot {marks.watermark} is no longer in the table's history")
        known = self.metadata.snapshots.get(marks.watermark)
        then = known.schema if known else self.metadata.schema
        if filled := self.metadata.filled(then):
            return Changes(everything=f"the column {filled[0]} came with a value for the rows before it")
        there = self.metadata.schemas.get(then, {})
        if not self.metadata.same_columns(then, list(there)):
            return Changes(everything="columns were renamed, dropped or retyped")
        if marks.half_copied and marks.half_copied not in {marks.watermark, *(each.id for each in snapshots)}:
            return Changes(everything=f"snapshot {marks.pending}, half copied, was rolled back")
        return self._between(marks.watermark, snapshots, partition_columns)

    def added_rows(self, changes: Changes, watermark: str, wanted: Sequence[Partition]) -> DataFrame:
        """Return the rows that appends brought since the watermark."""
        reader = self.spark.read.format("iceberg").option("start-snapshot-id", watermark)
        return reader.option("end-snapshot-id", self.version).load(self.name.sql)

    def named_since(self, watermark: str | None) -> Iterable[str]:
        """Return nothing: it writes into its own directory."""
        return ()

    def replaced_all_since(self, watermark: str | None) -> str:
        """Return the newest snapshot since the watermark that replaced all rows; empty if none did."""
        snapshots = self.metadata.since(watermark) if watermark is not None else None
        return next((each.id for each in reversed(snapshots or ()) if each.replaced_all), "")

    def live(self) -> Iterable[str]:
        """Return the paths of the files that it reads."""
        return [row[0] for row in self.spark.sql(f"SELECT file_path FROM {self.name.sql}.files").collect()]

    def append_once(self, warehouse: Warehouse, rows: DataFrame, key: str) -> None:
        """Stage the rows under the key, and publish them, which Iceberg does once for a key.

        https://iceberg.apache.org/docs/latest/spark-procedures/#publish_changes
        """
        asked = f"SELECT summary['wap.id'], summary['published-wap-id'] FROM {self.name.sql}.snapshots"
        found = self.spark.sql(asked).collect()
        staged, published = {row[0] for row in found}, {row[1] for row in found}
        if key in published:
            return
        said = {
            row["key"]: row["value"]
            for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name.sql}").collect()
        }
        theirs = said.get(_STAGES) == "true" and _OURS not in said
        if key not in staged:
            if not theirs:
                pairs = f"{text(_STAGES)} = 'true', {text(_OURS)} = 'true'"
                warehouse.run(f"ALTER TABLE {self.name.sql} SET TBLPROPERTIES ({pairs})")
            with session.settings(self.spark, {"spark.wap.id": key}, str(self.name)):
                warehouse.effect(rows.writeTo(self.name.sql).append)
        if not theirs:
            # Also what a run has left that died here.
            properties = f"({text(_STAGES)}, {text(_OURS)})"
            warehouse.run(f"ALTER TABLE {self.name.sql} UNSET TBLPROPERTIES IF EXISTS {properties}")
        try:
            warehouse.run(
                f"CALL {quoted(self.name.parts[0])}.system.publish_changes("
                f"table => {text(self.name.sql)}, wap_id => {text(key)})"
            )
        except SPARK_ERRORS as error:
            # Another worker's came first.
            if "DuplicateWAPCommit" not in str(error):
                raise

    def exact(self, changes: Changes, columns: Sequence[str]) -> frozenset[Partition]:
        """Say that no directory is shared."""
        return frozenset()

    def _between(self, watermark: str, snapshots: Sequence[Snapshot], columns: Sequence[str]) -> Changes:
        appends = [each for each in snapshots if each.operation == "append"]
        # A replaced file has the rows of those it replaced.
        others = [each for each in snapshots if each.operation not in ("append", "replace") and each.changed]
        if appends and self.metadata.is_renamed:
            # An incremental read has the newest names alone.
            return Changes(everything="columns were renamed or dropped after the last snapshot")
        added: set[Partition] = set()
        if appends:
            frame = self.added_rows(Changes(), watermark, ()).selectExpr(*texts(columns), "1 AS one")
            added = {tuple(row[:-1]) for row in frame.distinct().collect()}
        touched: set[Partition] = set()
        if others and not columns:
            touched = {()}
        elif others:
            found = self._touched(others, columns)
            if isinstance(found, str):
                return Changes(everything=found)
            touched = found
        return Changes({each: Added() for each in added - touched}, frozenset(touched))

    def _touched(self, snapshots: Sequence[Snapshot], columns: Sequence[str]) -> set[Partition] | str:
        """Return the partitions of files that snapshots added or deleted; why, where that can't be told."""
        entries = self._entries(snapshots)
        known = self.metadata.partition_fields(columns)
        found: set[Partition] = set()
        for number, fields in known.items():
            values = [
                f"CAST(data_file.partition.{quoted(field)} AS STRING) AS p{index}"
                for index, field in enumerate(fields)
            ]
            query = entries.where(f"data_file.spec_id = {number}").selectExpr(*values).distinct()
            found |= {tuple(row) for row in query.collect()}
        if not self.metadata.specs.keys() - known.keys():
            return found
        numbers = ", ".join(map(str, known)) or "-1"
        foreign = (
            entries.where(f"data_file.spec_id NOT IN ({numbers})")
            .selectExpr("status", "CAST(snapshot_id AS STRING)", "data_file.content", "data_file.file_path")
            .limit(_FILES_NAMED + 1)
            .collect()
        )
        if len(foreign) > _FILES_NAMED:
            return "many files were replaced that another partition spec wrote"
        if any(content for _, _, content, _ in foreign):
            return "rows were deleted from files that another partition spec wrote"
        return found | self._values_in(foreign, snapshots, columns)

    def _values_in(
        self, files: Sequence[Row], snapshots: Sequence[Snapshot], columns: Sequence[str]
    ) -> set[Partition]:
        """Read the partition columns' values from files that were added, or deleted, by snapshots."""
        parents = {each.id: each.parent for each in snapshots}
        places: dict[str, list[str]] = {}
        for status, snapshot, _, path in files:
            at = snapshot if status == 1 else parents[snapshot]
            if at is not None:
                places.setdefault(at, []).append(text(path))
        found: set[Partition] = set()
        for at, paths in places.items():
            frame = self._at(at).where(f"_file IN ({', '.join(paths)})")
            found |= {tuple(row) for row in frame.selectExpr(*texts(columns)).distinct().collect()}
        return found

    def _entries(self, snapshots: Sequence[Snapshot]) -> DataFrame:
        """Return the manifests' entries that snapshots made: added (1) and deleted (2)."""
        union = " UNION ALL ".join(
            f"SELECT status, snapshot_id, data_file FROM {self.name.sql}.entries VERSION AS OF {each.id} "
            f"WHERE snapshot_id = {each.id} AND status IN (1, 2)"
            for each in snapshots
        )
        return self.spark.sql(union)

    def _at(self, snapshot: str) -> DataFrame:
        if snapshot == NO_SNAPSHOT:
            return self.spark.table(self.name.sql).limit(0)
        return self.spark.sql(f"SELECT * FROM {self.name.sql} VERSION AS OF {snapshot}")
