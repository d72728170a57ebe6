"""Update converted tables to the files in their folders, one table after another.

An error in one table doesn't stop the update of the next.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tableferry import storage
from tableferry.backoff import pause
from tableferry.convert import catalog, converted_table
from tableferry.convert.converted_table import NotConverted
from tableferry.convert.discovery import listing
from tableferry.convert.discovery.table_formats import already_delta
from tableferry.convert.facts import ResolvedSource, by_store, expand
from tableferry.convert.plan import Engine, Options, Statistics
from tableferry.convert.sources import Schema, parse
from tableferry.convert.steps import Reader
from tableferry.convert.sync import commit as log_changes
from tableferry.convert.sync.commit import Changes
from tableferry.convert.sync.difference import Difference, difference
from tableferry.errors import Busy, Refused, TableError, TableferryError, first_line, is_sparks
from tableferry.formats.delta import initial_commit
from tableferry.formats.parquet.files import DataFile, Footer
from tableferry.progress import task
from tableferry.spark import session
from tableferry.spark.provider import SparkProvider
from tableferry.spark.types import Field
from tableferry.storage import AnyPath, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Outcome = Literal["planned", "synced", "current", "skipped", "refused", "failed"]

# The number of attempts to write a version if other processes write versions concurrently.
_TRIES = 5
# The number of attempts to prepare a version while other processes replace the folder's files.
_LOOKS = 50
_CHECKPOINT_EVERY = 10


@dataclass(frozen=True)
class TableSync:
    """The outcome of one table's sync.

    Attributes:
        source: The table's name or path.
        outcome: ``planned`` after a dry run; ``synced``; ``current`` if the table had the folder's files;
            ``skipped`` if the table was found in a folder or schema and isn't a conversion; ``refused`` if
            the table can't be synced as it is; ``failed`` after any other error.
        changes: The version that was written; after a dry run, the version that a sync would write.
        notes: Notes for the user.
        error: The reason for ``refused`` or ``failed``, and for ``skipped`` if the table isn't a conversion.
            If some files can't be read, the sync added the readable ones.
        skipped: The reason for ``skipped``, if the folder belongs to another table.
    """

    source: str
    outcome: Outcome
    changes: Changes | None = None
    notes: tuple[str, ...] = ()
    error: TableferryError | None = None
    skipped: str = ""

    @property
    def new_columns(self) -> tuple[Field, ...]:
        """The columns that the version adds."""
        if self.changes is None:
            return ()
        known = {column.name for column in self.changes.table.schema.fields}
        return tuple(column for column in self.changes.added.schema.fields if column.name not in known)


@dataclass(frozen=True)
class SyncReport:
    """The outcomes of all tables of a run."""

    tables: tuple[TableSync, ...]

    @property
    def ok(self) -> bool:
        """Whether no table was refused and none failed."""
        return all(table.outcome not in ("refused", "failed") for table in self.tables)


def sync(
    sources: Iterable[str],
    spark: SparkSession | None = None,
    *,
    dry_run: bool = False,
    statistics: Statistics = Statistics.FOOTERS,
    reader: Reader = Reader.AUTO,
    recursive: bool = False,
    rewritten: bool = False,
    include_subfolders: bool = False,
    unsafe_commit: bool = False,
    resolve: Callable[[], SparkSession] = session.resolve,
) -> SyncReport:
    """Write one version with the folder's current files for each converted table whose folder changed.

    A repeated run adds no file twice. Other processes may write Parquet to the folder and read the table
    concurrently. If a process writes rows to the Delta table itself, later syncs refuse the table.

    Args:
        sources: Converted folders and tables of the catalog, or schemas (``db.*``) that contain some.
        spark: The session for tables of the catalog; by default, `resolve` creates one.
        dry_run: Compare the tables with their folders and write nothing.
        statistics: The source of new files' bounds and null counts.
        recursive: Sync all tables below each folder.
        rewritten: Accept files that were rewritten under their names.
        include_subfolders: Include the files in plain folders below a folder that has files itself, as the
            conversion did.
        reader: Where files are read: in this process or in Spark tasks.
        unsafe_commit: Write the log even if the store doesn't support conditional creation (only if the
            object doesn't exist).
        resolve: Creates a session.

    Returns:
        A report with each table's outcome.

    Raises:
        TableferryError: A source is invalid, or a schema doesn't exist.
    """
    options = Options(
        statistics=statistics,
        reader=reader,
        include_subfolders=include_subfolders,
        rewritten=rewritten,
        unsafe_commit=unsafe_commit,
    )
    spark_provider = SparkProvider(spark, resolve)
    named = tuple(sources)
    with task(_log, "search for tables", level=logging.DEBUG):
        resolved = expand(named, spark_provider, recursive=recursive)
    # A table that was found in a folder or schema needn't be a conversion; if not, it's skipped, not refused.
    by_name = not recursive and not any(isinstance(parse(text), Schema) for text in named)
    tables = [_sync(source, options, spark_provider, dry_run=dry_run, named=by_name) for source in resolved]
    return SyncReport(tuple(tables))


def _sync(
    resolved: ResolvedSource, options: Options, spark_provider: SparkProvider, *, dry_run: bool, named: bool
) -> TableSync:
    source = resolved.source
    if resolved.skipped:
        return TableSync(source, "skipped", skipped=resolved.skipped)
    try:
        root = _root(resolved, spark_provider)
        if isinstance(root, Path):
            listing.require_directory(root)
        if not already_delta(root):
            raise NotConverted("SYNC_OF_PARQUET_TABLE", table=source)
        with task(_log, "follow the folder", table=source) as running:
            progress = partial(running.update, "files")
            if dry_run:
                found = difference(root, options, spark_provider, progress)
            else:
                found = follow(root, options, spark_provider, progress)
    except NotConverted as error:
        return TableSync(source, "refused" if named else "skipped", error=error)
    except Refused as error:
        return TableSync(source, "refused", error=error)
    except TableferryError as error:
        return TableSync(source, "failed", error=error)
    except Exception as error:
        # A Spark error concerns this table only; any other error is a defect and ends the run.
        if not is_sparks(error):
            raise
        return TableSync(
            source, "failed", error=TableError("SPARK_FAILED", table=source, reason=first_line(error))
        )
    return _reported(source, found, dry_run=dry_run)


def _reported(source: str, found: Difference, *, dry_run: bool) -> TableSync:
    if found.broken:
        error = TableError("SYNC_LEFT_OUT_UNREADABLE_FILES", table=source, files="; ".join(found.broken))
        return TableSync(source, "failed", found.changes, found.notes, error)
    if found.changes is None:
        return TableSync(source, "current", notes=found.notes)
    return TableSync(source, "planned" if dry_run else "synced", found.changes, found.notes)


def _root(resolved: ResolvedSource, spark_provider: SparkProvider) -> AnyPath:
    location, local = resolved.location, resolved.local
    if resolved.table is not None:
        entry = catalog.entries.entry(spark_provider.session(), resolved.table)
        if not entry.is_delta:
            raise NotConverted("SYNC_OF_PARQUET_TABLE_IN_CATALOG", table=resolved.table)
        location, local = str(entry.folder or entry.location), entry.folder is not None
    # Spark has no command for a sync, so this process accesses the store in every environment.
    if not local and not by_store(location, Engine.TABLEFERRY):
        raise Refused("SYNC_STORAGE_UNREACHABLE", table=location)
    return path_of(location)


def follow(
    root: AnyPath, options: Options, spark: SparkProvider, progress: Callable[[int, int], None]
) -> Difference:
    """Write a version of a table with its folder's current files, and return the difference.

    If several processes write a version concurrently, one succeeds, and the others repeat the comparison. If
    files are added and removed during the call, the version has the folder's files at one time after the
    start.

    Raises:
        TableferryError: As for `difference`; or other processes write too often.
    """
    footers: dict[DataFile, Footer] = {}
    conflicts = 0
    for attempt in range(_LOOKS):
        listed = listing.list_at_rest(root) if attempt else None
        found = difference(root, options, spark, progress, listed, footers)
        if found.vanished and attempt:
            continue
        if found.changes is None:
            return found
        check = partial(_without_rewritten_files, listed=found.listed) if listed is None else _unchanged
        still = check(found.changes, root)
        if still and put(root, still, unsafe=options.unsafe_commit):
            return replace(found, changes=still, notes=(*found.notes, *_checkpointed(still)))
        conflicts += still is not None
        if conflicts == _TRIES:
            raise Busy("SYNC_LOST_RACES", table=root)
        pause(attempt)
    raise Busy("SYNC_FILES_CHANGE_TOO_FAST", table=root, attempts=_LOOKS)


def _unchanged(changes: Changes, root: AnyPath) -> Changes | None:
    """Return the changes; None if a file to add differs in the folder, or a removed file exists again."""
    there = {file.path: file for file in listing.list_files(root)}
    removed = (changes.table.files[name].path for name in changes.removed)
    same = all(there.get(file.path) == file for file in changes.added.files)
    return changes if same and not any(path in there for path in removed) else None


def put(root: AnyPath, changes: Changes, *, unsafe: bool = False) -> bool:
    """Write a table's next version, and return False if another process wrote that version."""
    identity = str(uuid.uuid4())
    name = initial_commit.log(root) / f"{changes.version:020}.json"
    if initial_commit.create(name, log_changes.lines(changes, initial_commit.now(), identity), unsafe=unsafe):
        return True
    # The store may have created the file although its response was lost.
    return f'"txnId":"{identity}"' in (storage.read_text(name) or "").partition("\n")[0]


def _without_rewritten_files(changes: Changes, root: AnyPath, listed: Sequence[DataFile]) -> Changes | None:
    """Leave out files that were rewritten after the folder was listed; the next sync finds them.

    Returns:
        The remaining changes; None if none remain, or if files may have been renamed after the listing. The
        listing may contain a renamed file under both names, or under neither.
    """
    there = {file.path: file for file in listing.list_files(root)}
    before = {file.path for file in listed}
    if before - there.keys() or (changes.removed and there.keys() - before):
        return None
    added = changes.added
    kept = [
        (file, values, footer)
        for file, values, footer in zip(added.files, added.values, added.footers, strict=True)
        if there.get(file.path) == file
    ]
    if not kept and not changes.removed:
        return None
    data_files, values, footers = zip(*kept, strict=True) if kept else ((), (), ())
    return replace(changes, added=replace(added, files=data_files, values=values, footers=footers))


def _checkpointed(changes: Changes) -> tuple[str, ...]:
    """Write a checkpoint if one is due, and return a note if it fails."""
    configured = changes.table.configuration.get("delta.checkpointInterval", "")
    interval = int(configured) if configured.isdecimal() else 0
    if changes.version % (interval or _CHECKPOINT_EVERY):
        return ()
    try:
        converted_table.write_checkpoint(changes.table.root)
    except TableferryError as error:
        return (error.one_line,)
    return ()
