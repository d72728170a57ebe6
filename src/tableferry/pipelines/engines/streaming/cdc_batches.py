"""Apply batches of AUTO CDC events to Delta tables, idempotently.

Every event is appended to a log beside the target. The rows of the keys in a batch are then computed from the
log. So the target depends on the set of events alone: not on their order of arrival, the size of the batches,
a repeated batch or a crash between the two commits. Only one process at a time may apply events to a target.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tableferry.errors import SessionError, TableError
from tableferry.formats.delta.commits import commits_after
from tableferry.pipelines.cdc import scd2_history_events
from tableferry.pipelines.cdc.change_feed import NULL_SEQUENCE_PREFIX, NULL_SEQUENCE_SUFFIX
from tableferry.pipelines.cdc.event_columns import ALIVE, EVENT_COLUMNS, EXACT, OPERATION, TRUNCATE, quote_all
from tableferry.pipelines.cdc.fold import Fold
from tableferry.pipelines.cdc.key_ranges import LARGE_LOG_BYTES, KeyRanges, LogSize, read_key_ranges
from tableferry.pipelines.cdc.merges import (
    find_newest_events,
    log_insert_sql,
    remove_logged_events,
    row_insert_sql,
    row_merge_sql,
    superseded_delete_sql,
)
from tableferry.pipelines.cdc.target_columns import evolve_schema
from tableferry.pipelines.model.flows import CdcSettings, event_log_name
from tableferry.spark.catalog import SPARK_ERRORS, condition, facts, reread_facts
from tableferry.spark.quoting import quote
from tableferry.spark.session import settings as session_settings
from tableferry.spark.tables import TableFacts, TableName

COMPACTED_EVERY = 32
"""Every 32nd batch compacts the log."""

# The most values (rows times columns) of a DataFrame that is broadcast.
_MAX_BROADCAST_VALUES = 500_000

# By default open-source Delta rewrites a whole clustered table below 100 GB whenever it gains a file.
_COMPACTION_SETTINGS = {
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(LARGE_LOG_BYTES)
}

_MAX_CLUSTERING_COLUMNS = 4
_CLUSTERABLE_TYPES = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)


def apply_events(
    events: DataFrame,
    target: TableName,
    settings: CdcSettings,
    *,
    before_commit: Callable[[str], None] = lambda _: None,
    batch_number: int = 0,
    log_size: LogSize | None = None,
    copied_rows: DataFrame | None = None,
) -> None:
    """Append a batch of events to the target's log and merge the resulting rows into the target.

    Columns and struct fields that the tables lack are added; those that the events lack are NULL. If no row
    differs, the target gets no commit. The statements run in the session of the events; within foreachBatch
    that isn't the session that created the tables.

    Args:
        events: The events of `build_feed_events` or `build_history_events`.
        target: The target.
        settings: The AUTO CDC settings of the target.
        before_commit: Called with a description before each commit.
        batch_number: The number of the batch in its stream; 0 for a run-once flow. In batch 0 the log gets
            only events that it lacks. In later batches it gets all events, because only the one batch that a
            crash interrupted is repeated. Every 32nd batch compacts the log.
        log_size: The size of the log, kept from batch to batch of a stream.
        copied_rows: The rows that the events were built from. An empty target gets them without a fold. AUTO
            CDC must be able to represent all of them.

    Raises:
        TableError: A column of a table can't store the values, or an event has no sequence.
    """
    session = events.sparkSession
    log, log_size = event_log_name(target), log_size or LogSize()
    log_schema = evolve_schema(session, log, _fields_without(events, (OPERATION, EXACT)))
    target_schema = evolve_schema(session, target, _fields_without(events, EVENT_COLUMNS))
    fold = Fold(settings, log_schema)
    log_facts = facts(session, log) if batch_number == 0 else None
    log_is_empty = _is_empty(session, log_facts)
    if log_facts is not None and log_is_empty and _is_empty(session, facts(session, target)):
        rows = None
        if copied_rows is not None:
            copied_rows = scd2_history_events.select_target_rows(copied_rows, settings)
            rows = fold.convert_copied_rows(copied_rows, target_schema)
        if _fill_empty_target(fold, events, rows, target, target_schema, log_facts, before_commit):
            return
    is_large = log_size.is_large(session, log)
    with _persisted(fold.build_batch(events)) as batch:
        with _null_sequence_errors():
            ranges = read_key_ranges(batch, fold, target_schema, is_large=is_large)
        values = None if ranges.event_count is None else ranges.event_count * len(log_schema)
        is_small = values is not None and values <= _MAX_BROADCAST_VALUES
        appended = batch
        if batch_number == 0 and not log_is_empty:
            appended = remove_logged_events(fold, batch, _read_log(session, fold, log, ranges))
        before_commit(f"events of {target} into its log")
        _append_to_log(fold, appended.coalesce(1) if is_small else appended, log)
        before_commit(f"rows of {target}")
        # The log is read after the append, because another run may have appended events in the meantime.
        logged = _read_log(session, fold, log, ranges)
        keys = ranges.create_key_frame(session, fold)
        if keys is None:
            keys = fold.find_affected_keys(batch, logged)
        keys = _hint_broadcast(keys, is_small=is_small)
        target_rows = session.table(target.sql).where(ranges.row_condition())
        rows = fold.cast_rows(fold.compute_rows(keys, logged), target_schema)
        rows = fold.find_differing_rows(rows, target_rows, keys, target_schema)
        with _temporary_view(_hint_broadcast(rows, is_small=is_small)) as view:
            merge = row_merge_sql(fold, target, view, rows.columns, ranges.row_condition("t"))
            _run_statement(session, merge)
    if batch_number % COMPACTED_EVERY == COMPACTED_EVERY - 1:
        before_commit(f"compacting the log of {target}")
        _compact_log(session, fold, log, is_large=is_large)


def _fields_without(events: DataFrame, columns: tuple[str, ...]) -> list[StructField]:
    excluded = {name.lower() for name in columns}
    return [field for field in events.schema.fields if field.name.lower() not in excluded]


def _fill_empty_target(
    fold: Fold,
    events: DataFrame,
    rows: DataFrame | None,
    target: TableName,
    target_schema: StructType,
    log: TableFacts,
    before_commit: Callable[[str], None],
) -> bool:
    """Append events to an empty log and fill an empty target; there are no rows to compare with.

    Given `rows`, duplicate events aren't removed: copied events hardly ever share key and sequence, and the
    removal takes longer than the write.

    Returns:
        Whether the target is right. False if another run has appended events to the log in the meantime: then
        the rows of their keys must be computed again.
    """
    session = events.sparkSession
    before_commit(f"events of {target} into its log")
    _append_to_log(
        fold, fold.build_batch(events) if rows is None else fold.build_log_events(events), log.name
    )
    before_commit(f"rows of {target}")
    if rows is None:
        logged = fold.add_missing_sequence(session.table(log.name.sql))
        rows = fold.cast_rows(fold.compute_rows(None, logged).where(ALIVE), target_schema)
    with _temporary_view(rows) as view:
        _run_statement(session, row_insert_sql(fold, target, view, rows.columns))
    return _is_only_writer(session, log)


def _is_only_writer(session: SparkSession, log: TableFacts) -> bool:
    """Return whether exactly one commit has written rows to the log since its facts were read."""
    now = reread_facts(session, log)
    if now is not None and now.version == log.version + 1:
        return True
    commits = commits_after(session, log.name, log.version)
    return sum(commit.may_change_rows for commit in commits) == 1


def _is_empty(session: SparkSession, table: TableFacts | None) -> bool:
    # A table at version 0 was only created; that needs no Spark job.
    return table is not None and (table.version == 0 or session.table(table.name.sql).isEmpty())


def _hint_broadcast(frame: DataFrame, *, is_small: bool) -> DataFrame:
    """Let Spark broadcast a small DataFrame, whose size it can't estimate after a join or a filter."""
    return frame.hint("broadcast") if is_small else frame


def _append_to_log(fold: Fold, events: DataFrame, log: TableName) -> None:
    with _temporary_view(events) as view:
        _run_statement(events.sparkSession, log_insert_sql(fold, log, view))


def _read_log(session: SparkSession, fold: Fold, log: TableName, ranges: KeyRanges) -> DataFrame:
    return fold.add_missing_sequence(session.table(log.sql).where(ranges.log_condition()))


def _compact_log(session: SparkSession, fold: Fold, log: TableName, *, is_large: bool) -> None:
    """Delete superseded events if they are more than half of the log, and compact its small files.

    No concurrent event is lost: an append conflicts with neither statement, and a superseded event stays
    superseded. If another run changes the log at the same time, Delta may refuse; the next compaction then
    does the work.
    """
    try:
        if fold.has_sequence and not fold.is_keyed_by_sequence:
            logged = session.table(log.sql)
            keys = F.approx_count_distinct(F.xxhash64(*quote_all(fold.keys), F.col(OPERATION) == TRUNCATE))
            [(events, distinct)] = logged.agg(F.count(F.lit(1)), keys).collect()
            if events > 2 * distinct:
                with _temporary_view(find_newest_events(fold, logged)) as view:
                    session.sql(superseded_delete_sql(fold, log, view))
        if is_large:
            _cluster_log(session, fold, log)
        with ExitStack() as stack:
            # Serverless compute refuses this setting.
            with suppress(SessionError):
                stack.enter_context(session_settings(session, _COMPACTION_SETTINGS, f"compacting {log}"))
            session.sql(f"OPTIMIZE {log.sql}")
    except SPARK_ERRORS as error:
        if not condition(error).startswith("DELTA_CONCURRENT"):
            raise


def _cluster_log(session: SparkSession, fold: Fold, log: TableName) -> None:
    """Cluster a log by its keys. Small logs aren't clustered, because that makes each read slower."""
    types = {field.name: field.dataType for field in fold.log_schema}
    columns = [quote(key) for key in fold.keys if isinstance(types[key], _CLUSTERABLE_TYPES)]
    [detail] = session.sql(f"DESCRIBE DETAIL {log.sql}").collect()
    if columns and not detail["clusteringColumns"]:
        session.sql(f"ALTER TABLE {log.sql} CLUSTER BY ({', '.join(columns[:_MAX_CLUSTERING_COLUMNS])})")


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Persist a DataFrame, unless the compute can't (serverless)."""
    try:
        frame = frame.persist()
    except PySparkException:
        yield frame
        return
    try:
        yield frame
    finally:
        frame.unpersist()


@contextmanager
def _temporary_view(frame: DataFrame) -> Iterator[str]:
    name = f"__tableferry_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def _run_statement(session: SparkSession, statement: str) -> None:
    with _null_sequence_errors():
        session.sql(statement)


@contextmanager
def _null_sequence_errors() -> Iterator[None]:
    """Convert Spark's error for an event without a sequence to EVENT_WITHOUT_SEQUENCE."""
    try:
        yield
    except SPARK_ERRORS as error:
        pattern = f"{re.escape(NULL_SEQUENCE_PREFIX)}(.*?){re.escape(NULL_SEQUENCE_SUFFIX)}"
        message = re.search(pattern, str(error), re.DOTALL)
        if message is None:
            raise
        raise TableError("EVENT_WITHOUT_SEQUENCE", keys=message[1]) from error
