"""Decide the steps of a conversion from facts and options alone; this module reads and writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tableferry.amounts import counted, first_of
from tableferry.convert.commit_contents import Contents, indexed
from tableferry.convert.existing_log import ExistingLog
from tableferry.convert.requests import NOTHING_MORE, Requested, clustered
from tableferry.convert.steps import (
    ConvertNatively,
    PutFirstCommit,
    Reader,
    RegisterPartitions,
    Step,
    SwitchEntry,
    UndoConversion,
    Verify,
    WriteCheckpoint,
)
from tableferry.errors import Refused
from tableferry.formats.delta import column_mapping
from tableferry.formats.delta.statistics import INDEXED
from tableferry.formats.hive.catalog_entry import (
    Entry,
    existence_defaults,
    kept_properties,
    log_columns,
    losses,
    needs_defaults,
)
from tableferry.formats.hive.locations import for_spark
from tableferry.formats.hive.partition_inference import Partitions
from tableferry.formats.hive.partition_mismatches import PartitionMismatches, sentences
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.iceberg.tables import IcebergState
from tableferry.formats.parquet.files import DataFile, FileSchema, Footer
from tableferry.formats.parquet.schema_merge import Merged, left_out_note
from tableferry.spark.types import Field, Struct
from tableferry.storage import ObjectPath

_SHOWN = 5
# For a table with more files, readers load a checkpoint faster than the commit.
MANY = 1000

_UNPARTITIONED = Partitions((), ())
_NO_MISMATCHES = PartitionMismatches()


class Statistics(StrEnum):
    """The source of the files' statistics."""

    FOOTERS = "footers"
    SCAN = "scan"
    NONE = "none"


class Engine(StrEnum):
    """The component that writes the first commit."""

    AUTO = "auto"
    TABLEFERRY = "tableferry"
    NATIVE = "native"


@dataclass(frozen=True)
class Options:
    """The options of `tableferry.convert.run`, and some that only other callers set.

    Attributes:
        keep_log: Whether an existing log stays without a comparison with the files.
        as_hive: Whether the files are a Hive table's: no file is left out, and columns may lack a type.
        rewritten: Whether a sync accepts files that were rewritten under their names.
    """

    partitioned_by: tuple[PartitionColumn, ...] | None = None
    statistics: Statistics = Statistics.FOOTERS
    reader: Reader = Reader.AUTO
    engine: Engine = Engine.AUTO
    msck: bool = False
    column_mapping: bool = False
    verify: bool = False
    include_subfolders: bool = False
    keep_log: bool = False
    as_hive: bool = False
    unsafe_commit: bool = False
    requested: Requested = NOTHING_MORE
    rewritten: bool = False

    @property
    def leaves(self) -> int:
        """The number of first leaves for which footers' statistics are read before the columns are known."""
        return INDEXED if self.statistics is Statistics.FOOTERS else 0


@dataclass(frozen=True)
class Facts:
    """The facts about one table before its conversion.

    Attributes:
        location: The table's root: a local path, or the URI of other storage.
        local: Whether this process reaches the location.
        delta: Whether the table has a Delta log that stays.
        table_id: The table id that a new log gets.
        left_out: Files of the folder that the table won't have, because they have no rows and a schema that
            doesn't fit the others.
        footers: The footer of each file; empty if only Spark reaches the files.
        merged: The merged schema of all files; None if only Spark reaches the files.
        entry: The table's catalog entry, if the user named the table and not its folder.
        mismatches: The differences between the partitions in the catalog and on disk.
        log: The existing log, compared with the files; None if no log exists, or if they needn't agree.
        iceberg: The state of the table if it is an Iceberg table.
    """

    source: str
    location: str
    local: bool
    delta: bool
    table_id: str = ""
    files: tuple[DataFile, ...] = ()
    left_out: tuple[DataFile, ...] = ()
    partitions: Partitions = _UNPARTITIONED
    footers: tuple[Footer, ...] = ()
    merged: Merged | None = None
    entry: Entry | None = None
    mismatches: PartitionMismatches = _NO_MISMATCHES
    log: ExistingLog | None = None
    iceberg: IcebergState | None = None


@dataclass(frozen=True)
class Plan:
    """The planned conversion of one table.

    Attributes:
        because: The reason for the engine.
        schema: The table's columns; None if Spark infers them.
        steps: The steps in order; empty if the table is already Delta.
    """

    source: str
    location: str
    engine: Engine
    because: str
    schema: Struct | None = None
    partition_columns: tuple[PartitionColumn, ...] = ()
    files: int = 0
    bytes: int = 0
    rows: int | None = None
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()


def engine_for(location: str, local: bool, requested: Engine) -> tuple[Engine, str]:
    """Return the engine that writes the first commit, and the reason.

    Raises:
        Refused: The requested engine doesn't reach the location.
    """
    match requested:
        case Engine.NATIVE:
            return Engine.NATIVE, "asked for"
        case Engine.TABLEFERRY if not local:
            raise Refused("LOG_OUT_OF_REACH", table=location)
        case Engine.TABLEFERRY:
            return Engine.TABLEFERRY, "asked for"
        case _ if local and ObjectPath.parse(location):
            return Engine.TABLEFERRY, "its store is reached without Spark"
        case _ if local:
            return Engine.TABLEFERRY, "its files are reached by path"
        case _:
            return Engine.NATIVE, "only Spark reaches its storage"


def decide(facts: Facts, options: Options) -> Plan:
    """Plan the conversion of one table.

    Raises:
        Refused: The table can't be converted as it is; the error contains the reason and the remedy.
    """
    engine, because = engine_for(facts.location, facts.local, options.engine)
    plan = Plan(facts.source, facts.location, engine, because)
    entry = facts.entry
    switch: tuple[Step, ...] = (SwitchEntry(entry.name),) if entry and not entry.is_delta else ()
    register: tuple[Step, ...] = ()
    if entry and facts.mismatches:
        if not (options.msck and facts.mismatches.fixable):
            raise Refused(
                "CATALOG_PARTITIONS_DIFFER",
                table=entry.name,
                differences=". ".join(sentences(entry.name, entry.location, facts.mismatches)),
            )
        register = (RegisterPartitions(entry.name),)
    if facts.delta:
        return _keep_log(plan, facts, options, (*register, *switch))
    undo: tuple[Step, ...] = ()
    if facts.log:
        undo = (UndoConversion(facts.location, facts.log.table_id),)
    write: tuple[Step, ...]
    notes = (*facts.partitions.notes, *(losses(entry) if entry else ()))
    if facts.log:
        changes = "; ".join(facts.log.differences)
        notes = (f"since an earlier conversion files changed, so it is done again: {changes}", *notes)
    if engine is Engine.NATIVE:
        if options.requested:
            raise Refused("NATIVE_COMMAND_WITHOUT_OPTIONS", table=facts.source)
        # With a table name, Spark's own command also switches the entry.
        table, switch = (entry.name if entry else None), ()
        columns, statistics = facts.partitions.columns, options.statistics is not Statistics.NONE
        write = (ConvertNatively(for_spark(facts.location), table, columns, statistics),)
    else:
        if facts.merged is None:
            raise AssertionError(f"{facts.location}: its footers weren't read")
        contents = _contents(facts, options, facts.merged)
        scans = options.statistics is Statistics.SCAN
        scanned_by = options.reader if scans else None
        write = (PutFirstCommit(facts.location, contents, scanned_by, options.unsafe_commit),)
        if len(facts.files) > MANY:
            write = (*write, WriteCheckpoint(facts.location))
        plan = replace(plan, schema=contents.schema, rows=sum(footer.rows for footer in facts.footers))
        notes = (*notes, *_remarks(facts, facts.merged), *(facts.iceberg.notes if facts.iceberg else ()))
    return replace(
        plan,
        partition_columns=facts.partitions.columns,
        files=len(facts.files),
        bytes=sum(file.size for file in facts.files),
        steps=(*register, *undo, *write, *switch, *_verification(facts, options)),
        notes=notes,
    )


def to_be_redone(log: ExistingLog, entry: Entry | None) -> bool:
    """Return whether to undo and repeat the conversion that wrote a log, because files changed after it.

    If the table is Parquet in the catalog, its readers see the folder's files, so the conversion is repeated.
    Otherwise, a new file may be from a failed write to the Delta table, and then its rows don't count. Only a
    file that is older than the log can't be from such a write.
    """
    if not log.ours or not log.differences:
        return False
    if entry is None:
        return log.missed
    return not entry.is_delta and not log.shown_by


def _keep_log(plan: Plan, facts: Facts, options: Options, switch: tuple[Step, ...]) -> Plan:
    """Plan the remaining steps for a table whose log stays.

    Raises:
        Refused: The files in the log differ from those in the folder.
    """
    log = facts.log
    if log is None:
        notes = ("its rows aren't compared, for as a Delta table in use it may have others than the folder",)
        return replace(plan, steps=switch, notes=notes if options.verify else ())
    if log.differences:
        raise _differing(facts, log)
    if not (steps := (*switch, *_verification(facts, options))):
        return plan
    return replace(plan, schema=log.columns, partition_columns=log.partition_columns, steps=steps)


def _verification(facts: Facts, options: Options) -> tuple[Step, ...]:
    return (Verify(for_spark(facts.location)),) if options.verify else ()


def _differing(facts: Facts, log: ExistingLog) -> Refused:
    changes = "; ".join(log.differences)
    entry = facts.entry
    if entry is None or entry.is_delta:
        undo = f"tableferry convert undo {shlex.quote(facts.source)}"
        if not facts.local:
            undo = f"remove {facts.location}/_delta_log with its storage's own tools"
        return Refused(
            "FILES_CHANGED_SINCE_CONVERSION",
            table=facts.source,
            folder=facts.location,
            changes=changes,
            source=shlex.quote(facts.source),
            undo=undo,
        )
    if log.shown_by:
        names = ", ".join(map(str, log.shown_by))
        return Refused(
            "FILES_CHANGED_UNDER_TWO_ENTRIES",
            table=entry.name,
            delta_tables=names,
            folder=facts.location,
            changes=changes,
            first=log.shown_by[0],
        )
    return Refused(
        "DELTA_AND_PARQUET_DIFFER",
        table=entry.name,
        folder=facts.location,
        changes=changes,
        statement=entry.name.sql,
    )


def all_schemas(
    schemas: Iterable[tuple[FileSchema, str]], entry: Entry | None
) -> list[tuple[FileSchema, str]]:
    """Return the files' schemas after a schema with the catalog's data columns, spelled as in the files.

    The catalog's schema comes first. So the merged columns have its order and comments, columns that no file
    has are kept, and the merge refuses files that contradict the catalog. Names have the files' spelling,
    because some metastores store lower case only.
    """
    of_files = list(schemas)
    if entry is None:
        return of_files
    spelled: dict[str, str] = {}
    for schema, _ in of_files:
        for column in schema.columns.fields:
            spelled.setdefault(column.name.lower(), column.name)
    partitions = {column.name.lower() for column in entry.partition_columns}
    columns = tuple(
        replace(column, name=spelled.get(column.name.lower(), column.name))
        for column in log_columns(entry).fields
        if column.name.lower() not in partitions or column.name.lower() in spelled
    )
    return [(FileSchema(Struct(columns), ()), f"the catalog's entry of {entry.name}"), *of_files]


def with_partitions(schema: Struct, columns: Sequence[PartitionColumn], entry: Entry | None) -> Struct:
    """Add the partition columns to a schema: in place if the files have them too, else at the end.

    They always have the partition's type, because readers use the directory name and not the file's value.
    """
    known = log_columns(entry).fields if entry else ()
    comments = {column.name.lower(): column.metadata for column in known}
    partitions = {
        column.name.lower(): Field(column.name, column.type, metadata=comments.get(column.name.lower(), {}))
        for column in columns
    }
    data = tuple(partitions.pop(column.name.lower(), column) for column in schema.fields)
    return Struct((*data, *partitions.values()))


def _contents(facts: Facts, options: Options, merged: Merged) -> Contents:
    # An Iceberg schema already includes the partition columns, with their ids.
    schema = merged.columns
    if facts.iceberg is None:
        schema = with_partitions(schema, facts.partitions.columns, facts.entry)
    _require_defaults(facts)
    more = options.requested
    features, for_writers = more.features
    properties = kept_properties(facts.entry) if facts.entry else {}
    if facts.iceberg and facts.iceberg.by_id:
        if not options.column_mapping:
            raise Refused("ICEBERG_COLUMNS_NEED_IDS", table=facts.source, reason=facts.iceberg.by_id)
        properties |= column_mapping.by_id(facts.iceberg.last_id)
        features = (*features, column_mapping.FEATURE)
    elif unfit := sorted(column_mapping.unfit(schema)):
        if not options.column_mapping:
            raise Refused(
                "COLUMN_NAMES_NEED_MAPPING", table=facts.location, columns=[f"`{name}`" for name in unfit]
            )
        schema, mapped = column_mapping.mapped(schema)
        properties |= mapped
        features = (*features, column_mapping.FEATURE)
    if facts.entry and needs_defaults(facts.entry):
        for_writers = (*for_writers, "allowColumnDefaults")
    contents = Contents(
        table_id=facts.table_id,
        schema=schema,
        partition_columns=tuple(column.name for column in facts.partitions.columns),
        files=facts.files,
        values=facts.partitions.values,
        footers=facts.footers,
        left_out=facts.left_out,
        statistics=options.statistics is not Statistics.NONE,
        description=_comment(facts),
        configuration={**properties, **more.properties},
        features=features,
        writer_features=for_writers,
        catalog_entry=facts.entry,
        iceberg=facts.iceberg,
    )
    if not more.cluster_by:
        return contents
    if not contents.statistics:
        raise Refused("CLUSTERING_WITHOUT_STATISTICS", table=facts.source)
    paths = clustered(more.cluster_by, schema, indexed(contents), bool(contents.partition_columns))
    return replace(contents, cluster_by=tuple(map(tuple, paths)))


def _comment(facts: Facts) -> str | None:
    if facts.entry:
        return facts.entry.comment
    return facts.iceberg.comment if facts.iceberg else None


def _require_defaults(facts: Facts) -> None:
    """Refuse a table with files that lack a column with a default, because Delta reads null instead."""
    defaults = existence_defaults(facts.entry) if facts.entry else {}
    for name, default in defaults.items():
        for file, footer in zip(facts.files, facts.footers, strict=True):
            if all(column.name.lower() != name.lower() for column in footer.schema.columns.fields):
                raise Refused(
                    "COLUMN_DEFAULT_LOST", table=facts.source, column=name, default=default, file=file.path
                )


def _remarks(facts: Facts, merged: Merged) -> tuple[str, ...]:
    remarks = [
        f"column `{'.'.join(widened.path)}` is {widened.wide}, and {widened.narrow} in {widened.file}"
        for widened in merged.widenings[:_SHOWN]
    ]
    if (more := len(merged.widenings) - _SHOWN) > 0:
        remarks.append(f"so it is with {more:,} more of other types")
    partitions = {column.name.lower() for column in facts.partitions.columns}
    names = [column.name for column in merged.columns.fields]
    if both := [name for name in names if name.lower() in partitions]:
        remarks.append(
            f"{first_of([f'`{name}`' for name in both])} in the files isn't what counts: the names of the "
            "directories do"
        )
    if facts.left_out:
        remarks.append(left_out_note([file.path for file in facts.left_out]))
    if empty := [
        file.path for file, footer in zip(facts.files, facts.footers, strict=True) if not footer.rows
    ]:
        remarks.append(f"{counted(len(empty), 'file has', 'files have')} no rows: {first_of(empty)}")
    pairs = zip(facts.files, facts.footers, strict=True)
    if split := next(((file.path, footer.split) for file, footer in pairs if footer.split), None):
        remarks.append(
            f"column `{split[1]}` of {split[0]} is encoded as BYTE_STREAM_SPLIT, which Spark reads with "
            "spark.sql.parquet.enableVectorizedReader=false alone"
        )
    if colons := [file.path for file in facts.files if ":" in file.path.partition("/")[0]]:
        remarks.append(
            "a colon in the first name of a file's path makes Spark's VACUUM of the table fail, though "
            f"everybody reads it: {first_of(colons)}"
        )
    if facts.entry:
        known = {column.name.lower() for column in facts.entry.columns.fields}
        if new := [f"`{name}`" for name in names if name.lower() not in known]:
            remarks.append(
                f"the files have columns that the catalog doesn't show: {first_of(new)}; the table will"
            )
    return tuple(remarks)
