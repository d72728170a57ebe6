"""Read the changes of an Iceberg table from its metadata file and the manifests of its snapshots."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tableferry.fleet.hive_copy.iceberg_metadata import Metadata, Snapshot
from tableferry.fleet.hive_copy.update_plan import AddedRows, Changes
from tableferry.fleet.hive_tables.partition_conditions import sql_types, texts
from tableferry.fleet.hive_tables.partitions import WHOLE, Partition
from tableferry.fleet.hive_tables.progress_properties import ShadowProgress
from tableferry.fleet.warehouse import table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT
from tableferry.formats.hive.locations import escape_wildcards
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# With more files in one condition, comparing all partitions is quicker.
_MAX_FILES = 1000
# The property that turns on staging (write-audit-publish), and the property that records that a run set it.
_STAGING, _STAGING_NOTE = "write.wap.enabled", "tableferry.staging"


@dataclass(frozen=True)
class IcebergTarget:
    """An Iceberg table at its current snapshot, with its name in Iceberg's catalog."""

    spark: SparkSession
    name: TableName
    metadata: Metadata

    @classmethod
    def read(cls, spark: SparkSession, name: TableName) -> IcebergTarget:
        """Read the table's current metadata file.

        Raises:
            TableError: The table is missing, or its metadata can't be read.
        """
        with explaining("TABLE_READ_FAILED", table=name):
            spark.sql(f"REFRESH TABLE {name.sql}")
            # The last entry is the newest; the times may be in another order, because writers' clocks differ.
            file = spark.sql(f"SELECT file FROM {name.sql}.metadata_log_entries").collect()[-1][0]
            frame = spark.read.format("binaryFile").load(escape_wildcards(file)).select("content")
            content = bytes(frame.collect()[0][0])
        plain = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        return cls(spark, name, Metadata.parse(json.loads(plain)))

    @property
    def id(self) -> str:
        """The table's UUID."""
        return self.metadata.uuid

    @property
    def version(self) -> str:
        """The current snapshot."""
        return self.metadata.current

    @property
    def shared(self) -> None:
        """None, because the table writes only into its own directory."""

    @property
    def type_substitutes(self) -> Mapping[str, str]:
        """The types that replace Hive's types that the format lacks."""
        return {"tinyint": "int", "smallint": "int", "timestamp": "timestamp_ntz"}

    @property
    def is_renamed(self) -> bool:
        """Whether columns were renamed or dropped after the current snapshot."""
        return self.metadata.is_renamed

    def columns(self) -> dict[str, str]:
        """Return the columns and their types at the current snapshot."""
        return sql_types(self.rows().schema)

    def rows(self) -> DataFrame:
        """Return the rows of the current snapshot."""
        return self.rows_at(self.version)

    def rows_at(self, version: str) -> DataFrame:
        """Return the rows of an earlier snapshot."""
        if version == NO_SNAPSHOT:
            return self.spark.table(self.name.sql).limit(0)
        return self.spark.sql(f"SELECT * FROM {self.name.sql} VERSION AS OF {version}")

    def changes(
        self, marks: ShadowProgress, kinds: Mapping[str, str], partition_columns: Sequence[str]
    ) -> Changes:
        """Return the changes since the watermark, given the Hive table's types and partition columns."""
        if marks.watermark is None:
            return Changes(compare_all="there is no watermark")
        snapshots = self.metadata.since(marks.watermark)
        if snapshots is None:
            return Changes(compare_all=f"snapshot {marks.watermark} is no longer in the table's history")
        copied = self.metadata.snapshots.get(marks.watermark)
        # The schema of an expired snapshot is unknown, so all schemas are checked.
        for schema in [copied.schema] if copied else self.metadata.schemas:
            if filled := self.metadata.columns_with_initial_default(schema):
                return Changes(
                    compare_all=f"the column {filled[0]} was added with a value for the rows before it"
                )
            if not self.metadata.same_columns(schema, list(self.metadata.schemas.get(schema, {}))):
                return Changes(compare_all="columns were renamed, dropped or retyped")
        ids = {marks.watermark, *(snapshot.id for snapshot in snapshots)}
        if marks.interrupted_version and marks.interrupted_version not in ids:
            return Changes(compare_all=f"snapshot {marks.pending}, half copied, was rolled back")
        return self._between(marks.watermark, snapshots, partition_columns)

    def added_rows(
        self, changes: Changes, watermark: str, partitions: Sequence[Partition], columns: Sequence[str]
    ) -> DataFrame:
        """Return the rows that were appended since the watermark, in all partitions."""
        reader = self.spark.read.format("iceberg").option("start-snapshot-id", watermark)
        return reader.option("end-snapshot-id", self.version).load(self.name.sql)

    def files_logged_since(self, watermark: str | None) -> Iterable[str]:
        """Return the data files that snapshots since the watermark added or removed.

        The result is empty if one of the snapshots is missing. The table writes into its own directory, but a
        person may have added files of the Hive copy's directories, which a compaction may have replaced.
        """
        snapshots = self.metadata.since(watermark) if watermark is not None else None
        if not snapshots:
            return ()
        ids = ", ".join(snapshot.id for snapshot in snapshots)
        query = (
            f"SELECT DISTINCT data_file.file_path FROM {self.name.sql}.all_entries "
            f"WHERE data_file.content = 0 AND snapshot_id IN ({ids})"
        )
        return [row[0] for row in self.spark.sql(query).collect()]

    def replaced_all_since(self, watermark: str | None) -> str:
        """Return the newest snapshot since the watermark that replaced all rows; may be empty."""
        snapshots = self.metadata.since(watermark) if watermark is not None else None
        return next((snapshot.id for snapshot in reversed(snapshots or ()) if snapshot.replaced_all), "")

    def data_files(self) -> Iterable[str]:
        """Return the paths of the table's current data files."""
        return [row[0] for row in self.spark.sql(f"SELECT file_path FROM {self.name.sql}.files").collect()]

    def append_once(self, warehouse: Warehouse, rows: DataFrame, key: str) -> None:
        """Stage the rows under the key and publish them; Iceberg publishes a key once.

        https://iceberg.apache.org/docs/latest/spark-procedures/#publish_changes
        """
        query = f"SELECT summary['wap.id'], summary['published-wap-id'] FROM {self.name.sql}.snapshots"
        keys = self.spark.sql(query).collect()
        staged, published = {row[0] for row in keys}, {row[1] for row in keys}
        if key in published:
            return
        properties = table_descriptions.properties(self.spark, self.name)
        was_on = properties.get(_STAGING) == "true" and _STAGING_NOTE not in properties
        if key not in staged:
            if not was_on:
                pairs = f"{literal(_STAGING)} = 'true', {literal(_STAGING_NOTE)} = 'true'"
                warehouse.run(f"ALTER TABLE {self.name.sql} SET TBLPROPERTIES ({pairs})")
            with session.settings(self.spark, {"spark.wap.id": key}, str(self.name)):
                warehouse.effect(rows.writeTo(self.name.sql).append)
        if not was_on:
            # An interrupted run may also have left the properties.
            names = f"({literal(_STAGING)}, {literal(_STAGING_NOTE)})"
            warehouse.run(f"ALTER TABLE {self.name.sql} UNSET TBLPROPERTIES IF EXISTS {names}")
        try:
            warehouse.run(
                f"CALL {quote(self.name.parts[0])}.system.publish_changes("
                f"table => {literal(self.name.sql)}, wap_id => {literal(key)})"
            )
        except SPARK_ERRORS as error:
            # Another worker published it.
            if "DuplicateWAPCommit" not in str(error):
                raise

    def exact(self, changes: Changes, columns: Sequence[str]) -> frozenset[Partition]:
        """Return an empty set, because the table shares no directory with the Hive copy."""
        return frozenset()

    def _between(self, watermark: str, snapshots: Sequence[Snapshot], columns: Sequence[str]) -> Changes:
        appends = [snapshot for snapshot in snapshots if snapshot.operation == "append"]
        # The operation "replace" writes the same rows to new files.
        others = [
            snapshot
            for snapshot in snapshots
            if snapshot.operation not in ("append", "replace") and snapshot.changed
        ]
        if appends and self.metadata.is_renamed:
            # An incremental read uses the newest names.
            return Changes(compare_all="columns were renamed or dropped after the last snapshot")
        added: set[Partition] = set()
        if appends:
            # Without partition columns, the literal is the only selected column.
            rows = self.added_rows(Changes(), watermark, (), columns)
            values = rows.selectExpr(*texts(columns), "1 AS one")
            added = {tuple(row[:-1]) for row in values.distinct().collect()}
        touched: set[Partition] = set()
        if others:
            partitions = self._touched(others, columns) if columns else {WHOLE}
            if isinstance(partitions, str):
                return Changes(compare_all=partitions)
            touched = partitions
        return Changes({partition: AddedRows() for partition in added - touched}, frozenset(touched))

    def _touched(self, snapshots: Sequence[Snapshot], columns: Sequence[str]) -> set[Partition] | str:
        """Return the partitions of files that snapshots added or deleted, or why they can't be determined."""
        entries = self._entries(snapshots)
        fields_by_spec = self.metadata.partition_fields(columns)
        partitions: set[Partition] = set()
        for spec_id, fields in fields_by_spec.items():
            values = [
                f"CAST(data_file.partition.{quote(field)} AS STRING) AS p{index}"
                for index, field in enumerate(fields)
            ]
            query = entries.where(f"data_file.spec_id = {spec_id}").selectExpr(*values).distinct()
            partitions |= {tuple(row) for row in query.collect()}
        if not self.metadata.specs.keys() - fields_by_spec.keys():
            return partitions
        spec_ids = ", ".join(map(str, fields_by_spec)) or "-1"
        files = (
            entries.where(f"data_file.spec_id NOT IN ({spec_ids})")
            .selectExpr("status", "CAST(snapshot_id AS STRING)", "data_file.content", "data_file.file_path")
            .limit(_MAX_FILES + 1)
            .collect()
        )
        if len(files) > _MAX_FILES:
            return "many files were replaced that another partition spec wrote"
        if any(content for _, _, content, _ in files):
            return "rows were deleted from files that another partition spec wrote"
        read = self._values_in(files, snapshots, columns)
        return read if isinstance(read, str) else partitions | read

    def _values_in(
        self, files: Sequence[Row], snapshots: Sequence[Snapshot], columns: Sequence[str]
    ) -> set[Partition] | str:
        """Read the partition columns' values from files that snapshots added or deleted.

        Returns:
            The values, or why they can't be read.
        """
        parents = {snapshot.id: snapshot.parent for snapshot in snapshots}
        paths_by_snapshot: dict[str, list[str]] = {}
        for status, snapshot_id, _, path in files:
            readable_in = snapshot_id if status == 1 else parents[snapshot_id]
            if readable_in is not None:
                paths_by_snapshot.setdefault(readable_in, []).append(literal(path))
        if gone := sorted(paths_by_snapshot.keys() - self.metadata.snapshots.keys()):
            return f"snapshot {gone[0]}, which has files that were replaced, has expired"
        partitions: set[Partition] = set()
        for snapshot_id, paths in paths_by_snapshot.items():
            rows = self.rows_at(snapshot_id).where(f"_file IN ({', '.join(paths)})")
            partitions |= {tuple(row) for row in rows.selectExpr(*texts(columns)).distinct().collect()}
        return partitions

    def _entries(self, snapshots: Sequence[Snapshot]) -> DataFrame:
        """Return the manifest entries of snapshots: added (status 1) and deleted (status 2) files."""
        union = " UNION ALL ".join(
            f"SELECT status, snapshot_id, data_file FROM {self.name.sql}.entries VERSION AS OF {snapshot.id} "
            f"WHERE snapshot_id = {snapshot.id} AND status IN (1, 2)"
            for snapshot in snapshots
        )
        return self.spark.sql(union)
