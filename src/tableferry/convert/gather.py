"""Gathers what a plan needs to know of the tables that the user named."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tableferry.convert import merging, partitions, sources, through_spark
from tableferry.convert.entry import check_declared
from tableferry.convert.facts import DataFile, FileSchema, Partitions
from tableferry.convert.folder import discover
from tableferry.convert.folder.formats import already_delta, empty_commit, foreign_format
from tableferry.convert.folder.roots import find_roots
from tableferry.convert.plan import Facts, Options, Statistics, all_schemas
from tableferry.convert.readers import all_readable, read_footers
from tableferry.convert.spark_provider import SparkProvider
from tableferry.errors import Refused, TableError
from tableferry.tables import TableName


@dataclass(frozen=True)
class ResolvedSource:
    """A table that the user named, or that was found where the user pointed.

    Attributes:
        source: What to call it, and how it can be named again.
        location: Its folder or URI; empty if the catalog has to be asked.
        table: Its name in the catalog, if it was named by that.
        skipped: Why nothing is done with it; empty if something is.
        local: Whether this process reaches the location.
    """

    source: str
    location: str = ""
    table: TableName | None = None
    skipped: str = ""
    local: bool = True


def expand(
    named: Iterable[str], spark_provider: SparkProvider, *, recursive: bool
) -> tuple[ResolvedSource, ...]:
    """Find the tables that the user means, each once and in the order in which they were named.

    Raises:
        TableError: A source can't be understood, or a schema or folder doesn't exist.
    """
    resolved: dict[str, ResolvedSource] = {}
    for text in named:
        for source in _meant(text, spark_provider, recursive=recursive):
            resolved.setdefault(source.source, source)
    return tuple(resolved.values())


def single(source: str) -> ResolvedSource:
    """Find the one table that the user means.

    Raises:
        TableError: It can't be understood, or means several.
    """
    match sources.parse(source):
        case sources.Folder(path) as folder:
            return ResolvedSource(path, path, local=folder.is_local)
        case sources.Table(name):
            return ResolvedSource(str(name), table=name)
        case sources.Schema():
            raise TableError(f"{source} means several tables: name one")


def _meant(text: str, spark_provider: SparkProvider, *, recursive: bool) -> Iterator[ResolvedSource]:
    match sources.parse(text):
        case sources.Folder(path) as folder:
            if recursive and folder.is_local:
                yield from (ResolvedSource(str(root), str(root)) for root in find_roots(Path(path)))
            else:
                yield ResolvedSource(path, path, local=folder.is_local)
        case sources.Table(name):
            yield ResolvedSource(str(name), table=name)
        case sources.Schema(parts):
            listed = through_spark.tables(spark_provider.session(), parts)
            yield from (ResolvedSource(str(name), table=name) for name in listed.tables)
            yield from (
                ResolvedSource(str(table.name), skipped=f"{table.name} {table.reason}")
                for table in listed.skipped
            )


def gather(
    source: ResolvedSource,
    options: Options,
    spark_provider: SparkProvider,
    progress: Callable[[int, int], None],
) -> Facts:
    """Read everything that is to be known of one table; nothing is written.

    Raises:
        TableferryError: It's missing, or something about it can't be read or understood.
    """
    if source.table is not None:
        return _of_table(source, source.table, options, spark_provider, progress)
    facts = Facts(source.source, source.location, local=source.local, delta=False)
    if not source.local:
        return _far(facts, options, spark_provider)
    return _near(facts, Path(source.location), options, spark_provider, progress)


def _of_table(
    source: ResolvedSource,
    name: TableName,
    options: Options,
    spark_provider: SparkProvider,
    progress: Callable[[int, int], None],
) -> Facts:
    spark = spark_provider.session()
    entry = through_spark.entry(spark, name)
    location = str(entry.folder or entry.location)
    facts = Facts(source.source, location, local=entry.folder is not None, delta=entry.is_delta, entry=entry)
    if entry.is_delta:
        return facts
    if options.partitioned_by is not None:
        check_declared(entry, options.partitioned_by)
    options = replace(options, partitioned_by=entry.partition_columns)
    if entry.folder is None:
        facts = _far(facts, options, spark_provider)
    else:
        facts = _near(facts, entry.folder, options, spark_provider, progress)
    if facts.delta:
        return facts
    return replace(facts, mismatches=through_spark.partitions_of(spark, entry, facts.files))


def _near(
    facts: Facts,
    root: Path,
    options: Options,
    spark_provider: SparkProvider,
    progress: Callable[[int, int], None],
) -> Facts:
    """Read what this process reaches: the directories' names and the files' footers."""
    if already_delta(root):
        if empty := empty_commit(root):
            raise Refused(
                f"{empty} is empty, as a writer leaves it that dies before it writes: make sure that nobody "
                "converts the folder right now, remove that file, and convert again"
            )
        return replace(facts, delta=True)
    if foreign := foreign_format(root):
        raise sources.wrong_provider(foreign, facts.source)
    files = discover.list_files(root)
    if not options.include_subfolders:
        discover.demand_no_subfolders(facts.location, files)
    # Footers first: a note that lies about is better called no Parquet file than a file of other partitions.
    statistics = options.statistics is Statistics.FOOTERS
    read = read_footers(root, files, spark_provider, options.reader, statistics=statistics)
    footers = all_readable(root, files, read, progress)
    first: dict[int, tuple[FileSchema, str]] = {}
    for file, footer in zip(files, footers, strict=True):
        first.setdefault(id(footer.schema), (footer.schema, file.path))
    return replace(
        facts,
        table_id=str(uuid.uuid4()),
        files=files,
        partitions=_partitions(files, options),
        footers=footers,
        merged=merging.merge(all_schemas(first.values(), facts.entry)),
    )


def _far(facts: Facts, options: Options, spark_provider: SparkProvider) -> Facts:
    """List what only Spark reaches; its own command reads the footers."""
    spark = spark_provider.session()
    if through_spark.has_log(spark, facts.location):
        return replace(facts, delta=True)
    files = through_spark.list_files(spark, facts.location)
    if not files:
        raise Refused(f"{facts.location} holds no Parquet file: name the directory that holds the table")
    discover.demand_readable_names(facts.location, files)
    if not options.include_subfolders:
        discover.demand_no_subfolders(facts.location, files)
    return replace(facts, files=files, partitions=_partitions(files, options))


def _partitions(files: Sequence[DataFile], options: Options) -> Partitions:
    if options.partitioned_by is None:
        return partitions.infer(files)
    return partitions.check(files, options.partitioned_by)
