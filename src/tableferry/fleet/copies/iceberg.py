"""Create an Iceberg table over the files of a Hive table, without writing or moving any of them.

    source (Hive):    <directory>/k=1/part-0.parquet            unchanged
    target (Iceberg): <directory>_iceberg/metadata, …/data      written by Iceberg

``gc.enabled=false`` keeps Iceberg from removing a file that Hive reads when a snapshot expires, orphan files
are removed, or the table is dropped with PURGE.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from tableferry.errors import Refused
from tableferry.fleet.copies.iceberg_files import iceberg_commit
from tableferry.fleet.copies.iceberg_files.data_files import Change
from tableferry.fleet.copies.iceberg_files.file_schemas import (
    add_file_names,
    list_one_file_per_schema,
    read_schema,
)
from tableferry.fleet.copies.iceberg_files.name_mapping import (
    MAPPING,
    MappedField,
    leaf_ids,
    mapping_of,
    stored,
    with_file_names,
)
from tableferry.fleet.hive_tables.hive_table import SOURCE, SOURCE_FILES, HiveTable, Type, iceberg_type
from tableferry.fleet.hive_tables.table_files import TableFiles, digest, refuse_nested_files
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive, table_descriptions, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.definitions import user_properties
from tableferry.fleet.warehouse.job_tables import kinds
from tableferry.fleet.warehouse.prepared_copy import IcebergCopy, members
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT
from tableferry.formats.hive.locations import escape_wildcards
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.tables import TableName


def create_copy(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Create an Iceberg table that contains each file of a Hive table once; return the number of files.

    The function can be repeated. It uses the files that this run listed last, and updates the copy that this
    run created before, if that's possible.

    Raises:
        TableError: A statement failed; run again when its cause is fixed.
        Refused: The table can't become an Iceberg table, or another table has the target's name.
    """
    table = hive.require_eligible_table(warehouse, source, TargetFormat.ICEBERG)
    listed = hive.last_table_files(warehouse, table)
    files = listed.listing
    if refusal := refuse_nested_files(source, files):
        raise refusal
    with explaining("NEW_TABLE_NOT_CREATED", source=source, target=target):
        made = _create_copy(warehouse, listed, target)
    if warehouse.prepared is not None:
        warehouse.prepared.iceberg_copy = made
    return len(files.read)


def _create_copy(warehouse: Warehouse, listed: TableFiles, target: TableName) -> IcebergCopy:
    if made := _find_unchanged_copy(warehouse, listed):
        return made
    table, files, holds, made_of = listed.table, listed.listing.read, members(listed), listed.digest
    paths, empty = sorted(file.path for file in files), digest((), table.columns_text)
    registered: list[str] | None = None
    if (properties := _read_copy_properties(warehouse, table, target)) is not None:
        if made := _update_copy(warehouse, listed, target, properties):
            return made
        registered = _list_data_files(warehouse, target)
        # An earlier run may have added files twice, or files that don't exist any more. A rewritten file may
        # have its old name, but another size and other bounds than the copy records. An empty copy may have
        # the columns that the Hive table had at that time.
        expected = (paths, made_of) if registered else ([], empty)
        if (registered, properties.get(SOURCE_FILES)) != expected:
            statement = f"DROP TABLE {warehouse.iceberg(target).sql}"
            change_if_unchanged(warehouse, (target,), lambda: warehouse.spark.sql(statement).collect())
            registered = None
    if warehouse.prepared is not None:
        # The compared copy was another one, or was changed since.
        warehouse.prepared.compared = None
    if registered is None:
        made_empty = create_statement(table, warehouse.iceberg(target), **{SOURCE_FILES: empty})
        warehouse.run(made_empty, of=(target,))
    snapshot, samples, mapping = NO_SNAPSHOT, None, None
    if registered != paths and paths:
        change = Change(table, listed.partitions, files, {SOURCE_FILES: made_of})
        appended = iceberg_commit.append(warehouse, target, change)
        if appended is not None:
            samples, _, snapshot, mapping = appended
        else:
            _map_orc_and_avro_names(warehouse, table, target)
            _add_files_without_bounds(warehouse, table, target)
            registered = _list_data_files(warehouse, target)
            if registered != paths:
                raise Refused(
                    "COPY_HAS_OTHER_FILES",
                    table=target,
                    count=len(registered),
                    source=table.name,
                    expected=len(paths),
                    files=sorted(set(registered) ^ set(paths)),
                )
            _set_properties(warehouse, target, {SOURCE_FILES: made_of})
    mapping = _map_file_names(warehouse, table, target, samples, mapping)
    if paths and snapshot == NO_SNAPSHOT:
        snapshot = target_versions.current_version(warehouse, target, TargetFormat.ICEBERG)
    return IcebergCopy(table.reading, snapshot, holds, holds, mapping=mapping)


def _find_unchanged_copy(warehouse: Warehouse, listed: TableFiles) -> IcebergCopy | None:
    """Return the copy that this run created before, if it has exactly these files and all were compared.

    A check before the switch finds whether another process has changed the copy.
    """
    prepared = warehouse.prepared
    if prepared is None or prepared.iceberg_copy is None or prepared.compared is None:
        return None
    made, holds = prepared.iceberg_copy, members(listed)
    unchanged = made.reading == listed.table.reading and made.files == holds
    return made if unchanged and holds == prepared.compared.files else None


def _update_copy(
    warehouse: Warehouse, listed: TableFiles, target: TableName, properties: Mapping[str, str]
) -> IcebergCopy | None:
    """Add new files to this run's copy and remove missing ones; None if the copy must be recreated.

    Files that weren't compared are removed and added again: a file may have been rewritten with the same
    size and time, but with other rows and bounds.
    """
    prepared = warehouse.prepared
    if prepared is None or prepared.iceberg_copy is None or prepared.compared is None:
        return None
    before, table, holds = prepared.iceberg_copy, listed.table, members(listed)
    if (table.reading, target_versions.snapshot_in_properties(properties)) != (
        before.reading,
        before.snapshot,
    ):
        return None
    keep = holds & before.files & prepared.compared.files
    added = holds - keep
    files = sorted({file for file, _ in added})
    gone = before.files - keep
    change = Change(table, listed.partitions, files, {SOURCE_FILES: listed.digest}, before.snapshot, gone)
    appended = iceberg_commit.append(warehouse, target, change)
    if appended is None:
        return None
    mapping = _map_file_names(warehouse, table, target, appended.samples, appended.mapping)
    return IcebergCopy(table.reading, appended.snapshot, holds, added, appended.since, mapping)


def create_statement(table: HiveTable, target: TableName, **more: str) -> str:
    """Return the statement that creates an empty target with the source's columns, partitions and format.

    ``more`` are additional table properties.
    """
    columns = ", ".join(
        f"{quote(column.name)} {iceberg_type(column.type)}"
        + (f" COMMENT {literal(column.comment)}" if column.comment else "")
        for column in table.columns
    )
    partitions = ", ".join(map(quote, table.partition_columns))
    properties = {
        "format-version": "2",
        "gc.enabled": "false",
        # Hive must be able to read new files, because they are added to the Hive copy.
        "write.format.default": table.format,
        SOURCE: table.name.key,
        **user_properties(table.properties),
        **more,
    }
    return (
        f"CREATE TABLE {target.sql} ({columns}) USING iceberg "
        + (f"PARTITIONED BY ({partitions}) " if partitions else "")
        + (f"COMMENT {literal(table.comment)} " if table.comment else "")
        + f"LOCATION {literal(table.location.rstrip('/') + '_iceberg')} TBLPROPERTIES {pairs(properties)}"
    )


def _read_copy_properties(
    warehouse: Warehouse, table: HiveTable, target: TableName
) -> Mapping[str, str] | None:
    """Return the properties of the target, a copy of the Hive table; None if it doesn't exist yet.

    Raises:
        Refused: Another table has the target's name.
    """
    kind = kinds(warehouse, (target,)).get(target)
    if kind is None:
        return None
    properties = (
        table_descriptions.properties(warehouse.spark, warehouse.iceberg(target))
        if kind is Kind.ICEBERG
        else {}
    )
    if properties.get(SOURCE) == table.name.key:
        return properties
    raise Refused("COPY_NAME_TAKEN", table=target, kind=kind.description, source=table.name)


def _add_files(warehouse: Warehouse, source: TableName, target: TableName) -> None:
    # With `parallelism`, the tasks of one process would share a pool of threads, which the first task that
    # ends shuts down (RejectedExecutionException in the other tasks).
    table = warehouse.iceberg(target)
    warehouse.run(
        f"CALL {quote(table.parts[0])}.system.add_files(table => {literal(table.sql)}, "
        f"source_table => {literal(source.sql)})",
        of=(target,),
    )


def _add_files_without_bounds(warehouse: Warehouse, table: HiveTable, target: TableName) -> None:
    """Add files by ``add_files``, without the metrics that `iceberg_commit.append` leaves out."""
    modes = {f"write.metadata.metrics.column.{name}": mode for name, mode in list_metrics_modes(table)}
    if modes:
        _set_properties(warehouse, target, modes)
    _add_files(warehouse, table.name, target)
    if modes:
        keys = ", ".join(map(literal, modes))
        statement = f"ALTER TABLE {warehouse.iceberg(target).sql} UNSET TBLPROPERTIES ({keys})"
        warehouse.run(statement, of=(target,))


def list_metrics_modes(table: HiveTable) -> Iterator[tuple[str, str]]:
    """Yield the columns and fields for which Iceberg must store no metrics or only counts, with the mode.

    Partition columns in files may have other values than the partition. Bounds of floats may hide a NaN.
    Parquet writers omit the bounds of long texts, and Iceberg 1.12 then uses those of the other row groups.
    """
    unbounded = {"float", "double"}
    if table.format == "parquet":
        unbounded |= {"string", "varchar", "char", "binary"}
    partitions = {name.lower() for name in table.partition_columns}
    for column in table.columns:
        if column.name.lower() in partitions:
            yield column.name, "none"
        else:
            yield from ((path, "counts") for path in _list_fields(column.name, column.type, unbounded))


def _list_fields(path: str, kind: Type, names: Collection[str]) -> Iterator[str]:
    """Yield the paths of fields with one of these types, outside of arrays and maps."""
    if kind["name"] == "struct":
        for field in kind["fields"]:
            yield from _list_fields(f"{path}.{field['name']}", field["type"], names)
    elif kind["name"] in names:
        yield path


def _list_data_files(warehouse: Warehouse, target: TableName) -> list[str]:
    rows = warehouse.spark.sql(f"SELECT file_path FROM {warehouse.iceberg(target).sql}.files").collect()
    return sorted(row[0] for row in rows)


def _map_file_names(
    warehouse: Warehouse,
    table: HiveTable,
    target: TableName,
    samples: Sequence[str] | None,
    known: str | None,
) -> str | None:
    """Add the files' spellings of column names to the table's name mapping, and return the mapping.

    Args:
        warehouse: The warehouse.
        table: The Hive table.
        target: The Iceberg table.
        samples: One file for each set of columns that files lack; None if unknown.
        known: The table's name mapping; None if unknown.
    """
    if samples is not None and not samples:
        return known
    text = known or table_descriptions.properties(warehouse.spark, warehouse.iceberg(target)).get(MAPPING)
    if text is None:
        return None
    before: list[MappedField] = json.loads(text)
    mapping = before
    for path in _list_sample_files(warehouse, table, target, mapping) if samples is None else samples:
        mapping = with_file_names(mapping, read_schema(warehouse.spark, table.format, path))
    if mapping == before:
        return text
    _set_properties(warehouse, target, {MAPPING: (text := json.dumps(mapping))})
    return text


def _map_orc_and_avro_names(warehouse: Warehouse, table: HiveTable, target: TableName) -> None:
    """Map columns to their names in ORC and Avro files; `add_files` doesn't know names such as `_col0`."""
    if table.format not in ("orc", "avro"):
        return
    spark, log = warehouse.spark, f"{warehouse.iceberg(target).sql}.metadata_log_entries"
    [newest] = spark.sql(f"SELECT max_by(file, timestamp) FROM {log}").collect()
    [content] = spark.read.text(escape_wildcards(newest[0]), wholetext=True).collect()
    metadata = json.loads(content[0])
    schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
    mapping = mapping_of(schemas[metadata["current-schema-id"]])
    _set_properties(warehouse, target, {MAPPING: json.dumps(add_file_names(spark, table, mapping))})


def _set_properties(warehouse: Warehouse, target: TableName, properties: Mapping[str, str]) -> None:
    """Set table properties of the target."""
    statement = f"ALTER TABLE {warehouse.iceberg(target).sql} SET TBLPROPERTIES {pairs(properties)}"
    warehouse.run(statement, of=(target,))


def _list_sample_files(
    warehouse: Warehouse, table: HiveTable, target: TableName, mapping: Sequence[MappedField]
) -> list[str]:
    """Return one file for each set of columns that files lack; Avro files don't report missing columns.

    If this process can read ORC files, one file for each schema is returned, because spellings may differ.
    """
    if table.format == "avro":
        return []
    ids = ", ".join(map(str, leaf_ids(stored(mapping, table.partition_columns))))
    lacking = f"array_except(array({ids}), map_keys(column_sizes))"
    is_orc = table.format == "orc"
    rows = warehouse.spark.sql(
        f"SELECT {'sort_array(collect_list(file_path))' if is_orc else 'array(min(file_path))'} "
        f"FROM {warehouse.iceberg(target).sql}.files WHERE size({lacking}) > 0 GROUP BY array_sort({lacking})"
    ).collect()
    groups: list[list[str]] = [row[0] for row in rows]
    chosen = (list_one_file_per_schema(warehouse.spark, group) if is_orc else group for group in groups)
    return [path for group in chosen for path in group]
