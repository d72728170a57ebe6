"""Write the lines of a Delta table's first commit, ordered as in Delta's own CONVERT TO DELTA.

The actions are those of https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from urllib.parse import quote

from tableferry import __version__
from tableferry.convert import definitions
from tableferry.formats.delta import column_mapping, initial_commit
from tableferry.formats.delta.statistics import INDEXED, leaves_needed, statistics_json, with_statistics
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.formats.hive.locations import split
from tableferry.formats.iceberg.tables import IcebergState
from tableferry.formats.parquet.files import DataFile, Footer
from tableferry.spark import types
from tableferry.spark.types import TIMESTAMP_NTZ, VARIANT, ColumnPath, Struct

# The characters that Java's URI class escapes in a path, as in Spark's own conversion. VACUUM compares paths
# as strings, so it would delete a live file if its path in the log were spelled differently.
_ESCAPED = re.compile(
    r"""[\x00-\x20"#%<>?\[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"""
)

ICEBERG = "tableferryIceberg"
"""The key in `commitInfo` of the metadata file from which an Iceberg table was converted."""

LEFT_OUT = "tableferryLeftOut"
"""The key in `commitInfo` of the files in the folder that the table doesn't include."""

_CLUSTERING = "delta.clustering"
# Features that every table has; a protocol that lists its features has to list them too.
_LEGACY = ("appendOnly", "invariants")
_FEATURES: Mapping[types.DataType, str] = {TIMESTAMP_NTZ: "timestampNtz", VARIANT: "variantType"}


@dataclass(frozen=True)
class Contents:
    """A table as its first commit describes it.

    Attributes:
        schema: All columns, including the partition columns.
        values: For each file, the value of each partition column; None is null.
        left_out: Files in the folder that the table doesn't include; the commit records them.
        features: The table features for readers and writers that the schema's types don't require.
        writer_features: The table features that only writers have to support.
        cluster_by: The columns to cluster by, each as the path of its physical names.
        iceberg: The Iceberg table that was converted.
        catalog_entry: The catalog's entry before the conversion, if the table was converted by name.
        user_metadata: The text that the table's history shows as `userMetadata`.
    """

    table_id: str
    schema: Struct
    partition_columns: tuple[str, ...]
    files: tuple[DataFile, ...]
    values: tuple[tuple[str | None, ...], ...]
    footers: tuple[Footer, ...]
    left_out: tuple[DataFile, ...] = ()
    statistics: bool = True
    description: str | None = None
    configuration: Mapping[str, str] = field(default_factory=dict, hash=False)
    features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    cluster_by: tuple[tuple[str, ...], ...] = ()
    iceberg: IcebergState | None = None
    catalog_entry: Entry | None = None
    user_metadata: str = ""

    @property
    def listed(self) -> tuple[DataFile, ...]:
        """The files in the folder, sorted by path."""
        return tuple(sorted((*self.files, *self.left_out))) if self.left_out else self.files


def indexed(contents: Contents) -> Struct:
    """Return the columns that get statistics."""
    return with_statistics(contents.schema, contents.partition_columns, _indexed(contents))


def statistics_paths(contents: Contents) -> frozenset[ColumnPath]:
    """Return the lower-case paths of the leaves that get statistics."""

    def paths(columns: Struct, above: ColumnPath) -> Iterator[ColumnPath]:
        for column in columns.fields:
            path = (*above, column.name.lower())
            if isinstance(column.type, Struct):
                yield from paths(column.type, path)
            else:
                yield path

    return frozenset(paths(indexed(contents), ()))


def half_read(contents: Contents) -> tuple[int, ...]:
    """Return the indexes of the files with fewer leaves read than their statistics need."""
    if not contents.statistics:
        return ()
    schema, partition_columns = _as_in_files(contents)
    needed = leaves_needed(schema, partition_columns, _indexed(contents))
    return tuple(
        number for number, footer in enumerate(contents.footers) if footer.leaves < needed(footer.schema)
    )


def with_bounds_of(contents: Contents, others: Mapping[int, Footer]) -> Contents:
    """Replace only the statistics in the footers of some files, by the files' indexes."""
    # Files that share a schema keep sharing it.
    footers = (
        footer._replace(packed=others[number].packed) if number in others else footer
        for number, footer in enumerate(contents.footers)
    )
    return replace(contents, footers=tuple(footers))


def lines(contents: Contents, now: int, above: str = "") -> Iterator[str]:
    """Yield the commit's lines.

    Args:
        contents: The contents of the commit.
        now: Milliseconds since 1970, UTC.
        above: The URI of the files' folder with a final ``/``; empty if the log is in the same folder.
    """
    about: list[dict[str, Any]] = [
        {"commitInfo": _commit_info(contents, now)},
        {"metaData": metadata(contents, now)},
        {"protocol": protocol(contents)},
    ]
    if contents.cluster_by:
        clustering = {"clusteringColumns": contents.cluster_by, "domainName": _CLUSTERING}
        domain = {"domain": _CLUSTERING, "configuration": _json(clustering), "removed": False}
        about.append({"domainMetadata": domain})
    return chain((as_line(action) for action in about), adds(contents, above=above))


def _commit_info(contents: Contents, now: int) -> dict[str, Any]:
    # These keys are those of Delta's own CONVERT TO DELTA.
    parameters: dict[str, Any] = {
        "numFiles": len(contents.files),
        "partitionedBy": _json(contents.partition_columns),
        "collectStats": contents.statistics,
        "sourceFormat": "iceberg" if contents.iceberg else "parquet",
    }
    # The protocol lets each writer add keys to `commitInfo`.
    own: dict[str, Any] = {}
    if contents.iceberg:
        own = {ICEBERG: {"metadata": contents.iceberg.at.rpartition("/")[2]}}
    if contents.left_out:
        own[LEFT_OUT] = contents.left_out
    if contents.catalog_entry:
        parameters["catalogTable"] = contents.catalog_entry.name.sql
        own |= {definitions.KEY: definitions.plain(contents.catalog_entry)}
    return {
        "timestamp": now,
        "operation": initial_commit.OPERATION,
        "operationParameters": parameters,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {"numConvertedFiles": str(len(contents.files))},
        "engineInfo": f"Tableferry/{__version__}",
        **({"userMetadata": contents.user_metadata} if contents.user_metadata else {}),
        **own,
    }


def metadata(contents: Contents, created: int) -> dict[str, Any]:
    """Return the `metaData` action; ``created`` is in milliseconds since 1970, UTC."""
    description = {"description": contents.description} if contents.description else {}
    return {
        "id": contents.table_id,
        **description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": types.to_json(contents.schema),
        "partitionColumns": list(contents.partition_columns),
        "configuration": dict(contents.configuration),
        "createdTime": created,
    }


def protocol(contents: Contents) -> dict[str, Any]:
    """Return the lowest protocol that the table needs, because every reader has to support it."""
    needed = dict.fromkeys((*contents.features, *features_of(contents.schema)))
    writing = dict.fromkeys((*needed, *contents.writer_features))
    if not writing:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    versions = {"minReaderVersion": 3 if needed else 1, "minWriterVersion": 7}
    reading = {"readerFeatures": list(needed)} if needed else {}
    return {**versions, **reading, "writerFeatures": list(dict.fromkeys((*writing, *_LEGACY)))}


def features_of(schema: Struct) -> tuple[str, ...]:
    """Return the table features that the types of a schema need."""
    kinds = {data_type for _, data_type in types.walk(schema)}
    return tuple(feature for kind, feature in _FEATURES.items() if kind in kinds)


def adds(contents: Contents, *, changes: bool = True, above: str = "") -> Iterator[str]:
    """Yield the `add` action of each file as a line.

    Args:
        contents: The contents of the commit.
        changes: The `dataChange` of the actions, which is whether the rows are new to streams.
        above: As in `lines`.
    """
    # Files of one directory have the same values, so their text is written once.
    texts: dict[tuple[str | None, ...], str] = {}
    changed = _json(changes)
    schema, partition_columns = _as_in_files(contents)
    write_statistics = statistics_json(schema, partition_columns, _indexed(contents))
    for file, values, footer in zip(contents.files, contents.values, contents.footers, strict=True):
        text = texts.get(values)
        if text is None:
            text = texts[values] = _json(dict(zip(partition_columns, values, strict=True)))
        path = above + _uri(file.path)
        stats = f',"stats":{_quoted(write_statistics(footer))}' if contents.statistics else ""
        yield (
            f'{{"add":{{"path":{_quoted(path)},"partitionValues":{text},"size":{file.size},'
            f'"modificationTime":{file.modified},"dataChange":{changed}{stats}}}}}\n'
        )


def folder_uri(location: str) -> str:
    """Return the URI of a folder for `lines`, from its location in Hadoop's form."""
    scheme, authority, path = split(location)
    named = f"{scheme}:" + (f"//{authority}" if authority else "") if scheme else ""
    return named + _uri(path.rstrip("/") + "/")


def as_line(action: Mapping[str, Any]) -> str:
    """Return an action as a line of a commit."""
    return _json(action) + "\n"


def _as_in_files(contents: Contents) -> tuple[Struct, list[str]]:
    """Return the schema and the partition columns with their physical names, as in files and statistics."""
    schema = column_mapping.physical(contents.schema)
    names = {
        logical.name: column.name
        for logical, column in zip(contents.schema.fields, schema.fields, strict=True)
    }
    return schema, [names[name] for name in contents.partition_columns]


def _indexed(contents: Contents) -> int:
    return int(contents.configuration.get("delta.dataSkippingNumIndexedCols", INDEXED))


def _uri(path: str) -> str:
    escaped = _ESCAPED.sub(lambda match: quote(match[0], safe=""), path)
    first, slash, rest = escaped.partition("/")
    # If the first name of a path had a colon, readers would take the text before it as the URI's scheme.
    return f"{first.replace(':', '%3A')}{slash}{rest}" if ":" in first else escaped


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# Not ASCII only: delta-rs 1.6.6 reads the two escapes of a character above U+FFFF as another character.
_quoted = json.JSONEncoder(ensure_ascii=False).encode
