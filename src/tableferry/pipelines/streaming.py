"""The streaming engine: plain Structured Streaming into Delta, one update at a time, on any Spark cluster.

Each flow has a checkpoint of its own and runs with ``availableNow``. Appends are exactly once by Delta's
transaction identifiers: the streaming sink writes its query id and batch id, a run-once flow its own name and
generation. CDC flows apply idempotent merges (see `cdc`), so that a batch may come again after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.types import NullType, StructField, StructType

from tableferry import session
from tableferry.activity import Activity, activity
from tableferry.catalog import SPARK_ERRORS, exists, facts
from tableferry.commits import Commit, commits_after, counted, newest_version
from tableferry.driver import Size, following, in_process
from tableferry.errors import TableError, TableferryError, first_line
from tableferry.pipelines import batches, cdc, checkpoints, views
from tableferry.pipelines.ddl import literal
from tableferry.pipelines.flows import Flow, HistorySource, Target, View
from tableferry.pipelines.history import history_events
from tableferry.pipelines.identities import PROPERTY, FlowIdentity, FlowSettings, TableIdentity, on_table
from tableferry.pipelines.rows import flow_rows, history_rows
from tableferry.pipelines.state import StateStore
from tableferry.pipelines.steps import DefineAppend, DefineAutoCdc, DefineTable, DefineView
from tableferry.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

_TRIES_AFTER_SCHEMA_CHANGE = 5
# Lets a stream start at a version that its source doesn't have yet: it has nothing to read until it comes.
_AHEAD = {"spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "true"}

_START_BEHIND = "start behind that commit with readerOptions.startingVersion"
_CHANGES = "which an append-only stream can't follow: set cdfEnabled, or skipChangeCommits in readerOptions"
_VACUUMED = f"files that a commit names are gone (VACUUM): restore them, or {_START_BEHIND}"
_REMEDIES = {
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": f"a commit changed rows, {_CHANGES}",
    "DELTA_SOURCE_IGNORE_DELETE": f"a commit deleted rows, {_CHANGES}",
    "DELTA_VERSION_NOT_FOUND": "the version isn't in the source's log: give readerOptions.startingVersion",
    "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE": (
        "commits of its last batch, or behind it, are gone from the source's log: restore them, or rebuild "
        "the target with --full-refresh"
    ),
    "DELTA_FILE_NOT_FOUND": _VACUUMED,
    "FAILED_READ_FILE": _VACUUMED,
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": (
        "the source was dropped and made anew: restore it, or rebuild the target with --full-refresh"
    ),
    "DELTA_MISSING_CHANGE_DATA": (
        f"a commit has no change data: set delta.enableChangeDataFeed on the source, and {_START_BEHIND}"
    ),
}


@dataclass(frozen=True)
class FlowResult:
    """What a flow did in an update.

    Attributes:
        flow: The flow.
        owner: The spec's own target.
        rows: How many rows its commits brought into the target, or, of a CDC flow, how many events into the
            target's log; None where commits don't count (``spark.databricks.delta.history.metricsEnabled``).
        once: It runs a single time.
    """

    flow: Flow
    owner: TableName
    rows: int | None
    once: bool


def failed(flow: Flow, error: Exception) -> TableferryError:
    """Say where a flow failed, why, and what to do."""
    remedy = next(
        (remedy for code, remedy in _REMEDIES.items() if code in str(error)), "mend it and run again"
    )
    what = f"{flow.place or flow.name}: flow {flow.name} into {flow.target} failed"
    return TableferryError(f"{what} ({first_line(error)}): {remedy}")


class StreamingEngine:
    """Runs what is defined on it, in the order in which it was defined."""

    def __init__(
        self, spark: SparkSession, store: StateStore, *, before: Callable[[str], None] = lambda _: None
    ) -> None:
        self._spark, self._store, self._before = spark, store, before
        self._tables: dict[str, DefineTable] = {}
        self._views: dict[str, dict[str, DefineView]] = {}
        self._flows: list[DefineAppend | DefineAutoCdc] = []

    def table(self, definition: DefineTable) -> None:
        """Name a streaming table; it's created when its first flow runs."""
        self._tables[definition.target.name.key] = definition

    def view(self, definition: DefineView) -> None:
        """Name an input of its spec's flows."""
        self._views.setdefault(definition.owner.key, {})[definition.view.name] = definition

    def append(self, definition: DefineAppend) -> None:
        """Append a view's rows to a table."""
        self._flows.append(definition)

    def cdc(self, definition: DefineAutoCdc) -> None:
        """Apply a view's events to a table."""
        self._flows.append(definition)

    def update(self, done: Callable[[FlowResult], None]) -> None:
        """Run every flow once: all commits that are there now are taken, then it stops.

        Args:
            done: Called after each flow, before the next one.

        Raises:
            TableferryError: A flow failed; those before it are done.
        """
        if self._flows:
            _activate(self._spark)
        for key in self._in_order():
            created = self._create(self._tables[key])
            self._recognise(self._tables[key], anew=created)
        for one in self._flows:
            done(self._run(one))
        self._leave()

    def _leave(self) -> None:
        """Record at which version the flows leave each table, so that one that is set back is known."""
        filled = {(one.owner, one.generation): set[TableName]() for one in self._flows}
        for one in self._flows:
            filled[one.owner, one.generation].add(one.flow.target)
        for (owner, generation), tables in filled.items():
            self._before(f"recording in the state at which version the tables of {owner} are left")
            versions = {table.key: newest_version(self._spark, table) for table in tables}
            self._store.leave(owner, generation, versions)

    def _in_order(self) -> Iterable[str]:
        """Order tables so that each can take its columns from those it reads: staging tables first."""
        by_owner: dict[str, list[DefineAppend | DefineAutoCdc]] = {}
        for one in self._flows:
            by_owner.setdefault(one.owner.key, []).append(one)
        return dict.fromkeys(
            one.flow.target.key for flows in by_owner.values() for one in sorted(flows, key=self._is_history)
        )

    def _run(self, one: DefineAppend | DefineAutoCdc) -> FlowResult:
        owner = self._tables[one.owner.key].target
        name = one.flow.target
        written = cdc.log_name(name) if isinstance(one, DefineAutoCdc) else name
        try:
            with (
                session.settings(self._spark, owner.spark_conf, f"{owner.place}.sparkConf"),
                session.settings(self._spark, _AHEAD if one.ahead else {}, one.flow.place or one.flow.name),
                activity(_log, self._title(one), table=name) as running,
            ):
                before = newest_version(self._spark, written)
                query_id = None if one.once else self._run_stream(one, running)
                if one.once:
                    self._run_once(one, running)
                made = _made(commits_after(self._spark, written, before), one, query_id)
                rows = counted(
                    made, "numTargetRowsInserted" if isinstance(one, DefineAutoCdc) else "numOutputRows"
                )
                _count(running, rows, made)
                return FlowResult(one.flow, one.owner, rows, one.once)
        except SPARK_ERRORS as error:
            raise failed(one.flow, error) from error

    def _title(self, one: DefineAppend | DefineAutoCdc) -> str:
        if self._is_history(one):
            return "copy the history"
        return f"run {one.flow.name} once" if one.once else f"stream {one.flow.name}"

    def _run_once(self, one: DefineAppend | DefineAutoCdc, running: Activity) -> None:
        frame = self._rows(one)
        with following(self._spark, running, partial(self._expected, one)):
            if isinstance(one, DefineAutoCdc):
                cdc.apply(self._spark, frame, one.flow.target, one.settings, before=self._before)
            else:
                self._before(f"rows of {one.flow.name} into {one.flow.target}")
                (
                    frame.write.format("delta")
                    .mode("append")
                    .option("mergeSchema", "true")
                    .option("txnAppId", f"tableferry:{one.owner.key}:{one.flow.name}:{one.generation}")
                    .option("txnVersion", "1")
                    .saveAsTable(one.flow.target.sql)
                )
        if not self._is_history(one):
            self._before(f"marking {one.flow.name} done")
            checkpoints.mark_done(self._store.checkpoint(one.owner, one.generation, one.flow.name))

    def _expected(self, one: DefineAppend | DefineAutoCdc) -> Size:
        """Say how much a copy will write: a merge writes events, and nobody knows how many before."""
        source = self._views[one.owner.key][one.flow.view].view.source
        if isinstance(one, DefineAutoCdc) or not isinstance(source, HistorySource):
            return Size()
        rows = views.history(self._spark, source.migration, source.version).count()
        (detail,) = self._spark.sql(f"DESCRIBE DETAIL {source.migration.table.sql}").collect()
        return Size(rows, detail["sizeInBytes"])

    def _run_stream(self, one: DefineAppend | DefineAutoCdc, running: Activity) -> str:
        """Take all commits that are there, and return the query's id."""
        if one.identify is not None:
            self._identify(one, one.identify)
        self._before(f"stream {one.flow.name} into {one.flow.target}")
        for attempt in range(_TRIES_AFTER_SCHEMA_CHANGE):
            try:
                return self._stream(one, running)
            except SPARK_ERRORS as error:
                # A source that gained a column stops the stream once; from its checkpoint it goes on with
                # the new schema.
                if "DELTA_SCHEMA_CHANGED" not in str(error) or attempt + 1 == _TRIES_AFTER_SCHEMA_CHANGE:
                    raise
        raise AssertionError("unreachable")

    def _recognise(self, definition: DefineTable, *, anew: bool) -> None:
        """Record which table it is, so that another one in its place is known for another."""
        table = definition.target.name
        owner, generation = next(
            (one.owner, one.generation) for one in self._flows if one.flow.target.key == table.key
        )
        if not anew and table.key in self._store.identities(owner, generation):
            return
        self._before(f"recording in the state which table {table} is")
        identity = TableIdentity(self._facts(table).table_id, generation, {}, definition.history)
        self._store.identify(owner, generation, table, identity)

    def _facts(self, table: TableName) -> TableFacts:
        found = facts(self._spark, table)
        if found is None:
            raise TableError(f"{table} is gone: another process has dropped it meanwhile: run again")
        return found

    def _identify(self, one: DefineAppend | DefineAutoCdc, settings: FlowSettings) -> None:
        """Record what a flow's rows rest on, in the state and on the table, before the first comes."""
        table, owner = one.flow.target, one.owner
        folder = self._store.checkpoint(owner, one.generation, one.flow.name)
        self._before(f"giving the checkpoint of {one.flow.name} its id")
        checkpoint = checkpoints.begin(folder)
        found = self._facts(table)
        flows: dict[str, FlowIdentity] = {}
        for known in (on_table(found), self._store.identities(owner, one.generation).get(table.key)):
            if known and known.generation == one.generation:
                flows |= known.flows
        flows[one.flow.name] = FlowIdentity(settings.settings, settings.sources, checkpoint)
        history = self._tables[table.key].history
        identity = TableIdentity(found.table_id, one.generation, flows, history)
        text = identity.to_json()
        if found.properties.get(PROPERTY) != text:
            self._before(f"recording on {table} that {one.flow.name} fills it")
            self._spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('{PROPERTY}' = {literal(text)})")
        self._before(f"recording in the state that {one.flow.name} fills {table}")
        self._store.identify(owner, one.generation, table, identity)

    def _stream(self, one: DefineAppend | DefineAutoCdc, running: Activity) -> str:
        writer = (
            self._frame(one)
            .writeStream.trigger(availableNow=True)
            .option(
                "checkpointLocation", str(self._store.checkpoint(one.owner, one.generation, one.flow.name))
            )
        )
        raised: list[BaseException] = []
        if isinstance(one, DefineAutoCdc):
            fold = batches.folding(self._spark, one.flow.target, one.settings, self._before, raised)
            query = writer.foreachBatch(fold).start()
        else:
            query = (
                writer.format("delta")
                .outputMode("append")
                .option("mergeSchema", "true")
                .toTable(one.flow.target.sql)
            )
        try:
            _await(query, running)
        except SPARK_ERRORS as error:
            # What the batch's own code raised is the reason; Spark's wrapping of it says less.
            if reason := raised[0] if raised else batches.told_there(error):
                raise reason from None
            raise
        finally:
            query.stop()
        return str(query.id)

    def _frame(self, one: DefineAppend | DefineAutoCdc) -> DataFrame:
        defined = self._views[one.owner.key]
        if self._is_history(one):
            source = defined[one.flow.view].view.source
            assert isinstance(source, HistorySource)
            return history_rows(self._spark, source)
        named: Mapping[str, View] = {name: definition.view for name, definition in defined.items()}
        starts: views.Starts = {
            name: {} if one.once else definition.starts for name, definition in defined.items()
        }
        expectations = self._tables[one.flow.target.key].target.expectations
        return flow_rows(self._spark, named, one.flow, expectations, starts, once=one.once)

    def _is_history(self, one: DefineAppend | DefineAutoCdc) -> bool:
        return isinstance(self._views[one.owner.key][one.flow.view].view.source, HistorySource)

    def _create(self, definition: DefineTable) -> bool:
        """Create a table unless it's there, and say whether it was created."""
        target = definition.target
        if exists(self._spark, target.name):
            return False
        if not definition.create:
            raise TableError(
                f"{target.place}: {target.name} is gone, though its flows have filled it before: restore it, "
                "or rebuild it with --full-refresh"
            )
        columns = self._columns(target)
        self._before(f"creating {target.name}")
        try:
            with activity(_log, "create the table", table=target.name):
                cdc.create_tables(self._spark, target, columns)
        except SPARK_ERRORS as error:
            raise TableError(
                f"{target.place}: {target.name} can't be created ({first_line(error)}): correct the spec"
            ) from error
        return True

    def _columns(self, target: Target) -> StructType:
        """Take a table's columns from its schema file, or from all that flows into it, history first."""
        flows = [one for one in self._flows if one.flow.target.key == target.name.key]
        if target.schema_file is not None:
            return _declared(views.schema_of(self._spark, target.schema_file))
        fields: dict[str, StructField] = {}
        for one in flows:
            for field in self._rows(one).schema.fields:
                known = fields.get(field.name.lower())
                if known is None or isinstance(known.dataType, NullType):
                    fields[field.name.lower()] = field
        return StructType(list(fields.values()))

    def _rows(self, one: DefineAppend | DefineAutoCdc) -> DataFrame:
        """Return what a flow brings: rows, or the events of a CDC flow."""
        frame = self._frame(one)
        if not isinstance(one, DefineAutoCdc):
            return frame
        return (
            history_events(frame, one.settings)
            if self._is_history(one)
            else cdc.feed_events(frame, one.settings)
        )


def _await(query: StreamingQuery, running: Activity) -> None:
    """Wait for a stream's end, and log each of its batches."""
    last = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(timeout=1))
        for progress in query.recentProgress:
            # Not every client sums up the sources itself.
            rows = sum(int(source["numInputRows"]) for source in progress["sources"])
            batch = int(progress["batchId"])
            if batch <= last or not rows:
                continue
            last = batch
            said = {
                "event": "batch",
                "table": running.table,
                "step": running.step,
                "batch": batch,
                "rows": rows,
            }
            _log.info("%s: batch %d read %s rows", running.title, batch, f"{rows:,}", extra=said)
            earlier = running.counts
            for what, more in (("batches", 1), ("rows", rows)):
                running.count(what, more + (earlier[what].done if what in earlier else 0))


def _made(
    commits: Iterable[Commit], one: DefineAppend | DefineAutoCdc, query_id: str | None
) -> tuple[Commit, ...]:
    """Pick the commits that a flow made, of a CDC flow in its target's log, and those nobody knows of."""

    def is_its_own(commit: Commit) -> bool:
        if isinstance(one, DefineAutoCdc):
            return commit.operation == "MERGE"
        if query_id is None:
            return commit.operation == "WRITE"
        return commit.parameters.get("queryId") == query_id

    return tuple(commit for commit in commits if not commit.operation or is_its_own(commit))


def _count(running: Activity, rows: int | None, made: Iterable[Commit]) -> None:
    """Let the last line of a flow say what was committed, in the place of what was seen on the way."""
    running.counts = {what: count for what, count in running.counts.items() if what == "batches"}
    if rows is not None:
        running.count("rows", rows)
    files = [
        int(commit.metrics.get(metric, 0))
        for commit in made
        for metric in ("numFiles", "numAddedFiles", "numTargetFilesAdded")
    ]
    running.count("files", sum(files))


def _activate(spark: SparkSession) -> None:
    """Make this thread's session the active one of its Java thread.

    Delta's catalog takes a table for a bare path (DELTA_INVALID_V1_TABLE_CALL in ``toTable``) where its
    thread has no active session; every Python thread but the one that made the session has none until it
    creates a DataFrame.
    """
    if in_process(spark):
        spark.createDataFrame([], "nothing INT")


def _declared(schema: StructType) -> StructType:
    """Read a schema file of a CDC target: its ``__START_AT`` gives the type of the sequence."""
    fields = {field.name: field for field in schema.fields}
    start = fields.pop(cdc.START, None)
    fields.pop(cdc.END, None)
    return StructType([*fields.values(), *([StructField(cdc.SEQUENCE, start.dataType)] if start else [])])
