"""The only module that reads tables' facts from the catalog.

A Delta table's id and newest version come from one catalog query and, where this process sees the table's own
files, from its log without a Spark job; elsewhere from DESCRIBE HISTORY and DESCRIBE DETAIL, a job each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException

from tableferry.driver import in_process
from tableferry.errors import TableError, TableferryError, first_line
from tableferry.local_metastore import LocalMetastore, NeedsSpark
from tableferry.tables import DEFAULT_CATALOG, TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    import deltalake
except ImportError:  # Only the `local` extra brings it; everywhere else Spark is asked.
    deltalake = None  # type: ignore[assignment]

try:
    from py4j.protocol import Py4JJavaError
except ImportError:  # Spark Connect's clients have no such error.
    Py4JJavaError = PySparkException

# A job that fails raises py4j's own error, for only what Spark finds before it has a class in Python.
SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JJavaError)

MISSING = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
)
# They stay: Spark's driver has a thread for each, and opens the metastore anew for one that it doesn't know.
_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="tableferry")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")

_T = TypeVar("_T")
_R = TypeVar("_R")


def parallel_map(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Do a piece of work that waits for somebody else on several items at once, in order.

    The work itself mustn't come back here: it would wait for its own thread.
    """
    items = list(items)
    if len(items) < 2:
        return [work(item) for item in items]
    running = [_THREADS.submit(work, item) for item in items]
    wait(running)
    return [future.result() for future in running]


@contextmanager
def explained(problem: str, remedy: str, kind: type[TableferryError] = TableError) -> Iterator[None]:
    """Turn an error of Spark's inside the ``with`` into one of a kind: the problem, why, and the remedy."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise kind(f"{problem} ({first_line(error)}): {remedy}") from error


def facts(
    spark: SparkSession | LocalMetastore, name: TableName, *, defining: bool = False
) -> TableFacts | None:
    """Return what is known of a Delta table now, or None if there is no such table.

    While a pipeline is being defined (``defining``), its platform may refuse to say more of a table than its
    version, with whatever error it has for that; all else stays empty then.

    Raises:
        TableError: It's there, but it isn't a Delta table, or it may not be read.
        NeedsSpark: Only a session can say it.
    """
    if isinstance(spark, LocalMetastore):
        return _facts_from_metastore(spark, name)
    try:
        try:
            folder = _folder(spark, name)
        except SPARK_ERRORS as error:
            if not defining or condition(error).startswith(MISSING):
                raise
            folder = None
        from_log = _facts_from_log(name, folder) if folder else None
        return from_log or _facts_from_spark(spark, name, defining=defining)
    except SPARK_ERRORS as error:
        if condition(error).startswith(MISSING):
            return None
        raise TableError(
            f"table {name} can't be described ({first_line(error)}): check its name and your rights"
        ) from error


def _facts_from_metastore(metastore: LocalMetastore, name: TableName) -> TableFacts | None:
    uri = name.path if name.path is not None else metastore.folder_uri(name)
    if uri is None:
        return None
    folder = local_folder(uri)
    if folder is None or (found := _facts_from_log(name, folder)) is None:
        raise NeedsSpark(f"the log of {name} can't be read here")
    return found


def facts_again(spark: SparkSession, table: TableFacts) -> TableFacts | None:
    """Return what is known now of a table that was looked at a moment ago, with its new version.

    Where this process sees the table's log, the catalog isn't asked again, which takes up to half a second.

    Raises:
        TableError: As `facts`.
    """
    from_log = _facts_from_log(table.name, Path(table.folder)) if table.folder is not None else None
    return from_log or facts(spark, table.name)


def earliest_version(spark: SparkSession, table: TableFacts) -> int:
    """Return the oldest version whose commit is in the table's log, where a stream may start."""
    if table.folder is None:
        history = spark.sql(f"DESCRIBE HISTORY {table.name.sql}").selectExpr("min(version) AS version")
        return int(history.collect()[0]["version"])
    commits = (entry.name[:20] for entry in Path(table.folder, "_delta_log").glob("*.json"))
    return min((int(version) for version in commits if version.isdigit()), default=0)


def current_catalog(spark: SparkSession | LocalMetastore) -> str:
    """Return the catalog of names that are written without one."""
    return DEFAULT_CATALOG if isinstance(spark, LocalMetastore) else spark.catalog.currentCatalog()


def location(spark: SparkSession, name: TableName) -> str:
    """Return the folder of a table, as a URI."""
    return described(spark, name).get("Location", "")


def exists(spark: SparkSession, name: TableName) -> bool:
    """Return whether there is a table of that name."""
    return spark.catalog.tableExists(name.sql)


def schema_exists(spark: SparkSession, name: TableName) -> bool:
    """Return whether there is the schema of a table; a path, or a bare name, needs none."""
    return len(name.parts) < 2 or spark.catalog.databaseExists(TableName(name.parts[:-1]).sql)


def _folder(spark: SparkSession, name: TableName) -> Path | None:
    """Return the folder of a Delta table if this process sees the same files as Spark, and may trust them."""
    if name.path is not None:
        return local_folder(name.path) if in_process(spark) else None
    details = described(spark, name)
    if "VIEW" in details.get("Type", "").upper():
        raise TableError(f"{name} is a view: name the Delta table behind it")
    provider = details.get("Provider", "")
    if provider.lower() != "delta":
        raise TableError(
            f"{name} is a {provider or 'non-Delta'} table, not a Delta table: convert it to Delta first"
        )
    # Where a catalog arbitrates commits, the newest ones need not be in the log yet.
    managed = "delta.feature.catalog" in details.get("Table Properties", "")
    return local_folder(details.get("Location", "")) if in_process(spark) and not managed else None


def described(spark: SparkSession, name: TableName) -> dict[str, str]:
    """Return what DESCRIBE TABLE EXTENDED says of a table as a whole: its Provider, Type, Location, ….

    Raises:
        PySparkException: There is no such table, or it may not be described.
    """
    return described_with_columns(spark, name)[1]


def described_with_columns(spark: SparkSession, name: TableName) -> tuple[dict[str, str], dict[str, str]]:
    """Return the comments of a table's columns, by their names in lower case, and what `described` returns.

    Raises:
        PySparkException: There is no such table, or it may not be described.
    """
    comments: dict[str, str] = {}
    details: dict[str, str] = {}
    in_columns, in_details = True, False
    for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect():
        # A column's name may begin like a heading, but only headings come behind an empty line.
        in_columns = in_columns and bool(row["col_name"])
        in_details = in_details or row["col_name"].startswith("# Detailed Table Information")
        if in_columns:
            comments[row["col_name"].lower()] = row["comment"] or ""
        if in_details:
            details.setdefault(row["col_name"], row["data_type"])
    return comments, details


def _facts_from_log(name: TableName, folder: Path) -> TableFacts | None:
    """Read id and version from the table's own log; None where it takes Spark to understand that log."""
    if deltalake is None or not (folder / "_delta_log").is_dir():
        return None
    try:
        table = deltalake.DeltaTable(str(folder))
        metadata = table.metadata()
        properties = {key: value or "" for key, value in metadata.configuration.items()}
        return TableFacts(name, str(metadata.id), table.version(), str(folder), properties)
    except deltalake.exceptions.DeltaError:
        return None


def _facts_from_spark(spark: SparkSession, name: TableName, *, defining: bool) -> TableFacts:
    properties: dict[str, str] = {}
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {name.sql}").collect()[0]
    except SPARK_ERRORS as error:
        if not defining or condition(error).startswith(MISSING):
            raise
        table_id = ""
    else:
        if detail["format"] != "delta":
            raise TableError(f"{name} isn't a Delta table: convert it to Delta first")
        table_id, properties = detail["id"], detail["properties"] or {}
    newest = spark.sql(f"DESCRIBE HISTORY {name.sql} LIMIT 1").collect()[0]
    return TableFacts(name, table_id, newest["version"], properties=properties)


def local_folder(location: str) -> Path | None:
    """Return the folder that a URI or a path names if it's one of this machine's; else None."""
    parts = urlsplit(location)
    if parts.scheme == "file" and not parts.netloc:
        return Path(unquote(parts.path))
    if not parts.scheme and location.startswith("/"):
        return Path(location)
    return None


def condition(error: Exception) -> str:
    """Return the name of a Spark error's condition, such as TABLE_OR_VIEW_NOT_FOUND; empty if it has none."""
    if isinstance(error, PySparkException):
        return str(error.getCondition() or "")
    # py4j's own error has it in its text alone.
    match = _CONDITION.search(str(error))
    return match[1] if match else ""
