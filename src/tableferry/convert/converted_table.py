"""Read a converted table at its newest version, after a check that only Tableferry changed its rows.

deltalake reads the log and writes checkpoints. It can't commit added files, removed files and a new schema
together, so `changes` and `commit` write that commit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tableferry import storage
from tableferry.convert import existing_log
from tableferry.convert.commit_contents import ICEBERG
from tableferry.errors import MissingPackage, Refused, TableError, first_line
from tableferry.extras import install
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.parquet.files import DataFile
from tableferry.spark.types import Struct

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.table import ProtocolVersions

# Actions that don't change rows, so that other writers may commit them: settings, and the commits of VACUUM.
_SILENT = frozenset({"commitInfo", "metaData", "protocol", "txn", "domainMetadata"})
# Features that require nothing more of a commit that adds and removes files.
_FEATURES = frozenset(
    {"appendOnly", "invariants", "columnMapping", "timestampNtz", "variantType", "variantType-preview"}
    | {"allowColumnDefaults", "clustering", "domainMetadata", "deletionVectors", "changeDataFeed"}
    | {"typeWidening", "typeWidening-preview", "vacuumProtocolCheck", "v2Checkpoint"}
)
# The writer version of the protocol from which each feature is included without its name. Versions from
# `_NAMED` on list all features by name.
_VERSIONS = (
    *((2, "appendOnly"), (2, "invariants"), (3, "checkConstraints"), (4, "changeDataFeed")),
    *((4, "generatedColumns"), (5, "columnMapping"), (6, "identityColumns")),
)
_NAMED = 7
# The reader version of the protocol that includes column mapping.
_MAPPING = 2
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.")


class NotConverted(Refused):
    """The folder isn't a Delta table, or the Delta table doesn't begin with a conversion."""


@dataclass(frozen=True)
class Table:
    """A Delta table as its newest version describes it.

    Attributes:
        files: Its data files, by their paths as the log stores them.
        about: Other metadata, if known: ``name``, ``description`` and ``createdTime``.
        features: The table features that readers have to support, and those that writers have to support.
    """

    root: storage.AnyPath
    version: int
    table_id: str
    schema: Struct
    partition_columns: tuple[PartitionColumn, ...]
    files: Mapping[str, DataFile]
    configuration: Mapping[str, str]
    about: Mapping[str, Any]
    features: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def application(self) -> str:
        """The application id under which the log records the last version that `convert sync` wrote."""
        return application(self.table_id)


def application(table_id: str) -> str:
    """Return the ``appId`` of the transactions that `convert sync` writes to a table."""
    return f"tableferry-sync-{table_id}"


def read(root: storage.AnyPath) -> Table:
    """Return a table's newest version, after a check that only Tableferry changed its rows.

    Raises:
        NotConverted: The folder isn't a Delta table, or the table doesn't begin with a conversion.
        Refused: Another writer changed rows or columns, or the table has features that require more of a
            writer than adding and removing files.
        SessionError: deltalake isn't installed.
        TableError: The log can't be read, or its schema has an unknown type.
    """
    delta = _open(root)
    metadata, protocol = delta.metadata(), delta.protocol()
    schema, partition_columns = existing_log.columns_of(delta.schema().to_json(), metadata.partition_columns)
    if schema is None:
        raise TableError("DELTA_LOG_SCHEMA_UNKNOWN", table=root)
    adds = delta.get_add_actions()
    named = zip(
        *(adds.column(name).to_pylist() for name in ("path", "size_bytes", "modification_time")), strict=True
    )
    table = Table(
        root,
        delta.version(),
        str(metadata.id),
        schema,
        partition_columns,
        {path: DataFile(unquote(path), size, modified) for path, size, modified in named},
        dict(metadata.configuration),
        {
            name: value
            for name, value in (
                ("name", metadata.name),
                ("description", metadata.description),
                ("createdTime", metadata.created_time),
            )
            if value is not None
        },
        _features(protocol),
    )
    _require_ours(table, delta.transaction_version(table.application))
    _require_plain(table, protocol.writer_features or ())
    return table


def write_checkpoint(root: storage.AnyPath, version: int | None = None) -> None:
    """Write a checkpoint of the newest version, and remove expired files of the log before it.

    Args:
        root: The table's folder.
        version: The version of the checkpoint if it isn't the newest; then nothing is removed.

    Raises:
        SessionError: deltalake isn't installed.
        TableError: The checkpoint can't be written. The table is unchanged, but readers read more of its log.
    """
    delta = _open(root, version)
    from deltalake.exceptions import DeltaError

    try:
        delta.create_checkpoint()
        if version is None:
            delta.cleanup_metadata()
    except (DeltaError, OSError) as error:
        raise TableError("CHECKPOINT_NOT_WRITTEN", table=root, reason=first_line(error)) from error


def _open(root: storage.AnyPath, version: int | None = None) -> DeltaTable:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "MISSING_PACKAGE_FOR_SYNC", package=error.name, command=install("sync")
        ) from error
    options = storage.delta_options(root) if isinstance(root, storage.ObjectPath) else None
    try:
        return DeltaTable(str(root), version, storage_options=options)
    except TableNotFoundError as error:
        raise NotConverted("SYNC_OF_PARQUET_TABLE", table=root) from error
    except (DeltaError, OSError) as error:
        raise TableError("DELTA_LOG_NOT_READABLE", table=root, reason=first_line(error)) from error


def _require_ours(table: Table, last: int | None) -> None:
    """Refuse a table whose rows or columns another writer changed.

    A commit of `sync` records its own version (``last``). `sync` checks all commits before it writes, so this
    function checks only the commits after that version.

    Raises:
        NotConverted: The first commit isn't a conversion of a Parquet table.
        Refused: Another writer changed rows or columns, or a commit to check is missing.
    """
    for version in range(0 if last is None else last + 1, table.version + 1):
        name = initial_commit.log(table.root) / f"{version:020}.json"
        text = storage.read_text(name)
        if text is None:
            raise Refused("SYNC_COMMIT_MISSING", table=table.root, commit=name.name)
        actions = [json.loads(line) for line in text.split("\n") if line]
        if version == 0:
            if not any(_operation(action) == initial_commit.OPERATION for action in actions):
                raise NotConverted("SYNC_OF_DELTA_TABLE", table=table.root)
            if any(ICEBERG in (action.get("commitInfo") or {}) for action in actions):
                raise NotConverted("SYNC_OF_ICEBERG_TABLE", table=table.root)
            continue
        if wrote := _change_of_rows(actions, table, last or 0):
            by = next(filter(None, map(_operation, actions)), "a writer without a name")
            raise Refused(
                "TABLE_WRITTEN_AS_DELTA", table=table.root, version=version, operation=by, change=wrote
            )


def _operation(action: Mapping[str, Any]) -> str:
    return str((action.get("commitInfo") or {}).get("operation", ""))


def _change_of_rows(actions: Sequence[Mapping[str, Any]], table: Table, since: int) -> str | None:
    """Return how another writer's commit changed a table's rows or columns; None if it didn't."""
    if any(action.keys() - _SILENT for action in actions):
        return "changes its files"
    described = [action["metaData"] for action in actions if "metaData" in action]
    if described:
        before = _open(table.root, since)
        columns, partitioned_by = before.schema().to_json(), before.metadata().partition_columns
        if any(
            json.loads(metadata["schemaString"]) != json.loads(columns)
            or metadata["partitionColumns"] != partitioned_by
            for metadata in described
        ):
            return "changes its columns"
    return None


def _features(protocol: ProtocolVersions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the reader features and the writer features of a protocol.

    Protocol versions before named features include some features without listing them.
    """
    reading, writing = protocol.reader_features or (), protocol.writer_features or ()
    if protocol.min_writer_version < _NAMED:
        writing = [name for since, name in _VERSIONS if since <= protocol.min_writer_version]
        reading = ["columnMapping"] if protocol.min_reader_version == _MAPPING else []
    return tuple(reading), tuple(writing)


def _require_plain(table: Table, features: Collection[str]) -> None:
    """Refuse a table with features or properties that require a writer to check or number rows."""
    needed = [feature for feature in features if feature not in _FEATURES]
    needed += [key for key in table.configuration if key.startswith("delta.constraints.")]
    needed += [
        key
        for column in table.schema.fields
        for key in column.metadata
        if any(key.startswith(rule) for rule in _RULES)
    ]
    needed += [f"{column.name} NOT NULL" for column in table.schema.fields if not column.nullable]
    if needed:
        raise Refused("SYNC_NEEDS_ROW_CHECKS", table=table.root, features=needed)
