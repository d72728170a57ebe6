"""Converts what the user names, one table after the other; one bad table never stops the rest."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tableferry import session
from tableferry import verify as verifying
from tableferry.activity import Activity, activity
from tableferry.convert import requested, through_spark
from tableferry.convert.gather import ResolvedSource, by_store, expand, gather, single
from tableferry.convert.log import commit, definitions
from tableferry.convert.partitions.columns import declared
from tableferry.convert.perform import perform
from tableferry.convert.plan import Engine, Facts, Options, Plan, Statistics, decide
from tableferry.convert.spark_provider import SparkProvider
from tableferry.convert.steps import Reader, SwitchEntry
from tableferry.errors import Refused, TableError, TableferryError, first_line, is_sparks
from tableferry.files import path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Outcome = Literal["planned", "converted", "switched", "already", "skipped", "refused", "failed"]


@dataclass(frozen=True)
class TableReport:
    """What became of one table.

    Attributes:
        source: What the user named it.
        outcome: ``planned`` by a dry run; ``converted``; ``switched`` if only the catalog's entry was;
            ``already`` Delta; ``skipped`` as a schema's view or table of another format; ``refused`` for a
            reason that is its own; ``failed`` for another.
        plan: What was planned, as far as it came.
        error: Why it was refused, or how it failed.
        skipped: Why it was skipped.
        verdict: How the rows compared, if that was asked for.
    """

    source: str
    outcome: Outcome
    plan: Plan | None = None
    error: TableferryError | None = None
    verdict: verifying.Verdict | None = None
    skipped: str = ""


@dataclass(frozen=True)
class Report:
    """What became of all of them."""

    tables: tuple[TableReport, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was refused and nothing failed."""
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
    """Convert Parquet to Delta in place: nothing is written but the first commit of each table's log.

    Run again, it goes on where it stopped: what is Delta already is left alone. If files changed since a
    conversion, its table is converted anew where that is safe, and refused with their names elsewhere.

    Args:
        sources: Folders (``/data/events``, ``parquet.`/data/events```), tables of the catalog
            (``db.events``) or all Parquet tables of a schema (``db.*``).
        spark: The session for tables of the catalog, for storage that only Spark reaches and for `verify`;
            by default `resolve` is asked for one when the first of these needs it.
        partitioned_by: The partition columns with their types, ``year int, month int``; by default the
            directories' names and their values tell, or the catalog.
        dry_run: Plan, and write nothing.
        statistics: Where each file's bounds and null counts in the log, by which readers skip files, come
            from: its footer, as far as its writer is known to be right, or a scan of all data.
        engine: Who writes the log; ``auto`` takes Spark's own command where nobody else reaches the files.
        recursive: A folder stands for all tables below it.
        msck: Convert what is on disk where the catalog knows other partitions.
        column_mapping: Map names that Delta doesn't take otherwise.
        verify: Compare the rows of the files with those of the Delta table, with Spark.
        include_subfolders: Take the files in plain folders (without ``=``) below a folder that has files
            itself, which Spark leaves out when it reads that folder.
        reader: Where files are read: in this process, or in Spark's tasks.
        unsafe_commit: Write the log also where a store can't create an object only if there is none, so that
            two converters at once could replace one another's.
        cluster_by: Columns by which later writes and OPTIMIZE cluster the rows.
        properties: Properties that the table gets, such as ``delta.appendOnly``.
        schema: A file with the columns that the table is to have, as Spark's JSON or as in SQL. The files may
            have no others, and no types that those declared don't hold.
        resolve: Makes a session.

    Returns:
        A report with each table's outcome.

    Raises:
        TableferryError: What the user named or asked for can't be understood, or a schema doesn't exist.
    """
    options = Options(
        declared(partitioned_by) if partitioned_by is not None else None,
        statistics,
        reader,
        engine,
        msck,
        column_mapping,
        verify,
        include_subfolders,
        unsafe_commit=unsafe_commit,
        requested=requested.of(cluster_by, properties or {}, schema),
    )
    spark_provider = SparkProvider(spark, resolve)
    with activity(_log, "look for tables", level=logging.DEBUG):
        resolved = expand(sources, spark_provider, recursive=recursive)
    reports: list[TableReport] = []
    with activity(_log, "convert", level=logging.INFO if len(resolved) > 1 else logging.DEBUG) as running:
        running.count("tables", 0, len(resolved))
        for source in resolved:
            reports.append(_convert(source, options, spark_provider, dry_run=dry_run))
            _log_outcome(running, reports, len(resolved))
    return Report(tuple(reports))


def _log_outcome(running: Activity, reports: list[TableReport], tables: int) -> None:
    """Say what became of a table, and how many there are still."""
    source, outcome = reports[-1].source, reports[-1].outcome
    running.count("tables", len(reports), tables)
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
        with activity(_log, "read the files' footers", table=source) as running:
            facts = gather(resolved, options, spark_provider, partial(running.count, "files"))
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
        # One table's trouble with Spark isn't the others'; any other error is a defect, and ends the run.
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
    """Undo a conversion while nothing was written after it: the folder is as it was before.

    A table of the catalog is Parquet there again too, also if its folder is what was named. Run again, it
    goes on where it stopped.

    Args:
        source: A folder, or a table of the catalog.
        spark: The session for a table of the catalog; by default `resolve` is asked for one.
        resolve: Makes a session.

    Returns:
        What a person should know.

    Raises:
        TableError: It isn't Delta.
        Refused: Something was written after the conversion, or only Spark reaches its storage.
    """
    resolved = single(source)
    with activity(_log, "undo the conversion", table=source, level=logging.DEBUG):
        return _undo(source, resolved, spark, resolve)


def _undo(
    source: str, resolved: ResolvedSource, spark: SparkSession | None, resolve: Callable[[], SparkSession]
) -> tuple[str, ...]:
    if resolved.table is not None:
        return through_spark.undoing.undo(SparkProvider(spark, resolve).session(), resolved.table)
    if not resolved.local and not by_store(resolved.location, Engine.AUTO):
        raise Refused("UNDO_OUT_OF_REACH", table=source, folder=resolved.location)
    root = path_of(resolved.location)
    if isinstance(root, Path) and (named := definitions.recorded(commit.info(root))):
        commit.demand_only_a_conversion(root)
        # Who knows the folder by a name would be left without a log.
        notes = through_spark.undoing.undo_if_named(SparkProvider(spark, resolve).session(), named.name, root)
        if notes is not None:
            return notes
    commit.undo(root)
    return ()
