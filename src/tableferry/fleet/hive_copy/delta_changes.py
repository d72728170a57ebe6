"""Read the changes of a Delta table, whose log is in the Hive copy's directory, from the log's commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql.functions import expr

from tableferry.errors import TableError
from tableferry.fleet.hive_copy.update_plan import AddedRows, Changes
from tableferry.fleet.hive_tables.hive_table import READING
from tableferry.fleet.hive_tables.partition_conditions import chunks, sql_types, where
from tableferry.fleet.hive_tables.partitions import Partition, spell
from tableferry.fleet.hive_tables.progress_properties import ShadowProgress
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.hive.locations import below, escape_wildcards
from tableferry.spark import catalog
from tableferry.spark.catalog import SPARK_ERRORS, condition, explaining
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_FILE = "struct<path string, partitionValues map<string, string>, dataChange boolean>"
_INFO = "struct<operation string, operationParameters map<string, string>>"
_COMMITS = f"add {_FILE}, remove {_FILE}, metaData struct<id string>, commitInfo {_INFO}"
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table at its newest version.

    Attributes:
        id: The id of its log.
        location: The directory that contains its log.
        partition_columns: Its partition columns, which may differ from the Hive copy's.
        mapped: Whether it uses column mapping, so that the columns' names in files differ.
        in_place: Whether its log and its files are in the Hive copy's directory.
    """

    spark: SparkSession
    name: TableName
    id: str
    version: str
    location: str
    partition_columns: tuple[str, ...]
    mapped: bool
    in_place: bool = True

    @classmethod
    def read(cls, spark: SparkSession, name: TableName) -> DeltaTarget:
        """Read the table's newest version.

        Raises:
            TableError: The table is missing, or it can't be read.
        """
        facts = catalog.facts(spark, name)
        if facts is None:
            raise TableError("TABLE_NOT_FOUND", table=name)
        with explaining("TABLE_NOT_DESCRIBABLE", table=name):
            detail = spark.sql(f"DESCRIBE DETAIL {name.sql}").collect()[0]
        mapped = detail["properties"].get(_MAPPING, "none") != "none"
        columns = tuple(detail["partitionColumns"])
        in_place = READING not in detail["properties"]
        version = str(facts.version)
        return cls(spark, name, facts.table_id, version, detail["location"], columns, mapped, in_place)

    @property
    def shared(self) -> str | None:
        """The directory into which the table writes, if the Hive copy also reads from it."""
        return self.location if self.in_place else None

    @property
    def type_substitutes(self) -> Mapping[str, str]:
        """The types that replace Hive's types that the format lacks."""
        return {"timestamp": "timestamp_ntz"}

    @property
    def is_renamed(self) -> bool:
        """False, because each change of the columns creates a version."""
        return False

    def columns(self) -> dict[str, str]:
        """Return the columns and their types at the version."""
        return sql_types(self.rows().schema)

    def rows(self) -> DataFrame:
        """Return the rows at the version."""
        return self.rows_at(self.version)

    def rows_at(self, version: str) -> DataFrame:
        """Return the rows at an earlier version."""
        return self.spark.sql(f"SELECT * FROM {self.name.sql} VERSION AS OF {version}")

    def changes(
        self, marks: ShadowProgress, kinds: Mapping[str, str], partition_columns: Sequence[str]
    ) -> Changes:
        """Return the changes since the watermark, given the Hive table's types and partition columns."""
        if marks.watermark is None:
            return Changes(compare_all="there is no watermark")
        first, last = int(marks.watermark), int(self.version)
        if first > last:
            return Changes(compare_all=f"version {first} is no longer in the table's history")
        if marks.interrupted_version and int(marks.interrupted_version) > last:
            return Changes(compare_all=f"version {marks.interrupted_version}, half copied, no longer exists")
        if first == last:
            return Changes()
        own = {column.lower() for column in self.partition_columns}
        if not own.issuperset(column.lower() for column in partition_columns):
            return Changes(compare_all="the table is partitioned by other columns now")
        try:
            return self._between(first, last, kinds, partition_columns)
        except SPARK_ERRORS as error:
            if condition(error) != "PATH_NOT_FOUND":
                raise
            return Changes(compare_all=f"the log no longer has every commit since version {first}")

    def added_rows(
        self, changes: Changes, watermark: str, partitions: Sequence[Partition], columns: Sequence[str]
    ) -> DataFrame:
        """Return the rows of the files that were added to some partitions."""
        kinds, conditions = self.columns(), list[str]()
        for partition in partitions:
            files = changes.added[partition].files
            names = ", ".join(literal(name) for name in sorted({*files, *map(unquote, files)}))
            # Files in different partitions may have the same name.
            of_partition = where([partition], columns, kinds)
            conditions.append(
                f"(({of_partition}) AND substring_index(input_file_name(), '/', -1) IN ({names}))"
            )
        # Tables with CHAR columns, which Spark pads, have no _metadata column. The partitions' condition is
        # the first filter, because Spark doesn't push it down past the filter on file names.
        return self.rows().where(where(partitions, columns, kinds)).where(" OR ".join(conditions))

    def files_logged_since(self, watermark: str | None) -> Iterable[str]:
        """Return the paths of files that commits since the watermark added or removed.

        Without a watermark, all commits are read. The result is empty if the log lacks one of the commits.
        """
        path, is_file = "coalesce(add.path, remove.path)", "add IS NOT NULL OR remove IS NOT NULL"
        return [self._absolute(unquote(row[0])) for row in self._actions(watermark, path, is_file)]

    def replaced_all_since(self, watermark: str | None) -> str:
        """Return the newest version since the watermark that replaced all rows; may be empty."""
        is_overwrite = (
            "commitInfo.operation = 'WRITE' AND commitInfo.operationParameters['mode'] = 'Overwrite' "
            "AND commitInfo.operationParameters['predicate'] IS NULL "
            "AND coalesce(commitInfo.operationParameters['isDynamicPartitionOverwrite'], 'false') <> 'true'"
        )
        if watermark is None:
            return ""
        commits = self._actions(watermark, "input_file_name() AS file", is_overwrite)
        files = [row[0].rpartition("/")[2] for row in commits]
        return str(int(max(files).partition(".")[0])) if files else ""

    def data_files(self) -> Iterable[str]:
        """Return the paths of the table's current data files."""
        return self.rows().inputFiles()

    def append_once(self, warehouse: Warehouse, rows: DataFrame, key: str) -> None:
        """Append the rows in a transaction with the key; Delta commits a key once.

        https://docs.delta.io/latest/delta-streaming.html#idempotent-table-writes-in-foreachbatch
        """
        writer = rows.write.format("delta").mode("append").option("txnAppId", key).option("txnVersion", 1)
        warehouse.effect(lambda: writer.saveAsTable(self.name.sql))

    def _actions(self, watermark: str | None, expression: str, where: str) -> list[Row]:
        """Evaluate an expression on the actions since the watermark; empty if the log lacks a commit."""
        paths = self._commits(-1 if watermark is None else int(watermark), int(self.version))
        if not paths:
            return []
        try:
            actions = self.spark.read.schema(_COMMITS).json(paths)
            return actions.where(where).selectExpr(expression).collect()
        except SPARK_ERRORS as error:
            if condition(error) != "PATH_NOT_FOUND":
                raise
            return []

    def _commits(self, first: int, last: int) -> list[str]:
        log = f"{escape_wildcards(self.location)}/_delta_log"
        return [f"{log}/{version:020}.json" for version in range(first + 1, last + 1)]

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") or ":" in path.partition("/")[0] else f"{self.location}/{path}"

    def exact(self, changes: Changes, columns: Sequence[str]) -> frozenset[Partition]:
        """Return the partitions whose directory contains the table's current files and no other files.

        A failed write leaves files that no commit names, and a removed file stays until VACUUM. The result
        is empty if the table doesn't share the Hive copy's directory.
        """
        if self.shared is None:
            return frozenset()
        directories = {
            partition: added.directory for partition, added in changes.added.items() if added.directory
        }
        exact: set[Partition] = set()
        for chunk in chunks(directories):
            current = set(self.rows().where(where(chunk, columns, self.columns())).inputFiles())
            reader = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
            chunk_directories = [escape_wildcards(directories[partition]) for partition in chunk]
            listing = reader.load(chunk_directories).select("path")
            listed = {row[0] for row in listing.collect()}
            if len(set(map(_directory, current))) > len(chunk):
                continue
            for partition in chunk:
                inside = {path for path in listed if below(path, directories[partition])}
                if inside and inside == {path for path in current if below(path, directories[partition])}:
                    exact.add(partition)
        return frozenset(exact)

    def _between(self, first: int, last: int, kinds: Mapping[str, str], columns: Sequence[str]) -> Changes:
        paths = self._commits(first, last)
        names = {own.lower(): literal(own) for own in self.partition_columns}
        keys = [names[column.lower()] for column in columns]
        # An action without partition values, or with unknown column names, can't be assigned to a partition.
        # A remove action omits null values.
        own = f"CAST(array({', '.join(names.values())}) AS ARRAY<STRING>)"
        complete = f"values IS NOT NULL AND size(array_except(map_keys(values), {own})) = 0"
        values = [
            f"CAST(CAST(nullif(values[{key}], '') AS {kinds[column]}) AS STRING) AS p{number}"
            for number, (key, column) in enumerate(zip(keys, columns, strict=True))
        ]
        actions = (
            self.spark.read.schema(_COMMITS)
            .json(paths)
            .selectExpr(
                "metaData IS NOT NULL AS altered",
                "remove IS NOT NULL AS removed",
                "remove IS NOT NULL AND coalesce(remove.dataChange, true) AS lost",
                "CASE WHEN coalesce(add.dataChange, add IS NOT NULL) THEN add.path END AS path",
                "add IS NOT NULL OR remove IS NOT NULL AS file",
                "coalesce(add.partitionValues, remove.partitionValues) AS values",
            )
        )
        groups = (
            actions.where("altered OR file")
            .selectExpr("*", f"altered OR ({complete}) AS known", *values)
            .groupBy("altered", "known", *(f"p{number}" for number in range(len(columns))))
            .agg(*map(expr, ("bool_or(removed)", "bool_or(lost)", "collect_set(path)")))
            .collect()
        )
        if any(not row["known"] for row in groups):
            return Changes(compare_all="the log doesn't contain the partitions of removed files")
        if any(row["altered"] for row in groups) and not self._same_columns(first):
            return Changes(compare_all="columns were renamed, dropped or retyped")
        added: dict[Partition, AddedRows] = {}
        touched: set[Partition] = set()
        moved: set[Partition] = set()
        for row in groups:
            if row["altered"]:
                continue
            partition, (removed, lost, added_files) = tuple(row[2:-3]), row[-3:]
            if lost or (removed and added_files):
                touched.add(partition)
            elif added_files:
                added[partition] = self._added(partition, added_files, columns)
            else:
                moved.add(partition)
        return Changes(added, frozenset(touched), frozenset(moved))

    def _added(self, partition: Partition, paths: Sequence[str], columns: Sequence[str]) -> AddedRows:
        """Return a partition's added files, with their directory if a Hive table can read it."""
        root = self.location.rstrip("/")
        directory = "/".join(filter(None, (root, spell(partition, columns))))
        own = [column.lower() for column in self.partition_columns]
        readable = not self.mapped and own == [column.lower() for column in columns]
        inside = all(_directory(f"{root}/{unquote(path)}") == directory for path in paths)
        names = tuple(path.rpartition("/")[2] for path in paths)
        return AddedRows(directory if readable and inside else None, names)

    def _same_columns(self, first: int) -> bool:
        """Return whether the columns of a version are unchanged; added columns are ignored."""
        if self.mapped:
            return False
        try:
            before = sql_types(self.rows_at(str(first)).schema)
        except SPARK_ERRORS:  # The version can't be read any more.
            return False
        now = {name.lower(): kind for name, kind in self.columns().items()}
        return all(now.get(name.lower()) == kind for name, kind in before.items())


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
