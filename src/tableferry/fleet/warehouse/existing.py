"""Which of a job's tables are in the catalog, and what each is: one query, whatever logs and files say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from tableferry.convert import overlay
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import asking
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.copy_locations import hive_location_of
from tableferry.fleet.warehouse.hive_table import SOURCE, HiveTable
from tableferry.fleet.warehouse.progress_properties import ROOT
from tableferry.formats.hive.catalog_tables import details_of, shown_tables
from tableferry.formats.hive.locations import split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

# Delta's spark_catalog shows an Iceberg table as Hive's, with this among its properties.
_ICEBERG = re.compile(r"[\[ ]table_type=iceberg[,\]]", re.IGNORECASE)
_UUID = re.compile(r"[\[ ]uuid=([0-9a-f-]{36})[,\]]")
_MADE_OF = re.compile(rf"[\[ ,]{re.escape(SOURCE)}=([^,\]]*)[,\]]")
_NEW = (Kind.ICEBERG, Kind.DELTA)
# As Java writes a time: Sat Nov 28 22:15:16 UTC 2026.
_CREATED = "%a %b %d %H:%M:%S %Y"
_ZONED = re.compile(r"(?<=:\d\d) \S+(?= \d{4}$)")
# A rename changes it, and whoever counts a table's rows.
_CHANGED_AT = re.compile(r"(?<=[\[ ])transient_lastDdlTime=\d+(, )?")


class Entry(NamedTuple):
    """What the catalog says of a table; the same after a rename, and another if the table is made anew.

    Attributes:
        kind: What it is.
        managed: Whether dropping it removes its files, and renaming it moves them.
        location: Its directory.
        created: When its entry was made, as the catalog spells it.
        columns: A Hive table's, as the catalog draws them, without their comments.
        properties: A Hive table's, as the catalog spells them all.
        options: A Hive table's options of reading and writing, likewise.
        uuid: An Iceberg table's, if the catalog says it.
        source: The Hive table that an Iceberg table was made of, if the catalog says it.
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
class Seen:
    """What a run has seen of its job's tables; it's forgotten with each change that the run makes.

    So a table is looked at once for all steps between two changes. What somebody else does to it meanwhile is
    found where it matters: `table_identity.change_if_unchanged` checks again right before a change.

    Attributes:
        names: The job's.
        entries: Of each that was looked at, its entry, or None if there was none.
        described: Hive tables that were described, each with the entry that it had then.
    """

    names: tuple[TableName, ...]
    entries: dict[TableName, Entry | None] = field(default_factory=dict)
    described: list[tuple[Entry, HiveTable]] = field(default_factory=list)

    def look(self, warehouse: Warehouse) -> None:
        """Look at all of them.

        Raises:
            TableError: There is no such schema, or it may not be listed.
        """
        listed = _listed(warehouse, self.names)
        self.entries = {name: listed.get(name) for name in self.names}

    def forget(self, names: Iterable[TableName] | None = None) -> None:
        """Look at some tables, or at all, again before the next step that needs them."""
        for name in self.names if names is None else names:
            self.entries.pop(name, None)

    @contextmanager
    def renaming(self, name: TableName, to: TableName) -> Iterator[None]:
        """Go on knowing a table that is renamed inside a ``with``, unless that fails."""
        known = self.entries.get(name)
        self.forget((name, to))
        yield
        if known is not None:
            self.entries |= {to: known, name: None}


def job_tables(warehouse: Warehouse, names: Names) -> Mapping[TableName, Kind]:
    """Return which of a job's tables exist, and of what kind each is.

    An Iceberg or Delta table that has the new table's name and wasn't made of this job's Hive table is of
    `Kind.OTHER`: somebody else's, or another job's.

    Raises:
        TableError: There is no such schema, or it may not be listed, or a table can't be described.
    """
    found = entries(warehouse, names.all)
    known = {name: entry.kind for name, entry in found.items()}
    hives = [name for name in (names.main, names.hive, names.archived) if known.get(name) is Kind.HIVE]
    for name in {names.target, names.copy} & found.keys():
        if known[name] in _NEW and not _is_ours(warehouse, names.main, name, found, hives):
            known[name] = Kind.OTHER
    if known.get(names.copy) in _NEW and {names.main, names.hive} <= set(hives):
        # Somebody made one of them while the names were being swapped.
        copy = found[names.copy]
        directory = split(hive_location_of(copy.location, TargetFormat(copy.kind.value)))
        if split(found[names.main].location) != directory == split(found[names.hive].location):
            known[names.main] = Kind.OTHER
    return known


def _is_ours(
    warehouse: Warehouse,
    source: TableName,
    name: TableName,
    found: Mapping[TableName, Entry],
    hives: Iterable[TableName],
) -> bool:
    """Say whether a table was made of a job's Hive table, which has some of these names."""
    entry, directories = found[name], [found[hive].location for hive in hives]
    form = TargetFormat(entry.kind.value)
    if form is TargetFormat.DELTA and not directories:
        # Where its files lie nobody knows any more, and by that a Delta table is known.
        return True
    if form is TargetFormat.DELTA and not _is_beside(entry, directories):
        # What probation wrote for Hive may lie elsewhere by now.
        directories += [asking.properties(warehouse.spark, hive).get(ROOT, "") for hive in hives]
    return is_made_of(warehouse, source, name, entry, form, directories)


def name_taken(names: Iterable[TableName]) -> PauseFinding:
    """Return the finding that other tables have names that a migration gives."""
    tables = ", ".join(sorted(map(str, names)))
    return PauseFinding(PauseReason.NAME_TAKEN, Refused("MIGRATION_NAMES_TAKEN", tables=tables))


def demand_ours(warehouse: Warehouse, names: Names, name: TableName) -> None:
    """Make sure that a job's new table wasn't replaced by another one, which may lack its rows.

    Raises:
        Refused: It was.
        TableError: As `job_tables`.
    """
    if job_tables(warehouse, names).get(name) is Kind.OTHER:
        raise Refused(
            "NEW_TABLE_OF_OTHER_SOURCE",
            table=name,
            source=names.main,
            statement=f"ALTER TABLE {qualified(warehouse, name).sql} SET TBLPROPERTIES "
            f"({literal(SOURCE)} = {literal(names.main.key)})",
        )


def is_made_of(
    warehouse: Warehouse,
    source: TableName,
    name: TableName,
    entry: Entry,
    form: TargetFormat,
    directories: Iterable[str],
) -> bool:
    """Say whether a table is the Iceberg or Delta one that was made of a Hive table.

    Args:
        warehouse: The warehouse.
        source: The Hive table, by its name before its migration.
        name: The table.
        entry: What the catalog says of it.
        form: Which format it would have.
        directories: Those that the Hive table has, or had at the switch.

    Raises:
        TableError: It can't be described.
    """
    if entry.kind is not (Kind.ICEBERG if form is TargetFormat.ICEBERG else Kind.DELTA):
        return False
    if entry.source == source.key or (form is TargetFormat.DELTA and _is_beside(entry, directories)):
        return True
    try:
        return asking.properties(warehouse.spark, warehouse.named(name, form)).get(SOURCE) == source.key
    except SPARK_ERRORS as error:
        if form is TargetFormat.DELTA and not overlay.has_log(warehouse.spark, entry.location):
            return False
        raise TableError("TABLE_NOT_DESCRIBABLE", table=name, reason=first_line(error)) from error


def _is_beside(entry: Entry, directories: Iterable[str]) -> bool:
    """Say whether a Delta table lies in one of these directories, or where the rows of one are rewritten."""
    places = entry.location, hive_location_of(entry.location, TargetFormat.DELTA)
    return not set(map(split, places)).isdisjoint(map(split, directories))


def kind(warehouse: Warehouse, name: TableName) -> Kind:
    """Return of what kind a table is.

    Raises:
        TableError: There is no such table, or its schema may not be listed.
    """
    known = kinds(warehouse, (name,)).get(name)
    if known is None:
        raise TableError("TABLE_NOT_FOUND", table=name)
    return known


def qualified(warehouse: Warehouse, name: TableName) -> TableName:
    """Name a table as Spark reads it: an Iceberg table by Iceberg's own catalog.

    Raises:
        TableError: There is no such table, or its schema may not be listed.
    """
    return warehouse.iceberg(name) if kind(warehouse, name) is Kind.ICEBERG else name


def kinds(warehouse: Warehouse, names: Iterable[TableName]) -> Mapping[TableName, Kind]:
    """Return which of some tables exist, and of what kind each is.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    return {name: entry.kind for name, entry in entries(warehouse, names).items()}


def is_over(warehouse: Warehouse, table: HiveTable, target: TableName) -> bool:
    """Say whether a table is a Delta one in the directory of a Hive table.

    Raises:
        TableError: The schema may not be listed.
    """
    entry = entries(warehouse, (target,)).get(target)
    return entry is not None and entry.kind is Kind.DELTA and split(entry.location) == split(table.location)


def entries(
    warehouse: Warehouse, names: Iterable[TableName], *, anew: bool = False
) -> Mapping[TableName, Entry]:
    """Return which of some tables exist, and what the catalog says of each.

    A run's own tables are looked at together, and again after a change, or `anew`.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    names = tuple(names)
    seen = warehouse.seen
    if seen is None or not set(names) <= set(seen.names):
        return _listed(warehouse, names)
    if anew or not seen.entries.keys() >= set(names):
        seen.look(warehouse)
    return {name: entry for name in names if (entry := seen.entries[name]) is not None}


def checked(warehouse: Warehouse, name: TableName) -> Mapping[str, str] | None:
    """Return a Hive table's directory and creation, for `is_checked`; None if there is no such table.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    entry = entries(warehouse, (name,)).get(name)
    return None if entry is None else {"location": entry.location, "created": entry.created}


def is_checked(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether two results of `checked` are of one table."""
    return before["location"] == now["location"] and is_same_creation(before["created"], now["created"])


def is_same_creation(before: str, now: str) -> bool:
    """Return whether two times of creation, as catalogs write them, are the same.

    Catalogs write them in the time zone of the process that asks, which may be another one each time.
    """
    try:
        first, second = (_ZONED.sub("", each) for each in (before, now))
        apart = abs(datetime.strptime(first, _CREATED) - datetime.strptime(second, _CREATED))
    except ValueError:
        return before == now
    return apart <= timedelta(hours=26) and apart % timedelta(minutes=15) == timedelta()


def has_schema(warehouse: Warehouse, schema: TableName) -> bool:
    """Say whether a catalog has a schema.

    Raises:
        TableError: There is no such catalog, or its schemas may not be listed.
    """
    catalog, name = TableName(schema.parts[:-1]), schema.table
    with explaining("SCHEMAS_NOT_LISTABLE", catalog=catalog):
        rows = warehouse.spark.sql(f"SHOW SCHEMAS IN {catalog.sql}").collect()
    return name.lower() in {row[0].strip("`").lower() for row in rows}


def _listed(warehouse: Warehouse, names: Iterable[TableName]) -> Mapping[TableName, Entry]:
    schemas: dict[TableName, list[TableName]] = {}
    for name in names:
        schemas.setdefault(TableName(name.parts[:-1]), []).append(name)
    listed: dict[TableName, Entry] = {}
    for schema, tables in schemas.items():
        try:
            listed |= _listed_in(warehouse, schema, tables)
        except TableError:
            # A new table's schema may not be there yet; of one that can't be listed nothing is known.
            if len(schemas) == 1 or has_schema(warehouse, schema):
                raise
    return listed


def _listed_in(
    warehouse: Warehouse, schema: TableName, names: Iterable[TableName]
) -> Mapping[TableName, Entry]:
    by_table = {name.table.lower(): name for name in names}
    with explaining("TABLES_NOT_LISTABLE", schema=schema):
        rows = shown_tables(warehouse.spark, schema, by_table)
    information = {row["tableName"].lower(): row["information"] for row in rows if not row["isTemporary"]}
    return {by_table[table]: entry_of(lines) for table, lines in information.items() if table in by_table}


def entry_of(information: str) -> Entry:
    """Return a table's entry, from what SHOW TABLE EXTENDED says of it."""
    kind, details = kind_of(information), details_of(information)
    properties = details.get("Table Properties", "")
    uuid, source = (
        pattern.search(properties) if kind is Kind.ICEBERG else None for pattern in (_UUID, _MADE_OF)
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
    """Return a table's kind, from what SHOW TABLE EXTENDED says of it."""
    # The first of such lines counts: properties and a view's text, which may have them too, come later.
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
