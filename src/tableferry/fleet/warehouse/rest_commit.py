"""Data files into an Iceberg table of a REST catalog, where Spark's driver isn't this process.

A client of Spark Connect reaches no JVM, but a REST catalog takes anybody's commits: footers are read here,
and pyiceberg writes the manifest and commits. It logs in as the session's catalog does, and as its own
settings say of a catalog of that name.
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
from tableferry.fleet.warehouse import data_files, manifest_file
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.data_files import Appended, Change
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.name_mapping import MAPPING, mapping_of
from tableferry.fleet.warehouse.versions import NO_SNAPSHOT
from tableferry.formats.parquet.iceberg_metrics import End, read_ends
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table, Transaction

_log = logging.getLogger(__name__)

# What Java's Iceberg alone understands.
_JAVA = ("catalog-impl", "io-impl", "cache-enabled", "type")
_PATIENCE_SECONDS = 5


class _Catalog(NamedTuple):
    """A REST catalog.

    Attributes:
        settings: Those of the session, without what Java's Iceberg alone understands.
    """

    name: str
    settings: Mapping[str, str]

    def said(self, error: Exception) -> str:
        """Return what an error says, without secrets: an HTTP header that isn't one is quoted in it."""
        text = first_line(error)
        login = self.settings.get("uri", "").rpartition("@")[0].rpartition("/")[2]
        secrets = [value for key, value in self.settings.items() if key not in ("uri", "warehouse")]
        # Of a login that is an identity and a secret, servers may quote one of both.
        halves = [both.partition(":")[2] for both in (login, self.settings.get("credential", ""))]
        for secret in sorted(map(str.strip, [login, *secrets, *halves]), key=len, reverse=True):
            text = text.replace(secret, "…") if secret else text
        return text


def append(warehouse: Warehouse, target: TableName, change: Change) -> Appended | None:
    """Add Parquet files to a table, as `manifests.append` does; None where that can't be done.

    It can't where the table's catalog isn't a REST catalog, where it or the files aren't reached from here,
    or nothing can be written beside the table's metadata.

    Raises:
        TableError: The commit failed, as somebody else's came first or files to take out aren't there, or
            nobody knows whether it did.
        Refused: Iceberg would read other numbers than a file has.
    """
    name, source = warehouse.iceberg(target), change.source
    if source.format != "parquet" or (catalog := _catalog(warehouse, name.parts[0])) is None:
        return None
    if (table := _loaded(catalog, name)) is None:
        return None
    schema = json.loads(table.schema().model_dump_json())
    leaves, known = data_files.leaves_of(schema), table.properties
    # pyiceberg writes no manifests of version 3.
    written = table.format_version in (1, 2)
    if not written or not data_files.are_measured(leaves, known) or _snapshot(table) != change.after:
        return None
    mapping = known.get(MAPPING) or json.dumps(mapping_of(schema))
    added = data_files.entries_of(change, leaves, partial(_ends, table.io))
    if added is None:
        _log.debug("not all files of %s are read from here, so that Spark adds them to %s", source.name, name)
        return None
    taken = {file.path for file, _ in change.gone}
    try:
        transaction, since = _staged(table, {MAPPING: mapping, **change.properties}, added, taken)
    except TableError:
        raise
    except Exception as error:
        # Whatever keeps this process from writing beside the table, Spark may be let.
        _log.warning("pyiceberg can't add to %s, so that Spark adds its files: %s", name, catalog.said(error))
        return None
    warehouse.effect(lambda: _commit(catalog, name, transaction), of=())
    samples = data_files.samples_of(source, added, leaves)
    return Appended(samples, None if since == NO_SNAPSHOT else since, _snapshot(table), mapping)


def _catalog(warehouse: Warehouse, name: str) -> _Catalog | None:
    """Return a catalog as the session knows it; None if it isn't a REST catalog, or doesn't answer."""
    prefix = f"spark.sql.catalog.{name}."
    every = warehouse.spark.conf.getAll
    found = {key.removeprefix(prefix): value for key, value in every.items() if key.startswith(prefix)}
    if found.get("type") != "rest" and not found.get("catalog-impl", "").endswith(".RESTCatalog"):
        return None
    if not _answers(found.get("uri", "")):
        return None
    return _Catalog(name, {key: value for key, value in found.items() if key not in _JAVA})


@lru_cache
def _answers(uri: str) -> bool:
    """Say whether anybody listens there; asked once in a process, for pyiceberg would wait for minutes."""
    host = None
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        if host is not None:
            socket.create_connection((host, port), timeout=_PATIENCE_SECONDS).close()
            return True
        error: Exception | str = "it has no address"
    except (OSError, ValueError) as failure:
        error = failure
    _log.warning("%s isn't reached from here, so that Spark adds files there: %s", host or "a catalog", error)
    return False


def _loaded(catalog: _Catalog, name: TableName) -> Table | None:
    """Load a table; None if pyiceberg doesn't reach it."""
    try:
        # It reads its own settings as it's imported.
        from pyiceberg.catalog import load_catalog

        settings: dict[str, Any] = {**catalog.settings, "type": "rest"}
        return load_catalog(catalog.name, **settings).load_table(name.parts[1:])
    except Exception as error:
        # Whatever is wrong between here and the catalog, Spark may reach it.
        _log.warning("pyiceberg doesn't load %s, so that Spark adds its files: %s", name, catalog.said(error))
        return None


def _ends(io: FileIO, files: Sequence[ListedFile]) -> Iterator[End]:
    def read_range(number: int, start: int, count: int) -> bytes:
        try:
            with io.new_input(files[number].path).open() as stream:
                stream.seek(start)
                return stream.read(count)
        except Exception as error:
            # Each storage has errors of its own.
            raise StateError(
                "DATA_FILE_NOT_READABLE", file=files[number].path, reason=first_line(error)
            ) from error

    return read_ends([file.size for file in files], read_range)


def _staged(
    table: Table,
    properties: Mapping[str, str],
    added: Sequence[manifest_file.Entry],
    taken: Collection[str],
) -> tuple[Transaction, str]:
    """Write what a commit needs; return it with the snapshot before the files are added.

    Raises:
        TableError: Files to take out aren't there.
    """
    # By itself pyiceberg tries again, on top of what somebody else has committed meanwhile.
    once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": once})
    transaction = table.transaction()
    transaction.set_properties(dict(properties))
    if taken:
        files = [task.file for task in table.scan().plan_files() if task.file.file_path in taken]
        if len(files) != len(taken):
            raise TableError(
                "FILES_TO_REMOVE_MISSING", table=".".join(table.name()), count=len(files), expected=len(taken)
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
    return transaction, NO_SNAPSHOT if since is None else str(since)


def _commit(catalog: _Catalog, name: TableName, transaction: Transaction) -> None:
    from pyiceberg.exceptions import CommitFailedException

    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        raise TableError("ICEBERG_COMMIT_LOST_RACE", table=name, reason=catalog.said(error)) from error
    except Exception as error:
        raise TableError("ICEBERG_COMMIT_UNKNOWN", table=name, reason=catalog.said(error)) from error


def _snapshot(table: Table) -> str:
    current = table.metadata.current_snapshot_id
    return NO_SNAPSHOT if current is None else str(current)
