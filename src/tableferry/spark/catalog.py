"""Read table metadata (location, format, id, version, properties) from the catalog.

If this process can read a Delta table's log, it reads id and version from there, without a Spark job.
Otherwise it uses DESCRIBE DETAIL and DESCRIBE HISTORY, one job each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException

from tableferry.errors import TableError, TableferryError, first_line, is_sparks
from tableferry.spark.driver import in_process
from tableferry.spark.local_metastore import LocalMetastore, NeedsSpark
from tableferry.spark.tables import DEFAULT_CATALOG, DELTA_CATALOG, TableFacts, TableLayout, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    import deltalake
except ImportError:  # Only the `local` extra installs it; without it Spark is queried.
    deltalake = None  # type: ignore[assignment]

try:
    from py4j.protocol import Py4JJavaError
except ImportError:  # Spark Connect clients don't install py4j.
    Py4JJavaError = PySparkException

# A failed job raises py4j's error, because only errors of Spark's analysis have a class in Python.
SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JJavaError)

MISSING = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
)
# The pool is never shut down: Spark's driver has a thread for each of these, and reopens the metastore for
# each new one.
_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="tableferry")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_LOCAL = re.compile(r"(?:file:(?://)?)?(/(?!/).*)")

_K = TypeVar("_K")
_T = TypeVar("_T")
_R = TypeVar("_R")


def parallel_map(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Call an I/O-bound function on several items concurrently and return the results in order.

    The function must not call `parallel_map`, because it would wait for its own thread.
    """
    items = list(items)
    if len(items) < 2:
        return [work(item) for item in items]
    running = [_THREADS.submit(work, item) for item in items]
    wait(running)
    return [future.result() for future in running]


def parallel_dict(work: Callable[[_T], _R], items: Mapping[_K, _T]) -> dict[_K, _R]:
    """Call an I/O-bound function on several values concurrently and return the results by key."""
    return dict(zip(items, parallel_map(work, items.values()), strict=True))


@contextmanager
def explaining(
    name: str, kind: type[TableferryError] = TableError, /, **parameters: object
) -> Iterator[None]:
    """Convert a Spark error inside the ``with`` into an error with this condition and Spark's reason.

    Args:
        name: The name of the condition; it has the parameter ``reason``.
        kind: The class of the error.
        parameters: The condition's other parameters.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        raise kind(name, **parameters, reason=first_line(error)) from error


def facts(
    spark: SparkSession | LocalMetastore,
    name: TableName,
    *,
    defining: bool = False,
    details: Mapping[str, str] | None = None,
) -> TableFacts | None:
    """Return the current metadata of a Delta table, or None if the table doesn't exist.

    While a pipeline is being defined (``defining``), the platform may refuse all metadata but the version,
    with errors of any kind. The other fields are empty then. ``details`` is the result of `described`, if it
    is known.

    Raises:
        TableError: The table isn't a Delta table, or can't be described.
        NeedsSpark: The metastore has no answer without a Spark session.
    """
    if isinstance(spark, LocalMetastore):
        return _facts_from_metastore(spark, name)
    try:
        try:
            folder = _folder(spark, name, details)
        except SPARK_ERRORS as error:
            if not defining or condition(error).startswith(MISSING):
                raise
            folder = None
        from_log = _facts_from_log(name, folder) if folder else None
        return from_log or _facts_from_spark(spark, name, defining=defining)
    except SPARK_ERRORS as error:
        if condition(error).startswith(MISSING):
            return None
        raise TableError("TABLE_NOT_DESCRIBABLE", table=name, reason=first_line(error)) from error


def _facts_from_metastore(metastore: LocalMetastore, name: TableName) -> TableFacts | None:
    uri = name.path if name.path is not None else metastore.folder_uri(name)
    if uri is None:
        return None
    folder = local_folder(uri)
    if folder is None or (found := _facts_from_log(name, folder)) is None:
        raise NeedsSpark(f"the log of {name} can't be read here")
    return found


def reread_facts(spark: SparkSession, table: TableFacts) -> TableFacts | None:
    """Return the current metadata of a table that `facts` read a moment ago.

    If this process can read the table's log, this skips the catalog query, which takes up to half a second.

    Raises:
        TableError: As `facts`.
    """
    from_log = _facts_from_log(table.name, Path(table.folder)) if table.folder is not None else None
    return from_log or facts(spark, table.name)


def earliest_version(spark: SparkSession, table: TableFacts) -> int:
    """Return the oldest version whose commit is in the table's log, from which a stream can start."""
    if table.folder is None:
        history = spark.sql(f"DESCRIBE HISTORY {table.name.sql}").selectExpr("min(version) AS version")
        return int(history.collect()[0]["version"])
    commits = (entry.name[:20] for entry in Path(table.folder, "_delta_log").glob("*.json"))
    return min((int(version) for version in commits if version.isdigit()), default=0)


def current_catalog(spark: SparkSession | LocalMetastore) -> str:
    """Return the catalog of names without a catalog."""
    return DEFAULT_CATALOG if isinstance(spark, LocalMetastore) else spark.catalog.currentCatalog()


def location(spark: SparkSession, name: TableName) -> str:
    """Return the folder of a table, as a URI."""
    return described(spark, name).get("Location", "")


def rename_statement(
    spark: SparkSession, name: TableName, to: TableName, kind: Literal["TABLE", "VIEW"] = "TABLE"
) -> str:
    """Return the statement that renames a table or a view.

    Catalogs that the session configures read the catalog's name in the new name as a part of the schema.
    Unity Catalog resolves a new name without a catalog in the current catalog.
    """
    catalog, *rest = to.parts
    configured = spark.conf.get(f"spark.sql.catalog.{catalog}", None) is not None
    is_bare = len(to.parts) == 3 and (configured or catalog == DEFAULT_CATALOG)
    new = TableName(tuple(rest)) if is_bare else to
    return f"ALTER {kind} {name.sql} RENAME TO {new.sql}"


def exists(spark: SparkSession, name: TableName) -> bool:
    """Return whether a table of that name exists."""
    return spark.catalog.tableExists(name.sql)


def schema_exists(spark: SparkSession, name: TableName) -> bool:
    """Return whether a table's schema exists; True for a path or a name without a schema."""
    return len(name.parts) < 2 or spark.catalog.databaseExists(TableName(name.parts[:-1]).sql)


def _folder(spark: SparkSession, name: TableName, details: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder of a Delta table if this process can read its complete log.

    Return None if Spark's files aren't this machine's, or if the catalog manages the table's commits.

    Raises:
        TableError: The table is a view, or isn't a Delta table.
    """
    if name.path is not None:
        return local_folder(name.path) if in_process(spark) else None
    details = described(spark, name) if details is None else details
    if "VIEW" in details.get("Type", "").upper():
        raise TableError("DELTA_TABLE_IS_VIEW", table=name)
    provider = details.get("Provider", "")
    if provider.lower() != "delta":
        raise TableError("TABLE_NOT_DELTA", table=name, provider=provider or "non-Delta")
    # If a catalog manages the commits, the newest ones may be missing from the log.
    managed = "delta.feature.catalog" in details.get("Table Properties", "")
    # Spark shows Hadoop's spelling of a location, which isn't percent-encoded.
    local = _LOCAL.fullmatch(details.get("Location", ""))
    return Path(local[1]) if local and in_process(spark) and not managed else None


def session_details(
    spark: SparkSession | LocalMetastore, names: Iterable[TableName]
) -> dict[str, dict[str, str]]:
    """Return Provider, Type and Location of tables of the session catalog, by `TableName.key`.

    It takes one call for each schema; DESCRIBE takes 20 to 40 ms for each table. The result lacks missing
    tables, tables of other catalogs, and all tables if this process can't reach the catalog, or if it isn't
    Delta's: another implementation may have tables that Spark's lacks. Use `described` for them.
    """
    if isinstance(spark, LocalMetastore) or not in_process(spark):
        return {}
    if spark.conf.get(f"spark.sql.catalog.{DEFAULT_CATALOG}", None) != DELTA_CATALOG:
        return {}
    default = current_catalog(spark) == DEFAULT_CATALOG
    by_parts = {
        name.parts[-2:]: name
        for name in names
        if (len(name.parts) == 2 and default) or (len(name.parts) == 3 and name.parts[0] == DEFAULT_CATALOG)
    }
    if not by_parts:
        return {}
    try:
        found = _session_tables(spark, by_parts)
    except Exception as error:
        # Shared clusters block access to Java.
        if not is_sparks(error) and not isinstance(error, (AttributeError, TypeError)):
            raise
        return {}
    return {
        name.key: details
        for parts, name in by_parts.items()
        if (details := found.get((parts[0].lower(), parts[1].lower())))
    }


def _session_tables(
    spark: SparkSession, names: Iterable[tuple[str, ...]]
) -> dict[tuple[str, str], dict[str, str]]:
    """Return the details of the tables that exist, by schema and name in lower case."""
    jvm: Any = spark._jvm
    converters, catalyst = jvm.scala.jdk.javaapi.CollectionConverters, jvm.org.apache.spark.sql.catalyst
    catalog = spark._jsparkSession.sessionState().catalog()
    found: dict[tuple[str, str], dict[str, str]] = {}
    schemas: dict[str, list[str]] = {}
    for schema, table in names:
        schemas.setdefault(schema, []).append(table)
    for schema, tables in schemas.items():
        if not catalog.databaseExists(schema):
            continue
        wanted = jvm.java.util.ArrayList()
        for table in tables:
            wanted.add(catalyst.TableIdentifier(table, jvm.scala.Option.apply(schema)))
        for entry in converters.asJava(catalog.getTablesByName(converters.asScala(wanted).toSeq())):
            provider, location = entry.provider(), entry.storage().locationUri()
            spelling = catalyst.catalog.CatalogUtils.URIToString
            found[schema.lower(), entry.identifier().table().lower()] = {
                "Provider": provider.get() if provider.isDefined() else "",
                "Type": entry.tableType().name(),
                "Location": spelling(location.get()) if location.isDefined() else "",
            }
    return found


def described(spark: SparkSession, name: TableName) -> dict[str, str]:
    """Return the table-level rows of DESCRIBE TABLE EXTENDED by their names: Provider, Type, Location, ….

    Raises:
        PySparkException: The table doesn't exist, or the user may not describe it.
    """
    return described_with_columns(spark, name)[1]


def described_with_columns(spark: SparkSession, name: TableName) -> tuple[dict[str, str], dict[str, str]]:
    """Return the column comments by column name in lower case, and the result of `described`.

    Raises:
        PySparkException: The table doesn't exist, or the user may not describe it.
    """
    comments: dict[str, str] = {}
    details: dict[str, str] = {}
    in_columns, in_details = True, False
    for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect():
        # A column's name may begin like a heading, but only headings follow an empty line.
        in_columns = in_columns and bool(row["col_name"])
        in_details = in_details or row["col_name"].startswith("# Detailed Table Information")
        if in_columns:
            comments[row["col_name"].lower()] = row["comment"] or ""
        if in_details:
            details.setdefault(row["col_name"], row["data_type"])
    return comments, details


def _facts_from_log(name: TableName, folder: Path) -> TableFacts | None:
    """Read id and version from the table's log; return None if deltalake can't read that log."""
    if deltalake is None or not (folder / "_delta_log").is_dir():
        return None
    try:
        table = deltalake.DeltaTable(str(folder))
        metadata = table.metadata()
        properties = {key: value or "" for key, value in metadata.configuration.items()}
        fields, layout = table.schema().fields, None
        # The log's clustering columns are in an action that deltalake doesn't return.
        if "clustering" not in (table.protocol().writer_features or ()):
            required = tuple(field.name for field in fields if not field.nullable)
            layout = TableLayout(tuple(metadata.partition_columns), required)
        types = {field.name.lower(): field.type.to_json() for field in fields}
        return TableFacts(name, str(metadata.id), table.version(), str(folder), properties, layout, types)
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
            raise TableError("TABLE_NOT_DELTA", table=name, provider=detail["format"])
        table_id, properties = detail["id"], detail["properties"] or {}
    newest = spark.sql(f"DESCRIBE HISTORY {name.sql} LIMIT 1").collect()[0]
    return TableFacts(name, table_id, newest["version"], properties=properties)


def local_folder(location: str) -> Path | None:
    """Return the folder of a URI or a path if it is on this machine; otherwise None."""
    parts = urlsplit(location)
    if parts.scheme == "file" and not parts.netloc:
        return Path(unquote(parts.path))
    if not parts.scheme and location.startswith("/"):
        return Path(location)
    return None


def condition(error: Exception) -> str:
    """Return the name of a Spark error's condition, such as TABLE_OR_VIEW_NOT_FOUND; empty if it has none."""
    if isinstance(error, PySparkException) and (name := error.getCondition()):
        return str(name)
    # py4j's errors, and exceptions that pyspark has no class for, contain the condition only in their text.
    match = _CONDITION.search(str(error))
    return match[1] if match else ""
