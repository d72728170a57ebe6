"""The Hive copy: what it is, and every change that is made to it, each through `Warehouse.effect`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tableferry import files, session
from tableferry.catalog import SPARK_ERRORS, parallel_map
from tableferry.driver import in_process
from tableferry.errors import Refused, StateError, TableError, first_line
from tableferry.fleet.warehouse import metastore
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shadow.changes import Columns
from tableferry.fleet.warehouse.shadow.conditions import spec, sql_type
from tableferry.fleet.warehouse.shadow.marks import PREFIX
from tableferry.fleet.warehouse.shadow.partitions import WHOLE, Partition, parse, spell
from tableferry.hive.locations import below, reachable
from tableferry.hive.settings import optional_settings
from tableferry.hive.sql import quoted, text
from tableferry.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

# Hive reads timestamps and decimals only as its own Parquet writer has them.
_FOR_HIVE = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
}
_DYNAMIC = {"hive.exec.dynamic.partition": "true", "hive.exec.dynamic.partition.mode": "nonstrict"}
# Hive 3 has external tables that own their files too.
PURGE = "external.table.purge"
# An empty directory is to be seen as one.
_NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
# What the names of a job's files begin with, for all of Spark's writers.
_BASENAME = "mapreduce.output.basename"
_COMMITTER = ".SQLHadoopMapReduceCommitProtocol"
# What Spark's own writer writes without a package more.
_FORMATS = ("parquet", "orc")


@dataclass(frozen=True)
class HiveCopy:
    """A Hive table.

    Attributes:
        warehouse: Where it is.
        name: The table.
        columns: Its columns' types as Spark names them, partition columns last.
        partition_columns: The names of those.
        location: Where it is.
        properties: Its own.
        format: What Spark's writer calls its files' format; empty where only Hive's own writer will do.
        partitions: Its partitions.
    """

    warehouse: Warehouse
    name: TableName
    columns: Mapping[str, str]
    partition_columns: tuple[str, ...]
    location: str
    properties: Mapping[str, str]
    format: str
    partitions: frozenset[Partition]

    @classmethod
    def read(cls, warehouse: Warehouse, name: TableName, *, owning: bool = False) -> HiveCopy:
        """Ask the catalog.

        Args:
            warehouse: Where it is.
            name: The table.
            owning: Whether it may own its files, as before its migration.

        Raises:
            Refused: It owns its files.
            TableError: There is no such table, or it may not be read.
        """
        spark = warehouse.spark
        try:
            # Somebody else may have written to its directories since Spark listed them.
            spark.sql(f"REFRESH TABLE {name.sql}")
            said = json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql} AS JSON").collect()[0][0])
            columns = {field.name: sql_type(field.dataType) for field in spark.table(name.sql).schema}
            keys = tuple(said.get("partition_columns", ()))
            kinds = [columns[key] for key in keys]
            specs = [row[0] for row in spark.sql(f"SHOW PARTITIONS {name.sql}").collect()] if keys else []
        except SPARK_ERRORS as error:
            raise TableError(
                f"{name} can't be described ({first_line(error)}): check its name and your rights"
            ) from error
        properties = said.get("table_properties", {})
        owns = said.get("type") == "MANAGED" or properties.get(PURGE, "").lower() == "true"
        if owns and not owning:
            raise Refused(
                f"{name} removes a dropped partition's files, which the table in its place reads: "
                f"make it EXTERNAL, with '{PURGE}' = 'false', and resume the job"
            )
        partitions = frozenset(parse(each, kinds) for each in specs) if keys else frozenset((WHOLE,))
        return cls(warehouse, name, columns, keys, said["location"], properties, _format(said), partitions)

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.warehouse.spark

    @property
    def names_files(self) -> bool:
        """Whether the names of files that Spark writes begin as they're told; not all committers do that."""
        try:
            return str(self.spark.conf.get("spark.sql.sources.commitProtocolClass")).endswith(_COMMITTER)
        except SPARK_ERRORS:  # Serverless compute shows few of its settings.
            return False

    def locations(self, partitions: Iterable[Partition]) -> dict[Partition, str]:
        """Return where those of some partitions are that the table has; a DESCRIBE for each."""
        known = [each for each in partitions if each in self.partitions]
        if not self.partition_columns:
            return dict.fromkeys(known, self.location)
        return dict(zip(known, parallel_map(self._location, known), strict=True))

    def spelled(self, partition: Partition) -> str:
        """Write a partition as the path of its directory."""
        return spell(partition, self.partition_columns)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Bring rows of the target into the table's columns and types; columns that they lack are null."""
        there = {column.lower(): quoted(column) for column in frame.columns}
        return frame.selectExpr(
            *(
                f"CAST({there.get(name.lower(), 'NULL')} AS {kind}) AS {quoted(name)}"
                for name, kind in self.columns.items()
            )
        )

    def note(self, **notes: str) -> None:
        """Set properties, all at once."""
        pairs = ", ".join(f"{text(PREFIX + key)} = {text(value)}" for key, value in notes.items())
        self._alter(f"SET TBLPROPERTIES ({pairs})")

    def demand_columns(self, columns: Columns) -> None:
        """Make sure that the table can get these columns.

        Raises:
            Refused: Columns are to be replaced, which Spark alone can't do to a Hive table.
        """
        if columns.replaced and not metastore.reached(self.spark, self.name):
            raise Refused(
                f"{', '.join(columns.replaced)} of {self.name} were renamed, dropped or retyped in the table "
                "in its place, and Spark can't change a Hive table's columns from here: run in Hive "
                f"ALTER TABLE … REPLACE COLUMNS ({_listed(columns.every)}), and resume the job"
            )

    def set_columns(self, columns: Columns) -> None:
        """Give the table its columns; partitions get them too where the metastore is reached."""
        if metastore.reached(self.spark, self.name):
            self.warehouse.effect(lambda: self._set_columns(self.name, columns))
        else:
            self._alter(f"ADD COLUMNS ({_listed(columns.added)})")

    def _set_columns(self, name: TableName, columns: Columns) -> None:
        changed = {*columns.added, *columns.replaced}
        every = {each: kind if each in changed else None for each, kind in columns.every.items()}
        metastore.set_columns(self.spark, name, every)

    def insert(self, frame: DataFrame, basename: str) -> None:
        """Add rows to partitions that are there, wherever they are, or to the table."""
        rows = self.rows(frame)
        with (
            optional_settings(self.spark, _FOR_HIVE | {_BASENAME: basename}),
            session.settings(self.spark, _DYNAMIC, str(self.name)),
        ):
            self.warehouse.effect(lambda: rows.write.insertInto(self.name.sql))

    def write(self, frame: DataFrame, folder: str, columns: Columns, basename: str) -> None:
        """Write rows into a folder, each partition in its directory."""
        rows = self.rows(frame)
        if not self.format:
            self._write_as_hive(rows, folder, columns, basename)
            return
        writer = rows.write.mode("append").format(self.format).options(**_NO_MARK)
        with optional_settings(self.spark, _FOR_HIVE | {_BASENAME: basename}):
            self.warehouse.effect(lambda: writer.partitionBy(*self.partition_columns).save(folder))

    def _write_as_hive(self, rows: DataFrame, folder: str, columns: Columns, basename: str) -> None:
        """Let Hive's writer write, to a scratch table of the same format."""
        with self.scratch_table(folder) as scratch:
            if columns.replaced:
                self.warehouse.effect(lambda: self._set_columns(scratch, columns))
            with session.settings(self.spark, _DYNAMIC | {_BASENAME: basename}, str(self.name)):
                self.warehouse.effect(lambda: rows.write.insertInto(scratch.sql))

    @contextmanager
    def scratch_table(self, folder: str) -> Iterator[TableName]:
        """Have an external table like this one over a folder, without partitions, inside a ``with``."""
        scratch = TableName((*self.name.parts[:-1], f"{self.name.table}_tableferry_sync"))
        # Spark's LIKE takes no catalog.
        own = self.name.parts[0] == DEFAULT_CATALOG
        new, old = (TableName(each.parts[own:]).sql for each in (scratch, self.name))
        self.warehouse.run(f"DROP TABLE IF EXISTS {scratch.sql}")
        self.warehouse.run(f"CREATE TABLE {new} LIKE {old} LOCATION {text(folder)}")
        try:
            yield scratch
        finally:
            self.warehouse.run(f"DROP TABLE {scratch.sql}")

    def point(self, partition: Partition, location: str) -> None:
        """Let a partition, or the whole table, read another directory; a new partition is added."""
        named = spec(partition, self.partition_columns) if self.partition_columns else ""
        if partition in self.partitions:
            self._alter(f"{named} SET LOCATION {text(location)}")
        else:
            self._alter(f"ADD IF NOT EXISTS {named} LOCATION {text(location)}")

    def drop(self, partition: Partition) -> None:
        """Drop a partition; its files stay, as the table is an external one."""
        self._alter(f"DROP IF EXISTS {spec(partition, self.partition_columns)}")

    def refresh(self) -> None:
        """Let Spark list the table's files anew."""
        self.warehouse.run(f"REFRESH TABLE {self.name.sql}")

    def remove(self, location: str, folder: str) -> bool:
        """Remove a directory below a folder of ours; False where this process doesn't see it, or may not."""
        place = reachable(location, same_machine=in_process(self.spark))
        if place is None or not below(location, folder):
            return False
        try:
            self.warehouse.effect(lambda: files.remove(place))
        except StateError as error:
            _log.warning("%s is left: %s", location, error)
            return False
        # A version's directory goes with its last partition.
        top = reachable(folder, same_machine=in_process(self.spark))
        for parent in place.parents:
            if parent == top or files.names(parent):
                break
            self.warehouse.effect(partial(files.remove, parent))
        return True

    def _alter(self, what: str) -> None:
        self.warehouse.run(f"ALTER TABLE {self.name.sql} {what}")

    def _location(self, partition: Partition) -> str:
        named = spec(partition, self.partition_columns)
        query = f"DESCRIBE TABLE EXTENDED {self.name.sql} {named} AS JSON"
        return str(json.loads(self.spark.sql(query).collect()[0][0])["location"])


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quoted(each)} {kind}" for each, kind in columns.items())


def _format(said: Mapping[str, Any]) -> str:
    described = f"{said.get('provider', '')} {said.get('input_format', '')}".lower()
    return next((each for each in _FORMATS if each in described), "")
