"""The only door to tables' facts, and what they cost.

A Delta table's id and newest version come from one catalog query and, where this process sees the table's own
files, from its log without a Spark job; elsewhere from DESCRIBE HISTORY and DESCRIBE DETAIL, a job each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException

from tableferry.errors import TableError
from tableferry.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    import deltalake
except ImportError:  # Only the `local` extra brings it; everywhere else Spark is asked.
    deltalake = None  # type: ignore[assignment]

_MISSING = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
)
_AT_ONCE = 8

_T = TypeVar("_T")
_R = TypeVar("_R")


def side_by_side(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Do a piece of work that waits for Spark on several items at once, in order."""
    items = list(items)
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(work, items))


def facts(spark: SparkSession, name: TableName) -> TableFacts | None:
    """Return what is known of a Delta table now, or None if there is no such table.

    Raises:
        TableError: It's there, but it isn't a Delta table, or it may not be read.
    """
    try:
        folder, columns = _location(spark, name)
        if folder is not None:
            found = _facts_from_log(name, folder, columns)
            if found is not None:
                return found
        return _facts_from_spark(spark, name, columns)
    except PySparkException as error:
        if _condition(error).startswith(_MISSING):
            return None
        raise TableError(
            f"table {name} can't be described ({first_line(error)}): check its name and your rights"
        ) from error


def earliest_version(spark: SparkSession, name: TableName) -> int:
    """Return the oldest version whose commit is in the table's log, where a stream may start."""
    folder, _ = _location(spark, name)
    if folder is not None:
        return min(
            (
                int(entry.name[:20])
                for entry in (folder / "_delta_log").glob("*.json")
                if entry.name[:20].isdigit()
            ),
            default=0,
        )
    row = spark.sql(f"DESCRIBE HISTORY {name.sql}").selectExpr("min(version) AS version").collect()[0]
    return int(row["version"])


def exists(spark: SparkSession, name: TableName) -> bool:
    """Say whether there is a table of that name."""
    return spark.catalog.tableExists(name.sql)


def first_line(error: Exception) -> str:
    """Return the sentence of a Spark error, without its plan and its stack."""
    text = str(error).strip().split("\n", maxsplit=1)[0]
    text = re.sub(r"\[STREAM_FAILED\] .* terminated with exception: ", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+.*$", "", text)
    return text.rstrip(". ")


def _location(spark: SparkSession, name: TableName) -> tuple[Path | None, tuple[str, ...]]:
    """Return the folder of the table, if this process sees the same files as Spark, and its columns."""
    if name.path is not None:
        return (_local_folder(name.path) if in_process(spark) else None), ()
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
    columns: list[str] = []
    details: dict[str, str] = {}
    section = "columns"
    for row in rows:
        if row["col_name"].startswith("# Detailed Table Information"):
            section = "details"
        elif row["col_name"].startswith("#") or not row["col_name"]:
            section = "details" if section == "details" else "other"
        elif section == "columns":
            columns.append(row["col_name"])
        elif section == "details":
            details.setdefault(row["col_name"], row["data_type"])
    kind, provider = details.get("Type", ""), details.get("Provider", "")
    if "VIEW" in kind.upper():
        raise TableError(f"{name} is a view: name the Delta table behind it")
    if provider.lower() != "delta":
        raise TableError(
            f"{name} is a {provider or 'non-Delta'} table, not a Delta table: convert it to Delta first"
        )
    catalog_managed = "delta.feature.catalog" in details.get("Table Properties", "")
    folder = _local_folder(details["Location"]) if "Location" in details and not catalog_managed else None
    return (folder if in_process(spark) else None), tuple(columns)


def _facts_from_log(name: TableName, folder: Path, columns: tuple[str, ...]) -> TableFacts | None:
    """Read id and version from the table's own log; None where it takes Spark to understand that log."""
    if deltalake is None or not (folder / "_delta_log").is_dir():
        return None
    try:
        table = deltalake.DeltaTable(str(folder))
        return TableFacts(name, str(table.metadata().id), table.version(), columns=columns)
    except deltalake.exceptions.DeltaError:
        return None


def _facts_from_spark(spark: SparkSession, name: TableName, columns: tuple[str, ...]) -> TableFacts:
    detail = spark.sql(f"DESCRIBE DETAIL {name.sql}").collect()[0]
    if detail["format"] != "delta":
        raise TableError(f"{name} isn't a Delta table: convert it to Delta first")
    newest = spark.sql(f"DESCRIBE HISTORY {name.sql} LIMIT 1").collect()[0]
    return TableFacts(name, detail["id"], newest["version"], columns=columns, modified=newest["timestamp"])


def in_process(spark: SparkSession) -> bool:
    """Say whether Spark's driver is this process, so that both see the same files under one path."""
    return not type(spark).__module__.startswith(("pyspark.sql.connect", "databricks.connect"))


def _local_folder(location: str) -> Path | None:
    parts = urlsplit(location)
    if parts.scheme == "file" and not parts.netloc:
        return Path(unquote(parts.path))
    if not parts.scheme and location.startswith("/"):
        return Path(location)
    return None


def _condition(error: PySparkException) -> str:
    return str(error.getCondition() or "")
