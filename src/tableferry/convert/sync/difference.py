"""Compare a converted table with its folder, and prepare the changes for the table's next version."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tableferry import storage as storage
from tableferry.amounts import counted, first_of
from tableferry.convert import converted_table
from tableferry.convert.commit_contents import Contents
from tableferry.convert.converted_table import Table
from tableferry.convert.discovery import listing
from tableferry.convert.plan import Options, Statistics
from tableferry.convert.readers import all_readable, read_footers, with_statistics
from tableferry.convert.sync.commit import Changes
from tableferry.errors import Refused
from tableferry.formats.delta import column_mapping
from tableferry.formats.hive import partition_inference
from tableferry.formats.parquet import schema_merge
from tableferry.formats.parquet.files import DataFile, FileSchema, Footer, Unreadable
from tableferry.spark import types
from tableferry.spark.provider import SparkProvider
from tableferry.spark.types import Struct
from tableferry.storage import AnyPath

_UNFIT = (
    "Rename the directory, or move the file away. The conversion gave the column that type, and sync doesn't "
    "change it."
)
# The age, in milliseconds, from which a file counts as completely written.
_FINISHED = 15 * 60 * 1000


@dataclass(frozen=True)
class Difference:
    """The difference between a table and its folder.

    Attributes:
        changes: The changes of the next version; None if the table already has the folder's files.
        listed: The files in the folder.
        notes: Notes for the user.
        broken: Completely written files that can't be read, each with the reason.
        vanished: Whether new files were removed before they were read.
    """

    changes: Changes | None
    listed: tuple[DataFile, ...] = ()
    notes: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    vanished: bool = False


@dataclass(frozen=True)
class _Files:
    """A folder's files: new files, names in the log of removed files, and unchanged files."""

    new: tuple[DataFile, ...]
    gone: tuple[str, ...]
    kept: tuple[DataFile, ...]


def difference(
    root: AnyPath,
    options: Options,
    spark: SparkProvider,
    progress: Callable[[int, int], None],
    listed: Sequence[DataFile] | None = None,
    known: MutableMapping[DataFile, Footer] | None = None,
) -> Difference:
    """Compare a table's newest version with its folder, and write nothing.

    Args:
        root: The table's folder.
        options: The options for reading the folder's files.
        spark: Provides a session if one is needed.
        progress: Called with the number of new files that were read, and with the number of new files.
        listed: The files in the folder; by default, the folder is listed.
        known: Footers that were read before; the function adds those of new files.

    Raises:
        Refused: Another process wrote rows to the table, or a file conflicts with the table. An append-only
            table lost files. A file was rewritten under its name, and `Options.rewritten` is off.
        TableferryError: The table or a file can't be read.
    """
    before = converted_table.read(root)
    listed = tuple(listing.list_files(root) if listed is None else listed)
    if not options.include_subfolders:
        listing.require_no_subfolders(str(root), listed)
    changed = _compare(before, listed, rewritten=options.rewritten)
    if changed.gone and before.configuration.get("delta.appendOnly", "").lower() == "true":
        raise Refused(
            "APPEND_ONLY_TABLE_LOST_FILES",
            table=root,
            files=[before.files[name].path for name in changed.gone],
        )
    read = _read_new(root, changed.new, options, spark, progress, {} if known is None else known)
    read = _without_unfit(before, read)
    new, footers, notes = read.files, read.footers, read.notes
    if not new and not changed.gone:
        return Difference(None, listed, notes, read.broken, read.vanished)
    # Check all directories together, because two of them may spell one value in two ways.
    partitions = partition_inference.check(listed, before.partition_columns, _UNFIT)
    notes += partitions.same_values
    values = {file.path: value for file, value in zip(listed, partitions.values, strict=True)}
    merged = _merged(before, list(zip(new, footers, strict=True)))
    restated: Contents | None = None
    if _widened(before.schema, merged):
        kept = changed.kept
        footers_of_kept = read_footers(root, kept, spark, options.reader, leaves=options.leaves)
        of_kept = all_readable(root, kept, footers_of_kept, progress)
        both = [*zip(kept, of_kept, strict=True), *zip(new, footers, strict=True)]
        merged = _merged(before, both)
        restated = _contents(before, merged, kept, of_kept, values, options)
        notes += (
            f"a column's type widens, so the statistics of {counted(len(kept), 'file')} are rewritten; "
            "streams that read the table can't continue: start them with a new checkpoint and "
            f"startingVersion {before.version + 1}, after they have read all earlier versions",
        )
    added = _contents(before, merged, new, footers, values, options)
    scanned_by = options.reader if options.statistics is Statistics.SCAN else None
    added = with_statistics(root, added, spark, scanned_by, lambda *_: None)
    if restated is not None:
        restated = with_statistics(root, restated, spark, scanned_by, lambda *_: None)
    changes = Changes(before, added, restated, changed.gone)
    return Difference(changes, listed, notes, read.broken, read.vanished)


def _compare(before: Table, listed: Sequence[DataFile], *, rewritten: bool) -> _Files:
    known = {file.path: file for file in before.files.values()}
    there = {file.path for file in listed}
    gone = tuple(name for name, file in before.files.items() if file.path not in there)
    again = [file for file in listed if file.path in known and file != known[file.path]]
    if again and not rewritten:
        raise Refused("FILES_REWRITTEN_IN_PLACE", table=before.root, files=[file.path for file in again])
    new = tuple(file for file in listed if file.path not in known or file != known[file.path])
    return _Files(new, gone, tuple(file for file in listed if known.get(file.path) == file))


class _Read(NamedTuple):
    """The result of reading a folder's new files, as in `Difference`; ``files`` are those with a footer."""

    files: tuple[DataFile, ...]
    footers: tuple[Footer, ...]
    notes: tuple[str, ...]
    broken: tuple[str, ...]
    vanished: bool


def _read_new(
    root: AnyPath,
    new: Sequence[DataFile],
    options: Options,
    spark: SparkProvider,
    progress: Callable[[int, int], None],
    known: MutableMapping[DataFile, Footer],
) -> _Read:
    """Read the footers of the new files that have one; a file without one may be incomplete."""
    unfinished: list[str] = []
    broken: list[str] = []
    vanished = False
    unread = [file for file in new if file not in known]
    read = read_footers(root, unread, spark, options.reader, leaves=options.leaves)
    for number, (file, footer) in enumerate(zip(unread, read, strict=True), 1):
        match footer:
            case Footer():
                known[file] = footer
            case Unreadable() if not storage.exists(root / file.path):
                vanished = True
            case Unreadable(reason):
                young = time.time_ns() // 1_000_000 - file.modified < _FINISHED
                if young:
                    unfinished.append(file.path)
                else:
                    broken.append(f"{file.path} {reason}")
        progress(number, len(unread))
    notes: tuple[str, ...] = ()
    if unfinished:
        notes = (f"left for the next sync, as they may still be written: {first_of(unfinished)}",)
    files = tuple(file for file in new if file in known)
    return _Read(files, tuple(known[file] for file in files), notes, tuple(broken), vanished)


def _without_unfit(before: Table, read: _Read) -> _Read:
    """Leave out new files without rows whose schema doesn't fit the table and the other new files.

    Raises:
        Refused: The schema of a file with rows doesn't fit.
    """
    # A rewritten file replaces its older version in the table, so it isn't left out even if it has no rows.
    replaced = {file.path for file in before.files.values()}
    pairs = list(zip(read.files, read.footers, strict=True))
    with_rows = {id(footer.schema) for file, footer in pairs if footer.rows or file.path in replaced}
    if all(id(footer.schema) in with_rows for _, footer in pairs):
        return read
    by_schema = {id(footer.schema): (file, footer) for file, footer in pairs}
    table = (FileSchema(Struct(), ()), "the table")

    def fit(schemas: Sequence[tuple[FileSchema, str]]) -> schema_merge.Merged:
        return schema_merge.Merged(_merged(before, [by_schema[id(schema)] for schema, _ in schemas[1:]]))

    schemas = [table, *((footer.schema, file.path) for file, footer in by_schema.values())]
    _, unfit = schema_merge.fitting(schemas, {id(table[0]), *with_rows}, fit)
    if not unfit:
        return read
    kept = [(file, footer) for file, footer in pairs if id(footer.schema) not in unfit]
    note = schema_merge.left_out_note([file.path for file, footer in pairs if id(footer.schema) in unfit])
    return read._replace(
        files=tuple(file for file, _ in kept),
        footers=tuple(footer for _, footer in kept),
        notes=(*read.notes, note),
    )


def _merged(before: Table, read: Sequence[tuple[DataFile, Footer]]) -> Struct:
    """Return the table's columns, with types that the new files widen, and then the files' new columns.

    Raises:
        Refused: A file conflicts with the table.
    """
    partitions = {column.name.lower() for column in before.partition_columns}
    # A file may have a column with a partition column's name and another type.
    data = Struct(tuple(column for column in before.schema.fields if column.name.lower() not in partitions))
    schemas = {id(footer.schema): (_without(footer.schema, partitions), file.path) for file, footer in read}
    merged = schema_merge.merge([(FileSchema(data, ()), "the table"), *schemas.values()])
    remedy = "Rewrite the files with the column's type, or without the column, which the table doesn't have."
    schema_merge.require_types(str(before.root), merged, partitions, remedy, "every new file")
    by_name = {column.name: column for column in merged.columns.fields}
    old = tuple(
        replace(column, type=by_name.pop(column.name).type) if column.name in by_name else column
        for column in before.schema.fields
    )
    return Struct((*old, *by_name.values()))


def _without(schema: FileSchema, partitions: set[str]) -> FileSchema:
    columns = tuple(column for column in schema.columns.fields if column.name.lower() not in partitions)
    return replace(schema, columns=Struct(columns))


def _widened(before: Struct, after: Struct) -> bool:
    """Return whether the type of an existing column or field differs."""
    old, new = types.primitives(before), types.primitives(after)
    return any(new[path] != primitives for path, primitives in old.items())


def _contents(
    before: Table,
    schema: Struct,
    files: Sequence[DataFile],
    footers: Sequence[Footer],
    values: Mapping[str, tuple[str | None, ...]],
    options: Options,
) -> Contents:
    schema, configuration = column_mapping.extended(schema, before.configuration)
    if column_mapping.MODE not in configuration and (unfit := sorted(column_mapping.unfit(schema))):
        raise Refused(
            "COLUMN_NAMES_NEED_MAPPING_IN_SYNC", table=before.root, columns=[f"`{name}`" for name in unfit]
        )
    return Contents(
        table_id=before.table_id,
        schema=schema,
        partition_columns=tuple(column.name for column in before.partition_columns),
        files=tuple(files),
        values=tuple(values[file.path] for file in files),
        footers=tuple(footers),
        statistics=options.statistics is not Statistics.NONE,
        configuration=configuration,
    )
