"""Read the catalog entries of a job's tables with one query, and decide which tables belong to the job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from tableferry.convert import overlay
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.hive_tables.copy_locations import hive_location_of
from tableferry.fleet.hive_tables.hive_table import SOURCE, HiveTable
from tableferry.fleet.hive_tables.progress_properties import ROOT
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.hive.catalog_tables import details_of, shown_tables
from tableferry.formats.hive.locations import split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

# Delta's spark_catalog shows an Iceberg table as a Hive table with this property.
_ICEBERG = re.compile(r"[\[ ]table_type=iceberg[,\]]", re.IGNORECASE)
_UUID = re.compile(r"[\[ ]uuid=([0-9a-f-]{36})[,\]]")
_SOURCE = re.compile(rf"[\[ ,]{re.escape(SOURCE)}=([^,\]]*)[,\]]")
_NEW = (Kind.ICEBERG, Kind.DELTA)
# Java's format of a time: Sat Nov 28 22:15:16 UTC 2026.
_CREATED = "%a %b %d %H:%M:%S %Y"
_ZONED = re.compile(r"(?<=:\d\d) \S+(?= \d{4}$)")
# Renames and ANALYZE TABLE change it.
_CHANGED_AT = re.compile(r"(?<=[\[ ])transient_lastDdlTime=\d+(, )?")


class Entry(NamedTuple):
    """A table's catalog entry; a rename keeps it equal, a recreation changes it.

    Attributes:
        kind: The kind of the table.
        managed: Whether DROP removes the table's files, and RENAME moves them.
        location: The table's directory.
        created: The creation time of the entry, in the catalog's format.
        columns: A Hive table's columns in the catalog's format, without comments.
        properties: A Hive table's properties in the catalog's format.
        options: A Hive table's storage properties in the catalog's format.
        uuid: An Iceberg table's UUID, if the catalog shows it.
        source: The Hive table from which an Iceberg table was created, if the catalog shows it.
    """

    kind: Kind
    managed: bool
    location: str
    created: str
    columns: str
    properties: str
    options: str
    uuid: str
    source: str = ""


@dataclass
class JobTableCache:
    """A run's cache of its job's catalog entries; `Warehouse.effect` invalidates those that it changes.

    A cached entry also identifies the table that the run planned with: `table_identity.change_if_unchanged`
    reads the entries again right before a change, and refuses it if another process has changed one since.

    Attributes:
        names: The job's tables.
        entries: The cached entries; None for a table that doesn't exist.
        described: The described Hive tables, each with its entry at that time.
    """

    names: tuple[TableName, ...]
    entries: dict[TableName, Entry | None] = field(default_factory=dict)
    described: list[tuple[Entry, HiveTable]] = field(default_factory=list)


def list_job_tables(warehouse: Warehouse, names: Names) -> Mapping[TableName, Kind]:
    """Return the job's existing tables with their kinds.

    An Iceberg or Delta table with the new table's name is `Kind.OTHER` if it wasn't created from this job's
    Hive table.

    Raises:
        TableError: A schema doesn't exist or can't be listed, or a table can't be described.
    """
    found = entries(warehouse, names.all)
    known = {name: entry.kind for name, entry in found.items()}
    hives = [name for name in (names.main, names.hive, names.archived) if known.get(name) is Kind.HIVE]
    for name in {names.target, names.copy} & found.keys():
        if known[name] in _NEW and not _is_own_table(warehouse, names.main, name, found, hives):
            known[name] = Kind.OTHER
    if known.get(names.copy) in _NEW and {names.main, names.hive} <= set(hives):
        # Another process created one of them during the switch's two renames.
        copy = found[names.copy]
        directory = split(hive_location_of(copy.location, TargetFormat(copy.kind.value)))
        if split(found[names.main].location) != directory == split(found[names.hive].location):
            known[names.main] = Kind.OTHER
    return known


def _is_own_table(
    warehouse: Warehouse,
    source: TableName,
    name: TableName,
    found: Mapping[TableName, Entry],
    hives: Iterable[TableName],
) -> bool:
    """Return whether a table was created from the job's Hive table, which has one of these names."""
    entry, directories = found[name], [found[hive].location for hive in hives]
    form = TargetFormat(entry.kind.value)
    if form is TargetFormat.DELTA and not directories:
        # A Delta table is identified by the Hive table's directory, which is unknown now.
        return True
    if form is TargetFormat.DELTA and not _is_in_directories(entry, directories):
        # Probation may have changed the Hive table's directory.
        directories += [table_descriptions.properties(warehouse.spark, hive).get(ROOT, "") for hive in hives]
    return is_created_from(warehouse, source, name, entry, form, directories)


def require_own_table(warehouse: Warehouse, names: Names, name: TableName) -> None:
    """Check that a job's new table wasn't replaced by another table, which may lack its rows.

    Raises:
        Refused: It was replaced.
        TableError: As in `list_job_tables`.
    """
    if list_job_tables(warehouse, names).get(name) is Kind.OTHER:
        raise Refused(
            "NEW_TABLE_OF_OTHER_SOURCE",
            table=name,
            source=names.main,
            statement=f"ALTER TABLE {qualified(warehouse, name).sql} SET TBLPROPERTIES "
            f"({literal(SOURCE)} = {literal(names.main.key)})",
        )


def is_created_from(
    warehouse: Warehouse,
    source: TableName,
    name: TableName,
    entry: Entry,
    form: TargetFormat,
    directories: Iterable[str],
) -> bool:
    """Return whether a table is the Iceberg or Delta table that was created from a Hive table.

    Args:
        warehouse: The warehouse.
        source: The Hive table's name before its migration.
        name: The table.
        entry: The table's catalog entry.
        form: The expected format.
        directories: The Hive table's directories, now and at the switch.

    Raises:
        TableError: The table can't be described.
    """
    if entry.kind is not (Kind.ICEBERG if form is TargetFormat.ICEBERG else Kind.DELTA):
        return False
    if entry.source == source.key or (form is TargetFormat.DELTA and _is_in_directories(entry, directories)):
        return True
    try:
        return (
            table_descriptions.properties(warehouse.spark, warehouse.named(name, form)).get(SOURCE)
            == source.key
        )
    except SPARK_ERRORS as error:
        if form is TargetFormat.DELTA and not overlay.has_log(warehouse.spark, entry.location):
            return False
        raise TableError("TABLE_NOT_DESCRIBABLE", table=name, reason=first_line(error)) from error


def _is_in_directories(entry: Entry, directories: Iterable[str]) -> bool:
    """Return whether a Delta table is in one of some directories, or is a rewritten copy beside one."""
    places = entry.location, hive_location_of(entry.location, TargetFormat.DELTA)
    return not set(map(split, places)).isdisjoint(map(split, directories))


def kind(warehouse: Warehouse, name: TableName) -> Kind:
    """Return the kind of a table.

    Raises:
        TableError: The table doesn't exist, or the user may not list its schema.
    """
    known = kinds(warehouse, (name,)).get(name)
    if known is None:
        raise TableError("TABLE_NOT_FOUND", table=name)
    return known


def qualified(warehouse: Warehouse, name: TableName) -> TableName:
    """Return the name by which Spark reads a table: an Iceberg table's name in the Iceberg catalog.

    Raises:
        TableError: The table doesn't exist, or the user may not list its schema.
    """
    return warehouse.iceberg(name) if kind(warehouse, name) is Kind.ICEBERG else name


def kinds(warehouse: Warehouse, names: Iterable[TableName]) -> Mapping[TableName, Kind]:
    """Return the existing tables among some names, with their kinds.

    Raises:
        TableError: A schema doesn't exist, or the user may not list it.
    """
    return {name: entry.kind for name, entry in entries(warehouse, names).items()}


def is_in_hive_directory(warehouse: Warehouse, table: HiveTable, target: TableName) -> bool:
    """Return whether a table is a Delta table in the directory of a Hive table.

    Raises:
        TableError: The user may not list the schema.
    """
    entry = entries(warehouse, (target,)).get(target)
    return entry is not None and entry.kind is Kind.DELTA and split(entry.location) == split(table.location)


def entries(
    warehouse: Warehouse, names: Iterable[TableName], *, refresh: bool = False
) -> Mapping[TableName, Entry]:
    """Return the existing tables among some names, with their catalog entries.

    The entries of the run's job come from the cache unless a change invalidated them or `refresh` is set.

    Raises:
        TableError: A schema doesn't exist, or the user may not list it.
    """
    names = tuple(names)
    cache = warehouse.table_cache
    if cache is None or not set(names) <= set(cache.names):
        return _list_entries(warehouse, names)
    if refresh or not cache.entries.keys() >= set(names):
        listed = _list_entries(warehouse, cache.names)
        cache.entries = {name: listed.get(name) for name in cache.names}
    return {name: entry for name in names if (entry := cache.entries[name]) is not None}


def read_origin(warehouse: Warehouse, name: TableName) -> Mapping[str, str] | None:
    """Return a Hive table's directory and creation time, for `is_same_origin`; None if it doesn't exist.

    Raises:
        TableError: The schema doesn't exist, or the user may not list it.
    """
    entry = entries(warehouse, (name,)).get(name)
    return None if entry is None else {"location": entry.location, "created": entry.created}


def is_same_origin(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether two results of `read_origin` describe the same table."""
    return before["location"] == now["location"] and is_same_creation(before["created"], now["created"])


def is_same_creation(before: str, now: str) -> bool:
    """Return whether two creation times in the catalog's format are the same.

    The catalog writes them in the time zone of the reading process, which may differ each time.
    """
    try:
        first, second = (_ZONED.sub("", each) for each in (before, now))
        apart = abs(datetime.strptime(first, _CREATED) - datetime.strptime(second, _CREATED))
    except ValueError:
        return before == now
    return apart <= timedelta(hours=26) and apart % timedelta(minutes=15) == timedelta()


def has_schema(warehouse: Warehouse, schema: TableName) -> bool:
    """Return whether a schema exists in its catalog.

    Raises:
        TableError: The catalog doesn't exist, or the user may not list its schemas.
    """
    catalog, name = TableName(schema.parts[:-1]), schema.table
    with explaining("SCHEMAS_NOT_LISTABLE", catalog=catalog):
        rows = warehouse.spark.sql(f"SHOW SCHEMAS IN {catalog.sql}").collect()
    return name.lower() in {row[0].strip("`").lower() for row in rows}


def _list_entries(warehouse: Warehouse, names: Iterable[TableName]) -> Mapping[TableName, Entry]:
    schemas: dict[TableName, list[TableName]] = {}
    for name in names:
        schemas.setdefault(TableName(name.parts[:-1]), []).append(name)
    listed: dict[TableName, Entry] = {}
    for schema, tables in schemas.items():
        try:
            listed |= _list_schema_entries(warehouse, schema, tables)
        except TableError:
            # The new table's schema may not exist yet; any other failure is an error.
            if len(schemas) == 1 or has_schema(warehouse, schema):
                raise
    return listed


def _list_schema_entries(
    warehouse: Warehouse, schema: TableName, names: Iterable[TableName]
) -> Mapping[TableName, Entry]:
    by_table = {name.table.lower(): name for name in names}
    with explaining("TABLES_NOT_LISTABLE", schema=schema):
        rows = shown_tables(warehouse.spark, schema, by_table)
    information = {row["tableName"].lower(): row["information"] for row in rows if not row["isTemporary"]}
    return {by_table[table]: entry_of(lines) for table, lines in information.items() if table in by_table}


def entry_of(information: str) -> Entry:
    """Parse the information of SHOW TABLE EXTENDED into a catalog entry."""
    kind, details = kind_of(information), details_of(information)
    properties = details.get("Table Properties", "")
    uuid, source = (
        pattern.search(properties) if kind is Kind.ICEBERG else None for pattern in (_UUID, _SOURCE)
    )
    hive, (_, schema, columns) = kind is Kind.HIVE, information.rpartition("\nSchema: ")
    return Entry(
        kind,
        details.get("Type", "").upper() == "MANAGED",
        details.get("Location", ""),
        details.get("Created Time", ""),
        columns if hive and schema else "",
        _CHANGED_AT.sub("", properties) if hive else "",
        details.get("Storage Properties", "") if hive else "",
        uuid[1] if uuid else "",
        source[1] if source else "",
    )


def kind_of(information: str) -> Kind:
    """Return a table's kind from the information of SHOW TABLE EXTENDED."""
    # The first such line counts, because properties and view texts follow it and may contain more.
    type_, provider = (_line(information, key) for key in ("Type", "Provider"))
    if "VIEW" in type_.upper():
        return Kind.VIEW
    if provider.lower() == "delta":
        return Kind.DELTA
    if provider.lower() == "iceberg" or _ICEBERG.search(information):
        return Kind.ICEBERG
    return Kind.HIVE


def _line(information: str, key: str) -> str:
    match = re.search(rf"^{key}: (.*)$", information, re.MULTILINE)
    return match[1] if match else ""
