"""Read a table with Spark and with the code of later steps, for `reading_checks`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tableferry.convert import overlay
from tableferry.errors import Refused, first_line
from tableferry.fleet.checks.facts import CopyFacts, Facts
from tableferry.fleet.checks.file_checks import INTEGERS
from tableferry.fleet.copies import delta
from tableferry.fleet.copies.iceberg_files.file_blockers import list_blockers
from tableferry.fleet.copies.rewrite import rewritten_copy
from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_tables import copy_locations, metastore
from tableferry.fleet.hive_tables.frames import frame_of
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.late_files import suspended_runs
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.quoting import quote
from tableferry.spark.types import declared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The key of a column's value for files that lack the column.
_DEFAULT = "EXISTS_DEFAULT"
# Types that Iceberg parses strictly from the catalog's strings.
_STRICT = ("date", "decimal")


@dataclass(frozen=True)
class TableReading:
    """What Spark reads of a table before its migration; see `Reading`. Each fact is read on first use.

    Attributes:
        facts: The table's other facts.
        form: The target format.
        rewrite_started: Whether rewriting has started, so that its directory isn't empty.
    """

    warehouse: Warehouse
    facts: Facts
    form: TargetFormat
    rewrite_started: bool = False

    @cached_property
    def suspended_files(self) -> Sequence[str]:
        """The files of unfinished shadow runs that the table reads."""
        files = suspended_runs.list_suspended_files(self.warehouse, self.facts.table.name)
        return [file.path for file in files]

    @cached_property
    def other_partitions(self) -> Sequence[str]:
        """The partitions that are read by another format, or other properties of the SerDe."""
        return metastore.list_partitions_with_other_format(self.warehouse.spark, self.facts.table.name)

    @property
    def copy(self) -> CopyFacts:
        """The columns and partitions as for the Hive copy."""
        return self._copy.facts

    @cached_property
    def rewrite_refusal(self) -> Refused | None:
        """Why the rewritten rows can't be written to their directory; None if they can."""
        if self.rewrite_started:
            return None
        folder = copy_locations.copies_folder(self.facts.table.location, self.form)
        try:
            rewritten_copy.require_empty(self.warehouse, folder)
        except Refused as error:
            return error
        return None

    @cached_property
    def files_refusal(self) -> Refused | None:
        """Why the new table can't use the files, by their footers; None if it can."""
        table, files, spark = self.facts.table, self.facts.files, self.warehouse.spark
        try:
            if self.form is TargetFormat.ICEBERG:
                unsuitable = list_blockers(spark, table, files.read, self._copy.defaults)
                if unsuitable:
                    return Refused("FILES_NOT_ICEBERG", table=table.name, files=list(unsuitable))
                return None
            far = None
            if delta.is_reached_by_hadoop(self.warehouse, table.location):
                far = delta.list_hadoop_files(spark, table.location, files)
            mapping = self.facts.catalog.column_mapping
            overlay.check(spark, table.name, empty=not files.read, column_mapping=mapping, far=far)
        except Refused as error:
            return error
        return None

    @cached_property
    def row_failure(self) -> str:
        """Spark's error when it reads one row; or empty.

        Before a rewrite, one row is also read for each partition column in which it has null. Otherwise the
        row is read as for the Hive copy. If that isn't possible, this is empty, and `copy` has the reason.
        """
        table, rows = self.facts.table, self._copy.rows
        try:
            if self.facts.rewritten:
                nulls = [f"{quote(key)} IS NULL" for key in table.partition_columns]
                for where in ("true", *nulls):
                    _read_row(self.warehouse.spark.table(table.name.sql).where(where))
            elif rows is not None:
                _read_row(rows)
        except SPARK_ERRORS as error:
            return first_line(error)
        return ""

    @cached_property
    def _copy(self) -> _CopyReading:
        return _read_copy(self.warehouse, self.facts, self.form)


@dataclass(frozen=True)
class _CopyReading:
    """The columns and partitions of a table as for its Hive copy.

    Attributes:
        rows: The rows; None if they can't be read.
        defaults: The values (as SQL) of columns in rows of files that lack them, if these aren't null.
    """

    facts: CopyFacts
    rows: DataFrame | None
    defaults: Mapping[str, str]


def _read_copy(warehouse: Warehouse, facts: Facts, form: TargetFormat) -> _CopyReading:
    table, defaults = facts.table, dict[str, str]()
    values: Sequence[str] | None = None
    types: list[tuple[str, str, str]] = []
    try:
        copy = HiveCopy.of(warehouse, table)
        metadata = {field.name: field.metadata for field in copy.schema}
        defaults = {name: each[_DEFAULT] for name, each in metadata.items() if _DEFAULT in each}
        rows = copy.rows(warehouse.spark.table(table.name.sql))
        rows.schema.json()
        values = _list_other_values(copy, form, rewritten=facts.rewritten)
        if table.format == "avro" and facts.catalog.can_make_external:
            types.extend(_list_other_types(copy))
    except Refused as error:
        return _CopyReading(CopyFacts(values, types, refusal=error), None, defaults)
    except SPARK_ERRORS as error:
        return _CopyReading(CopyFacts(values, types, failure=first_line(error)), None, defaults)
    return _CopyReading(CopyFacts(values, types), rows, defaults)


def _list_other_types(copy: HiveCopy) -> Iterator[tuple[str, str, str]]:
    """Yield the Avro columns whose types in the metastore differ, with both types."""
    types = metastore.column_types(copy.spark, copy.name)
    for field in copy.schema:
        kind = types.get(field.name.lower(), "")
        if "<" in kind and kind.lower() != declared(field).lower():
            yield field.name, kind, declared(field)


def _list_other_values(copy: HiveCopy, form: TargetFormat, *, rewritten: bool) -> list[str] | None:
    """Return the partition values that don't match the rows' values; None if all match.

    The catalog has strings, and the rows have Spark's cast of these strings.
    """
    keys, kinds = copy.partition_columns, {name.lower(): kind for name, kind in copy.columns.items()}
    texts = [
        (kind, value, copy.odd.get(partition, partition)[number])
        for number, kind in enumerate(kinds[key.lower()] for key in keys)
        for partition in copy.partitions
        if (value := partition[number]) is not None and kind not in ("string", *INTEGERS)
    ]
    wrong = [
        own
        for kind, value, own in texts
        if form is TargetFormat.ICEBERG and not rewritten and own != value and kind.startswith(_STRICT)
    ]
    for kind in sorted({kind for kind, _, _ in texts}):
        pairs = {(value, own) for of, value, own in texts if of == kind}
        frame = frame_of(copy.spark, sorted(pairs), "value STRING, own STRING")
        cast = f"CAST(try_cast(own AS {kind}) AS STRING)"
        wrong += [row[0] for row in frame.where(f"NOT value <=> {cast}").select("own").collect()]
    return sorted(filter(None, wrong)) if wrong else None


def _read_row(rows: DataFrame) -> None:
    """Read all columns of a row as a string, because Python lacks some values, such as year 10000."""
    rows.limit(1).selectExpr("CAST(struct(*) AS STRING) AS row").collect()
