"""Convert the tables that the user names, one after another, and undo a conversion.

An error in one table doesn't stop the conversion of the next.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tableferry import verify as verifying
from tableferry.convert import catalog, definitions, requests
from tableferry.convert.facts import ResolvedSource, by_store, expand, gather, single
from tableferry.convert.perform import perform
from tableferry.convert.plan import Engine, Facts, Options, Plan, Statistics, decide
from tableferry.convert.steps import Reader, SwitchEntry
from tableferry.errors import Refused, TableError, TableferryError, first_line, is_sparks
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive.partition_columns import parse_partition_columns
from tableferry.progress import Task, task
from tableferry.spark import session
from tableferry.spark.provider import SparkProvider
from tableferry.storage import path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Outcome = Literal["planned", "converted", "switched", "already", "skipped", "refused", "failed"]


@dataclass(frozen=True)
class TableReport:
    """The outcome of one table's conversion.

    Attributes:
        source: The table's name or path.
        outcome: ``planned`` after a dry run; ``converted``; ``switched`` if only the catalog entry changed;
            ``already`` if the table was Delta; ``skipped``, such as a view or a table of another format in a
            schema; ``refused`` if the table can't be converted as it is; ``failed`` after any other error.
        plan: The plan; None if an error occurred before it was complete.
        error: The reason for ``refused`` or ``failed``.
        verdict: The result of the row comparison; None if the rows weren't compared.
        skipped: The reason for ``skipped``.
    """

    source: str
    outcome: Outcome
    plan: Plan | None = None
    error: TableferryError | None = None
    verdict: verifying.Verdict | None = None
    skipped: str = ""


@dataclass(frozen=True)
class Report:
    """The outcomes of all tables of a run."""

    tables: tuple[TableReport, ...]

    @property
    def ok(self) -> bool:
        """Whether no table was refused and none failed."""
        return all(table.outcome not in ("refused", "failed") for table in self.tables)


def run(
    sources: Iterable[str],
    spark: SparkSession | None = None,
    *,
    partitioned_by: str | None = None,
    dry_run: bool = False,
    statistics: Statistics = Statistics.FOOTERS,
    engine: Engine = Engine.AUTO,
    recursive: bool = False,
    msck: bool = False,
    column_mapping: bool = False,
    verify: bool = False,
    include_subfolders: bool = False,
    reader: Reader = Reader.AUTO,
    unsafe_commit: bool = False,
    cluster_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    schema: Path | None = None,
    resolve: Callable[[], SparkSession] = session.resolve,
) -> Report:
    """Convert Parquet tables to Delta in place, without rewriting data files.

    An interrupted run can be repeated, because a table that is already Delta stays as it is. If files changed
    after an earlier conversion, the table is converted again where that is safe. Otherwise it is refused, and
    the error names the files.

    Args:
        sources: Folders (``/data/events``, ``parquet.`/data/events```), tables of the catalog
            (``db.events``) or all Parquet tables of a schema (``db.*``).
        spark: The session for tables of the catalog, for storage that only Spark reaches and for `verify`.
            By default, `resolve` creates one when a table first needs it.
        partitioned_by: The partition columns with their types, ``year int, month int``. By default, they are
            inferred from the directory names or read from the catalog.
        dry_run: Plan the conversion and write nothing.
        statistics: The source of each file's bounds and null counts in the log, which readers use to skip
            files: the footer, if its writer is known to be correct, or a scan of all data.
        engine: What writes the log; ``auto`` uses Spark's own command if only Spark reaches the files.
        recursive: Convert all tables below each folder.
        msck: If the catalog's partitions differ from those on disk, update the catalog first
            (``MSCK REPAIR TABLE``).
        column_mapping: Enable column mapping for names that Delta doesn't accept without it.
        verify: Compare the rows of the files with those of the Delta table, with Spark.
        include_subfolders: Include the files in plain folders (without ``=``) below a folder that has files
            itself. Spark ignores them when it reads that folder.
        reader: Where files are read: in this process or in Spark tasks.
        unsafe_commit: Write the log even if the store doesn't support conditional creation (only if the
            object doesn't exist). Two concurrent converters can then overwrite each other's log.
        cluster_by: Columns by which later writes and OPTIMIZE cluster the rows.
        properties: Table properties to set, such as ``delta.appendOnly``.
        schema: A file with the table's columns, as Spark's JSON or in SQL. Files with other columns, or with
            values that the declared types can't represent, are refused.
        resolve: Creates a session.

    Returns:
        A report with each table's outcome.

    Raises:
        TableferryError: A source or an option is invalid, or a schema doesn't exist.
    """
    options = Options(
        parse_partition_columns(partitioned_by) if partitioned_by is not None else None,
        statistics,
        reader,
        engine,
        msck,
        column_mapping,
        verify,
        include_subfolders,
        unsafe_commit=unsafe_commit,
        requested=requests.of(cluster_by, properties or {}, schema),
    )
    spark_provider = SparkProvider(spark, resolve)
    with task(_log, "search for tables", level=logging.DEBUG):
        resolved = expand(sources, spark_provider, recursive=recursive)
    reports: list[TableReport] = []
    with task(_log, "convert", level=logging.INFO if len(resolved) > 1 else logging.DEBUG) as running:
        running.update("tables", 0, len(resolved))
        for source in resolved:
            reports.append(_convert(source, options, spark_provider, dry_run=dry_run))
            _log_outcome(running, reports, len(resolved))
    return Report(tuple(reports))


def _log_outcome(running: Task, reports: list[TableReport], tables: int) -> None:
    """Log the last table's outcome and update the table count."""
    source, outcome = reports[-1].source, reports[-1].outcome
    running.update("tables", len(reports), tables)
    if tables > 1:
        fields = {"event": "table", "table": source, "outcome": outcome}
        _log.info("[%d/%d] %s: %s", len(reports), tables, source, outcome, extra=fields)


def _convert(
    resolved: ResolvedSource, options: Options, spark_provider: SparkProvider, *, dry_run: bool
) -> TableReport:
    source = resolved.source
    if resolved.skipped:
        return TableReport(source, "skipped", skipped=resolved.skipped)
    plan = None
    try:
        with task(_log, "read the files' footers", table=source) as running:
            facts = gather(resolved, options, spark_provider, partial(running.update, "files"))
        plan = decide(facts, options)
        if not plan.steps:
            return TableReport(source, "already", plan)
        if dry_run:
            return TableReport(source, "planned", plan)
        verdict = perform(plan, spark_provider)
    except Refused as error:
        return TableReport(source, "refused", plan, error)
    except TableferryError as error:
        return TableReport(source, "failed", plan, error)
    except Exception as error:
        # A Spark error concerns this table only; any other error is a defect and ends the run.
        if not is_sparks(error):
            raise
        failed = TableError("SPARK_FAILED", table=source, reason=first_line(error))
        return TableReport(source, "failed", plan, failed)
    if verdict and not verdict.matches:
        differs = TableError("ROWS_DIFFER_AFTER_CONVERSION", table=source, source=shlex.quote(source))
        return TableReport(source, "failed", plan, differs, verdict)
    return TableReport(source, _outcome(facts, plan), plan, verdict=verdict)


def _outcome(facts: Facts, plan: Plan) -> Outcome:
    if not facts.delta:
        return "converted"
    return "switched" if any(isinstance(step, SwitchEntry) for step in plan.steps) else "already"


def undo(
    source: str,
    spark: SparkSession | None = None,
    *,
    resolve: Callable[[], SparkSession] = session.resolve,
) -> tuple[str, ...]:
    """Undo a conversion: remove its log, and leave the data files unchanged.

    A table's catalog entry becomes Parquet again, even if the user names the table's folder. A repeated call
    resumes an interrupted undo.

    Args:
        source: A folder, or a table of the catalog.
        spark: The session for a table of the catalog; by default, `resolve` creates one.
        resolve: Creates a session.

    Returns:
        Notes for the user.

    Raises:
        TableError: The table isn't Delta.
        Refused: The log has a commit after the conversion, the catalog entry can't be restored, or only Spark
            reaches the storage.
    """
    resolved = single(source)
    with task(_log, "undo the conversion", table=source, level=logging.DEBUG):
        return _undo(source, resolved, spark, resolve)


def _undo(
    source: str, resolved: ResolvedSource, spark: SparkSession | None, resolve: Callable[[], SparkSession]
) -> tuple[str, ...]:
    if resolved.table is not None:
        return catalog.undo.undo(SparkProvider(spark, resolve).session(), resolved.table)
    if not resolved.local and not by_store(resolved.location, Engine.AUTO):
        raise Refused("UNDO_OUT_OF_REACH", table=source, folder=resolved.location)
    root = path_of(resolved.location)
    if isinstance(root, Path) and (named := definitions.recorded(initial_commit.info(root))):
        initial_commit.require_only_a_conversion(root)
        # A catalog entry that points to the folder would otherwise remain Delta without a log.
        notes = catalog.undo.undo_if_named(SparkProvider(spark, resolve).session(), named.name, root)
        if notes is not None:
            return notes
    initial_commit.undo(root)
    return ()
