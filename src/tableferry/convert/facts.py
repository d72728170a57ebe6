"""Resolve the sources that the user names to tables, and read the facts that a conversion plan needs."""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, assert_never

from tableferry import workspace
from tableferry.convert import catalog, existing_log, sources
from tableferry.convert.discovery import listing, owning_tables, table_formats
from tableferry.convert.discovery.table_formats import already_delta, empty_commit, foreign_format
from tableferry.convert.discovery.table_roots import find_roots
from tableferry.convert.existing_log import ExistingLog
from tableferry.convert.plan import Engine, Facts, Options, Statistics, all_schemas, to_be_redone
from tableferry.convert.readers import all_readable, read_footers
from tableferry.errors import Refused, TableError
from tableferry.formats import iceberg
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive import partition_inference
from tableferry.formats.hive.catalog_entry import check_declared
from tableferry.formats.hive.partition_inference import Partitions
from tableferry.formats.iceberg.tables import IcebergState, IcebergTable
from tableferry.formats.parquet import schema_merge
from tableferry.formats.parquet.files import DataFile, FileSchema, Footer
from tableferry.spark.provider import SparkProvider
from tableferry.spark.tables import TableName
from tableferry.storage import ObjectPath, path_of

_P = TypeVar("_P", Path, ObjectPath)


@dataclass(frozen=True)
class ResolvedSource:
    """A table that the user named, or that was found below a folder or in a schema that the user named.

    Attributes:
        source: The table's label in reports, which is also a valid source.
        location: The table's folder or URI; empty if the catalog must be asked.
        table: The table's name in the catalog, if the source was this name.
        skipped: The reason why the table is skipped; empty if it isn't.
        local: Whether the location is a local path.
        iceberg: The table's name in a pyiceberg catalog, if the source was this name.
        alone: Whether the folders above were already checked, and none of them is a table.
    """

    source: str
    location: str = ""
    table: TableName | None = None
    skipped: str = ""
    local: bool = True
    iceberg: str = ""
    alone: bool = False


def expand(
    named: Iterable[str], spark_provider: SparkProvider, *, recursive: bool
) -> tuple[ResolvedSource, ...]:
    """Return the tables of all sources, each once and in the order of the sources.

    Raises:
        TableError: A source is invalid, or a schema or folder doesn't exist.
    """
    resolved: dict[str, ResolvedSource] = {}
    for text in named:
        for source in _meant(text, spark_provider, recursive=recursive):
            resolved.setdefault(source.source, source)
    return tuple(resolved.values())


def single(text: str) -> ResolvedSource:
    """Return the table of a source that means exactly one.

    Raises:
        TableError: The source is invalid, or means several tables.
    """
    source = sources.parse(text)
    if isinstance(source, sources.Schema):
        raise TableError("SEVERAL_TABLES_NAMED", text=text)
    return _resolved(source)


def by_store(location: str, engine: Engine) -> bool:
    """Return whether this process accesses a location through the object store's own interface.

    With ``auto``, it doesn't in a Databricks runtime, where Spark has the credentials, or without obstore.
    """
    if ObjectPath.parse(location) is None:
        return False
    match engine:
        case Engine.AUTO:
            return find_spec("obstore") is not None and workspace.RUNTIME_VARIABLE not in os.environ
        case Engine.TABLEFERRY:
            return True
        case Engine.NATIVE:
            return False
        case _:
            assert_never(engine)


def _meant(text: str, spark_provider: SparkProvider, *, recursive: bool) -> Iterator[ResolvedSource]:
    match sources.parse(text):
        case sources.Schema(parts):
            listed = catalog.entries.tables(spark_provider.session(), parts)
            yield from (ResolvedSource(str(name), table=name) for name in listed.tables)
            for table in listed.skipped:
                yield ResolvedSource(str(table.name), skipped=f"{table.name} {table.reason}")
        case sources.Folder(path) as folder if recursive and folder.is_local:
            yield from _below(Path(path), local=True)
        case sources.Folder(path) if recursive and (stored := ObjectPath.parse(path)):
            yield from _below(stored, local=False)
        case source:
            yield _resolved(source)


def _below(parent: _P, *, local: bool) -> Iterator[ResolvedSource]:
    # No table is between the folder and a root, because it would be the root itself.
    found = owning_tables.owner(parent)
    for root in find_roots(parent):
        skipped = f"{root} {owning_tables.reason(found)}" if found else ""
        yield ResolvedSource(str(root), str(root), skipped=skipped, local=local, alone=root != parent)


def _resolved(source: sources.Folder | sources.Table | sources.Iceberg) -> ResolvedSource:
    if isinstance(source, sources.Table):
        return ResolvedSource(str(source.name), table=source.name)
    if isinstance(source, sources.Iceberg):
        found = iceberg.metadata.named(source.name)
        return ResolvedSource(
            str(source), found.root, local=ObjectPath.parse(found.root) is None, iceberg=source.name
        )
    return ResolvedSource(source.path, source.path, local=source.is_local)


def gather(
    source: ResolvedSource,
    options: Options,
    spark_provider: SparkProvider,
    progress: Callable[[int, int], None],
    known: Mapping[DataFile, Footer] = MappingProxyType({}),
) -> Facts:
    """Read the facts about one table that its plan needs, and write nothing.

    An existing log is compared with the folder's files, except in these cases:

    - The log has commits after the conversion, and the table isn't Parquet in the catalog. Its files then
      differ from the folder's.
    - The table is Delta in the catalog, and only Spark reaches its storage.

    Args:
        source: The table.
        options: The user's options.
        spark_provider: Provides the session if one is needed.
        progress: Called with the number of footers that were read, and with the number of files.
        known: Footers of unchanged files, which aren't reread.

    Raises:
        TableferryError: The table is missing, or a fact can't be read or is invalid.
    """
    if source.table is None:
        local = source.local or by_store(source.location, options.engine)
        facts = Facts(source.source, source.location, local=local, delta=False)
        if source.iceberg:
            return _iceberg(facts, options, IcebergTable(source.location, source.iceberg))
        return _read(facts, options, spark_provider, progress, known, alone=source.alone)
    spark = spark_provider.session()
    entry = catalog.entries.entry(spark, source.table)
    location = str(entry.folder or entry.location)
    facts = Facts(source.source, location, local=entry.folder is not None, delta=entry.is_delta, entry=entry)
    if facts.delta:
        return _with_log(facts, options, spark_provider) if facts.local else facts
    if options.partitioned_by is not None:
        check_declared(entry, options.partitioned_by)
    by_catalog = replace(options, partitioned_by=entry.partition_columns)
    facts = _read(facts, by_catalog, spark_provider, progress, known)
    if facts.delta and facts.log is None:
        return facts
    there = (*facts.files, *facts.left_out)
    return replace(facts, mismatches=catalog.partitions.partitions_of(spark, entry, there))


def _read(
    facts: Facts,
    options: Options,
    spark_provider: SparkProvider,
    progress: Callable[[int, int], None],
    known: Mapping[DataFile, Footer],
    *,
    alone: bool = False,
) -> Facts:
    if facts.local:
        return _near(facts, options, spark_provider, progress, known, alone=alone)
    return _far(facts, options, spark_provider)


def _near(
    facts: Facts,
    options: Options,
    spark_provider: SparkProvider,
    progress: Callable[[int, int], None],
    known: Mapping[DataFile, Footer],
    *,
    alone: bool,
) -> Facts:
    """Read the directory names and the file footers of a table that this process reaches."""
    root = path_of(facts.location)
    if existing_log.iceberg_metadata(root):
        return _iceberg(facts, options, IcebergTable(facts.location))
    if already_delta(root):
        initial_commit.require_no_undo(root)
        if empty := empty_commit(root):
            raise Refused("EMPTY_COMMIT", file=empty)
        facts = _with_log(facts, options, spark_provider)
        if facts.log is None or not to_be_redone(facts.log, facts.entry):
            return replace(facts, delta=True)
    if not alone:
        owning_tables.require_none(root)
    if (foreign := foreign_format(root)) == "Iceberg":
        return _iceberg(facts, options, IcebergTable(facts.location))
    if foreign:
        raise sources.wrong_provider(foreign, facts.source)
    files = listing.list_files(root)
    if not options.include_subfolders:
        listing.require_no_subfolders(facts.location, files)
    # Footers first: for a stray file, "not a Parquet file" is a better error than "other partitions".
    unread = [file for file in files if file not in known]
    read = read_footers(root, unread, spark_provider, options.reader, leaves=options.leaves)
    new = dict(zip(unread, all_readable(root, unread, read, progress), strict=True))
    return with_files(facts, options, files, {**known, **new})


def with_files(
    facts: Facts, options: Options, files: tuple[DataFile, ...], known: Mapping[DataFile, Footer]
) -> Facts:
    """Add the columns and partitions of a table's files to its facts.

    Args:
        facts: The facts so far.
        options: The user's options.
        files: All files of the table, sorted by path.
        known: The footers of these files, and perhaps of more.

    Raises:
        TableferryError: The files can't form one table.
    """
    footers = tuple(known[file] for file in files)
    first: dict[int, tuple[FileSchema, str]] = {}
    with_rows: set[int] = set()
    for file, footer in zip(files, footers, strict=True):
        first.setdefault(id(footer.schema), (footer.schema, file.path))
        if footer.rows or options.as_hive:
            with_rows.add(id(footer.schema))
    if options.requested.schema is not None and facts.entry is not None:
        raise Refused("DECLARED_SCHEMA_OF_CATALOG_TABLE", table=facts.source)
    if options.requested.schema is None and facts.entry is None:
        schema_merge.require_common_columns(facts.location, first.values())

    def fit(schemas: Sequence[tuple[FileSchema, str]]) -> schema_merge.Merged:
        merged = _merged(facts, options, schemas)
        # A Hive table shows only the catalog's columns, and they have types.
        if merged.untyped and not options.as_hive:
            partition_columns = {column.name.lower() for column in _partitions(files, options).columns}
            schema_merge.require_types(facts.location, merged, partition_columns, _untyped_remedy(facts))
        return merged

    merged, unfit = schema_merge.fitting(first.values(), with_rows, fit)
    table_formats.require_no_hudi_columns(facts.location, (column.name for column in merged.columns.fields))
    partitions = _partitions(files, options)
    kept = [number for number, footer in enumerate(footers) if id(footer.schema) not in unfit]
    return replace(
        facts,
        table_id=str(uuid.uuid4()),
        files=tuple(files[number] for number in kept),
        left_out=tuple(
            file for file, footer in zip(files, footers, strict=True) if id(footer.schema) in unfit
        ),
        partitions=replace(partitions, values=tuple(partitions.values[number] for number in kept)),
        footers=tuple(footers[number] for number in kept),
        merged=merged,
    )


def _merged(facts: Facts, options: Options, schemas: Sequence[tuple[FileSchema, str]]) -> schema_merge.Merged:
    """Merge the files' schemas with the columns that the user or the catalog declares.

    Raises:
        Refused: The files contradict one another, or the declared columns.
    """
    declared = options.requested.schema
    if declared is not None:
        merged = schema_merge.merge([declared.as_a_file(), *schemas])
        declared.require_all(merged, schemas)
        return merged
    return schema_merge.merge(all_schemas(schemas, facts.entry))


def _untyped_remedy(facts: Facts) -> str:
    if facts.entry is None:
        declare = "declare its type with --schema"
    else:
        declare = f"add it to the catalog's table with ALTER TABLE {facts.entry.name.sql} ADD COLUMNS"
    return (
        f"If its type is tinyint, smallint, int, bigint, double or date, {declare}. "
        "Else rewrite the files with the type, or without the column."
    )


def _iceberg(facts: Facts, options: Options, table: IcebergTable) -> Facts:
    """Read the facts about an Iceberg table from its own metadata, without the data files."""
    if not facts.local:
        raise Refused("STORAGE_OUT_OF_REACH", table=facts.location)
    asked = options.partitioned_by is not None or options.requested.schema is not None
    if asked or options.statistics is Statistics.SCAN:
        raise Refused("ICEBERG_TABLE_WITH_OPTIONS", table=facts.source)
    root = path_of(facts.location)
    if already_delta(root):
        initial_commit.require_no_undo(root)
        made = existing_log.iceberg_metadata(root)
        if made and made != iceberg.metadata.current(table).rpartition("/")[2]:
            raise Refused(
                "ICEBERG_WRITTEN_SINCE_CONVERSION", table=facts.source, folder=shlex.quote(facts.location)
            )
        return replace(facts, delta=True)
    found = iceberg.data_files.read(table, facts.source, statistics=options.statistics is Statistics.FOOTERS)
    return replace(
        facts,
        table_id=str(uuid.uuid4()),
        files=found.files,
        partitions=found.partitions,
        footers=found.footers,
        merged=schema_merge.Merged(found.columns),
        iceberg=IcebergState(table, found.at, found.by_id, found.last_id, found.comment, found.notes),
    )


def _far(facts: Facts, options: Options, spark_provider: SparkProvider) -> Facts:
    """List the files of a table that only Spark reaches; Spark's own command reads the footers later."""
    spark = spark_provider.session()
    if catalog.native_engine.has_log(spark, facts.location):
        facts = replace(facts, delta=True)
        if options.keep_log:
            return facts
        if facts.entry is None and not catalog.log_comparison.is_only_conversion(spark, facts.location):
            return facts
        files = catalog.native_engine.list_files(spark, facts.location)
        log = catalog.log_comparison.compare(spark, facts.location, files)
        return replace(facts, files=files, log=log)
    if found := catalog.native_engine.owner(spark, facts.location):
        raise owning_tables.refused(facts.location, found)
    files = catalog.native_engine.list_files(spark, facts.location)
    if not files:
        raise Refused("NO_PARQUET_FILES", folder=facts.location)
    listing.require_readable_names(facts.location, files)
    if not options.include_subfolders:
        listing.require_no_subfolders(facts.location, files)
    return replace(facts, files=files, partitions=_partitions(files, options))


def _with_log(facts: Facts, options: Options, spark_provider: SparkProvider) -> Facts:
    """Compare a log that this process reaches with the folder's files, if they must agree."""
    if options.keep_log:
        return facts
    root, entry = path_of(facts.location), facts.entry
    conversion = existing_log.conversion(root)
    if entry is None or entry.is_delta:
        if conversion is None:
            return facts
        # A copied table has other modification times.
        return replace(facts, log=_compared(conversion, listing.visible_files(root), times=False))
    spark, files = spark_provider.session(), listing.visible_files(root)
    facts = replace(facts, files=files)
    if conversion is None:
        return replace(facts, log=catalog.log_comparison.compare(spark, entry.location, files))
    log = _compared(conversion, files, times=conversion.ours)
    if log.differences:
        tables = catalog.entries.delta_tables_in(spark, entry.name.parts[:-1], Path(facts.location))
        log = replace(log, shown_by=tuple(tables))
    return replace(facts, log=log)


def _compared(conversion: existing_log.Conversion, files: Sequence[DataFile], *, times: bool) -> ExistingLog:
    logged, listed = (
        sorted(file if times else file._replace(modified=0) for file in these)
        for these in (conversion.listed, files)
    )
    named = {file.path for file in conversion.listed}
    new = [file for file in files if file.path not in named]
    only_new = [file for file in listed if file.path in named] == logged
    return ExistingLog(
        conversion.table_id,
        conversion.ours,
        tuple(listing.changes(logged, listed)),
        missed=only_new and all(file.modified <= conversion.written for file in new),
        columns=conversion.columns,
        partition_columns=conversion.partition_columns,
    )


def _partitions(files: Sequence[DataFile], options: Options) -> Partitions:
    if options.partitioned_by is not None:
        return partition_inference.check(files, options.partitioned_by)
    inferred = partition_inference.infer(files)
    if options.requested.schema is None or not inferred.columns:
        return inferred
    return partition_inference.check(files, options.requested.schema.partitions(inferred.columns))
