"""Makes an Iceberg table over the files of a Hive table, none of which is written or moved.

    source (Hive):    <directory>/k=1/part-0.parquet            stays as it is
    target (Iceberg): <directory>_iceberg/metadata, …/data      what Iceberg itself writes

``gc.enabled=false`` keeps Iceberg from removing a file that Hive reads: an expired snapshot, an orphan or a
``DROP TABLE … PURGE``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import SOURCE, HiveTable, iceberg_type, ineligibility
from tableferry.fleet.warehouse.existing import kinds
from tableferry.fleet.warehouse.files import listing
from tableferry.fleet.warehouse.spelling import Mapped, by_place, extended, leaves, mapped
from tableferry.hive.locations import literal
from tableferry.hive.sql import quoted, text
from tableferry.tables import TableName

_MAPPING = "schema.name-mapping.default"
_SHOWN = 5


def make(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Make an Iceberg table that holds each file of a Hive table once; done already, or half, is fine.

    Returns:
        How many files it holds.

    Raises:
        TableError: A statement failed; run again when its cause is mended.
        Refused: The table can't be Iceberg, or the target's name is somebody else's.
    """
    table = hive.demand(warehouse, source)
    if reason := ineligibility(table, TargetFormat.ICEBERG):
        raise Refused(reason[1])
    found = listing(warehouse, table, hive.partitions(warehouse, table))
    if found.nested:
        paths = ", ".join(file.path for file in found.nested[:_SHOWN])
        raise Refused(
            f"{source} has {len(found.nested)} files in directories below its own or its partitions', which "
            f"adding files leaves out: {paths}; move them up, or write the table anew"
        )
    wanted = sorted(file.path for file in found.read)
    try:
        _make(warehouse, table, target, wanted)
    except SPARK_ERRORS as error:
        raise TableError(
            f"{target} can't be made over the files of {source} ({first_line(error)}): mend the cause, and "
            "run again"
        ) from error
    return len(wanted)


def _make(warehouse: Warehouse, table: HiveTable, target: TableName, wanted: list[str]) -> None:
    held: list[str] | None = None
    if _is_ours(warehouse, table, target):
        held = _held(warehouse, target)
        # An earlier run added files twice, or others than there are now.
        if held not in ([], wanted):
            warehouse.run(f"DROP TABLE {warehouse.iceberg(target).sql}")
            held = None
    if held is None:
        warehouse.run(statement(table, warehouse.iceberg(target)))
    if held != wanted and wanted:
        _map_places(warehouse, table, target)
        _add(warehouse, table.name, target)
        held = _held(warehouse, target)
        if held != wanted:
            raise Refused(
                f"{target} holds {len(held)} files and {table.name} has {len(wanted)}: "
                f"{', '.join(sorted(set(held) ^ set(wanted))[:_SHOWN])}; look at them, and run again"
            )
    _spell(warehouse, table, target)


def statement(table: HiveTable, target: TableName) -> str:
    """Write the statement that makes the target, empty, with the source's columns and partitions."""
    columns = ", ".join(
        f"{quoted(each.name)} {iceberg_type(each.type)}"
        + (f" COMMENT {text(each.comment)}" if each.comment else "")
        for each in table.columns
    )
    partitions = ", ".join(map(quoted, table.partition_columns))
    properties = {
        "format-version": "2",
        "gc.enabled": "false",
        # So that Hive reads a new file too, when it's added to the Hive table.
        "write.format.default": table.format,
        SOURCE: table.name.key,
    }
    said = ", ".join(f"{text(key)} = {text(value)}" for key, value in properties.items())
    return (
        f"CREATE TABLE {target.sql} ({columns}) USING iceberg "
        + (f"PARTITIONED BY ({partitions}) " if partitions else "")
        + f"LOCATION {text(table.location.rstrip('/') + '_iceberg')} TBLPROPERTIES ({said})"
    )


def properties_of(warehouse: Warehouse, table: TableName) -> Mapping[str, str]:
    """Return an Iceberg table's properties."""
    rows = warehouse.spark.sql(f"SHOW TBLPROPERTIES {warehouse.iceberg(table).sql}").collect()
    return {row["key"]: row["value"] for row in rows}


def _is_ours(warehouse: Warehouse, table: HiveTable, target: TableName) -> bool:
    kind = kinds(warehouse, (target,)).get(target)
    if kind is None:
        return False
    if kind is Kind.ICEBERG and properties_of(warehouse, target).get(SOURCE) == table.name.key:
        return True
    raise Refused(
        f"{target} is {kind.words} that wasn't made of {table.name}: rename or drop it, and resume the job"
    )


def _add(warehouse: Warehouse, source: TableName, target: TableName) -> None:
    # Without `parallelism`: the tasks of one process share the threads it asks for, and the first task that
    # ends takes them from the others (RejectedExecutionException).
    named = warehouse.iceberg(target)
    warehouse.run(
        f"CALL {quoted(named.parts[0])}.system.add_files(table => {text(named.sql)}, "
        f"source_table => {text(source.sql)})"
    )


def _held(warehouse: Warehouse, target: TableName) -> list[str]:
    rows = warehouse.spark.sql(f"SELECT file_path FROM {warehouse.iceberg(target).sql}.files").collect()
    return sorted(row[0] for row in rows)


def _spell(warehouse: Warehouse, table: HiveTable, target: TableName) -> None:
    """Map the names that files have for columns where they aren't the table's."""
    properties = properties_of(warehouse, target)
    if _MAPPING not in properties:
        return
    mapping: list[Mapped] = json.loads(properties[_MAPPING])
    spelled = mapping
    for path in _samples(warehouse, table, target, mapping):
        file = warehouse.spark.read.format(table.format).load(literal(path)).schema.jsonValue()
        spelled = extended(spelled, file)
    if spelled != mapping:
        _set_mapping(warehouse, target, spelled)


def _map_places(warehouse: Warehouse, table: HiveTable, target: TableName) -> None:
    """Map the columns of ORC files by their places too, for in a file of `_col0` adding it finds none."""
    if table.format != "orc":
        return
    spark, named = warehouse.spark, warehouse.iceberg(target)
    [newest] = spark.sql(f"SELECT max_by(file, timestamp) FROM {named.sql}.metadata_log_entries").collect()
    [content] = spark.read.text(literal(newest[0]), wholetext=True).collect()
    metadata = json.loads(content[0])
    current = metadata["current-schema-id"]
    [schema] = [each for each in metadata["schemas"] if each["schema-id"] == current]
    _set_mapping(warehouse, target, by_place(mapped(schema), table.partition_columns))


def _set_mapping(warehouse: Warehouse, target: TableName, mapping: Sequence[Mapped]) -> None:
    warehouse.run(
        f"ALTER TABLE {warehouse.iceberg(target).sql} "
        f"SET TBLPROPERTIES ({text(_MAPPING)} = {text(json.dumps(mapping))})"
    )


def _samples(
    warehouse: Warehouse, table: HiveTable, target: TableName, mapping: Sequence[Mapped]
) -> list[str]:
    """Give a file for each set of columns that files lack; those of Avro don't say what they lack."""
    if table.format == "avro":
        return []
    partitions = {name.lower() for name in table.partition_columns}
    columns = [each for each in mapping if each["names"][0].lower() not in partitions]
    ids = ", ".join(map(str, leaves(columns)))
    rows = warehouse.spark.sql(
        f"SELECT min(file_path) FROM {warehouse.iceberg(target).sql}.files "
        f"WHERE size(array_except(array({ids}), map_keys(column_sizes))) > 0 "
        f"GROUP BY array_sort(array_except(array({ids}), map_keys(column_sizes)))"
    ).collect()
    return [row[0] for row in rows]
