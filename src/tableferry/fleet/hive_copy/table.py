"""The Hive copy: its definition in the catalog, and every change to it, each through `Warehouse.effect`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tableferry.errors import Refused, StateError
from tableferry.fleet.hive_copy.changes import Columns
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.hive_tables.hive_table import AVRO_SCHEMAS, HiveTable
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

# Hive reads timestamps and decimals only as its own Parquet writer has them.
_FOR_HIVE = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
}
_DYNAMIC = {"hive.exec.dynamic.partition": "true", "hive.exec.dynamic.partition.mode": "nonstrict"}
_NO_CAST = "spark.sql.legacy.skipTypeValidationOnAlterPartition"
# The property by which Hive 3's external tables own their files too.
PURGE = "external.table.purge"
# Without a _SUCCESS file, so that an empty directory is seen to be empty.
_NO_SUCCESS_FILE = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
# What the names of a job's files begin with, for all of Spark's writers.
_BASENAME = "mapreduce.output.basename"
_COMMITTER = ".SQLHadoopMapReduceCommitProtocol"
# Formats that Spark's own writer writes without another package.
_FORMATS = ("parquet", "orc")


def scratch_name(table: TableName) -> TableName:
    """Return the name of the table by which rows are written as a Hive table's are; one may be left."""
    return TableName((*table.parts[:-1], f"{table.table}_tableferry_sync"))


@dataclass(frozen=True)
class HiveCopy:
    """A Hive table as the catalog has it.

    Attributes:
        columns: The types of the columns that it is to have, as Spark names them, partition columns last.
        schema: The columns that it has, with what Spark knows of them beside their types.
        format: Its files' format, if Spark's own writer writes it without knowing the table; empty where only
            Hive's writer does, and for buckets.
        by_hive: Whether rows come into a scratch table by Hive's writer, which writes the names of partition
            columns in lower case into those of directories.
        odd: The values of those partitions that the catalog spells otherwise than Spark, such as ``01``.
        bucketed: Whether each of its files holds the rows of one bucket.
        options: The names of what its SerDe is told besides.
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
            Refused: It owns its files.
            TableError: There is no such table, or it may not be read.
        """
        with explaining("TABLE_NOT_DESCRIBABLE", table=name):
            table = hive.table_of(name, describe(warehouse.spark, name))
        if table.managed or table.properties.get(PURGE, "").lower() == "true":
            raise Refused("DROP_REMOVES_FILES", table=name, property=PURGE)
        return cls.of(warehouse, table)

    @classmethod
    def of(cls, warehouse: Warehouse, table: HiveTable) -> HiveCopy:
        """Take a table that was described already; before its migration it may own its files.

        Raises:
            Refused: A partition's value isn't of its column's type.
            TableError: It may not be read.
        """
        spark, keys = warehouse.spark, table.partition_columns
        with explaining("TABLE_READ_FAILED", table=table.name):
            # Somebody else may have written to its directories since Spark listed them.
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
        """The session."""
        return self.warehouse.spark

    @property
    def keys(self) -> list[StructField]:
        """Its partition columns."""
        fields = {field.name: field for field in self.schema}
        return [fields[key] for key in self.partition_columns]

    @property
    def names_files(self) -> bool:
        """Whether Spark names files as `_BASENAME` says; not all committers do."""
        try:
            return str(self.spark.conf.get("spark.sql.sources.commitProtocolClass")).endswith(_COMMITTER)
        except SPARK_ERRORS:  # Serverless compute shows few of its settings.
            return False

    def known_locations(self) -> dict[str, str] | None:
        """Return the locations of all partitions by the catalog's spelling; None if that takes a query each.

        A table without partition columns has one partition, whose spelling is empty.
        """
        if not self.partition_columns:
            return {"": self.location}
        known = session_catalog.partitions(self.spark, self.name)
        return None if known is None else {partition.spec: partition.location for partition in known}

    def fingerprint(self, locations: Mapping[str, str] | None) -> str:
        """Return the fingerprint of its partitions with these locations."""
        return fingerprint(self.specs, None if locations is None else locations.values())

    def locations(self, partitions: Iterable[Partition]) -> dict[Partition, str]:
        """Return the locations of those of some partitions that the table has; a DESCRIBE for each."""
        existing = [partition for partition in partitions if partition in self.partitions]
        if not self.partition_columns:
            return dict.fromkeys(existing, self.location)
        with self._as_spelled(existing):
            return dict(zip(existing, parallel_map(self._location, existing), strict=True))

    def spelled(self, partition: Partition) -> str:
        """Write a partition as the path of its directory."""
        columns = self.partition_columns
        return spell(partition, [name.lower() for name in columns] if self.by_hive else columns)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Bring rows of the target into the table's columns and types; columns that they lack are null."""
        return frame.selectExpr(*casts(frame.columns, self.columns))

    def note(self, **notes: str) -> None:
        """Set properties, all at once."""
        self._alter(f"SET TBLPROPERTIES {pairs({PREFIX + key: value for key, value in notes.items()})}")

    def demand_columns(self, columns: Columns) -> None:
        """Make sure that the table's columns can be changed to these.

        Raises:
            Refused: Columns are to be replaced or widened, which Spark alone can't do to a Hive table; or its
                columns come from an Avro schema.
        """
        told = self.properties.keys() | self.options
        if columns and (schema := next((key for key in AVRO_SCHEMAS if key in told), "")):
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
        """Change the table's columns, and those of its partitions where the metastore is reached."""
        if metastore.is_reachable(self.spark, self.name):
            self.warehouse.effect(lambda: self._set_columns(self.name, columns))
        else:
            self._alter(f"ADD COLUMNS ({_listed(columns.added)})")

    def _set_columns(self, name: TableName, columns: Columns) -> None:
        changed = {*columns.added, *columns.replaced, *columns.widened}
        types = {column: kind if column in changed else None for column, kind in columns.every.items()}
        metastore.set_columns(self.spark, name, types)

    def insert(self, frame: DataFrame, basename: str) -> None:
        """Add rows to partitions that exist, at their locations, or to the table."""
        self._insert(self.rows(frame), self.name, basename)

    def _insert(self, rows: DataFrame, table: TableName, basename: str) -> None:
        with (
            optional_settings(self.spark, _FOR_HIVE | {_BASENAME: basename}),
            session.settings(self.spark, _DYNAMIC, str(self.name)),
        ):
            self.warehouse.effect(lambda: rows.write.insertInto(table.sql))

    def write(self, frame: DataFrame, folder: str, columns: Columns, basename: str) -> None:
        """Write rows into a folder, each partition in its directory."""
        rows = self.rows(frame)
        if not self.format:
            self._write_as_table(rows, folder, columns, basename)
            return
        writer = rows.write.mode("append").format(self.format).options(**_NO_SUCCESS_FILE)
        with optional_settings(self.spark, _FOR_HIVE | {_BASENAME: basename}):
            self.warehouse.effect(lambda: writer.partitionBy(*self.partition_columns).save(folder))

    def _write_as_table(self, rows: DataFrame, folder: str, columns: Columns, basename: str) -> None:
        """Write rows as they are written to this table, with its format and buckets: to a scratch table."""
        with self.scratch_table(folder) as scratch:
            if columns.replaced:
                self.warehouse.effect(lambda: self._set_columns(scratch, columns))
            self._insert(rows, scratch, basename)

    @contextmanager
    def scratch_table(self, folder: str) -> Iterator[TableName]:
        """Provide an external table like this one over a folder, without partitions, inside a ``with``."""
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
        # LIKE leaves these out, and Hive's SerDes read some of them, such as serialization.null.format, whose
        # value is often empty: DESCRIBE leaves out those that are.
        every = self.properties if self.format else table_descriptions.properties(self.spark, self.name)
        if properties := user_properties(every):
            create += f" TBLPROPERTIES {pairs(properties)}"
        try:
            self.warehouse.run(create, of=())
        except SPARK_ERRORS as error:
            if condition(error) != "TABLE_OR_VIEW_ALREADY_EXISTS":
                raise
            # Of a run that died.
            self.warehouse.run(f"DROP TABLE {scratch.sql}", of=())
            self.warehouse.run(create, of=())

    def set_location(self, partition: Partition, location: str) -> None:
        """Change the directory that a partition, or the whole table, reads; a new partition is added."""
        named = spec(self._spelled(partition), self.partition_columns) if self.partition_columns else ""
        with self._as_spelled((partition,)):
            if partition in self.partitions:
                self._alter(f"{named} SET LOCATION {literal(location)}")
            else:
                # If there is one by now, or spelled otherwise, it reads other files: an error, not a success.
                self._alter(f"ADD {named} LOCATION {literal(location)}")

    def empty(self, partition: Partition, location: str, basename: str) -> None:
        """Let a partition read an empty directory, or one with a file of no rows.

        If it were dropped, the first write to it after a revert would make it anew where its old files are,
        which the table in its place keeps for its earlier versions.
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
                "%s has no row in %s any more, and from here no empty directory can be made for it: the "
                "partition is dropped; who writes to it after a revert has to remove its old files first",
                self.name, self.spelled(partition),
            )  # fmt: skip
            with self._as_spelled((partition,)):
                spelled = self._spelled(partition)
                self._alter(f"DROP IF EXISTS {spec(spelled, self.partition_columns)}")
            return
        self.set_location(partition, location)

    def refresh(self) -> None:
        """Make Spark list the table's files again."""
        self.warehouse.run(f"REFRESH TABLE {self.name.sql}")

    def remove(self, location: str, folder: str) -> bool:
        """Remove a directory below a folder of shadow runs; False where this process can't."""
        inside = below(location, folder)
        try:
            storage = storage_of(self.spark, folder)
            if storage is None or not inside:
                return False
            self.warehouse.effect(partial(storage.remove, location))
            # A version's directory goes with its last partition.
            while inside := inside.rpartition("/")[0]:
                parent = f"{folder}/{inside}"
                # Of a column whose name begins with an underscore, partitions' directories do too.
                if any("=" in name or not hidden(name) for name in storage.all_names(parent)):
                    break
                self.warehouse.effect(partial(storage.remove, parent))
        except StateError as error:
            _log.warning("%s is left: %s", location, error.one_line)
            return False
        return True

    def remove_empty(self, folder: str) -> None:
        """Remove a directory beside the table's, unless something is in it; this process may be unable to."""
        with suppress(StateError):
            if (storage := storage_of(self.spark, folder)) is not None and not storage.all_names(folder):
                self.warehouse.effect(partial(storage.remove_empty, folder), of=())

    def directories(self, folder: str) -> tuple[str, ...] | None:
        """List the paths of all directories below a folder of shadow runs; None if this process can't."""
        try:
            storage = storage_of(self.spark, folder)
            return None if storage is None else storage.folders(folder)
        except StateError as error:
            _log.warning("directories in %s that nobody reads may be left: %s", folder, error.one_line)
            return None

    def _alter(self, clause: str) -> None:
        self.warehouse.run(f"ALTER TABLE {self.name.sql} {clause}")

    def _location(self, partition: Partition) -> str:
        named = spec(self._spelled(partition), self.partition_columns)
        return str(describe(self.spark, self.name, named)["location"])

    @contextmanager
    def _as_spelled(self, partitions: Iterable[Partition]) -> Iterator[None]:
        """Let Spark take partitions' values as they are written, inside a ``with``; else it casts them."""
        settings = {_NO_CAST: "true"} if any(partition in self.odd for partition in partitions) else {}
        with session.settings(self.spark, settings, f"odd partitions of {self.name}"):
            yield

    def _spelled(self, partition: Partition) -> Partition:
        """Return the values of a partition as the catalog spells them."""
        return self.odd.get(partition, partition)


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quote(column)} {kind}" for column, kind in columns.items())
