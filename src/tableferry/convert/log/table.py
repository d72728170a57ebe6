"""Reads a converted table at its newest version, if nobody but Tableferry wrote its rows.

deltalake reads the log and writes its checkpoints. It can't commit what is needed here, added and removed
files and a new schema at once, so that commit is written as the first one is: a file that must not be there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tableferry import files
from tableferry.convert.facts import DataFile
from tableferry.convert.log import commit, existing
from tableferry.convert.log.contents import ICEBERG
from tableferry.errors import MissingPackage, Refused, TableError, first_line
from tableferry.extras import install
from tableferry.hive.partitions import PartitionColumn
from tableferry.types import Struct

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.table import ProtocolVersions

# What a commit of other writers may hold without a word about rows: settings, and notes of a VACUUM.
_SILENT = frozenset({"commitInfo", "metaData", "protocol", "txn", "domainMetadata"})
# Features by which a commit that names files says nothing more than one without them.
_FEATURES = frozenset(
    {"appendOnly", "invariants", "columnMapping", "timestampNtz", "variantType", "variantType-preview"}
    | {"allowColumnDefaults", "clustering", "domainMetadata", "deletionVectors", "changeDataFeed"}
    | {"typeWidening", "typeWidening-preview", "vacuumProtocolCheck", "v2Checkpoint"}
)
# Which version of the protocol for writers has which feature without naming it, and which names them all.
_VERSIONS = (
    *((2, "appendOnly"), (2, "invariants"), (3, "checkConstraints"), (4, "changeDataFeed")),
    *((4, "generatedColumns"), (5, "columnMapping"), (6, "identityColumns")),
)
_NAMED = 7
# The version for readers that has column mapping.
_MAPPING = 2
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.")


class NotConverted(Refused):
    """It's no Delta table, or one that didn't begin as a conversion."""


@dataclass(frozen=True)
class Table:
    """A Delta table as its newest version describes it.

    Attributes:
        files: The data files that it names, with where each is, by the name that its log has for it.
        about: What else its metadata says: ``name``, ``description`` and ``createdTime``, where known.
        features: The table features that its readers have to know, and those that its writers have to.
    """

    root: files.AnyPath
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
        """The id by which the log keeps which version was the last that `convert sync` wrote."""
        return application(self.table_id)


def application(table_id: str) -> str:
    """Return the ``appId`` of a table's transactions."""
    return f"tableferry-sync-{table_id}"


def read(root: files.AnyPath) -> Table:
    """Read a table, and make sure that its rows are those of the files in its folder.

    Raises:
        NotConverted: It's no Delta table, or doesn't begin with a conversion.
        Refused: Somebody else wrote rows to it, or it has properties by which who writes has to do more than
            name files.
        SessionError: deltalake isn't installed.
        TableError: Its log can't be understood.
    """
    delta = _open(root)
    metadata, protocol = delta.metadata(), delta.protocol()
    schema, partition_columns = existing.columns_of(delta.schema().to_json(), metadata.partition_columns)
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
    _demand_ours(table, delta.transaction_version(table.application))
    _demand_plain(table, protocol.writer_features or ())
    return table


def write_checkpoint(root: files.AnyPath, version: int | None = None) -> None:
    """Write a checkpoint of the newest version, and remove what has expired of the log before it.

    Args:
        root: The table's folder.
        version: Another version, if one is to have the checkpoint; then nothing is removed.

    Raises:
        SessionError: deltalake isn't installed.
        TableError: It can't be written; the table is as it was, and its readers read more of its log.
    """
    delta = _open(root, version)
    from deltalake.exceptions import DeltaError

    try:
        delta.create_checkpoint()
        if version is None:
            delta.cleanup_metadata()
    except (DeltaError, OSError) as error:
        raise TableError("CHECKPOINT_NOT_WRITTEN", table=root, reason=first_line(error)) from error


def _open(root: files.AnyPath, version: int | None = None) -> DeltaTable:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "MISSING_PACKAGE_FOR_SYNC", package=error.name, command=install("sync")
        ) from error
    options = files.delta_options(root) if isinstance(root, files.ObjectPath) else None
    try:
        return DeltaTable(str(root), version, storage_options=options)
    except TableNotFoundError as error:
        raise NotConverted("SYNC_OF_PARQUET_TABLE", table=root) from error
    except (DeltaError, OSError) as error:
        raise TableError("DELTA_LOG_NOT_READABLE", table=root, reason=first_line(error)) from error


def _demand_ours(table: Table, last: int | None) -> None:
    """Refuse a table to which somebody else wrote rows.

    A commit of `sync` says its own version. It's written only where all before it may be followed, so only
    those after it are looked at.
    """
    for version in range(0 if last is None else last + 1, table.version + 1):
        name = commit.log(table.root) / f"{version:020}.json"
        text = files.read_text(name)
        if text is None:
            raise Refused("SYNC_COMMIT_MISSING", table=table.root, commit=name.name)
        actions = [json.loads(line) for line in text.split("\n") if line]
        if version == 0:
            if not any(_operation(action) == commit.OPERATION for action in actions):
                raise NotConverted("SYNC_OF_DELTA_TABLE", table=table.root)
            if any(ICEBERG in (action.get("commitInfo") or {}) for action in actions):
                raise NotConverted("SYNC_OF_ICEBERG_TABLE", table=table.root)
            continue
        if wrote := _rows(actions, table, last or 0):
            by = next(filter(None, map(_operation, actions)), "a writer without a name")
            raise Refused(
                "TABLE_WRITTEN_AS_DELTA", table=table.root, version=version, operation=by, change=wrote
            )


def _operation(action: Mapping[str, Any]) -> str:
    return str((action.get("commitInfo") or {}).get("operation", ""))


def _rows(actions: Sequence[Mapping[str, Any]], table: Table, since: int) -> str:
    """Say what a commit by somebody else did to a table's rows or columns; empty if it did nothing."""
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
    return ""


def _features(protocol: ProtocolVersions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name the features of a protocol; those that came before features had names are part of a version."""
    reading, writing = protocol.reader_features or (), protocol.writer_features or ()
    if protocol.min_writer_version < _NAMED:
        writing = [name for since, name in _VERSIONS if since <= protocol.min_writer_version]
        reading = ["columnMapping"] if protocol.min_reader_version == _MAPPING else []
    return tuple(reading), tuple(writing)


def _demand_plain(table: Table, features: Collection[str]) -> None:
    """Refuse what makes a writer check rows, or number them."""
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
