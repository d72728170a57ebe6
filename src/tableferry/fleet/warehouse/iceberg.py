"""Makes an Iceberg table over the files of a Hive table, none of which is written or moved.

    source (Hive):    <directory>/k=1/part-0.parquet            stays as it is
    target (Iceberg): <directory>_iceberg/metadata, …/data      what Iceberg itself writes

``gc.enabled=false`` keeps Iceberg from removing a file that Hive reads: an expired snapshot, an orphan or a
``DROP TABLE … PURGE``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from tableferry.errors import Refused
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import asking, hive, manifests, versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.data_files import Change
from tableferry.fleet.warehouse.definitions import user_properties
from tableferry.fleet.warehouse.existing import kinds
from tableferry.fleet.warehouse.file_schemas import one_of_each_schema, schema_of, with_names_in_files
from tableferry.fleet.warehouse.files import TableFiles, digest, too_deep
from tableferry.fleet.warehouse.hive_table import MADE_OF, SOURCE, HiveTable, Type, iceberg_type
from tableferry.fleet.warehouse.identity import change_unchanged
from tableferry.fleet.warehouse.name_mapping import (
    MAPPING,
    MappedField,
    leaf_ids,
    mapping_of,
    stored,
    with_file_names,
)
from tableferry.fleet.warehouse.prepared import Made, members
from tableferry.fleet.warehouse.versions import NO_SNAPSHOT
from tableferry.formats.hive.locations import escape_wildcards
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.tables import TableName

_SHOWN = 5


def make(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Make an Iceberg table that holds each file of a Hive table once, and return how many these are.

    Done already, or half, is fine. What this run made before is brought up to date, if it can be; the files
    are those that this run listed last.

    Raises:
        TableError: A statement failed; run again when its cause is fixed.
        Refused: The table can't be Iceberg, or another table has the target's name.
    """
    table = hive.demand_eligible(warehouse, source, TargetFormat.ICEBERG)
    listed = hive.last_listed(warehouse, table)
    files = listed.listing
    if refusal := too_deep(source, files):
        raise refusal
    with explaining("NEW_TABLE_NOT_CREATED", source=source, target=target):
        made = _make(warehouse, listed, target)
    if warehouse.prepared is not None:
        warehouse.prepared.made = made
    return len(files.read)


def _make(warehouse: Warehouse, listed: TableFiles, target: TableName) -> Made:
    if made := _unchanged(warehouse, listed):
        return made
    table, files, holds, made_of = listed.table, listed.listing.read, members(listed), listed.digest
    paths, empty = sorted(file.path for file in files), digest((), table.columns_text)
    registered: list[str] | None = None
    if (properties := _properties_of_copy(warehouse, table, target)) is not None:
        if made := _brought_up_to_date(warehouse, listed, target, properties):
            return made
        registered = _data_files(warehouse, target)
        # An earlier run added files twice, or others than there are now; one that was written again may have
        # its old name, and neither the size nor the bounds that the copy says. A copy that it left empty may
        # have the columns that the Hive table had then.
        expected = (paths, made_of) if registered else ([], empty)
        if (registered, properties.get(MADE_OF)) != expected:
            statement = f"DROP TABLE {warehouse.iceberg(target).sql}"
            change_unchanged(warehouse, (target,), lambda: warehouse.spark.sql(statement).collect())
            registered = None
    if warehouse.prepared is not None:
        # What was compared was another copy, or this one before somebody changed it.
        warehouse.prepared.compared = None
    if registered is None:
        made_empty = create_statement(table, warehouse.iceberg(target), **{MADE_OF: empty})
        warehouse.run(made_empty, of=(target,))
    snapshot, samples, mapping = NO_SNAPSHOT, None, None
    if registered != paths and paths:
        change = Change(table, listed.partitions, files, {MADE_OF: made_of})
        appended = manifests.append(warehouse, target, change)
        if appended is not None:
            samples, _, snapshot, mapping = appended
        else:
            _map_names(warehouse, table, target)
            _add_files_measured(warehouse, table, target)
            registered = _data_files(warehouse, target)
            if registered != paths:
                raise Refused(
                    "COPY_HAS_OTHER_FILES",
                    table=target,
                    count=len(registered),
                    source=table.name,
                    expected=len(paths),
                    files=sorted(set(registered) ^ set(paths)),
                )
            _set(warehouse, target, {MADE_OF: made_of})
    mapping = _map_spellings(warehouse, table, target, samples, mapping)
    if paths and snapshot == NO_SNAPSHOT:
        snapshot = versions.current(warehouse, target, TargetFormat.ICEBERG)
    return Made(table.reading, snapshot, holds, holds, mapping=mapping)


def _unchanged(warehouse: Warehouse, listed: TableFiles) -> Made | None:
    """Return what this run made before, if it is of these files and all were compared.

    Whether the copy is still what it was is asked before the names are swapped.
    """
    prepared = warehouse.prepared
    if prepared is None or prepared.made is None or prepared.compared is None:
        return None
    made, holds = prepared.made, members(listed)
    unchanged = made.reading == listed.table.reading and made.holds == holds
    return made if unchanged and holds == prepared.compared.files else None


def _brought_up_to_date(
    warehouse: Warehouse, listed: TableFiles, target: TableName, properties: Mapping[str, str]
) -> Made | None:
    """Add to the copy that this run made what came, and take out what went; None if it must be made anew.

    Files that weren't compared are taken out and added again: who wrote one of them again may have left it
    its size and time, and not its rows and bounds.
    """
    prepared = warehouse.prepared
    if prepared is None or prepared.made is None or prepared.compared is None:
        return None
    before, table, holds = prepared.made, listed.table, members(listed)
    if (table.reading, versions.of_properties(properties)) != (before.reading, before.snapshot):
        return None
    keep = holds & before.holds & prepared.compared.files
    added = holds - keep
    files = sorted({file for file, _ in added})
    gone = before.holds - keep
    change = Change(table, listed.partitions, files, {MADE_OF: listed.digest}, before.snapshot, gone)
    appended = manifests.append(warehouse, target, change)
    if appended is None:
        return None
    mapping = _map_spellings(warehouse, table, target, appended.samples, appended.mapping)
    return Made(table.reading, appended.snapshot, holds, added, appended.since, mapping)


def create_statement(table: HiveTable, target: TableName, **more: str) -> str:
    """Write the statement that makes the target, empty, with the source's columns, partitions and format.

    More properties than it has anyway may be given.
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
        # So that Hive reads a new file too, when it's added to the Hive table.
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


def properties_of(warehouse: Warehouse, table: TableName) -> Mapping[str, str]:
    """Return an Iceberg table's properties."""
    return asking.properties(warehouse.spark, warehouse.iceberg(table))


def _properties_of_copy(
    warehouse: Warehouse, table: HiveTable, target: TableName
) -> Mapping[str, str] | None:
    """Return the properties of the target, which was made of the Hive table; None if there is no target yet.

    Raises:
        Refused: Another table has its name.
    """
    kind = kinds(warehouse, (target,)).get(target)
    if kind is None:
        return None
    properties = properties_of(warehouse, target) if kind is Kind.ICEBERG else {}
    if properties.get(SOURCE) == table.name.key:
        return properties
    raise Refused("COPY_NAME_TAKEN", table=target, kind=kind.description, source=table.name)


def _add_files(warehouse: Warehouse, source: TableName, target: TableName) -> None:
    # Without `parallelism`: the tasks of one process share the threads it asks for, and the first task that
    # ends takes them from the others (RejectedExecutionException).
    table = warehouse.iceberg(target)
    warehouse.run(
        f"CALL {quote(table.parts[0])}.system.add_files(table => {literal(table.sql)}, "
        f"source_table => {literal(source.sql)})",
        of=(target,),
    )


def _add_files_measured(warehouse: Warehouse, table: HiveTable, target: TableName) -> None:
    """Add files without the metrics that `manifests.append` leaves out too."""
    modes = {f"write.metadata.metrics.column.{name}": mode for name, mode in metrics_modes(table)}
    if modes:
        _set(warehouse, target, modes)
    _add_files(warehouse, table.name, target)
    if modes:
        keys = ", ".join(map(literal, modes))
        statement = f"ALTER TABLE {warehouse.iceberg(target).sql} UNSET TBLPROPERTIES ({keys})"
        warehouse.run(statement, of=(target,))


def metrics_modes(table: HiveTable) -> Iterator[tuple[str, str]]:
    """Yield columns and fields of which Iceberg is to take no metrics of files, or counts alone, and which.

    Files may have other values than a partition, and hide a NaN in bounds.
    """
    partitions = {name.lower() for name in table.partition_columns}
    for column in table.columns:
        if column.name.lower() in partitions:
            yield column.name, "none"
        else:
            yield from ((path, "counts") for path in _floats(column.name, column.type))


def _floats(path: str, kind: Type) -> Iterator[str]:
    match kind["name"]:
        case "struct":
            for field in kind["fields"]:
                yield from _floats(f"{path}.{field['name']}", field["type"])
        case "float" | "double":
            yield path


def _data_files(warehouse: Warehouse, target: TableName) -> list[str]:
    rows = warehouse.spark.sql(f"SELECT file_path FROM {warehouse.iceberg(target).sql}.files").collect()
    return sorted(row[0] for row in rows)


def _map_spellings(
    warehouse: Warehouse,
    table: HiveTable,
    target: TableName,
    samples: Sequence[str] | None,
    known: str | None,
) -> str | None:
    """Add the names that files have for columns, where these aren't the table's, to the name mapping.

    The samples are a file for each set of columns that files lack; if nobody knows them, they are asked for,
    as is a mapping that isn't known. It's returned, if there is one.
    """
    if samples is not None and not samples:
        return known
    text = known or properties_of(warehouse, target).get(MAPPING)
    if text is None:
        return None
    before: list[MappedField] = json.loads(text)
    mapping = before
    for path in _samples(warehouse, table, target, mapping) if samples is None else samples:
        mapping = with_file_names(mapping, schema_of(warehouse.spark, table.format, path))
    if mapping == before:
        return text
    _set(warehouse, target, {MAPPING: (text := json.dumps(mapping))})
    return text


def _map_names(warehouse: Warehouse, table: HiveTable, target: TableName) -> None:
    """Map columns to what ORC and Avro files call them: `add_files` finds none in a file of `_col0`, …."""
    if table.format not in ("orc", "avro"):
        return
    spark, log = warehouse.spark, f"{warehouse.iceberg(target).sql}.metadata_log_entries"
    [newest] = spark.sql(f"SELECT max_by(file, timestamp) FROM {log}").collect()
    [content] = spark.read.text(escape_wildcards(newest[0]), wholetext=True).collect()
    metadata = json.loads(content[0])
    schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
    mapping = mapping_of(schemas[metadata["current-schema-id"]])
    _set(warehouse, target, {MAPPING: json.dumps(with_names_in_files(spark, table, mapping))})


def _set(warehouse: Warehouse, target: TableName, properties: Mapping[str, str]) -> None:
    """Set properties of the target."""
    statement = f"ALTER TABLE {warehouse.iceberg(target).sql} SET TBLPROPERTIES {pairs(properties)}"
    warehouse.run(statement, of=(target,))


def _samples(
    warehouse: Warehouse, table: HiveTable, target: TableName, mapping: Sequence[MappedField]
) -> list[str]:
    """Return a file for each set of columns that files lack; those of Avro don't say what they lack.

    Of ORC, where it can be read here, there is a file for each schema, as spellings may differ too.
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
    chosen = (one_of_each_schema(warehouse.spark, group) if is_orc else group for group in groups)
    return [path for group in chosen for path in group]
