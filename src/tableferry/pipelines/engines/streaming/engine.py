"""The streaming engine: plain Structured Streaming into Delta, one update at a time, on any Spark cluster.

Each flow has a checkpoint of its own and runs with ``availableNow``. Appends are exactly once by Delta's
transaction identifiers: the streaming sink writes its query id and batch id, a run-once flow its own name and
generation. CDC flows apply idempotent merges (see `cdc`), so that a batch may come again after a crash.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import NullType, StructField, StructType

from tableferry import amounts
from tableferry.errors import Failed, Finding, Refused, TableError, TableferryError, first_line
from tableferry.formats.delta.commits import Commit, commits_after, counted, newest_version
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.cdc.fold import END, SEQUENCE, START
from tableferry.pipelines.cdc.key_ranges import LogSize
from tableferry.pipelines.cdc.scd2_history_events import build_history_events
from tableferry.pipelines.engines.streaming import cdc_batches, table_creation
from tableferry.pipelines.handover import copied_sequences
from tableferry.pipelines.handover.foreign_writes import list_foreign_commits
from tableferry.pipelines.model.flows import Expectation, Flow, HistorySource, Source, Target, event_log_name
from tableferry.pipelines.model.identities import (
    PROPERTY,
    FlowIdentity,
    FlowSettings,
    TableIdentity,
    cdc_settings,
    parse_identity_property,
)
from tableferry.pipelines.model.steps import (
    DefineAppend,
    DefineAutoCdc,
    DefineSnapshots,
    DefineTable,
    DefineView,
    FlowDefinition,
)
from tableferry.pipelines.sources import column_mismatches, views
from tableferry.pipelines.sources.metadata_columns import add_target_columns, create_run_details
from tableferry.pipelines.sources.rows import (
    apply_expectations,
    count_violations,
    history_rows,
    list_counted_expectations,
    read_flow_rows,
)
from tableferry.pipelines.state import checkpoints, run_once_flows
from tableferry.pipelines.state.store import StateStore
from tableferry.progress import Task, task
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS, exists, explaining, facts
from tableferry.spark.driver import Size, in_process, track_jobs
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableFacts, TableName

_log = logging.getLogger(__name__)

_TRIES = 5
# What stops a stream that goes on from its checkpoint at once: a source that gained a column; and, in Spark
# 4.1 (SPARK-57438), Kafka's source behind a batch that another run has begun, which is done by then.
_GOES_ON = ("DELTA_SCHEMA_CHANGED", 'because the return value of "scala.Option.get()" is null')
# What a task fails with that meets a value which doesn't fit its column.
_OVERFLOWS = ("TASK_WRITE_FAILED", "CAST_OVERFLOW", "CAST_INVALID_INPUT", "NUMERIC_VALUE_OUT_OF_RANGE")
# The name under which a stream counts the rows that break a rule.
_OBSERVED = "tableferry_broken"
# Lets a stream start at a version that its source doesn't have yet: it has nothing to read until it comes.
_AHEAD = {"spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "true"}

_START_BEHIND = "start after that commit with readerOptions.startingVersion."
_CHANGES = "which an append-only stream can't follow. Set cdfEnabled, or skipChangeCommits in readerOptions."
_VACUUMED = f"Files of a commit were removed (VACUUM). Restore them, or {_START_BEHIND}"
_REMEDIES = {
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": f"A commit changed rows, {_CHANGES}",
    "DELTA_SOURCE_IGNORE_DELETE": f"A commit deleted rows, {_CHANGES}",
    "DELTA_VERSION_NOT_FOUND": "The version isn't in the source's log. Give readerOptions.startingVersion.",
    "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE": (
        "Commits of its last batch, or later ones, are missing in the source's log. Restore them, or rebuild "
        "the target with --full-refresh."
    ),
    "DELTA_FILE_NOT_FOUND": _VACUUMED,
    "FAILED_READ_FILE": _VACUUMED,
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": (
        "The source was recreated. Restore it, or rebuild the target with --full-refresh."
    ),
    "not available in Kafka any more": (
        "The broker has dropped records that the flow hasn't read. Rebuild the target with --full-refresh, "
        "or set failOnDataLoss to false in readerOptions to continue without them."
    ),
    "kafka.common.errors": "Check that the broker of readerOptions answers, and run again.",
    "DELTA_MISSING_CHANGE_DATA": (
        f"A commit has no change data. Set delta.enableChangeDataFeed on the source, and {_START_BEHIND}"
    ),
}


@dataclass(frozen=True)
class FlowResult:
    """What a flow did in an update.

    Attributes:
        rows: How many rows its commits brought into the target, or, of a CDC flow, how many events into the
            target's log; None where commits don't count (``spark.databricks.delta.history.metricsEnabled``).
        broken: How many of the rows that it read break each rule that warns or drops.
    """

    flow: Flow
    owner: TableName
    rows: int | None
    once: bool
    broken: Mapping[str, int] = dataclasses.field(default_factory=dict)


def flow_error(flow: Flow, error: Exception, narrower: Sequence[Finding] = ()) -> Failed:
    """Return the error of a flow that Spark failed, with a remedy for its cause.

    ``narrower`` names the columns that can't hold each of its values, which a failed task may have met.
    """
    # What a task failed with is a cause of what the query says.
    texts, cause = [str(error)], getattr(error, "_cause", None)
    while cause is not None:
        texts.append(str(cause))
        cause = getattr(cause, "_cause", None)
    remedy = next(
        (remedy for code, remedy in _REMEDIES.items() if any(code in text for text in texts)),
        " ".join(f"{column.message} {column.remedy}" for column in narrower)
        or "Fix the cause, and run again.",
    )
    return Failed(
        "FLOW_FAILED",
        location=flow.location or flow.name,
        flow=flow.name,
        target=flow.target,
        reason=first_line(error),
        advice=remedy,
    )


class StreamingEngine:
    """Runs what is defined on it, in the order in which it was defined."""

    def __init__(
        self,
        spark: SparkSession,
        store: StateStore,
        *,
        before: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark, self._store, self._before = spark, store, before
        self._tables: dict[str, DefineTable] = {}
        self._views: dict[str, dict[str, DefineView]] = {}
        self._flows: list[FlowDefinition] = []
        self._newest: dict[str, DataFrame | None] = {}
        self._details = create_run_details(store.pipeline_id)

    def define_table(self, definition: DefineTable) -> None:
        """Name a streaming table; it's created when its first flow runs."""
        self._tables[definition.target.name.key] = definition

    def define_view(self, definition: DefineView) -> None:
        """Name an input of its spec's flows."""
        self._views.setdefault(definition.owner.key, {})[definition.view.name] = definition

    def define_append_flow(self, definition: DefineAppend) -> None:
        """Append a view's rows to a table."""
        self._flows.append(definition)

    def define_auto_cdc_flow(self, definition: DefineAutoCdc) -> None:
        """Apply a view's events to a table."""
        self._flows.append(definition)

    def define_snapshots(self, definition: DefineSnapshots) -> None:
        """Refuse a table of snapshots, whose spec `eligibility` skips."""
        raise Refused("SNAPSHOT_CDC_ONLY_ON_DATABRICKS", table=definition.target.name)

    def update(self, done: Callable[[FlowResult], None]) -> None:
        """Run every flow once: all commits that are there now are taken, then it stops.

        ``done`` is called after each flow, before the next one.

        Raises:
            TableferryError: A flow failed; those before it are done.
        """
        if self._flows:
            _activate(self._spark)
        for key in self._in_order():
            created = self._create(self._tables[key])
            self._recognise(self._tables[key], anew=created)
        for definition in self._flows:
            done(self._run(definition))
        self._leave()

    def _leave(self) -> None:
        """Record at which version the flows leave each table, so that one that is set back is known."""
        filled: dict[tuple[TableName, int], dict[TableName, bool]] = {}
        for definition in self._flows:
            tables = filled.setdefault((definition.owner, definition.generation), {})
            is_cdc = isinstance(definition, DefineAutoCdc)
            tables |= dict.fromkeys([definition.flow.target, *_logs(definition)], is_cdc)
        for (owner, generation), tables in filled.items():
            self._before(f"recording in the state at which version the tables of {owner} are left")
            recorded = self._store.read_versions(owner, generation)
            versions = {
                table.key: self._left_at(table, recorded.get(table.key) if is_cdc else None)
                for table, is_cdc in tables.items()
            }
            self._store.record_versions(owner, generation, versions)

    def _left_at(self, table: TableName, recorded: int | None) -> int:
        """Return a table's newest version; for a CDC table the one before the first foreign write since.

        What another process removes during a run is compared before the next one.
        """
        if recorded is None:
            return newest_version(self._spark, table)
        commits = commits_after(self._spark, table, recorded)
        foreign = list_foreign_commits(commits)
        newest = commits[0].version if commits else recorded
        return foreign[0].version - 1 if foreign else newest

    def _in_order(self) -> Iterable[str]:
        """Order tables so that each can take its columns from those it reads: staging tables first."""
        by_owner: dict[str, list[FlowDefinition]] = {}
        for definition in self._flows:
            by_owner.setdefault(definition.owner.key, []).append(definition)
        return dict.fromkeys(
            definition.flow.target.key
            for definitions in by_owner.values()
            for definition in sorted(definitions, key=self._is_history)
        )

    def _run(self, definition: FlowDefinition) -> FlowResult:
        owner, flow = self._tables[definition.owner.key].target, definition.flow
        is_cdc = isinstance(definition, DefineAutoCdc)
        written = event_log_name(flow.target) if is_cdc else flow.target
        try:
            with (
                session.settings(self._spark, owner.spark_conf, f"{owner.location}.sparkConf"),
                session.settings(
                    self._spark, _AHEAD if definition.starts_ahead else {}, flow.location or flow.name
                ),
                task(_log, self._title(definition), table=flow.target) as running,
            ):
                before = newest_version(self._spark, written)
                broken: Counter[str] = Counter()
                query_id = None if definition.once else self._run_stream(definition, running, broken)
                if definition.once:
                    self._run_once(definition, running, broken)
                commits = _made(commits_after(self._spark, written, before), definition, query_id)
                rows = counted(commits, "numOutputRows")
                _count(running, rows, commits)
                return FlowResult(flow, definition.owner, rows, definition.once, broken)
        except SPARK_ERRORS as error:
            overflows = not is_cdc and any(code in str(error) for code in _OVERFLOWS)
            raise flow_error(flow, error, self._narrower(definition) if overflows else ()) from error

    def _narrower(self, definition: FlowDefinition) -> Sequence[Finding]:
        """Name the columns of a table that can't hold each value that a flow appends."""
        target = definition.flow.target
        columns, rows = self._spark.table(target.sql).schema, self._frame(definition).schema
        narrower = column_mismatches.find_narrow_table_columns(rows, columns, definition.flow)
        widens = narrower and self._facts(target).properties.get("delta.enableTypeWidening") == "true"
        return () if widens else narrower

    def _check_types(self, definition: FlowDefinition) -> None:
        """Refuse values that don't fit, where Spark isn't asked to check each of them.

        Raises:
            TableError: A column of the table is narrower than what the flow appends.
        """
        if self._spark.conf.get("spark.sql.ansi.enabled") != "false":
            return
        flow = definition.flow
        if narrower := self._narrower(definition):
            raise TableError(
                "COLUMNS_TOO_NARROW_WITHOUT_ANSI",
                location=flow.location or flow.name,
                columns=" ".join(column.message for column in narrower),
                advice=" ".join(column.remedy for column in narrower),
            )

    def _title(self, definition: FlowDefinition) -> str:
        if self._is_history(definition):
            return "copy the history"
        return f"run {definition.flow.name} once" if definition.once else f"stream {definition.flow.name}"

    def _run_once(self, definition: FlowDefinition, running: Task, broken: Counter[str]) -> None:
        flow, observation = definition.flow, Observation()
        frame = self._rows(definition, observation)
        with track_jobs(self._spark, running, partial(self._expected, definition)):
            if isinstance(definition, DefineAutoCdc):
                copied = self._frame(definition) if self._is_history(definition) else None
                cdc_batches.apply_events(
                    frame, flow.target, definition.settings, before_commit=self._before, copied_rows=copied
                )
                if (newest := self._newest.pop(flow.target.key, None)) is not None:
                    copied_sequences.unpersist(newest)
            else:
                self._before(f"rows of {flow.name} into {flow.target}")
                writer = run_once_flows.build_writer_id(definition.owner, flow.name, definition.generation)
                (
                    frame.write.format("delta")
                    .mode("append")
                    .option("mergeSchema", "true")
                    .options(**run_once_flows.build_write_options(writer, 1))
                    .saveAsTable(flow.target.sql)
                )
        if not self._is_history(definition):
            if list_counted_expectations(self._tables[flow.target.key].target.expectations):
                _add(broken, observation.get)
            self._before(f"marking {flow.name} done")
            checkpoints.mark_done(self._checkpoint(definition))

    def _expected(self, definition: FlowDefinition) -> Size:
        """Say how much a copy will write: a merge writes events, and nobody knows how many before."""
        source = self._source(definition)
        if isinstance(definition, DefineAutoCdc) or not isinstance(source, HistorySource):
            return Size()
        rows = views.read_legacy_table(self._spark, source).count()
        (detail,) = self._spark.sql(f"DESCRIBE DETAIL {source.migration.table.sql}").collect()
        return Size(rows, detail["sizeInBytes"])

    def _run_stream(self, definition: FlowDefinition, running: Task, broken: Counter[str]) -> str:
        """Take all commits that are there, and return the query's id."""
        if definition.unrecorded_settings is not None:
            self._identify(definition, definition.unrecorded_settings)
        if definition.start_offset:
            self._before(f"letting the checkpoint of {definition.flow.name} begin where the old stream stood")
            checkpoints.write_start_offset(self._checkpoint(definition), definition.start_offset)
        self._before(f"stream {definition.flow.name} into {definition.flow.target}")
        for attempt in range(_TRIES):
            try:
                return self._stream(definition, running, broken)
            except SPARK_ERRORS as error:
                if attempt + 1 == _TRIES or not any(sentence in str(error) for sentence in _GOES_ON):
                    raise
        raise AssertionError("unreachable")

    def _recognise(self, definition: DefineTable, *, anew: bool) -> None:
        """Record which table it is, so that another one in its place is known for another."""
        table = definition.target.name
        flow = next(flow for flow in self._flows if flow.flow.target.key == table.key)
        owner, generation = flow.owner, flow.generation
        if not anew and table.key in self._store.read_identities(owner, generation):
            return
        self._before(f"recording in the state which table {table} is")
        settings = cdc_settings(definition.target.cdc)
        identity = TableIdentity(self._facts(table).table_id, generation, {}, definition.history, settings)
        self._store.record_table_identity(owner, generation, table, identity)

    def _facts(self, table: TableName) -> TableFacts:
        table_facts = facts(self._spark, table)
        if table_facts is None:
            raise TableError("TABLE_DROPPED_DURING_RUN", table=table)
        return table_facts

    def _identify(self, definition: FlowDefinition, settings: FlowSettings) -> None:
        """Record what a flow's rows rest on, in the state and on the table, before the first comes."""
        name, table = definition.flow.name, definition.flow.target
        owner, generation = definition.owner, definition.generation
        self._before(f"giving the checkpoint of {name} its id")
        checkpoint = checkpoints.create_query_id(self._checkpoint(definition))
        table_facts = self._facts(table)
        flows: dict[str, FlowIdentity] = {}
        for recorded in (
            parse_identity_property(table_facts),
            self._store.read_identities(owner, generation).get(table.key),
        ):
            if recorded and recorded.generation == generation:
                flows |= recorded.flows
        flows[name] = FlowIdentity(settings.settings, settings.sources, checkpoint)
        made = self._tables[table.key]
        made_with = cdc_settings(made.target.cdc)
        identity = TableIdentity(table_facts.table_id, generation, flows, made.history, made_with)
        text = identity.to_json()
        if table_facts.properties.get(PROPERTY) != text:
            self._before(f"recording on {table} that {name} fills it")
            self._spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('{PROPERTY}' = {literal(text)})")
        self._before(f"recording in the state that {name} fills {table}")
        self._store.record_table_identity(owner, generation, table, identity)

    def _stream(self, definition: FlowDefinition, running: Task, broken: Counter[str]) -> str:
        rules = self._tables[definition.flow.target.key].target.expectations
        merges = isinstance(definition, DefineAutoCdc)
        unjudged = merges and bool(list_counted_expectations(rules))
        writer = (
            self._frame(definition, None if merges else _OBSERVED, unjudged=unjudged)
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(self._checkpoint(definition)))
        )
        raised: list[BaseException] = []
        if isinstance(definition, DefineAutoCdc):
            fold = self._fold(definition, raised, rules if unjudged else (), broken)
            query = writer.foreachBatch(fold).start()
        else:
            self._check_types(definition)
            query = (
                writer.format("delta")
                .outputMode("append")
                .option("mergeSchema", "true")
                .toTable(definition.flow.target.sql)
            )
        try:
            _await(query, running, broken)
        except SPARK_ERRORS:
            # What the batch's own code raised is the reason; Spark's wrapping of it says less.
            if raised:
                raise raised[0] from None
            raise
        finally:
            query.stop()
        return str(query.id)

    def _fold(
        self,
        definition: DefineAutoCdc,
        raised: list[BaseException],
        rules: tuple[Expectation, ...],
        broken: Counter[str],
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for ``foreachBatch`` that folds a feed's rows into a target.

        ``raised`` receives what a batch raises. ``rules`` are those that nothing has applied yet; ``broken``
        receives how many rows break them. The stream itself can't count them, because a merge reads its
        batch more than once.
        """
        log_size = LogSize()

        def fold(batch: DataFrame, number: int) -> None:
            try:
                if list_counted_expectations(rules):
                    broken.update(
                        {name: count for name, count in count_violations(batch, rules).items() if count}
                    )
                events = change_feed.build_feed_events(apply_expectations(batch, rules), definition.settings)
                cdc_batches.apply_events(
                    events,
                    definition.flow.target,
                    definition.settings,
                    before_commit=self._before,
                    batch_number=number,
                    log_size=log_size,
                )
            except BaseException as error:
                raised.append(error)
                raise

        return fold

    def _frame(
        self,
        definition: FlowDefinition,
        counted: str | Observation | None = None,
        *,
        unjudged: bool = False,
    ) -> DataFrame:
        source = self._source(definition)
        if isinstance(source, HistorySource):
            return history_rows(self._spark, source)
        owned = self._views[definition.owner.key].items()
        starts: views.Starts = {name: {} if definition.once else view.starts for name, view in owned}
        return read_flow_rows(
            self._spark,
            {name: view.view for name, view in owned},
            definition.flow,
            self._tables[definition.flow.target.key].target,
            starts,
            as_batch=definition.once,
            details=self._details,
            observation=counted,
            without_expectations=unjudged,
        )

    def _checkpoint(self, definition: FlowDefinition) -> Path:
        return self._store.checkpoint_folder(definition.owner, definition.generation, definition.flow.name)

    def _source(self, definition: FlowDefinition) -> Source:
        return self._views[definition.owner.key][definition.flow.view].view.source

    def _is_history(self, definition: FlowDefinition) -> bool:
        return isinstance(self._source(definition), HistorySource)

    def _create(self, definition: DefineTable) -> bool:
        """Create a table unless it's there, and say whether it was created."""
        target = definition.target
        if exists(self._spark, target.name):
            return False
        if not definition.create:
            raise Refused(
                "TARGET_MISSING",
                location=target.location,
                table=target.name,
                advice="rebuild it with --full-refresh",
            )
        columns = self._columns(target)
        self._before(f"creating {target.name}")
        with (
            explaining("TABLE_NOT_CREATED", location=target.location, table=target.name),
            task(_log, "create the table", table=target.name),
        ):
            table_creation.create_tables(self._spark, target, columns)
        return True

    def _columns(self, target: Target) -> StructType:
        """Take a table's columns from its schema file, or from all that flows into it, history first."""
        if target.schema_file is not None:
            declared = _declared(
                add_target_columns(views.read_schema_file(self._spark, target.schema_file), target)
            )
            if target.cdc is None or target.cdc.scd_type == 1 or SEQUENCE in declared.names:
                return declared
            # Without validity columns in the file, the events say of what type these are.
            sequences = (field for field in self._brought(target) if field.name == SEQUENCE)
            return StructType([*declared.fields, *sequences])
        return StructType(self._brought(target))

    def _brought(self, target: Target) -> list[StructField]:
        """Return the columns of all that flows into a table, history first."""
        fields: dict[str, StructField] = {}
        for definition in self._flows:
            if definition.flow.target.key != target.name.key:
                continue
            for field in self._rows(definition).schema.fields:
                known = fields.get(field.name.lower())
                if known is None or isinstance(known.dataType, NullType):
                    fields[field.name.lower()] = field
        return list(fields.values())

    def _rows(self, definition: FlowDefinition, counted: Observation | None = None) -> DataFrame:
        """Return what a flow brings: rows, or the events of a CDC flow."""
        frame = self._frame(definition, counted)
        if not isinstance(definition, DefineAutoCdc):
            return frame
        if not self._is_history(definition):
            return change_feed.build_feed_events(frame, definition.settings)
        events = build_history_events(frame, definition.settings)
        newest = None if copied_sequences.has_sequences(events) else self._newest_events(definition)
        return (
            events if newest is None else copied_sequences.add_sequences(events, newest, definition.settings)
        )

    def _newest_events(self, definition: DefineAutoCdc) -> DataFrame | None:
        """Return the newest events before the copy, read once; None where the sources don't tell them."""
        target, before = definition.flow.target, definition.baseline_events
        if before is None:
            return None
        if target.key not in self._newest:
            try:
                self._newest[target.key] = copied_sequences.read_newest_events(
                    self._spark, before, definition.settings, persist=True
                )
            except TableferryError as error:
                _log.warning(
                    "%s: copied rows get no sequence, because the events before them can't be read (%s)",
                    target,
                    first_line(error),
                )
                self._newest[target.key] = None
        return self._newest[target.key]


def _await(query: StreamingQuery, running: Task, broken: Counter[str]) -> None:
    """Wait for a stream's end, log each of its batches, and count the rows that break a rule."""
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
            _add(broken, _observed(progress))
            fields = {
                "event": "batch",
                "table": running.table,
                "step": running.step,
                "batch": batch,
                "rows": rows,
            }
            _log.info(
                "%s: batch %d read %s", running.title, batch, amounts.counted(rows, "row"), extra=fields
            )
            earlier = running.counts
            for what, more in (("batches", 1), ("rows", rows)):
                running.update(what, more + (earlier[what].done if what in earlier else 0))


def _observed(progress: Any) -> dict[str, Any]:
    """Return what a stream counted in a batch."""
    metrics = dict(progress["observedMetrics"]).get(_OBSERVED)
    if metrics is None:
        return {}
    counts: dict[str, Any] = metrics.asDict()
    if isinstance(counts.get("values"), list):
        # Through Spark Connect it's a row of another row's values and its schema.
        names = [column["name"] for column in metrics["schema"]["fields"]]
        return dict(zip(names, counts["values"], strict=True))
    return counts


def _add(broken: Counter[str], counts: Mapping[str, Any]) -> None:
    """Add what was counted of rules; of no rows it's NULL."""
    broken.update({name: count for name, count in counts.items() if count})


def _logs(definition: FlowDefinition) -> tuple[TableName, ...]:
    return (event_log_name(definition.flow.target),) if isinstance(definition, DefineAutoCdc) else ()


def _made(commits: Iterable[Commit], definition: FlowDefinition, query_id: str | None) -> tuple[Commit, ...]:
    """Pick the commits that a flow made, of a CDC flow in its target's log, and those nobody knows of."""

    def is_its_own(commit: Commit) -> bool:
        if isinstance(definition, DefineAutoCdc) or query_id is None:
            return commit.operation == "WRITE"
        return commit.parameters.get("queryId") == query_id

    return tuple(commit for commit in commits if not commit.operation or is_its_own(commit))


def _count(running: Task, rows: int | None, made: Iterable[Commit]) -> None:
    """Let the last line of a flow say what was committed, in the place of what was seen on the way."""
    running.counts = {what: count for what, count in running.counts.items() if what == "batches"}
    if rows is not None:
        running.update("rows", rows)
    files = [
        int(commit.metrics.get(metric, 0))
        for commit in made
        for metric in ("numFiles", "numAddedFiles", "numTargetFilesAdded")
    ]
    running.update("files", sum(files))


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
    start = fields.pop(START, None)
    fields.pop(END, None)
    return StructType([*fields.values(), *([StructField(SEQUENCE, start.dataType)] if start else [])])
