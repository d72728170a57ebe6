"""Read the catalog entry of a name: a Delta table with its columns and rules, a view, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tableferry.errors import TableError, first_line
from tableferry.pipelines.cutover.facts import MARKER, Column, Entry
from tableferry.pipelines.cutover.views import DEFINITION
from tableferry.spark.catalog import MISSING, SPARK_ERRORS, condition, local_folder, rename_statement
from tableferry.spark.driver import in_process
from tableferry.spark.quoting import unquote
from tableferry.spark.tables import DEFAULT_CATALOG, METASTORES, TableName

try:
    import deltalake
except ImportError:  # Only the `local` extra installs it; without it, generated columns aren't compared.
    deltalake = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONSTRAINT = "delta.constraints."
_GENERATED = "delta.generationExpression"
_GENERATED_LINE = re.compile(r"\s*(`(?:[^`]|``)+`|\w+)\s.*?\bGENERATED ALWAYS AS \((.*)")
_SECTION = "# "
_CONSTRAINTS = "# Constraints"
_DETAILS = "# Detailed Table Information"


@dataclass(frozen=True)
class SparkCatalog:
    """The catalogs of a Spark session."""

    spark: SparkSession

    def read(self, name: TableName) -> Entry:
        """Return the catalog entry of a name, as `read_entry`."""
        return read_entry(self.spark, name)

    def list_columns(self, name: TableName) -> tuple[str, ...]:
        """Return the names of the columns that readers of a view get."""
        return tuple(self.spark.table(name.sql).columns)

    def rename_statement(self, name: TableName, to: TableName, kind: Literal["TABLE", "VIEW"]) -> str:
        """Return the statement that renames a table or a view."""
        return rename_statement(self.spark, name, to, kind)

    def execute(self, statement: str) -> None:
        """Run a statement."""
        self.spark.sql(statement).collect()


def read_entry(spark: SparkSession, name: TableName) -> Entry:
    """Return the catalog entry of a name.

    The id of a table is empty if it isn't a Delta table, or if the platform doesn't report it.

    Raises:
        TableError: The catalog doesn't describe it.
    """
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
        details = {row["col_name"]: row["data_type"] for row in _after(rows, _DETAILS)}
        if "VIEW" in details.get("Type", "").upper():
            return _read_view(spark, name)
        return _read_table(spark, name, rows, details)
    except SPARK_ERRORS as error:
        if condition(error).startswith(MISSING):
            return Entry(name)
        raise TableError("TABLE_NOT_DESCRIBABLE", table=name, reason=first_line(error)) from error


def _read_view(spark: SparkSession, name: TableName) -> Entry:
    shown = spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()
    properties = {row["key"]: row["value"] for row in shown}
    return Entry(name, "view", marker=properties.get(MARKER, ""), definition=properties.get(DEFINITION, ""))


def _read_table(
    spark: SparkSession, name: TableName, rows: Sequence[Any], details: Mapping[str, str]
) -> Entry:
    detail: dict[str, Any] = {}
    if details.get("Provider", "").lower() == "delta":
        try:
            detail = spark.sql(f"DESCRIBE DETAIL {name.sql}").collect()[0].asDict()
        except SPARK_ERRORS as error:
            # A table of a pipeline may not be described in detail, and has no id then.
            if condition(error).startswith(MISSING):
                raise
    properties = detail.get("properties") or {}
    partitions = detail.get("partitionColumns") or detail.get("clusteringColumns") or ()
    catalog = name.parts[0].lower() if len(name.parts) == 3 else DEFAULT_CATALOG
    return Entry(
        name,
        "table",
        table_id=detail.get("id") or "",
        columns=_list_columns(spark, name, _read_generated(spark, name, details.get("Location") or "")),
        comment=details.get("Comment") or "",
        partition_columns=tuple(partitions),
        constraints=tuple(_list_constraints(rows, properties)),
        moves_with_name=catalog in METASTORES and details.get("Type", "").upper() == "MANAGED",
        location=details.get("Location") or "",
    )


def _list_columns(spark: SparkSession, name: TableName, generated: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(
        Column(
            field.name,
            field.dataType.simpleString(),
            field.nullable,
            field.metadata.get("comment", ""),
            generated.get(field.name, ""),
        )
        for field in spark.table(name.sql).schema.fields
    )


def _read_generated(spark: SparkSession, name: TableName, location: str) -> dict[str, str]:
    """Return the expressions of a table's generated columns: from its statement, or from its log.

    Spark's schema doesn't have them, and open-source Delta doesn't show the statement.
    """
    try:
        (shown,) = spark.sql(f"SHOW CREATE TABLE {name.sql}").collect()
        return find_generated(shown[0])
    except SPARK_ERRORS:
        folder = local_folder(location) if in_process(spark) else None
        if deltalake is None or folder is None or not (folder / "_delta_log").is_dir():
            return {}
        fields = deltalake.DeltaTable(str(folder)).schema().fields
        return {field.name: text for field in fields if (text := field.metadata.get(_GENERATED))}


def find_generated(statement: str) -> dict[str, str]:
    """Return the expressions of the generated columns in a CREATE TABLE statement with a line per column."""
    found = (_GENERATED_LINE.match(line) for line in statement.splitlines())
    return {unquote(match[1]): _read_parenthesis(match[2]) for match in found if match}


def _read_parenthesis(text: str) -> str:
    """Return the text up to the parenthesis that closes the one before it."""
    depth = 1
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return text[:position].strip()
    return text.strip()


def _list_constraints(rows: Sequence[Any], properties: Mapping[str, str]) -> Iterator[str]:
    """Yield the constraints of Delta's log, and those that only the catalog knows, such as primary keys."""
    for key, value in sorted(properties.items()):
        if key.startswith(_CONSTRAINT):
            yield f"{key.removeprefix(_CONSTRAINT)} CHECK ({value})"
    for row in _after(rows, _CONSTRAINTS):
        yield f"{row['col_name']} {row['data_type']}"


def _after(rows: Sequence[Any], heading: str) -> Iterator[Any]:
    """Yield the rows of a section of DESCRIBE TABLE EXTENDED."""
    in_section = False
    for row in rows:
        if row["col_name"].startswith(_SECTION):
            in_section = row["col_name"].startswith(heading)
        elif in_section and row["col_name"]:
            yield row
