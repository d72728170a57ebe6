"""AUTO CDC, as Databricks documents it, as one idempotent operation on Delta tables.

Every event goes into a log beside the target, and the rows of the keys that a batch touched are worked out
anew from the log. So the target is a function of the set of events: no order of arrival, no cut into batches,
no repeated batch and no crash between the two commits makes a difference. One writer at a time may fold into
a target.
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
    BooleanType,
    DateType,
    LongType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tableferry.errors import SessionError, TableError
from tableferry.formats.delta.commits import WITHOUT_ROWS, commits_after
from tableferry.pipelines.cdc import scd2_history_events
from tableferry.pipelines.cdc.change_feed import AFTER_KEYS, NO_SEQUENCE, known_columns
from tableferry.pipelines.cdc.fold import (
    ALIVE,
    END,
    EVENT_COLUMNS,
    EXACT,
    OPERATION,
    RANK,
    SEQUENCE,
    START,
    TRUNCATE,
    Fold,
    names,
)
from tableferry.pipelines.cdc.key_ranges import LARGE, KeyRanges, Sizes, key_ranges
from tableferry.pipelines.cdc.merges import (
    log_insert,
    newest,
    row_insert,
    row_merge,
    superseded_merge,
    unknown,
)
from tableferry.pipelines.cdc.target_columns import COLUMN_MAPPING, evolve
from tableferry.pipelines.engines.streaming.table_creation import create
from tableferry.pipelines.model.flows import CdcSettings, Target, log_name
from tableferry.spark.catalog import SPARK_ERRORS, condition, facts, reread_facts
from tableferry.spark.quoting import quote
from tableferry.spark.session import settings as session_settings
from tableferry.spark.tables import TableFacts, TableName

# What is broadcast has at most so many values, rows times columns.
_SMALL = 500_000
COMPACTED_EVERY = 32
"""Of so many batches one compacts the log."""

# Open-source Delta otherwise rewrites a clustered table below 100 GB whole, whenever it gains a file.
_COMPACTING = {"spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(LARGE)}

_MOST_CLUSTERED = 4
_CLUSTERABLE = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)


def create_tables(spark: SparkSession, target: Target, columns: StructType) -> None:
    """Create what is absent of a target and its log; a plain append target has no log.

    The columns are those of its events, with or without `__operation` and `__exact`; of its rows for an
    append target. For SCD type 2 `__sequence` gives `__START_AT` and `__END_AT` their type.

    Raises:
        TableError: SCD type 2 without the type of its sequence, or a key that isn't among the columns.
    """
    if target.cdc is None:
        create(spark, target, columns)
        return
    events = {name.lower() for name in EVENT_COLUMNS}
    data = [field for field in columns.fields if field.name.lower() not in events]
    keys = known_columns([field.name for field in data], "keys", target.cdc.keys)
    sequence = [
        field
        for field in columns.fields
        if field.name == SEQUENCE and not isinstance(field.dataType, NullType)
    ]
    if target.cdc.scd_type == 2 and not sequence:
        raise TableError("SEQUENCE_TYPE_UNKNOWN", table=target.name)
    first = [field for field in data if field.name in keys]
    log = Target(
        name=log_name(target.name),
        # Else each tenth batch would write a checkpoint, which takes longer than its own append.
        properties={COLUMN_MAPPING: "name", "delta.checkpointInterval": "100"},
        comment=f"Every event of {target.name}, written and read by tableferry",
    )
    marks = [
        StructField(OPERATION, StringType()),
        StructField(EXACT, BooleanType()),
        StructField(RANK, LongType()),
    ]
    rest = [field for field in data if field.name not in keys]
    create(spark, log, StructType([*first, *sequence, *marks, *rest]))
    if target.cdc.scd_type == 2:
        data = [*data, *(StructField(name, sequence[0].dataType) for name in (START, END))]
    create(spark, target, StructType(data))


def apply(
    events: DataFrame,
    target: TableName,
    settings: CdcSettings,
    *,
    before: Callable[[str], None] = lambda _: None,
    number: int = 0,
    sizes: Sizes | None = None,
    copied: DataFrame | None = None,
) -> None:
    """Fold a batch of events into the target's log, then into the target.

    Columns, and fields of structs, that the tables lack are added; those that the events lack are NULL. If
    nothing differs, nothing is committed to the target. The statements run in the session of the events,
    which within foreachBatch isn't the one that made the tables. ``before`` is called with a description
    right before each commit.

    ``number`` is the batch's in its stream. Of number 0, as of a flow that runs once, the log takes only the
    events that it lacks. Of the others it takes all: what comes again there is no more than the one batch
    that a crash has interrupted. Each `COMPACTED_EVERY` batches the log is compacted. ``sizes`` is what a
    stream remembers from batch to batch of how large the log is. ``copied`` are the rows that the events were
    made of by `history.history_events`, which a target that has nothing yet takes as they are. AUTO CDC must
    be able to represent all of them.

    Raises:
        TableError: A column has another type in the table, or an event has no sequence.
    """
    session = events.sparkSession
    log, sizes = log_name(target), sizes or Sizes()
    marks = {OPERATION.lower(), EXACT.lower()}
    schema = evolve(
        session, log, [field for field in events.schema.fields if field.name.lower() not in marks]
    )
    marks.add(SEQUENCE.lower())
    stored = evolve(
        session, target, [field for field in events.schema.fields if field.name.lower() not in marks]
    )
    fold = Fold(settings, schema)
    there = facts(session, log) if number == 0 else None
    began = there if _is_empty(session, there) else None
    if began is not None and _is_empty(session, facts(session, target)):
        rows = None if copied is None else fold.copied(scd2_history_events.current(copied, settings), stored)
        if _filled(fold, events, rows, target, stored, began, before):
            return
    large = sizes.large(session, log)
    with _kept(fold.batch(events)) as batch:
        with _explained():
            ranges = key_ranges(batch, fold, stored, ranged=large)
        small = ranges.events is not None and ranges.events * len(schema) <= _SMALL
        new = batch
        if number == 0 and began is None:
            new = unknown(fold, batch, _logged(session, fold, log, ranges))
        before(f"events of {target} into its log")
        _append(fold, new.coalesce(1) if small else new, log)
        before(f"rows of {target}")
        # Only now, for rows of an older log would replace those of events that another run has folded since.
        logged = _logged(session, fold, log, ranges)
        keys = ranges.touched(session, fold)
        touched = _hinted(fold.touched(batch, logged) if keys is None else keys, small=small)
        present = session.table(target.sql).where(ranges.condition())
        rows = fold.typed(fold.rows(touched, logged), stored)
        rows = fold.differing(rows, present, touched, stored)
        with _view(_hinted(rows, small=small)) as view:
            _run(session, row_merge(fold, target, view, rows.columns, ranges.condition("t")))
    if number % COMPACTED_EVERY == COMPACTED_EVERY - 1:
        before(f"compacting the log of {target}")
        _compact(session, fold, log, large=large)


def _filled(
    fold: Fold,
    events: DataFrame,
    rows: DataFrame | None,
    target: TableName,
    stored: StructType,
    log: TableFacts,
    before: Callable[[str], None],
) -> bool:
    """Fold the first events of all: neither the log nor the target has anything to compare them with.

    ``rows`` are those that they make, where that is known. Of copied events hardly any two are of one key and
    sequence, and a search for them would take longer than the write. Where another run has brought events
    meanwhile it returns False: the rows of their keys may be those of an older log, until they are worked out
    anew.
    """
    session = events.sparkSession
    before(f"events of {target} into its log")
    _append(fold, fold.batch(events) if rows is None else fold.logged(events), log.name)
    before(f"rows of {target}")
    if rows is None:
        rows = fold.typed(fold.rows(None, fold.sequence(session.table(log.name.sql))).where(ALIVE), stored)
    with _view(rows) as view:
        _run(session, row_insert(fold, target, view, rows.columns))
    return _alone(session, log)


def _alone(session: SparkSession, log: TableFacts) -> bool:
    """Say whether the log has got rows only once since its facts were looked up."""
    now = reread_facts(session, log)
    if now is not None and now.version == log.version + 1:
        return True
    commits = commits_after(session, log.name, log.version)
    return sum(commit.operation not in WITHOUT_ROWS for commit in commits) == 1


def _is_empty(session: SparkSession, table: TableFacts | None) -> bool:
    # Of a table that was just made that is known without a job.
    return table is not None and (table.version == 0 or session.table(table.name.sql).isEmpty())


def _hinted(frame: DataFrame, *, small: bool) -> DataFrame:
    """Let a frame be broadcast where it's small; of one that is joined or filtered Spark can't tell."""
    return frame.hint("broadcast") if small else frame


def _append(fold: Fold, events: DataFrame, log: TableName) -> None:
    with _view(events) as view:
        _run(events.sparkSession, log_insert(fold, log, view))


def _logged(session: SparkSession, fold: Fold, log: TableName, ranges: KeyRanges) -> DataFrame:
    return fold.sequence(session.table(log.sql).where(ranges.logged()))


def _compact(session: SparkSession, fold: Fold, log: TableName, *, large: bool) -> None:
    """Put a log's small files together, and drop what is superseded where that is half of it.

    Neither loses an event that comes at the same time: an append conflicts with nothing, and an event that
    is superseded stays so. Where another run appends or compacts meanwhile, this may give up until the next
    time.
    """
    try:
        if fold.sequenced and not fold.per_sequence:
            logged = session.table(log.sql)
            keys = F.approx_count_distinct(F.xxhash64(*names(fold.keys), F.col(OPERATION) == TRUNCATE))
            [(events, distinct)] = logged.agg(F.count(F.lit(1)), keys).collect()
            if events > 2 * distinct:
                with _view(newest(fold, logged)) as view:
                    session.sql(superseded_merge(fold, log, view))
        if large:
            _cluster(session, fold, log)
        with ExitStack() as stack:
            # Serverless compute doesn't take the setting.
            with suppress(SessionError):
                stack.enter_context(session_settings(session, _COMPACTING, f"compacting {log}"))
            session.sql(f"OPTIMIZE {log.sql}")
    except SPARK_ERRORS as error:
        if not condition(error).startswith("DELTA_CONCURRENT"):
            raise


def _cluster(session: SparkSession, fold: Fold, log: TableName) -> None:
    """Have a log clustered by its keys: not from the start, for a look at a clustered table takes longer."""
    kinds = {field.name: field.dataType for field in fold.log}
    columns = [quote(key) for key in fold.keys if isinstance(kinds[key], _CLUSTERABLE)][:_MOST_CLUSTERED]
    [detail] = session.sql(f"DESCRIBE DETAIL {log.sql}").collect()
    if columns and not detail["clusteringColumns"]:
        session.sql(f"ALTER TABLE {log.sql} CLUSTER BY ({', '.join(columns)})")


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Work a frame out once only, where the compute can keep it (serverless compute can't)."""
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
def _view(frame: DataFrame) -> Iterator[str]:
    name = f"__tableferry_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def _run(session: SparkSession, statement: str) -> None:
    with _explained():
        session.sql(statement)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except SPARK_ERRORS as error:
        message = re.search(re.escape(NO_SEQUENCE) + "(.*?)" + re.escape(AFTER_KEYS), str(error), re.DOTALL)
        if message is None:
            raise
        raise TableError("EVENT_WITHOUT_SEQUENCE", keys=message[1]) from error
