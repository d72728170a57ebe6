"""The Hive copy: its definition in the catalog and its changes; each change uses `Warehouse.effect`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tableferry.errors import Refused, StateError
from tableferry.fleet.hive_copy.update_plan import Columns
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.hive_tables.hive_table import AVRO_SCHEMAS, PURGE, HiveTable
from tableferry.fleet.hive_tables.partition_conditions import casts, spec, sql_types
from tableferry.fleet.hive_tables.partitions import WHOLE, Partition, parsed, raw, spell
from tableferry.fleet.hive_tables.progress_properties import PREFIX, fingerprint
from tableferry.fleet.hive_tables.table_storage import storage_of
from tableferry.fleet.warehouse import hive, table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.definitions import user_properties
from tableferry.fleet.warehouse.table_descriptions import describe
from tableferry.formats.hive import session_catalog
from tableferry.formats.hive.locations import below
from tableferry.formats.hive.sql import in_metastore
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS, condition, explaining, parallel_map
from tableferry.spark.driver import in_process
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.settings import optional_settings
from tableferry.spark.tables import TableName
from tableferry.storage.hadoop import Hadoop
from tableferry.storage.paths import hidden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_log = logging.getLogger(__name__)

# Hive reads only timestamps and decimals in the encoding of Hive's Parquet writer.
_FOR_HIVE = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
}
_DYNAMIC = {"hive.exec.dynamic.partition": "true", "hive.exec.dynamic.partition.mode": "nonstrict"}
_NO_CAST = "spark.sql.legacy.skipTypeValidationOnAlterPartition"
# A _SUCCESS file would make an empty directory look used.
_NO_SUCCESS_FILE = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
# The prefix of the names of a job's files, for all of Spark's writers.
_BASENAME = "mapreduce.output.basename"
_COMMITTER = ".SQLHadoopMapReduceCommitProtocol"
# Formats that Spark's own writer writes without another package.
_FORMATS = ("parquet", "orc")


def scratch_name(table: TableName) -> TableName:
    """Return the name of the scratch table for writing rows in a Hive table's format; it may exist."""
    return TableName((*table.parts[:-1], f"{table.table}_tableferry_sync"))


@dataclass(frozen=True)
class HiveCopy:
    """A Hive table's definition in the catalog.

    Attributes:
        columns: The names and types of the columns that it needs, partition columns last.
        schema: Its current columns in Spark's schema.
        format: Its files' format, if Spark's file writer supports it; empty if only Hive's writer does, and
            for bucketed tables.
        by_hive: Whether Hive's writer fills the scratch table; it writes the names of partition columns in
            lower case into the names of directories.
        odd: The catalog's values of partitions that Spark spells differently, such as ``01``.
        bucketed: Whether each file contains the rows of one bucket.
        options: The names of its SerDe's properties.
        specs: Its partitions as the catalog spells them.
    """

    warehouse: Warehouse
    name: TableName
    columns: Mapping[str, str]
    schema: StructType
    partition_columns: tuple[str, ...]
    location: str
    properties: Mapping[str, str]
    format: str
    partitions: frozenset[Partition]
    by_hive: bool = False
    odd: Mapping[Partition, Partition] = field(default_factory=dict)
    bucketed: bool = False
    options: frozenset[str] = frozenset()
    specs: frozenset[str] = frozenset()

    @classmethod
    def read(cls, warehouse: Warehouse, name: TableName) -> HiveCopy:
        """Read a table's definition from the catalog.

        Raises:
            Refused: The table owns its files.
            TableError: The table is missing, or it can't be read.
        """
        with explaining("TABLE_NOT_DESCRIBABLE", table=name):
            table = hive.table_of(name, describe(warehouse.spark, name))
        if table.managed or table.properties.get(PURGE, "").lower() == "true":
            raise Refused("DROP_REMOVES_FILES", table=name, property=PURGE)
        return cls.of(warehouse, table)

    @classmethod
    def of(cls, warehouse: Warehouse, table: HiveTable) -> HiveCopy:
        """Return the Hive copy of a table that was described already; it may own its files.

        Raises:
            Refused: A partition's value doesn't have its column's type.
            TableError: The table can't be read.
        """
        spark, keys = warehouse.spark, table.partition_columns
        with explaining("TABLE_READ_FAILED", table=table.name):
            # Another process may have written to its directories since Spark listed them.
            spark.catalog.refreshTable(table.name.sql)
            schema = spark.table(table.name.sql).schema
            lines = (
                [row[0] for row in spark.sql(f"SHOW PARTITIONS {table.name.sql}").collect()] if keys else []
            )
        columns = sql_types(schema)
        kinds = [columns[key] for key in keys]
        found = [parsed(table.name, line, kinds) for line in lines]
        spelled = dict(zip(found, map(raw, lines), strict=True))
        if len(spelled) < len(found):
            [(twice, _)] = Counter(found).most_common(1)
            raise Refused("PARTITION_SPELLED_TWICE", table=table.name, partition=spell(twice, keys))
        partitions = frozenset(spelled) if keys else frozenset((WHOLE,))
        odd = {partition: own for partition, own in spelled.items() if own != partition}
        bucketed = table.buckets > 0
        form = table.format if table.format in _FORMATS and not bucketed else ""
        return cls(
            warehouse,
            table.name,
            columns,
            schema,
            keys,
            table.location,
            table.properties,
            form,
            partitions,
            bool(table.serde) and table.format not in _FORMATS,
            odd,
            bucketed,
            frozenset(table.options),
            frozenset(lines),
        )

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.warehouse.spark

    @property
    def keys(self) -> list[StructField]:
        """The partition columns' fields."""
        fields = {field.name: field for field in self.schema}
        return [fields[key] for key in self.partition_columns]

    @property
    def names_files(self) -> bool:
        """Whether Spark uses `_BASENAME` in file names; some committers don't."""
        try:
            return str(self.spark.conf.get("spark.sql.sources.commitProtocolClass")).endswith(_COMMITTER)
        except SPARK_ERRORS:  # Serverless compute hides most settings.
            return False

    def known_locations(self) -> dict[str, str] | None:
        """Return all partitions' locations by the catalog's spelling; None if each needs a query.

        A table without partition columns has one partition, whose spelling is empty.
        """
        if not self.partition_columns:
            return {"": self.location}
        known = session_catalog.partitions(self.spark, self.name)
        return None if known is None else {partition.spec: partition.location for partition in known}

    def fingerprint(self, locations: Mapping[str, str] | None) -> str:
        """Return the fingerprint of the partitions with these locations."""
        return fingerprint(self.specs, None if locations is None else locations.values())

    def locations(self, partitions: Iterable[Partition]) -> dict[Partition, str]:
        """Return the locations of the given partitions that exist, with a DESCRIBE for each."""
        existing = [partition for partition in partitions if partition in self.partitions]
        if not self.partition_columns:
            return dict.fromkeys(existing, self.location)
        with self._as_spelled(existing):
            return dict(zip(existing, parallel_map(self._location, existing), strict=True))

    def spelled(self, partition: Partition) -> str:
        """Return the relative path of a partition's directory."""
        columns = self.partition_columns
        return spell(partition, [name.lower() for name in columns] if self.by_hive else columns)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Cast rows of the target to the table's columns and types; missing columns are null."""
        return frame.selectExpr(*casts(frame.columns, self.columns))

    def note(self, **notes: str) -> None:
        """Set properties with one statement."""
        self._alter(f"SET TBLPROPERTIES {pairs({PREFIX + key: value for key, value in notes.items()})}")

    def check_columns(self, columns: Columns) -> None:
        """Check that the table's columns can be changed to these.

        Raises:
            Refused: Replacing or widening columns needs the metastore, which this process can't reach; or the
                columns are defined by an Avro schema.
        """
        settings = self.properties.keys() | self.options
        if columns and (schema := next((key for key in AVRO_SCHEMAS if key in settings), "")):
            raise Refused(
                "AVRO_SCHEMA_OUTDATED", table=self.name, property=schema, columns=_listed(columns.every)
            )
        if not (columns.replaced or columns.widened) or metastore.is_reachable(self.spark, self.name):
            return
        every = _listed(columns.every)
        if columns.replaced:
            raise Refused(
                "HIVE_COLUMNS_REPLACED", table=self.name, columns=columns.replaced, new_columns=every
            )
        raise Refused(
            "HIVE_COLUMNS_TOO_NARROW", table=self.name, columns=list(columns.widened), new_columns=every
        )

    def set_columns(self, columns: Columns) -> None:
        """Change the columns of the table, and of its partitions if this process can reach the metastore."""
        if metastore.is_reachable(self.spark, self.name):
            self.warehouse.effect(lambda: self._set_columns(self.name, columns))
        else:
            self._alter(f"ADD COLUMNS ({_listed(columns.added)})")

    def _set_columns(self, name: TableName, columns: Columns) -> None:
        changed = {*columns.added, *columns.replaced, *columns.widened}
        types = {column: kind if column in changed else None for column, kind in columns.every.items()}
        metastore.set_columns(self.spark, name, types)

    def insert(self, frame: DataFrame, basename: str) -> None:
        """Insert rows into existing partitions or into the table."""
        self._insert(self.rows(frame), self.name, basename)

    def _insert(self, rows: DataFrame, table: TableName, basename: str) -> None:
        with (
            optional_settings(self.spark, _FOR_HIVE | {_BASENAME: basename}),
            session.settings(self.spark, _DYNAMIC, str(self.name)),
        ):
            self.warehouse.effect(lambda: rows.write.insertInto(table.sql))

    def write(self, frame: DataFrame, folder: str, columns: Columns, basename: str) -> None:
        """Write rows into a folder with a directory for each partition."""
        rows = self.rows(frame)
        if not self.format:
            self._write_as_table(rows, folder, columns, basename)
            return
        writer = rows.write.mode("append").format(self.format).options(**_NO_SUCCESS_FILE)
        with optional_settings(self.spark, _FOR_HIVE | {_BASENAME: basename}):
            self.warehouse.effect(lambda: writer.partitionBy(*self.partition_columns).save(folder))

    def _write_as_table(self, rows: DataFrame, folder: str, columns: Columns, basename: str) -> None:
        """Write rows with this table's format and buckets, through a scratch table."""
        with self.scratch_table(folder) as scratch:
            if columns.replaced:
                self.warehouse.effect(lambda: self._set_columns(scratch, columns))
            self._insert(rows, scratch, basename)

    @contextmanager
    def scratch_table(self, folder: str) -> Iterator[TableName]:
        """Create an external table like this one over a folder, without partitions; drop it afterwards."""
        scratch = scratch_name(self.name)
        self.create_like(scratch, folder)
        try:
            yield scratch
        finally:
            self.warehouse.run(f"DROP TABLE {scratch.sql}", of=())

    def create_like(self, scratch: TableName, folder: str) -> None:
        """Create an external table like this one over a folder, without partitions, or replace it."""
        new, old = in_metastore(scratch), in_metastore(self.name)
        create = f"CREATE TABLE {new} LIKE {old} LOCATION {literal(folder)}"
        # LIKE omits the properties, and Hive's SerDes read some of them, such as serialization.null.format.
        # DESCRIBE omits properties with an empty value, which is common for that one.
        every = self.properties if self.format else table_descriptions.properties(self.spark, self.name)
        if properties := user_properties(every):
            create += f" TBLPROPERTIES {pairs(properties)}"
        try:
            self.warehouse.run(create, of=())
        except SPARK_ERRORS as error:
            if condition(error) != "TABLE_OR_VIEW_ALREADY_EXISTS":
                raise
            # An interrupted run left it.
            self.warehouse.run(f"DROP TABLE {scratch.sql}", of=())
            self.warehouse.run(create, of=())

    def set_location(self, partition: Partition, location: str) -> None:
        """Set the directory of a partition or of the table; a new partition is added."""
        named = spec(self._spelled(partition), self.partition_columns) if self.partition_columns else ""
        with self._as_spelled((partition,)):
            if partition in self.partitions:
                self._alter(f"{named} SET LOCATION {literal(location)}")
            else:
                # No IF NOT EXISTS: a partition that was added in the meantime reads other files.
                self._alter(f"ADD {named} LOCATION {literal(location)}")

    def empty(self, partition: Partition, location: str, basename: str) -> None:
        """Set a partition's directory to one that is empty or contains a file without rows.

        The partition isn't dropped: the first write to it after a revert would recreate it in its old
        directory. The new table keeps the old files there for its earlier versions.
        """
        if in_process(self.spark):
            self.warehouse.effect(partial(Hadoop(self.spark).make_folder, location), of=())
        elif self.format:
            kept = [quote(name) for name in self.columns if name not in self.partition_columns]
            nothing = self.spark.table(self.name.sql).where("false").selectExpr(*kept)
            writer = nothing.write.mode("append").format(self.format).options(**_NO_SUCCESS_FILE)
            with optional_settings(self.spark, {_BASENAME: basename}):
                self.warehouse.effect(lambda: writer.save(location), of=())
        else:
            _log.warning(
                "%s: the partition %s has no rows, and this process can't create an empty directory for it: "
                "the partition is dropped; remove its old files before you write to it after a revert",
                self.name, self.spelled(partition),
            )  # fmt: skip
            with self._as_spelled((partition,)):
                spelled = self._spelled(partition)
                self._alter(f"DROP IF EXISTS {spec(spelled, self.partition_columns)}")
            return
        self.set_location(partition, location)

    def refresh(self) -> None:
        """Refresh Spark's cached listing of the table's files."""
        self.warehouse.run(f"REFRESH TABLE {self.name.sql}")

    def remove(self, location: str, folder: str) -> bool:
        """Remove a directory below a folder of shadow runs; return False if this process can't."""
        inside = below(location, folder)
        try:
            storage = storage_of(self.spark, folder)
            if storage is None or not inside:
                return False
            self.warehouse.effect(partial(storage.remove, location))
            # Remove a version's directory after its last partition.
            while inside := inside.rpartition("/")[0]:
                parent = f"{folder}/{inside}"
                # The partitions' directories of a column with a leading underscore look hidden.
                if any("=" in name or not hidden(name) for name in storage.all_names(parent)):
                    break
                self.warehouse.effect(partial(storage.remove, parent))
        except StateError as error:
            _log.warning("%s is left: %s", location, error.one_line)
            return False
        return True

    def remove_empty(self, folder: str) -> None:
        """Remove a directory beside the table's if it's empty and this process has the permission."""
        with suppress(StateError):
            if (storage := storage_of(self.spark, folder)) is not None and not storage.all_names(folder):
                self.warehouse.effect(partial(storage.remove_empty, folder), of=())

    def directories(self, folder: str) -> tuple[str, ...] | None:
        """List the paths of all directories below a folder of shadow runs; None if this process can't."""
        try:
            storage = storage_of(self.spark, folder)
            return None if storage is None else storage.folders(folder)
        except StateError as error:
            _log.warning("unused directories may be left in %s: %s", folder, error.one_line)
            return None

    def _alter(self, clause: str) -> None:
        self.warehouse.run(f"ALTER TABLE {self.name.sql} {clause}")

    def _location(self, partition: Partition) -> str:
        named = spec(self._spelled(partition), self.partition_columns)
        return str(describe(self.spark, self.name, named)["location"])

    @contextmanager
    def _as_spelled(self, partitions: Iterable[Partition]) -> Iterator[None]:
        """Turn off Spark's cast of partition values inside a ``with``."""
        settings = {_NO_CAST: "true"} if any(partition in self.odd for partition in partitions) else {}
        with session.settings(self.spark, settings, f"odd partitions of {self.name}"):
            yield

    def _spelled(self, partition: Partition) -> Partition:
        """Return the values of a partition as the catalog spells them."""
        return self.odd.get(partition, partition)


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quote(column)} {kind}" for column, kind in columns.items())
