"""Read a data flow's views with Spark: SQL and DataFrames only, so that it works with Spark Connect too."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, assert_never, cast

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from tableferry.errors import Failed, Finding, Refused, TableError, first_line
from tableferry.pipelines.model import sql, topics
from tableferry.pipelines.model.flows import (
    DeltaSource,
    HistorySource,
    JoinSource,
    Migration,
    PythonCode,
    PythonSource,
    ReaderSource,
    SqlSource,
    Start,
    View,
    explicit_start,
)
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.topics import KafkaOffset
from tableferry.pipelines.sources.python_code import (
    FOLLOWED_OPTIONS,
    NO_ENTRIES,
    TrackedSpark,
    has_hidden_streams,
    load_function,
    start_options,
)
from tableferry.spark.catalog import explaining
from tableferry.spark.driver import in_process
from tableferry.spark.local_metastore import LocalMetastore, NeedsSpark
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

Starts = Mapping[str, Mapping[str, Start | None]]
"""Where streams start: by view, then by `TableName.key`. None resumes from the checkpoint."""


@dataclass(frozen=True)
class CommitRange:
    """The commits of a streamed table that are read as a batch.

    Attributes:
        last_version: The last commit.
        after_version: The version before the first commit of a change feed. None reads the table's rows as of
            the last commit.
    """

    last_version: int
    after_version: int | None = None


CommitRanges = Mapping[str, CommitRange]
"""By `TableName.key`."""

Offsets = Mapping[str, tuple[KafkaOffset, KafkaOffset]]
"""The start and end offsets between which Kafka topics are read, by the key of the `reads.Read`."""

_CHANGE_FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_START_OPTIONS = ("startingversion", "startingtimestamp")


def list_python_reads(
    spark: SparkSession | LocalMetastore, view: View, code: PythonCode, *, analyze: bool = True
) -> tuple[Read, ...]:
    """List the Delta tables that a view's Python function streams, by a call of it without computing rows.

    If the function streams anything else, the only `Read` has the finding STREAM_HIDDEN_IN_FUNCTION.
    `analyze` also searches the plan of the result for such streams, which a function inside a pipeline can't
    do.

    Raises:
        NeedsSpark: There is no session to run the function with.
        TableferryError: The function fails.
    """
    if isinstance(spark, LocalMetastore):
        raise NeedsSpark(f"the function of {view.name} has to be run")
    tracked = TrackedSpark(spark, {}, extra_options=FOLLOWED_OPTIONS if analyze else NO_ENTRIES)
    function = load_function(code, "get_df")
    try:
        frame = function(tracked, dict(code.tokens))
        is_streaming = frame.isStreaming
        is_hidden = is_streaming and (tracked.has_unknown_reads or not tracked.followed_tables)
        if is_streaming and analyze and not is_hidden:
            is_hidden = has_hidden_streams(frame, tracked.read_count)
    except Exception as error:
        # The project's code may raise any exception.
        raise Failed("VIEW_FUNCTION_FAILED", location=view.location, reason=first_line(error)) from error
    if is_hidden:
        finding = Finding("STREAM_HIDDEN_IN_FUNCTION")
        return (Read(view.name, TableName.at(f"python:{view.name}"), view.location, None, finding),)
    how = "set startingVersion on the reader in its function"
    return tuple(
        # The function's reader options aren't known.
        Read(view.name, table, view.location, start, start_remedy=how, stops_at="nothing")
        for table, start in tracked.followed_tables.items()
    )


def read_legacy_table(spark: SparkSession, source: HistorySource) -> DataFrame:
    """Return the mapped rows of the legacy table at its pinned version.

    Raises:
        TableError: The version can't be read any more, or an expression is invalid for the table.
    """
    migration, version = source.migration, source.version
    with explaining(
        "LEGACY_TABLE_NOT_READABLE", location=migration.location, table=migration.table, version=version
    ):
        reader, path = delta_reader(spark, {"versionAsOf": str(version)}), migration.table.path
        frame = reader.table(migration.table.sql) if path is None else reader.load(path)
        return apply_mapping(frame, migration)


def apply_mapping(frame: DataFrame, migration: Migration) -> DataFrame:
    """Apply the migration's where, select and exceptColumns to the legacy table's rows.

    Raises:
        TableError: ``exceptColumns`` names a column that the rows lack.
    """
    frame = _filter_and_select(frame, migration.where, migration.select)
    missing = [name for name in migration.except_columns if name.lower() not in map(str.lower, frame.columns)]
    if missing:
        raise TableError(
            "EXCEPT_COLUMNS_UNKNOWN", location=migration.location, table=migration.table, columns=missing
        )
    excluded = {name.lower() for name in migration.except_columns}
    return frame.select(*[quoted_column(name) for name in frame.columns if name.lower() not in excluded])


def find_compare_except_missing_in(migration: Migration, columns: Sequence[str]) -> Finding | None:
    """Return a finding with the columns of `compareExcept` that aren't among these columns, or None."""
    existing = {name.lower(): name for name in columns}
    unknown = [name for name in migration.uncompared_columns if name.lower() not in existing]
    if not unknown:
        return None
    return Finding(
        "COMPARE_EXCEPT_UNKNOWN",
        location=migration.location,
        unknown=unknown,
        columns=", ".join(existing.values()),
    )


def quoted_column(name: str) -> Any:
    """Return the column with this name, which may contain dots and backticks."""
    return F.col(quote(name))


def read_schema_file(spark: SparkSession, path: str) -> StructType:
    """Read a schema file: Spark's JSON, or DDL.

    Raises:
        TableferryError: The file is neither.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        if path.endswith(".json"):
            return StructType.fromJson(json.loads(text))
        return spark.createDataFrame([], text).schema
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        raise Refused("SCHEMA_FILE_INVALID", file=path) from error


@dataclass(frozen=True)
class ViewReader:
    """Reads the views of one spec.

    Attributes:
        views: The views, by name.
        starts: Where streams start.
        as_batch: Read the current rows as a batch, even if a view's mode is stream.
        folders: Folders of Delta tables, by `TableName.key`; a table with reader options is read from its
            folder.
        analyze: Analyze names and expressions now. A function inside a pipeline can't do that.
        commit_ranges: With `as_batch`: the commits to read from a streamed table, by `TableName.key`.
        offsets: With `as_batch`: the offsets to read from a Kafka topic.
    """

    spark: SparkSession
    views: Mapping[str, View]
    starts: Starts = field(default_factory=dict)
    as_batch: bool = False
    folders: Mapping[str, str] = field(default_factory=dict)
    analyze: bool = True
    commit_ranges: CommitRanges = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)

    def read(self, name: str) -> DataFrame:
        """Return a view's rows.

        Raises:
            TableferryError: The view can't be read; the message names its place in the spec.
        """
        view = self.views[name]
        with explaining("VIEW_NOT_READABLE", Failed, location=view.location, view=name):
            frame = self._build(view)
            if self.analyze and not in_process(self.spark):
                # Spark Connect analyzes names and expressions only when the schema is requested.
                frame.schema  # noqa: B018
            return frame

    def _build(self, view: View) -> DataFrame:
        is_streaming, starts = view.mode == "stream", self.starts.get(view.name, {})
        match view.source:
            case DeltaSource() as source:
                return self._read_delta(source, starts, is_streaming=is_streaming)
            case JoinSource() as source:
                return self._read_join(source, starts, is_streaming=is_streaming)
            case SqlSource(statement):
                return self._read_sql(view.name, statement, starts)
            case PythonSource(code):
                tracked = TrackedSpark(self.spark, starts, self.folders)
                return cast("DataFrame", load_function(code, "get_df")(tracked, dict(code.tokens)))
            case ReaderSource() as source:
                return self._read_reader_source(
                    view.name, source, streamed=is_streaming and not self.as_batch
                )
            case HistorySource() as source:
                return read_legacy_table(self.spark, source)
            case _:
                assert_never(view.source)

    def _read_delta(
        self, source: DeltaSource, starts: Mapping[str, Start | None], *, is_streaming: bool
    ) -> DataFrame:
        streamed, options = is_streaming and not self.as_batch, dict(source.options)
        commits = self.commit_ranges.get(source.table.key) if is_streaming else None
        change_feed = source.change_feed and not (commits and commits.after_version is None)
        if change_feed:
            options["readChangeFeed"] = "true"
        if commits or source.table.key in starts:
            options = {key: value for key, value in options.items() if key.lower() not in _START_OPTIONS}
        if commits:
            options |= _range_options(commits, change_feed=change_feed)
        elif source.table.key in starts:
            options |= start_options(starts[source.table.key])
        elif source.from_setup and change_feed:
            options |= start_options(_find_setup_version(self.spark, source.table))
        if not streamed and change_feed and explicit_start(options) is None:
            options["startingVersion"] = "0"
        checked_transform = source.transform if streamed and self.analyze else None
        if checked_transform:
            options |= FOLLOWED_OPTIONS
        reader = delta_reader(self.spark, options, streamed=streamed)
        if source.schema_file:
            reader = reader.schema(read_schema_file(self.spark, source.schema_file))
        folder = source.table.path or (self.folders.get(source.table.key) if options else None)
        frame = reader.load(folder) if folder is not None else reader.table(source.table.sql)
        if source.transform:
            frame = load_function(source.transform, "apply_transform")(frame, dict(source.transform.tokens))
        if checked_transform and has_hidden_streams(frame, 1):
            raise Refused("TRANSFORM_READS_STREAM", file=checked_transform.file or checked_transform.module)
        if change_feed:
            frame = frame.where(F.col("_change_type").isin(*source.change_types))
            if commits and commits.after_version == commits.last_version:
                frame = frame.limit(0)
        frame = _filter_and_select(frame, source.where, source.select)
        return frame.drop(*_CHANGE_FEED_COLUMNS) if change_feed else frame

    def _read_join(
        self, source: JoinSource, starts: Mapping[str, Start | None], *, is_streaming: bool
    ) -> DataFrame:
        frame, *others = (
            self._read_delta(side.source, starts, is_streaming=is_streaming and side.mode == "stream").alias(
                side.alias
            )
            for side in source.sides
        )
        for right, join in zip(others, source.joins, strict=True):
            frame = frame.join(right, F.expr(join.condition), join.kind)
        return _filter_and_select(frame, source.where, source.select)

    def _read_reader_source(self, view: str, source: ReaderSource, *, streamed: bool) -> DataFrame:
        options = source.options
        if source.format == "kafka":
            key = topics.source_name(options).key
            if offset_range := self.offsets.get(key):
                options = topics.range_options(options, *offset_range)
            elif (start := self.starts.get(view, {}).get(key)) is not None:
                options = topics.start_options(options, str(start))
        reader: Any = self.spark.readStream if streamed else self.spark.read
        reader = reader.format(source.format).options(**options)
        if source.schema_file:
            reader = reader.schema(read_schema_file(self.spark, source.schema_file))
        return _filter_and_select(reader.load(source.path), source.where, source.select)

    def _read_sql(self, name: str, statement: str, starts: Mapping[str, Start | None]) -> DataFrame:
        """Run a statement after temporary views have replaced its streams and the spec's views."""
        names: dict[sql.Reference, str] = {}
        for reference in sql.find_references(statement):
            inner = reference.parts[-1]
            if len(reference.parts) == 1 and inner in self.views and inner != name:
                reader = self
                if not reference.streamed:
                    reader = replace(self, as_batch=True, commit_ranges={}, offsets={})
                frame = reader.read(inner)
            elif reference.streamed:
                table = TableName(reference.parts)
                options = start_options(starts.get(table.key))
                if commits := self.commit_ranges.get(table.key):
                    options = _range_options(commits)
                frame = delta_reader(self.spark, options, streamed=not self.as_batch).table(table.sql)
            else:
                continue
            names[reference] = f"tableferry_{uuid.uuid4().hex}"
            frame.createOrReplaceTempView(names[reference])
        return self.spark.sql(sql.replace_references(statement, names))


def _range_options(commits: CommitRange, *, change_feed: bool = False) -> dict[str, str]:
    if not change_feed:
        return {"versionAsOf": str(commits.last_version)}
    assert commits.after_version is not None
    return {
        "startingVersion": str(min(commits.after_version + 1, commits.last_version)),
        "endingVersion": str(commits.last_version),
    }


def _find_setup_version(spark: SparkSession, table: TableName) -> int | None:
    """Return the version at which a table's pipeline last set it up; 0 if no commit records that.

    None means that the table doesn't exist yet: its pipeline creates it in the same update.
    """
    try:
        commits = spark.sql(f"DESCRIBE HISTORY {table.sql}")
        set_up = commits.where("operation = 'DLT SETUP'").agg(F.max("version")).collect()[0][0]
    except AnalysisException as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
        return None
    return 0 if set_up is None else int(set_up)


def delta_reader(spark: SparkSession, options: Mapping[str, str], *, streamed: bool = False) -> Any:
    """Return a reader of Delta tables with these options."""
    reader: DataFrameReader | DataStreamReader = spark.readStream if streamed else spark.read
    return reader.format("delta").options(**options)


def _filter_and_select(frame: DataFrame, where: tuple[str, ...], select: tuple[str, ...]) -> DataFrame:
    for condition in where:
        frame = frame.where(condition)
    return frame.selectExpr(*select) if select else frame
