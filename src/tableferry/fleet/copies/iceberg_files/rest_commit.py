"""Add Parquet files to an Iceberg table of a REST catalog through pyiceberg, without Java.

Clients of Spark Connect need this, because they don't reach the driver's Java. pyiceberg logs in with the
settings of the session's catalog and with its own settings for a catalog of that name.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from tableferry.errors import StateError, TableError, first_line
from tableferry.fleet.copies.iceberg_files import data_files
from tableferry.fleet.copies.iceberg_files.data_files import Appended, Change, Entry
from tableferry.fleet.copies.iceberg_files.name_mapping import MAPPING, mapping_of
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT
from tableferry.formats.parquet.iceberg_metrics import End, read_ends
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table, Transaction

_log = logging.getLogger(__name__)

# Settings that only Iceberg in Java understands.
_JAVA_SETTINGS = ("catalog-impl", "io-impl", "cache-enabled", "type")
_CONNECT_SECONDS = 5


class _Catalog(NamedTuple):
    """A REST catalog.

    Attributes:
        settings: The session's settings, without those that only Iceberg in Java understands.
    """

    name: str
    settings: Mapping[str, str]

    def message_of(self, error: Exception) -> str:
        """Return an error's message without secrets; messages may quote invalid HTTP headers."""
        text = first_line(error)
        login = self.settings.get("uri", "").rpartition("@")[0].rpartition("/")[2]
        secrets = [value for key, value in self.settings.items() if key not in ("uri", "warehouse")]
        # Servers may quote only the identity or only the secret of a login.
        halves = [both.partition(":")[2] for both in (login, self.settings.get("credential", ""))]
        for secret in sorted(map(str.strip, [login, *secrets, *halves]), key=len, reverse=True):
            text = text.replace(secret, "…") if secret else text
        return text


def append(warehouse: Warehouse, target: TableName, change: Change) -> Appended | None:
    """Add Parquet files to a table, as `iceberg_commit.append` does; None if that can't be done here.

    It can't if the table's catalog isn't a REST catalog, if this process doesn't reach the catalog or the
    files, or if it can't write beside the table's metadata.

    Raises:
        TableError: Another commit was first, a file to remove is missing, or the commit's result is unknown.
        Refused: Iceberg would read other numbers than a file contains.
    """
    name, source = warehouse.iceberg(target), change.source
    if source.format != "parquet" or (catalog := _catalog(warehouse, name.parts[0])) is None:
        return None
    if (table := _load(catalog, name)) is None:
        return None
    schema = json.loads(table.schema().model_dump_json())
    leaves, known = data_files.leaves_of(schema), table.properties
    # pyiceberg writes no manifests of version 3.
    written = table.format_version in (1, 2)
    if not written or not data_files.has_default_metrics(leaves, known) or _snapshot(table) != change.after:
        return None
    mapping = known.get(MAPPING) or json.dumps(mapping_of(schema))
    added = data_files.read_entries(change, leaves, partial(_read_ends, table.io))
    if added is None:
        _log.debug("this process can't read all files of %s, so Spark adds them to %s", source.name, name)
        return None
    removed = {file.path for file, _ in change.gone}
    try:
        transaction, since = _stage(table, {MAPPING: mapping, **change.properties}, added, removed)
    except TableError:
        raise
    except Exception as error:
        # Spark may have the right to write that this process lacks.
        _log.warning(
            "pyiceberg can't add to %s, so Spark adds its files: %s", name, catalog.message_of(error)
        )
        return None
    warehouse.effect(lambda: _commit(catalog, name, transaction), of=())
    samples = data_files.sample_files(source, added, leaves)
    return Appended(samples, None if since == NO_SNAPSHOT else since, _snapshot(table), mapping)


def _catalog(warehouse: Warehouse, name: str) -> _Catalog | None:
    """Return a catalog with the session's settings; None if it isn't a REST catalog, or doesn't answer."""
    prefix = f"spark.sql.catalog.{name}."
    every = warehouse.spark.conf.getAll
    found = {key.removeprefix(prefix): value for key, value in every.items() if key.startswith(prefix)}
    if found.get("type") != "rest" and not found.get("catalog-impl", "").endswith(".RESTCatalog"):
        return None
    if not _is_answering(found.get("uri", "")):
        return None
    return _Catalog(name, {key: value for key, value in found.items() if key not in _JAVA_SETTINGS})


@lru_cache
def _is_answering(uri: str) -> bool:
    """Return whether a server accepts connections, because pyiceberg would wait for minutes.

    The answer is cached for the process.
    """
    host = None
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        if host is not None:
            socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
            return True
        error: Exception | str = "it has no address"
    except (OSError, ValueError) as failure:
        error = failure
    _log.warning("this process doesn't reach %s, so Spark adds files there: %s", host or "a catalog", error)
    return False


def _load(catalog: _Catalog, name: TableName) -> Table | None:
    """Load a table; None if pyiceberg can't load it."""
    try:
        # pyiceberg reads its own settings when it's imported.
        from pyiceberg.catalog import load_catalog

        settings: dict[str, Any] = {**catalog.settings, "type": "rest"}
        return load_catalog(catalog.name, **settings).load_table(name.parts[1:])
    except Exception as error:
        # Spark may reach a catalog that this process doesn't reach.
        _log.warning("pyiceberg can't load %s, so Spark adds its files: %s", name, catalog.message_of(error))
        return None


def _read_ends(io: FileIO, files: Sequence[ListedFile]) -> Iterator[End]:
    def read_range(number: int, start: int, count: int) -> bytes:
        try:
            with io.new_input(files[number].path).open() as stream:
                stream.seek(start)
                return stream.read(count)
        except Exception as error:
            # Each storage client has its own exceptions.
            raise StateError(
                "DATA_FILE_NOT_READABLE", file=files[number].path, reason=first_line(error)
            ) from error

    return read_ends([file.size for file in files], read_range)


def _stage(
    table: Table,
    properties: Mapping[str, str],
    added: Sequence[Entry],
    removed: Collection[str],
) -> tuple[Transaction, str]:
    """Write the files of a commit; return the transaction and the snapshot before the files are added.

    Raises:
        TableError: Files to remove are missing.
    """
    from tableferry.fleet.copies.iceberg_files import manifest

    # By default, pyiceberg retries a commit on top of other commits.
    once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": once})
    transaction = table.transaction()
    transaction.set_properties(dict(properties))
    if removed:
        files = [task.file for task in table.scan().plan_files() if task.file.file_path in removed]
        if len(files) != len(removed):
            raise TableError(
                "FILES_TO_REMOVE_MISSING",
                table=".".join(table.name()),
                count=len(files),
                expected=len(removed),
            )
        with transaction.update_snapshot().overwrite() as overwrite:
            for file in files:
                overwrite.delete_data_file(file)
    since = transaction.table_metadata.current_snapshot_id
    if added:
        with transaction.update_snapshot().fast_append() as append:
            for entry in added:
                file = manifest.data_file(entry)
                file.spec_id = table.spec().spec_id
                append.append_data_file(file)
    return transaction, NO_SNAPSHOT if since is None else str(since)


def _commit(catalog: _Catalog, name: TableName, transaction: Transaction) -> None:
    from pyiceberg.exceptions import CommitFailedException

    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        raise TableError("ICEBERG_COMMIT_LOST_RACE", table=name, reason=catalog.message_of(error)) from error
    except Exception as error:
        raise TableError("ICEBERG_COMMIT_UNKNOWN", table=name, reason=catalog.message_of(error)) from error


def _snapshot(table: Table) -> str:
    current = table.metadata.current_snapshot_id
    return NO_SNAPSHOT if current is None else str(current)
