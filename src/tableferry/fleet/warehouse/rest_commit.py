"""Data files into an Iceberg table of a REST catalog, where Spark's driver isn't this process.

A client of Spark Connect reaches no JVM, but a REST catalog takes anybody's commits: footers are read here,
and pyiceberg writes the manifest and commits. It logs in as the session's catalog does, and as its own
settings say of a catalog of that name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tableferry.convert.parquet.metrics import End, read_ends
from tableferry.errors import StateError, TableError, first_line
from tableferry.fleet.warehouse import data_files, manifest_file
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.data_files import Appended
from tableferry.fleet.warehouse.eligibility import HiveTable
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.name_mapping import MAPPING, mapping_of
from tableferry.fleet.warehouse.prepared import Member
from tableferry.fleet.warehouse.versions import NO_SNAPSHOT
from tableferry.hive.partitions import CatalogPartition
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

_log = logging.getLogger(__name__)

# What Java's Iceberg alone understands.
_JAVA = ("catalog-impl", "io-impl", "cache-enabled", "type")


def append(
    warehouse: Warehouse,
    source: HiveTable,
    target: TableName,
    files: Sequence[ListedFile],
    partitions: Sequence[CatalogPartition],
    properties: Mapping[str, str],
    *,
    after: str,
    gone: Collection[Member],
) -> Appended | None:
    """Add Parquet files to a table, as `manifests.append` does; None where that can't be done.

    It can't where the table's catalog isn't a REST catalog, or it or the files aren't reached from here.

    Raises:
        TableError: The commit failed, as somebody else's came first or files to take out aren't there, or
            nobody knows whether it did.
    """
    if source.format != "parquet" or (table := _loaded(warehouse, warehouse.iceberg(target))) is None:
        return None
    schema = json.loads(table.schema().model_dump_json())
    ids, known = data_files.leaf_ids(schema), table.properties
    if not data_files.are_measured(ids, known) or _snapshot(table) != after:
        return None
    mapping = known.get(MAPPING) or json.dumps(mapping_of(schema))
    added = data_files.entries_of(source, files, partitions, ids, lambda files: _ends(table.io, files))
    if added is None:
        return None
    taken = {file.path for file, _ in gone}
    since = warehouse.effect(lambda: _commit(table, {MAPPING: mapping, **properties}, added, taken), of=())
    samples = data_files.samples_of(source, added, ids)
    return Appended(samples, None if since == NO_SNAPSHOT else since, _snapshot(table), mapping)


def _loaded(warehouse: Warehouse, name: TableName) -> Table | None:
    """Load a table; None if its catalog isn't a REST catalog, or pyiceberg doesn't reach it."""
    catalog, *rest = name.parts
    prefix = f"spark.sql.catalog.{catalog}."
    every = warehouse.spark.conf.getAll
    found = {key.removeprefix(prefix): value for key, value in every.items() if key.startswith(prefix)}
    if found.get("type") != "rest" and not found.get("catalog-impl", "").endswith(".RESTCatalog"):
        return None
    from pyiceberg.catalog import load_catalog

    settings: dict[str, Any] = {key: value for key, value in found.items() if key not in _JAVA}
    try:
        return load_catalog(catalog, type="rest", **settings).load_table(tuple(rest))
    except Exception as error:
        # Whatever is wrong between here and the catalog, Spark may reach it.
        _log.warning("pyiceberg doesn't load %s, so that Spark adds its files: %s", name, first_line(error))
        return None


def _ends(io: FileIO, files: Sequence[ListedFile]) -> Iterator[End]:
    def read_range(number: int, start: int, count: int) -> bytes:
        try:
            with io.new_input(files[number].path).open() as stream:
                stream.seek(start)
                return stream.read(count)
        except Exception as error:
            # Each storage has errors of its own.
            raise StateError(f"{files[number].path} can't be read ({first_line(error)})") from error

    return read_ends([file.size for file in files], read_range)


def _commit(
    table: Table,
    properties: Mapping[str, str],
    added: Sequence[manifest_file.Entry],
    taken: Collection[str],
) -> str:
    """Commit all of it at once; return the snapshot before the files were added."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import TableProperties

    name = ".".join(table.name())
    # By itself pyiceberg tries again, on top of what somebody else has committed meanwhile.
    once = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": once})
    try:
        transaction = table.transaction()
        transaction.set_properties(dict(properties))
        if taken:
            files = [task.file for task in table.scan().plan_files() if task.file.file_path in taken]
            if len(files) != len(taken):
                raise TableError(
                    f"{len(files)} files would be taken out of {name}, and not {len(taken)}: drop it, and "
                    "run again"
                )
            with transaction.update_snapshot().overwrite() as overwrite:
                for file in files:
                    overwrite.delete_data_file(file)
        since = transaction.table_metadata.current_snapshot_id
        if added:
            with transaction.update_snapshot().fast_append() as append:
                for entry in added:
                    file = manifest_file.data_file(entry)
                    file.spec_id = table.spec().spec_id
                    append.append_data_file(file)
        transaction.commit_transaction()
    except TableError:
        raise
    except CommitFailedException as error:
        raise TableError(f"{name} was changed meanwhile ({first_line(error)}): run again") from error
    except Exception as error:
        # Of the way to the catalog, and of the storage.
        raise TableError(
            f"nobody knows whether files were added to {name} ({first_line(error)}): fix the cause, and run "
            "again"
        ) from error
    return NO_SNAPSHOT if since is None else str(since)


def _snapshot(table: Table) -> str:
    current = table.metadata.current_snapshot_id
    return NO_SNAPSHOT if current is None else str(current)
