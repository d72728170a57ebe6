"""Reads a data flow's views with Spark: SQL and DataFrames only, so that it runs on Spark Connect too."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, assert_never, cast

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from tableferry.errors import Failed, Refused, TableError
from tableferry.pipelines.model import sql, topics
from tableferry.pipelines.model.flows import (
    DeltaSource,
    HistorySource,
    JoinSource,
    Migration,
    OtherSource,
    PythonSource,
    SqlSource,
    View,
    explicit_start,
)
from tableferry.pipelines.model.source_offsets import KafkaOffset
from tableferry.pipelines.model.steps import Start
from tableferry.pipelines.sources.python_code import (
    MARK,
    NOWHERE,
    TrackedSpark,
    load_function,
    reads_hidden_streams,
    start_options,
)
from tableferry.spark.catalog import explaining
from tableferry.spark.driver import in_process
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

Starts = Mapping[str, Mapping[str, Start | None]]
"""Where streams start: by view, then by `TableName.key`; None goes on from the checkpoint."""


@dataclass(frozen=True)
class Span:
    """The commits of a followed table that are read as a batch.

    Attributes:
        until: The last of them.
        after: The one before the first of them, for a change feed; None to read it, too, as rows are read:
            the table as of ``until``.
    """

    until: int
    after: int | None = None


Spans = Mapping[str, Span]
"""By `TableName.key`."""

Offsets = Mapping[str, tuple[KafkaOffset, KafkaOffset]]
"""What is read of Kafka's topics, from where to where, by the key of the `reads.Read`."""

_CHANGE_FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_START_OPTIONS = ("startingversion", "startingtimestamp")


def read(
    spark: SparkSession,
    views: Mapping[str, View],
    name: str,
    starts: Starts,
    *,
    once: bool = False,
    folders: Mapping[str, str] = NOWHERE,
    asked: bool = True,
    spans: Spans = MappingProxyType({}),
    offsets: Offsets = MappingProxyType({}),
) -> DataFrame:
    """Return a view's rows; ``once`` reads what is there now, also where the view's mode is stream.

    What is read with options is read from the Delta tables' ``folders``, by `TableName.key`. ``asked`` has
    the names and expressions looked at, which a function of a pipeline can't. With ``once``, of a table that
    would be followed and that ``spans`` names only those commits are read, and of topics of Kafka only what
    ``offsets`` say.

    Raises:
        TableferryError: It can't be read; the message names the view's place in the spec.
    """
    return _ViewReader(spark, views, starts, once, folders, asked, spans, offsets).read(views[name])


def history(spark: SparkSession, source: HistorySource) -> DataFrame:
    """Return the legacy table as of its pinned version, as `shaped` makes it.

    Raises:
        TableError: That version can't be read any more, or an expression doesn't fit the table.
    """
    migration, version = source.migration, source.version
    with explaining(
        "LEGACY_TABLE_NOT_READABLE", location=migration.location, table=migration.table, version=version
    ):
        reader, path = reader_of(spark, {"versionAsOf": str(version)}), migration.table.path
        frame = reader.table(migration.table.sql) if path is None else reader.load(path)
        return shaped(frame, migration)


def shaped(frame: DataFrame, migration: Migration) -> DataFrame:
    """Put the legacy table's rows through the migration's own where, select and exceptColumns.

    Raises:
        TableError: ``exceptColumns`` names a column that isn't there.
    """
    frame = _filtered(frame, migration.where, migration.select)
    missing = [name for name in migration.except_columns if name.lower() not in map(str.lower, frame.columns)]
    if missing:
        raise TableError(
            "EXCEPT_COLUMNS_UNKNOWN", location=migration.location, table=migration.table, columns=missing
        )
    left_out = {name.lower() for name in migration.except_columns}
    return frame.select(*[quoted(name) for name in frame.columns if name.lower() not in left_out])


def quoted(name: str) -> Any:
    """Return a column by its very name, dots and backticks included."""
    return F.col(quote(name))


def schema_of(spark: SparkSession, path: str) -> StructType:
    """Read a schema file: Spark's JSON, or DDL.

    Raises:
        TableferryError: It's neither.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        if path.endswith(".json"):
            return StructType.fromJson(json.loads(text))
        return spark.createDataFrame([], text).schema
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        raise Refused("SCHEMA_FILE_INVALID", file=path) from error


@dataclass(frozen=True)
class _ViewReader:
    """Reads the views of one spec; its fields are the arguments of `read`."""

    spark: SparkSession
    views: Mapping[str, View]
    starts: Starts
    once: bool
    folders: Mapping[str, str]
    asked: bool
    spans: Spans
    offsets: Offsets

    def read(self, view: View) -> DataFrame:
        with explaining("VIEW_NOT_READABLE", Failed, location=view.location, view=view.name):
            frame = self._built(view)
            if self.asked and not in_process(self.spark):
                # Spark Connect looks at names and expressions only when it's asked for the columns.
                frame.schema  # noqa: B018
            return frame

    def _built(self, view: View) -> DataFrame:
        followed, starts = view.mode == "stream", self.starts.get(view.name, {})
        match view.source:
            case DeltaSource() as source:
                return self._delta(source, starts, followed=followed)
            case JoinSource() as source:
                return self._join(source, starts, followed=followed)
            case SqlSource(statement):
                return self._sql(view.name, statement, starts)
            case PythonSource(code):
                tracked = TrackedSpark(self.spark, starts, self.folders)
                return cast("DataFrame", load_function(code, "get_df")(tracked, dict(code.tokens)))
            case OtherSource() as source:
                return self._other(view.name, source, streamed=followed and not self.once)
            case HistorySource() as source:
                return history(self.spark, source)
            case _:
                assert_never(view.source)

    def _delta(self, source: DeltaSource, starts: Mapping[str, Start | None], *, followed: bool) -> DataFrame:
        streamed, options = followed and not self.once, dict(source.options)
        span = self.spans.get(source.table.key) if followed else None
        change_feed = source.change_feed and not (span and span.after is None)
        if change_feed:
            options["readChangeFeed"] = "true"
        if source.table.key in starts:
            options = {key: value for key, value in options.items() if key.lower() not in _START_OPTIONS}
            options |= start_options(starts[source.table.key])
        elif source.from_setup and change_feed and not span:
            options |= start_options(_set_up(self.spark, source.table))
        if span:
            options = {key: value for key, value in options.items() if key.lower() not in _START_OPTIONS}
            options |= _until(span, change_feed=change_feed)
        if not streamed and change_feed and explicit_start(options) is None:
            options["startingVersion"] = "0"
        looked_at = source.transform if streamed and self.asked else None
        if looked_at:
            options |= MARK
        reader = reader_of(self.spark, options, streamed=streamed)
        if source.schema_file:
            reader = reader.schema(schema_of(self.spark, source.schema_file))
        folder = source.table.path or (self.folders.get(source.table.key) if options else None)
        frame = reader.load(folder) if folder is not None else reader.table(source.table.sql)
        if source.transform:
            frame = load_function(source.transform, "apply_transform")(frame, dict(source.transform.tokens))
        if looked_at and reads_hidden_streams(frame, 1):
            raise Refused("TRANSFORM_READS_STREAM", file=looked_at.file or looked_at.module)
        if change_feed:
            frame = frame.where(F.col("_change_type").isin(*source.change_types))
            if span and span.after == span.until:
                frame = frame.limit(0)
        frame = _filtered(frame, source.where, source.select)
        return frame.drop(*_CHANGE_FEED_COLUMNS) if change_feed else frame

    def _join(self, source: JoinSource, starts: Mapping[str, Start | None], *, followed: bool) -> DataFrame:
        frame, *others = (
            self._delta(side.source, starts, followed=followed and side.mode == "stream").alias(side.alias)
            for side in source.sides
        )
        for right, join in zip(others, source.joins, strict=True):
            frame = frame.join(right, F.expr(join.condition), join.kind)
        return _filtered(frame, source.where, source.select)

    def _other(self, view: str, source: OtherSource, *, streamed: bool) -> DataFrame:
        options = source.options
        if source.format == "kafka":
            key = topics.name(options).key
            if span := self.offsets.get(key):
                options = topics.between(options, *span)
            elif (start := self.starts.get(view, {}).get(key)) is not None:
                options = topics.starting(options, str(start))
        reader: Any = self.spark.readStream if streamed else self.spark.read
        reader = reader.format(source.format).options(**options)
        if source.schema_file:
            reader = reader.schema(schema_of(self.spark, source.schema_file))
        return _filtered(reader.load(source.path), source.where, source.select)

    def _sql(self, name: str, statement: str, starts: Mapping[str, Start | None]) -> DataFrame:
        """Run a statement with temporary views in place of what it streams and of the spec's own views."""
        names: dict[sql.Reference, str] = {}
        for reference in sql.references(statement):
            inner = reference.parts[-1]
            if len(reference.parts) == 1 and inner in self.views and inner != name:
                once = self.once or not reference.streamed
                spans = self.spans if reference.streamed else {}
                offsets = self.offsets if reference.streamed else {}
                frame = read(
                    self.spark, self.views, inner, self.starts, once=once, spans=spans, offsets=offsets
                )
            elif reference.streamed:
                table = TableName(reference.parts)
                options = start_options(starts.get(table.key))
                if span := self.spans.get(table.key):
                    options = _until(span)
                frame = reader_of(self.spark, options, streamed=not self.once).table(table.sql)
            else:
                continue
            names[reference] = f"tableferry_{uuid.uuid4().hex}"
            frame.createOrReplaceTempView(names[reference])
        return self.spark.sql(sql.renamed(statement, names))


def _until(span: Span, *, change_feed: bool = False) -> dict[str, str]:
    if not change_feed:
        return {"versionAsOf": str(span.until)}
    assert span.after is not None
    return {"startingVersion": str(min(span.after + 1, span.until)), "endingVersion": str(span.until)}


def _set_up(spark: SparkSession, table: TableName) -> int | None:
    """Return the version at which a table's own pipeline last set it up; it is made at version 0.

    A table that isn't there yet has none: its pipeline makes it in the same update.
    """
    try:
        commits = spark.sql(f"DESCRIBE HISTORY {table.sql}")
        set_up = commits.where("operation = 'DLT SETUP'").agg(F.max("version")).collect()[0][0]
    except AnalysisException as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
        return None
    return 0 if set_up is None else int(set_up)


def reader_of(spark: SparkSession, options: Mapping[str, str], *, streamed: bool = False) -> Any:
    """Return a reader of Delta tables with these options."""
    reader: DataFrameReader | DataStreamReader = spark.readStream if streamed else spark.read
    return reader.format("delta").options(**options)


def _filtered(frame: DataFrame, where: tuple[str, ...], select: tuple[str, ...]) -> DataFrame:
    for condition in where:
        frame = frame.where(condition)
    return frame.selectExpr(*select) if select else frame
