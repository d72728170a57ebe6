"""Plan a Hive table's conversion by its catalog entry, for callers that write only the first commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeAlias

from tableferry.convert import catalog
from tableferry.convert.discovery import listing
from tableferry.convert.facts import ResolvedSource, gather, with_files
from tableferry.convert.plan import Facts, Options, Plan, all_schemas, decide
from tableferry.convert.readers import all_readable
from tableferry.errors import StateError
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.formats.hive.partition_inference import Partitions
from tableferry.formats.parquet.directory_footers import decoded
from tableferry.formats.parquet.files import DataFile, Footer, Unreadable
from tableferry.formats.parquet.footers import ALL_LEAVES
from tableferry.formats.parquet.iceberg_metrics import read_ends
from tableferry.formats.parquet.schema_merge import merge
from tableferry.spark.provider import SparkProvider
from tableferry.spark.tables import TableName
from tableferry.spark.types import Array, DataType, Map, Struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KnownFooters: TypeAlias = Mapping[DataFile, Footer]
"""Known footers by file. A file with the same path, size and modification time isn't reread."""


@dataclass(frozen=True)
class FarFiles:
    """A Hive table's files in storage that only the caller can read.

    Attributes:
        files: The path below the table's directory, the size in bytes, and the modification time in
            milliseconds since 1970, UTC, of each file.
        read: Returns bytes of a file, given its index in ``files``, an offset and a count. Raises a
            StateError if they can't be read.
    """

    files: Sequence[tuple[str, int, int]]
    read: Callable[[int, int, int], bytes]


def of_table(spark: SparkSession, table: TableName, column_mapping: bool, known: KnownFooters) -> Plan:
    """Plan the conversion of a table's files; by Spark's own command if only Spark reaches them.

    Raises:
        Refused: The table can't become Delta as it is, or its folder has no visible file.
        TableError: A fact about the table can't be read.
    """
    # The caller checks whether an existing log is the right one.
    options = Options(column_mapping=column_mapping, keep_log=True, as_hive=True)
    found, provider = ResolvedSource(str(table), table=table), SparkProvider(spark, lambda: spark)
    return decide(_as_catalog(gather(found, options, provider, unseen, known)), options)


def of_far_files(
    spark: SparkSession,
    entry: Entry,
    column_mapping: bool,
    known: KnownFooters,
    far: FarFiles,
    *,
    most: int | None = None,
) -> Plan:
    """Plan the conversion of files that the caller reads.

    With `most`, plan it for a sample of at most that many files.

    Raises:
        Refused: The table can't become Delta as it is.
        TableError: A fact about the table can't be read.
        StateError: A file is temporarily unreadable.
    """
    options = Options(partitioned_by=entry.partition_columns, column_mapping=column_mapping, as_hive=True)
    there = list(starmap(DataFile, far.files))
    listed = tuple(sorted(there))
    listing.require_readable_names(entry.location, listed)
    listing.require_no_subfolders(entry.location, listed)
    chosen = listed[:: max(1, -(-len(listed) // most))] if most else listed
    sampled = frozenset(chosen)
    unread = [number for number, file in enumerate(there) if file in sampled and file not in known]

    def read(at: int, start: int, count: int) -> bytes:
        return far.read(unread[at], start, count)

    ends = read_ends([there[number].size for number in unread], read)
    files = [there[number] for number in unread]
    footers = decoded(files, ([end] for end in ends), ALL_LEAVES)
    readable = all_readable(entry.location, files, map(_require_answer, footers), unseen)
    new = dict(zip(files, readable, strict=True))
    facts = Facts(str(entry.name), entry.location, local=True, delta=False, entry=entry)
    facts = with_files(facts, options, chosen, {**known, **new})
    facts = replace(facts, mismatches=catalog.partitions.partitions_of(spark, entry, listed))
    return decide(_as_catalog(facts), options)


def _require_answer(footer: Footer | Unreadable) -> Footer | Unreadable:
    if isinstance(footer, Unreadable) and footer.passing:
        raise StateError("FOOTER_NOT_READABLE", reason=footer.reason)
    return footer


def of_empty(entry: Entry, column_mapping: bool) -> Plan:
    """Plan the conversion of a table without files.

    Raises:
        Refused: The table can't become Delta as it is.
    """
    facts = Facts(
        str(entry.name),
        entry.location,
        local=True,
        delta=False,
        table_id=str(uuid.uuid4()),
        partitions=Partitions(entry.partition_columns, ()),
        merged=merge(all_schemas((), entry)),
        entry=entry,
    )
    return decide(facts, Options(column_mapping=column_mapping))


def _as_catalog(facts: Facts) -> Facts:
    """Remove columns that the files have but the Hive table doesn't, such as those that were replaced."""
    if facts.merged is not None and facts.entry is not None and not facts.entry.is_delta:
        columns = _common(facts.merged.columns, facts.entry.columns)
        return replace(facts, merged=replace(facts.merged, columns=columns))
    return facts


def _common(files: DataType, entry: DataType) -> Any:
    """Return the files' type with only the columns and fields that the catalog also has, at any depth."""
    match files, entry:
        case Struct(), Struct():
            known = {field.name.lower(): field.type for field in entry.fields}
            return Struct(
                tuple(
                    replace(field, type=_common(field.type, known[field.name.lower()]))
                    for field in files.fields
                    if field.name.lower() in known
                )
            )
        case Array(), Array():
            return replace(files, element=_common(files.element, entry.element))
        case Map(), Map():
            key, value = _common(files.key, entry.key), _common(files.value, entry.value)
            return replace(files, key=key, value=value)
        case _:
            return files


def unseen(done: int, total: int) -> None:
    """Ignore the progress of reading."""
