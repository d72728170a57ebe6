"""Compare two tables: their columns and, independent of the order, their rows.

Module ``values`` defines which values are equal.
"""

#     pair ──> measure (one query, one pass over each side) ──> compare (pure) ──> Verdict ──> render
#                                          └─ find_rows (only with keys, and only if the rows differ)

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from tableferry.errors import TableError, is_sparks
from tableferry.progress import task
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.driver import track_jobs
from tableferry.spark.quoting import unquote
from tableferry.spark.tables import TableName
from tableferry.verify.measuring import Side, count_common, differ_everywhere, find_rows, measure, pair
from tableferry.verify.values import MIXED_LEVELS, TOO_DEEP
from tableferry.verify.verdict import Verdict, compare

_log = logging.getLogger(__name__)

_VERSIONED = re.compile(r"(?P<name>.*[^@])@(?P<version>\d+)", re.DOTALL)
_DELTA_PATH = re.compile(r"delta\.(?P<path>`(?:[^`]|``)+`)", re.IGNORECASE)


@dataclass(frozen=True)
class Reference:
    """A table as the user names it: ``NAME`` or ``NAME@VERSION``."""

    name: TableName
    version: int | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse a table name, a folder's path or ``delta.`path```, with an optional ``@VERSION``.

        Raises:
            TableError: The version isn't a number, or the rest isn't a table name.
        """
        match = _VERSIONED.fullmatch(text.strip())
        bare, version = (match["name"], int(match["version"])) if match else (text.strip(), None)
        path = _DELTA_PATH.fullmatch(bare)
        if path or ("/" in bare and "`" not in bare):
            return cls(TableName.at(unquote(path["path"]) if path else bare), version)
        name, _, wrong = bare.rpartition("@")
        if name and "`" not in wrong:
            raise TableError("VERSION_INVALID", version=wrong, table=name)
        return cls(TableName.parse(bare), version)

    def __str__(self) -> str:
        return str(self.name) if self.version is None else f"{self.name}@{self.version}"

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the table's rows at this version.

        Raises:
            TableError: The table or the version doesn't exist, or can't be read.
        """
        at = "" if self.version is None else f" VERSION AS OF {self.version}"
        try:
            frame = spark.sql(f"SELECT * FROM {self.name.sql}{at}")
            # A Spark Connect session resolves the name only when the schema is read.
            _ = frame.schema
        except (AnalysisException, ParseException) as error:
            raise self._unreadable(error) from error
        return frame

    def _unreadable(self, error: AnalysisException | ParseException) -> TableError:
        condition = error.getCondition() or ""
        if condition in _MISSING:
            return TableError("TABLE_NOT_FOUND", table=self.name)
        if condition.startswith("UNSUPPORTED_FEATURE.TIME_TRAVEL"):
            return TableError("TABLE_WITHOUT_VERSIONS", table=self.name, version=self.version)
        if "VERSION" in condition:
            return TableError(
                "VERSION_NOT_READABLE", table=self.name, version=self.version, statement=self.name.sql
            )
        reason = str(error).strip().splitlines()[0]
        return TableError("TABLE_NOT_READABLE", table=self, reason=reason)


_MISSING = {
    "DELTA_INVALID_PARTITION_PATH",  # A folder inside a Delta table's folder.
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
    "PATH_NOT_FOUND",
    "REQUIRES_SINGLE_PART_NAMESPACE",
    "SCHEMA_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
}


def verify(
    source: DataFrame,
    target: DataFrame,
    *,
    keys: Sequence[str] | None = (),
    exclude: Sequence[str] = (),
    partition_columns: Sequence[str] = (),
    source_label: str = "source",
    target_label: str = "target",
) -> Verdict:
    """Compare two sets of rows as multisets, in one query that reads each side once.

    Args:
        source: The expected rows.
        target: The actual rows.
        keys: Columns that match the rows of both sides, to find up to 20 rows that differ. That query runs
            only if the hashes differ. None uses all columns that can be grouped and sorted.
        exclude: Columns of one or both sides to ignore, such as an audit column that the copy recomputes.
        partition_columns: Columns to group the counts and hashes by; ignored unless both sides have all of
            them.
        source_label: The name of the source in the verdict.
        target_label: The name of the target in the verdict.

    Raises:
        TableError: A key or an excluded column doesn't exist or can't be used, a side has duplicate columns,
            or a value can't be compared.
    """
    both = pair(Side(source_label, source), Side(target_label, target), keys, exclude, partition_columns)
    with _comparable():
        verdict = compare(
            measure(both),
            source_label=source_label,
            target_label=target_label,
            schema=both.schema,
            excluded=both.excluded,
            partition_columns=tuple(column.name for column in both.partitions),
        )
        if verdict.rows_match or not both.keys:
            return verdict
        rows = verdict.source.rows + verdict.target.rows
        return replace(verdict, keys=find_rows(both), differ_everywhere=differ_everywhere(both, rows))


def common_rows(source: DataFrame, target: DataFrame) -> int:
    """Return the number of rows that two multisets of rows have in common.

    Raises:
        TableError: A side has two columns of one name, or a value can't be compared.
    """
    with _comparable():
        return count_common(pair(Side("source", source), Side("target", target)))


@contextmanager
def _comparable() -> Iterator[None]:
    """Convert the Spark error for a value that can't be compared inside the ``with``.

    Raises:
        TableError: A VARIANT has arrays of mixed types at too many levels.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        if TOO_DEEP not in str(error):
            raise
        raise TableError("VARIANT_TOO_DEEP", levels=MIXED_LEVELS) from error


def verify_tables(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    keys: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Verdict:
    """Compare two tables by name, each at its newest version or at ``NAME@VERSION``.

    Rows are grouped by the target's partition columns if it is a Delta table and the source also has them.
    A name can also be a Delta table's folder, or ``delta.`path```. Only Delta tables have versions.

    Raises:
        TableError: A table, a version, a column or a data file doesn't exist or can't be read, or a value
            can't be compared.
    """
    here, there = Reference.parse(source), Reference.parse(target)
    frames = here.read(spark), there.read(spark)
    try:
        with (
            task(_log, f"compare it with {here}", table=there) as running,
            track_jobs(spark, running),
        ):
            verdict = verify(
                *frames,
                keys=keys,
                exclude=exclude,
                partition_columns=_partition_columns(spark, there.name),
                source_label=str(here),
                target_label=str(there),
            )
            running.update("rows", verdict.target.rows)
            return verdict
    except Exception as error:
        if not is_sparks(error):
            raise
        for reference in (here, there):
            if _is_hidden_iceberg(spark, reference.name):
                raise TableError(
                    "ICEBERG_TABLE_OUTSIDE_CATALOG",
                    table=reference,
                    example=f"ice.{'.'.join(reference.name.parts[-2:])}",
                ) from error
        # The error's class depends on the kind of session; only its text is the same.
        if "FAILED_READ_FILE" not in str(error) and "DELTA_FILE_NOT_FOUND" not in str(error):
            raise
        raise TableError("DATA_FILE_MISSING", source=here, target=there) from error


def _is_hidden_iceberg(spark: SparkSession, name: TableName) -> bool:
    """Return whether the table is an Iceberg table in a catalog that isn't Iceberg's.

    Such a catalog shows the table's columns, but no rows.
    """
    try:
        properties = spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()
    except SPARK_ERRORS:
        return False
    # Iceberg stores this property in the metastore; Iceberg's own catalog doesn't show it.
    return any(row["key"] == "metadata_location" for row in properties)


def _partition_columns(spark: SparkSession, name: TableName) -> tuple[str, ...]:
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {name.sql}").select("format", "partitionColumns").first()
    except AnalysisException:  # A view, or a format without DESCRIBE DETAIL.
        return ()
    return tuple(detail[1]) if detail and detail[0] == "delta" else ()
