"""List the files of a Hive table that can't be added to its Iceberg copy, with the reason for each.

Footers of Parquet files and schemas of ORC and Avro files are read through the Java of Spark's driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tableferry.errors import StateError, first_line, is_sparks
from tableferry.fleet.copies.iceberg_files import parquet_footers
from tableferry.fleet.copies.iceberg_files.file_columns import (
    FileColumn,
    find_blocker,
    hive_columns,
    read_by_avro,
    read_by_orc,
)
from tableferry.fleet.copies.iceberg_files.file_schemas import ReadColumns, avro_reader, columns_reader
from tableferry.fleet.hive_tables.hive_table import HiveTable, iceberg_ids, stored_types
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.formats.parquet.iceberg_blockers import Expected, blockers
from tableferry.spark.catalog import parallel_map
from tableferry.spark.driver import in_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Reading a footer takes 0.1 ms on a local disk, and 10 to 50 ms in an object store.
_MAX_FILES = 1000
# The exceptions of ORC's and Avro's readers for files of other formats. Other exceptions may be temporary.
_WRONG_FORMAT = ("FileFormatException", "InvalidAvroMagicException")


def list_blockers(
    spark: SparkSession, table: HiveTable, files: Sequence[ListedFile], defaults: Mapping[str, str]
) -> list[str]:
    """List the files that can't be added to a Hive table's Iceberg copy: the path and the reason of each.

    At most 1,000 files are checked, spread evenly over the list. A file that can't be read at the moment is
    skipped. Without access to the driver's Java, no file is checked, and the list is empty.

    Args:
        spark: The session.
        table: The Hive table, stored as Parquet, ORC or Avro.
        files: Its files.
        defaults: The values (as SQL) of columns in rows of files that lack them, if these aren't null.

    Raises:
        Refused: The table's Avro schema can't be read.
    """
    if not in_process(spark):
        return []
    chosen = files[:: max(1, -(-len(files) // _MAX_FILES))]
    check = _check_footers if table.format == "parquet" else _check_schemas
    reasons = check(spark, table, chosen, defaults)
    if reasons is None:
        return []
    return [f"{file.path} {reason}" for file, reason in zip(chosen, reasons, strict=True) if reason]


def _check_footers(
    spark: SparkSession, table: HiveTable, files: Sequence[ListedFile], defaults: Mapping[str, str]
) -> Iterable[str | None] | None:
    """Return each Parquet file's reason; None if this process can't read footers."""
    try:
        ends = parquet_footers.read(spark, files)
    except StateError:
        return None
    columns = table.stored_columns
    types = stored_types(columns)
    expected = Expected(
        [column.name for column in columns],
        {path: kind["name"] for path, kind in types.items()},
        {path: kind["scale"] for path, kind in types.items() if kind["name"] == "decimal"},
        defaults,
        iceberg_ids(table.columns),
    )
    return blockers(ends, expected)


def _check_schemas(
    spark: SparkSession, table: HiveTable, files: Sequence[ListedFile], defaults: Mapping[str, str]
) -> Iterable[str | None] | None:
    """Return each ORC or Avro file's reason; None if this process can't read schemas."""
    read = columns_reader(spark, table.format)
    if read is None:
        return None
    expected = hive_columns(table.stored_columns, defaults, iceberg_ids(table.columns))
    if table.format == "avro":
        expected = read_by_avro(expected, avro_reader(spark, table))
    return parallel_map(partial(_check_schema, table.format, read, expected), files)


def _check_schema(
    form: str, read: ReadColumns, expected: tuple[FileColumn, ...], file: ListedFile
) -> str | None:
    try:
        found = read(file.path)
    except ValueError as error:
        return f"has a schema by which Hive can't read rows: {error}"
    except Exception as error:
        if not is_sparks(error):
            raise
        is_other_format = any(kind in str(error) for kind in _WRONG_FORMAT)
        return f"isn't an {form.upper()} file ({first_line(error)})" if is_other_format else None
    if form == "avro":
        return find_blocker(expected, found)
    named = read_by_orc(expected, found)
    if not {name for column in named for name in column.names} & {column.name for column in found}:
        return "has none of the table's columns, and Iceberg can't read such an ORC file: remove it"
    return find_blocker(named, found)
