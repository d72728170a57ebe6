"""What a Delta table's first commit says, and the lines that say it.

The actions are those of the Delta protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions);
their order and the commit's operation parameters are those of Delta's own CONVERT TO DELTA.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from urllib.parse import quote

from tableferry import __version__, types
from tableferry.convert.entry import Entry
from tableferry.convert.facts import DataFile, Footer, IcebergState
from tableferry.convert.log import commit, definitions, mapping
from tableferry.convert.log.statistics import INDEXED, leaves_needed, statistics_json, with_statistics
from tableferry.hive.locations import split
from tableferry.types import TIMESTAMP_NTZ, VARIANT, ColumnPath, Struct

# What Java's URI escapes in a path, as Spark's own conversion does. Delta compares paths as strings when it
# vacuums: the file of a path that is spelled in another way would be deleted, though it's live.
_ESCAPED = re.compile(
    r"""[\x00-\x20"#%<>?\[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"""
)

# Every table has these, and a protocol that lists its features has to say so.
ICEBERG = "tableferryIceberg"
"""The key under which a commit's `commitInfo` says of which metadata file of an Iceberg table it was made."""

LEFT_OUT = "tableferryLeftOut"
"""The key under which a commit's `commitInfo` names the files of the folder that the table doesn't have."""

_CLUSTERING = "delta.clustering"
_LEGACY = ("appendOnly", "invariants")
_FEATURES: Mapping[types.DataType, str] = {TIMESTAMP_NTZ: "timestampNtz", VARIANT: "variantType"}


@dataclass(frozen=True)
class Contents:
    """A table as its first commit describes it.

    Attributes:
        schema: All columns, the partition columns among them.
        values: For each file, the value of each partition column; None is null.
        left_out: Files in the folder that the table doesn't have, and that the commit records.
        features: The table features that the schema doesn't show by itself.
        writer_features: Those of them that only who writes has to know.
        cluster_by: The columns to cluster by, each as the physical names that lead to it.
        iceberg: The Iceberg table that it was made of.
        catalog_entry: What the catalog said of it before, if it was converted by its name.
        user_metadata: What the history is to say beside the commit.
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
        """The files that the folder has, sorted by path."""
        return tuple(sorted((*self.files, *self.left_out))) if self.left_out else self.files


def indexed(contents: Contents) -> Struct:
    """Return the columns that get statistics."""
    return with_statistics(contents.schema, contents.partition_columns, _indexed(contents))


def statistics_paths(contents: Contents) -> frozenset[ColumnPath]:
    """Return the paths of the leaves that get statistics, in lower case."""

    def paths(columns: Struct, above: ColumnPath) -> Iterator[ColumnPath]:
        for column in columns.fields:
            path = (*above, column.name.lower())
            if isinstance(column.type, Struct):
                yield from paths(column.type, path)
            else:
                yield path

    return frozenset(paths(indexed(contents), ()))


def half_read(contents: Contents) -> tuple[int, ...]:
    """Return the numbers of the files that have statistics of which only the first were read."""
    if not contents.statistics:
        return ()
    schema, partition_columns = _as_in_files(contents)
    needed = leaves_needed(schema, partition_columns, _indexed(contents))
    return tuple(
        number for number, footer in enumerate(contents.footers) if footer.leaves < needed(footer.schema)
    )


def with_bounds_of(contents: Contents, others: Mapping[int, Footer]) -> Contents:
    """Take the statistics of other readings, by the files' numbers, and leave the rest of their footers."""
    # Files that share a schema keep sharing it.
    footers = (
        footer._replace(packed=others[number].packed) if number in others else footer
        for number, footer in enumerate(contents.footers)
    )
    return replace(contents, footers=tuple(footers))


def lines(contents: Contents, now: int, above: str = "") -> Iterator[str]:
    """Yield the commit's lines.

    Args:
        contents: What it says.
        now: Milliseconds since 1970, UTC.
        above: The URI of the folder that the files are in, with a ``/`` behind it, if it isn't the log's.
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
    parameters: dict[str, Any] = {
        "numFiles": len(contents.files),
        "partitionedBy": _json(contents.partition_columns),
        "collectStats": contents.statistics,
        "sourceFormat": "iceberg" if contents.iceberg else "parquet",
    }
    # The protocol leaves it to each writer what else is said here.
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
        "operation": commit.OPERATION,
        "operationParameters": parameters,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {"numConvertedFiles": str(len(contents.files))},
        "engineInfo": f"Tableferry/{__version__}",
        **({"userMetadata": contents.user_metadata} if contents.user_metadata else {}),
        **own,
    }


def metadata(contents: Contents, created: int) -> dict[str, Any]:
    """Describe the table; ``created`` is in milliseconds since 1970, UTC."""
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
    """Ask for no more than the table needs, as every reader has to know what it asks for."""
    needed = dict.fromkeys((*contents.features, *features_of(contents.schema)))
    writing = dict.fromkeys((*needed, *contents.writer_features))
    if not writing:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    versions = {"minReaderVersion": 3 if needed else 1, "minWriterVersion": 7}
    reading = {"readerFeatures": list(needed)} if needed else {}
    return {**versions, **reading, "writerFeatures": list(dict.fromkeys((*writing, *_LEGACY)))}


def features_of(schema: Struct) -> tuple[str, ...]:
    """Name the table features that the types of a schema need."""
    kinds = {data_type for _, data_type in types.walk(schema)}
    return tuple(feature for kind, feature in _FEATURES.items() if kind in kinds)


def adds(contents: Contents, *, changes: bool = True, above: str = "") -> Iterator[str]:
    """Yield a line for each file.

    Args:
        contents: What the commit says.
        changes: Whether the files' rows are news to readers of changes.
        above: As of `lines`.
    """
    # Files of one directory share the tuple of their values, so its text is made once.
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
    """Return the URI of a folder as `lines` takes it, from its location as Hadoop writes it."""
    scheme, authority, path = split(location)
    named = f"{scheme}:" + (f"//{authority}" if authority else "") if scheme else ""
    return named + _uri(path.rstrip("/") + "/")


def as_line(action: Mapping[str, Any]) -> str:
    """Return an action as a line of a commit."""
    return _json(action) + "\n"


def _as_in_files(contents: Contents) -> tuple[Struct, list[str]]:
    """Return the schema and the partition columns by the names that files and their statistics have."""
    schema = mapping.physical(contents.schema)
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
    # Nobody could read a path whose first name has a colon: all before it would be the URI's scheme.
    return f"{first.replace(':', '%3A')}{slash}{rest}" if ":" in first else escaped


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# Not in ASCII alone: of the two escapes of a character beyond U+FFFF delta-rs 1.6.6 makes another one.
_quoted = json.JSONEncoder(ensure_ascii=False).encode
