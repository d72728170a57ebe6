"""Reads a data flow's views with Spark: SQL and DataFrames only, so that it runs on Spark Connect too."""

from __future__ import annotations

import importlib
import importlib.util
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never, cast

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tableferry.catalog import SPARK_ERRORS, in_process
from tableferry.errors import TableError, TableferryError, first_line
from tableferry.pipelines import sql
from tableferry.pipelines.flows import (
    DeltaSource,
    HistorySource,
    JoinSource,
    Migration,
    OtherSource,
    PythonCode,
    PythonSource,
    SqlSource,
    View,
)
from tableferry.pipelines.reads import Read, explicit_start
from tableferry.pipelines.steps import Start
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

Starts = Mapping[str, Mapping[str, Start]]
"""Where streams start: by view, then by `TableName.key`."""

_CHANGE_FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_START_OPTIONS = ("startingversion", "startingtimestamp")


def read(
    spark: SparkSession, views: Mapping[str, View], name: str, starts: Starts, *, once: bool = False
) -> DataFrame:
    """Return a view's rows, as a stream where its mode says so; ``once`` reads what is there now instead.

    Raises:
        TableferryError: It can't be read; the message names the view's place in the spec.
    """
    view = views[name]
    try:
        frame = _built(spark, views, view, starts, once=once)
        if not in_process(spark):
            # Spark Connect looks at names and expressions only when it's asked for the columns.
            frame.schema  # noqa: B018
        return frame
    except SPARK_ERRORS as error:
        raise TableferryError(
            f"{view.place}: {name} can't be read ({first_line(error)}): correct the spec"
        ) from error


def _built(
    spark: SparkSession, views: Mapping[str, View], view: View, starts: Starts, *, once: bool
) -> DataFrame:
    streamed = view.mode == "stream" and not once
    own = starts.get(view.name, {})
    match view.source:
        case DeltaSource() as source:
            return _delta(spark, source, own, streamed=streamed)
        case JoinSource() as source:
            return _join(spark, source, own, streamed=streamed)
        case SqlSource(statement):
            return _sql(spark, views, view.name, statement, starts, once=once)
        case PythonSource(code):
            frame = load_function(code, "get_df")(TrackedSpark(spark, own), dict(code.tokens))
            return cast("DataFrame", frame)
        case OtherSource() as source:
            return _other(spark, source, streamed=streamed)
        case HistorySource(migration, version):
            return history(spark, migration, version)
        case _:
            assert_never(view.source)


def history(spark: SparkSession, migration: Migration, version: int) -> DataFrame:
    """Return the legacy table as of a version, through the migration's own where, select and exceptColumns.

    Raises:
        TableError: That version can't be read any more, or an expression doesn't fit the table.
    """
    try:
        frame = (
            _reader(spark, {"versionAsOf": str(version)}).table(migration.table.sql)
            if migration.table.path is None
            else (_reader(spark, {"versionAsOf": str(version)}).load(migration.table.path))
        )
        frame = _filtered(frame, migration.where, migration.select)
        missing = [
            name for name in migration.except_columns if name.lower() not in map(str.lower, frame.columns)
        ]
        if missing:
            raise TableError(
                f"{migration.place}: exceptColumns names {', '.join(missing)}, which {migration.table} "
                "doesn't have: remove it"
            )
        left_out = {name.lower() for name in migration.except_columns}
        return frame.select(*[quoted(name) for name in frame.columns if name.lower() not in left_out])
    except SPARK_ERRORS as error:
        raise TableError(
            f"{migration.place}: {migration.table} can't be read as of version {version} "
            f"({first_line(error)}): correct the expressions, or restore the files that this version needs"
        ) from error


def quoted(name: str) -> Any:
    """Return a column by its very name, dots and backticks included."""
    return F.col("`" + name.replace("`", "``") + "`")


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
        raise TableferryError(
            f"{path} isn't a schema: write Spark's JSON, or DDL such as 'id INT, name STRING'"
        ) from error


def load_function(code: PythonCode, name: str) -> Callable[..., Any]:
    """Load a Python source's or transform's function: ``name`` in a file, or ``module.function``.

    Raises:
        TableferryError: There is no such function.
    """
    try:
        if code.file is not None:
            found = importlib.util.spec_from_file_location(
                f"tableferry_project_{abs(hash(code.file))}", code.file
            )
            if found is None or found.loader is None:
                raise ImportError(code.file)
            module = importlib.util.module_from_spec(found)
            found.loader.exec_module(module)
        else:
            where, _, name = str(code.module).rpartition(".")
            module = importlib.import_module(where)
        return cast("Callable[..., Any]", getattr(module, name))
    except Exception as error:
        # The project's own code runs here, so anything may be raised.
        place = code.file or code.module
        raise TableferryError(
            f"{place}: function {name} can't be loaded ({error}): correct the file"
        ) from error


class TrackedSpark:
    """A Spark session whose ``readStream`` notes the Delta tables it reads, and starts them where it must."""

    def __init__(self, spark: SparkSession, starts: Mapping[str, Start]) -> None:
        self._spark, self._starts = spark, starts
        self.seen: dict[TableName, Start | None] = {}
        self.unseen = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    @property
    def readStream(self) -> _TrackedReader:
        """Start reading a stream, as ``SparkSession.readStream`` does."""
        return _TrackedReader(self, self._spark.readStream)

    def start_of(self, table: TableName, options: Mapping[str, str]) -> Mapping[str, str]:
        """Note a table that is followed, and return the options that start it where it must."""
        explicit = explicit_start(options)
        self.seen[table] = explicit
        start = self._starts.get(table.key) if explicit is None else None
        return _start_options(start)


class _TrackedReader:
    """A ``DataStreamReader`` that remembers its format and options until it's told what to read."""

    def __init__(self, spark: TrackedSpark, reader: DataStreamReader) -> None:
        self._spark, self._reader = spark, reader
        self._format = ""
        self._options: dict[str, str] = {}

    def format(self, source: str) -> _TrackedReader:
        self._format = source.lower()
        self._reader = self._reader.format(source)
        return self

    def option(self, key: str, value: Any) -> _TrackedReader:
        self._options[key] = str(value)
        self._reader = self._reader.option(key, value)
        return self

    def options(self, **options: Any) -> _TrackedReader:
        for key, value in options.items():
            self.option(key, value)
        return self

    def schema(self, schema: Any) -> _TrackedReader:
        self._reader = self._reader.schema(schema)
        return self

    def table(self, name: str) -> DataFrame:
        return self._started(TableName.parse(name)).table(name)

    def load(
        self, path: str | None = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> DataFrame:
        self.options(**options)
        kind = (format or self._format).lower()
        kind = kind or self._spark.conf.get("spark.sql.sources.default")
        where = path or self._options.get("path")
        if kind == "delta" and where:
            reader = self._started(TableName.at(where))
        else:
            reader = self._reader
            self._spark.unseen = True
        return reader.load(path, format=format, schema=schema)

    def _started(self, table: TableName) -> DataStreamReader:
        reader = self._reader
        for key, value in self._spark.start_of(table, self._options).items():
            reader = reader.option(key, value)
        return reader


def seen_by_python(spark: SparkSession, view: View, code: PythonCode) -> tuple[Read, ...]:
    """Run a view's Python function to see which tables it follows; what it returns is never computed."""
    tracked = TrackedSpark(spark, {})
    function = load_function(code, "get_df")
    try:
        frame = function(tracked, dict(code.tokens))
        streams = frame.isStreaming
    except Exception as error:
        # The project's own code runs here, so anything may be raised.
        raise TableferryError(
            f"{view.place}: its function failed ({first_line(error)}): correct it"
        ) from error
    if streams and (tracked.unseen or not tracked.seen):
        unseen = (
            "its function follows a stream that Tableferry can't see: read it through the given spark's "
            "readStream, or set autoStartingVersionsEnabled to false and give the start inside the function"
        )
        return (Read(view.name, TableName.at(f"python:{view.name}"), view.place, None, unseen),)
    how = "set startingVersion on the reader in its function"
    return tuple(Read(view.name, table, view.place, start, how=how) for table, start in tracked.seen.items())


def _delta(
    spark: SparkSession, source: DeltaSource, starts: Mapping[str, Start], *, streamed: bool
) -> DataFrame:
    options = dict(source.options)
    if source.change_feed:
        options["readChangeFeed"] = "true"
    if source.table.key in starts:
        options = {key: value for key, value in options.items() if key.lower() not in _START_OPTIONS}
        options |= _start_options(starts[source.table.key])
    if not streamed and source.change_feed and explicit_start(options) is None:
        options["startingVersion"] = "0"
    reader = _reader(spark, options, streamed=streamed)
    if source.schema_file:
        reader = reader.schema(schema_of(spark, source.schema_file))
    frame = (
        reader.load(source.table.path) if source.table.path is not None else reader.table(source.table.sql)
    )
    if source.transform:
        frame = load_function(source.transform, "apply_transform")(frame, dict(source.transform.tokens))
    if source.change_feed:
        frame = frame.where(F.col("_change_type").isin(*source.change_types))
    frame = _filtered(frame, source.where, source.select)
    return frame.drop(*_CHANGE_FEED_COLUMNS) if source.change_feed else frame


def _join(
    spark: SparkSession, source: JoinSource, starts: Mapping[str, Start], *, streamed: bool
) -> DataFrame:
    sides = [
        _delta(spark, side.source, starts, streamed=streamed and side.mode == "stream").alias(side.alias)
        for side in source.sides
    ]
    frame = sides[0]
    for side, join in zip(sides[1:], source.joins, strict=True):
        frame = frame.join(side, F.expr(join.condition), join.kind)
    return _filtered(frame, source.where, source.select)


def _sql(
    spark: SparkSession, views: Mapping[str, View], name: str, statement: str, starts: Starts, *, once: bool
) -> DataFrame:
    """Run a statement with temporary views in place of what it streams and of the spec's own views."""
    names: dict[sql.Reference, str] = {}
    for reference in sql.references(statement):
        inner = reference.parts[-1]
        if len(reference.parts) == 1 and inner in views and inner != name:
            frame = read(spark, views, inner, starts, once=once or not reference.streamed)
        elif reference.streamed:
            table = TableName(reference.parts)
            options = _start_options(starts.get(name, {}).get(table.key))
            frame = _reader(spark, options, streamed=not once).table(table.sql)
        else:
            continue
        names[reference] = f"tableferry_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(names[reference])
    return spark.sql(sql.renamed(statement, names))


def _other(spark: SparkSession, source: OtherSource, *, streamed: bool) -> DataFrame:
    reader: Any = spark.readStream if streamed else spark.read
    reader = reader.format(source.format).options(**source.options)
    if source.schema_file:
        reader = reader.schema(schema_of(spark, source.schema_file))
    frame = reader.load(source.path)
    return _filtered(frame, source.where, source.select)


def _reader(spark: SparkSession, options: Mapping[str, str], *, streamed: bool = False) -> Any:
    reader: DataFrameReader | DataStreamReader = spark.readStream if streamed else spark.read
    return reader.format("delta").options(**options)


def _start_options(start: Start | None) -> dict[str, str]:
    match start:
        case None:
            return {}
        case str() if start.startswith("timestamp:"):
            return {"startingTimestamp": start.removeprefix("timestamp:")}
        case _:
            return {"startingVersion": str(start)}


def _filtered(frame: DataFrame, where: tuple[str, ...], select: tuple[str, ...]) -> DataFrame:
    for condition in where:
        frame = frame.where(condition)
    return frame.selectExpr(*select) if select else frame
