"""What would stop a table's migration, or surprise its people, found before anybody is told.

Each check is a later step's own refusal, asked of what the catalog and the directories say now.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tableferry.amounts import first_of
from tableferry.catalog import SPARK_ERRORS
from tableferry.convert import overlay
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.job import PauseReason, TargetFormat
from tableferry.fleet.reports import Finding, Preflight
from tableferry.fleet.warehouse import delta, hive, metastore
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import HiveTable, Type, ineligibility
from tableferry.fleet.warehouse.files import Listing, listing
from tableferry.fleet.warehouse.shadow.hive_copy import PURGE, HiveCopy
from tableferry.fleet.warehouse.shadow.marks import synced
from tableferry.hive.catalog_tables import list_tables
from tableferry.hive.locations import below, split
from tableferry.hive.partitions import NULL, CatalogPartition
from tableferry.tables import TableName

_log = logging.getLogger(__name__)

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_NO_FILES = Listing((), (), ())


@dataclass(frozen=True)
class Seen:
    """What there is to see of a Hive table.

    Attributes:
        table: What the catalog says.
        partitions: Its partitions.
        files: Its files.
        neighbours: Other tables whose directories are the same, or one in the other, with these.
        movable: Whether a managed table can be made external from here.
        column_mapping: Whether a Delta table may map names that it doesn't take otherwise.
    """

    table: HiveTable
    partitions: tuple[CatalogPartition, ...] = ()
    files: Listing = _NO_FILES
    neighbours: tuple[tuple[TableName, str], ...] = ()
    movable: bool = True
    column_mapping: bool = False


class Places:
    """Tables by their directories: which are in, above or below another is found without asking each."""

    def __init__(self, tables: Iterable[tuple[TableName, str]]) -> None:
        """Take tables with their locations."""
        self._tables: dict[tuple[str, str, str], list[tuple[TableName, str]]] = {}
        for name, place in tables:
            self._tables.setdefault(split(place), []).append((name, place))
        self._sorted = sorted(self._tables)

    def around(self, name: TableName, location: str) -> tuple[tuple[TableName, str], ...]:
        """Return the other tables whose directory is this one, or holds it, or lies in it."""
        scheme, authority, path = split(location)
        above = [path]
        while above[-1] not in ("", "/"):
            above.append(above[-1].rpartition("/")[0] or "/")
        places = [(scheme, authority, each) for each in above]
        inside = (scheme, authority, path.rstrip("/") + "/")
        start = bisect_left(self._sorted, inside)
        for place in islice(self._sorted, start, None):
            if place[:2] != inside[:2] or not place[2].startswith(inside[2]):
                break
            places.append(place)
        found = (each for place in dict.fromkeys(places) for each in self._tables.get(place, ()))
        return tuple(each for each in found if each[0].key != name.key)


class Neighbourhood:
    """Which tables are where, in all schemas of a catalog; each is asked once."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Take the warehouse."""
        self._warehouse = warehouse
        self._catalogs: dict[str, Places] = {}

    def around(self, table: HiveTable) -> tuple[tuple[TableName, str], ...]:
        """Return the other tables whose directory is the table's, or holds it, or lies in it.

        So is the directory beside it where the Hive copy's partitions will be rewritten.
        """
        catalog = table.name.parts[0]
        if catalog not in self._catalogs:
            self._catalogs[catalog] = Places(self._tables(catalog))
        both = (table.location, synced(table.location))
        return tuple(
            dict.fromkeys(each for at in both for each in self._catalogs[catalog].around(table.name, at))
        )

    def _tables(self, catalog: str) -> Iterator[tuple[TableName, str]]:
        spark = self._warehouse.spark
        for row in spark.sql(f"SHOW SCHEMAS IN {TableName((catalog,)).sql}").collect():
            schema = (catalog, row[0].strip("`"))
            try:
                tables = list_tables(spark, schema)
            except TableError as error:
                _log.warning("tables that share directories with these aren't looked for there: %s", error)
                continue
            for name, each in tables.items():
                if each.location and each.provider != "view":
                    yield TableName((*schema, name)), each.location


def preflight(
    warehouse: Warehouse,
    name: TableName,
    form: TargetFormat,
    neighbourhood: Neighbourhood,
) -> Preflight:
    """Look at a table as its migration would; nothing is written.

    Args:
        warehouse: Where it is.
        name: The table.
        form: What it is to become.
        neighbourhood: Which tables are where.

    Raises:
        TableError: Something about it can't be read.
    """
    table = hive.facts(warehouse, name)
    if table is None:
        return Preflight(name, form, (Finding(PauseReason.TABLE_NOT_FOUND, f"there is no table {name}"),))
    if reason := ineligibility(table, form):
        return Preflight(name, form, (Finding(*reason),), stored_as=table.format)
    partitions = hive.partitions(warehouse, table)
    seen = Seen(
        table,
        partitions,
        listing(warehouse, table, partitions),
        neighbourhood.around(table),
        metastore.reached(warehouse.spark, name),
        warehouse.column_mapping,
    )
    found = list(findings(seen, form)) or list(_tried(seen, warehouse, form))
    return Preflight(
        name,
        form,
        tuple(found),
        remarks(seen),
        table.format,
        len(seen.files.read),
        sum(each.size for each in seen.files.read),
        len(partitions),
    )


def findings(seen: Seen, form: TargetFormat) -> Iterator[Finding]:
    """Yield what would stop the migration."""
    table = seen.table
    if table.managed and not seen.movable:
        yield Finding(
            PauseReason.MANAGED_TABLE,
            f"{table.name} is managed, and nothing here makes it external: run the fleet on a cluster whose "
            "driver runs this very process, or in Hive ALTER TABLE … SET TBLPROPERTIES ('EXTERNAL'='TRUE')",
        )
    if table.properties.get(PURGE, "").lower() == "true":
        yield Finding(
            PauseReason.REMOVES_FILES,
            f"{table.name} removes its files when it or a partition is dropped, which the new table reads: "
            f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{PURGE}' = 'false')",
        )
    if seen.neighbours:
        others = [f"{name} at {place}" for name, place in seen.neighbours]
        yield Finding(
            PauseReason.SHARED_DIRECTORY,
            f"other tables are in the directory of {table.name}, {table.location}, in one below it or above "
            "it, or in the one beside it that ends in _sync, where the Hive copy's rows will go: "
            f"{first_of(others)}; what is written to one would be seen in another, or lost to it: drop "
            "the entries that nobody needs, or give each table a directory of its own",
        )
    outside = [each for each in seen.partitions if below(each.location, table.location) is None]
    if outside and form is TargetFormat.DELTA:
        yield Finding(
            PauseReason.UNSUPPORTED_LAYOUT,
            f"{table.name} has partitions outside its directory, which no Delta log names: "
            f"{first_of([str(each) for each in outside])}; move them below it, or choose Iceberg",
        )
    if seen.files.nested:
        yield Finding(
            PauseReason.UNSUPPORTED_LAYOUT,
            f"{table.name} has files in directories below its own or its partitions', which Spark leaves "
            f"out: {first_of([each.path for each in seen.files.nested])}; move them up, or away",
        )
    unsuitable = [".".join(path) for path in _names(table) if not overlay.is_plain_name(path[-1])]
    if unsuitable and form is TargetFormat.DELTA and not seen.column_mapping:
        yield Finding(
            PauseReason.UNSUPPORTED_SCHEMA,
            f"{table.name} has names that Delta takes by column mapping alone: {first_of(unsuitable)}; set "
            "column_mapping: true, which needs readers that know it, or choose Iceberg",
        )
    kinds = {column.name.lower(): column.type["name"] for column in table.columns}
    if table.format == "avro" and any(kinds[each.lower()] in _INTEGERS for each in table.partition_columns):
        nulls = [each.spec for each in seen.partitions if NULL in each.spec]
        if nulls:
            yield Finding(
                PauseReason.UNSUPPORTED_LAYOUT,
                f"{table.name} is stored as Avro and has a null partition of an integer column ({nulls[0]}), "
                "which Spark itself can't read: give these rows a number, or drop the partition",
            )


def remarks(seen: Seen) -> tuple[str, ...]:
    """Return what people should know of a table that can be migrated."""
    found = []
    if seen.table.partition_columns:
        found.append(
            "a job that replaces partitions with INSERT OVERWRITE has to set "
            "spark.sql.sources.partitionOverwriteMode=dynamic after the switch, or it removes all others"
        )
    if seen.files.stray:
        some = first_of([each.path for each in seen.files.stray])
        found.append(f"files that belong to no partition are left where they are: {some}")
    return tuple(found)


def _tried(seen: Seen, warehouse: Warehouse, form: TargetFormat) -> Iterator[Finding]:
    """Plan what later steps do with the table's columns and files."""
    table = seen.table
    try:
        copy = HiveCopy.read(warehouse, table.name, owning=True)
        copy.rows(warehouse.spark.table(table.name.sql)).schema.json()
    except SPARK_ERRORS as error:
        yield Finding(
            PauseReason.UNSUPPORTED_SCHEMA,
            f"the columns of {table.name} can't be read the way the Hive copy is kept in step "
            f"({first_line(error)}): rename what has an odd name, or leave the table in Hive",
        )
    if form is TargetFormat.DELTA:
        try:
            delta.check(warehouse, table, empty=not seen.files.read)
        except Refused as error:
            yield Finding(PauseReason.UNSUPPORTED_LAYOUT, str(error))


def _names(table: HiveTable) -> Iterator[tuple[str, ...]]:
    """Name all columns and fields, each by its path."""

    def inside(path: tuple[str, ...], kind: Type) -> Iterator[tuple[str, ...]]:
        yield path
        for each in kind.get("fields", ()):
            yield from inside((*path, each["name"]), each["type"])
        for part in ("element_type", "key_type", "value_type"):
            if part in kind:
                yield from inside(path, kind[part])

    for column in table.columns:
        yield from inside((column.name,), column.type)
