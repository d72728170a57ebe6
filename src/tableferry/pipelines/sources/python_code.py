"""A project's own Python functions: how they are loaded, and which tables they follow."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from tableferry.errors import Failed, Finding, first_line
from tableferry.pipelines.model.flows import PythonCode, View, explicit_start
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.steps import Start
from tableferry.spark.local_metastore import LocalMetastore, NeedsSpark
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader


NOWHERE: Mapping[str, str] = {}


def start_options(start: Start | None) -> dict[str, str]:
    """Return the reader options that start a stream where it must."""
    match start:
        case None:
            return {}
        case str() if start.startswith("timestamp:"):
            return {"startingTimestamp": start.removeprefix("timestamp:")}
        case _:
            return {"startingVersion": str(start)}


def load_function(code: PythonCode, name: str) -> Callable[..., Any]:
    """Load a Python source's or transform's function: ``name`` in a file, or ``module.function``.

    Raises:
        TableferryError: There is no such function.
    """
    try:
        if code.file is not None:
            module_spec = importlib.util.spec_from_file_location(
                f"tableferry_project_{abs(hash(code.file))}", code.file
            )
            if module_spec is None or module_spec.loader is None:
                raise ImportError(code.file)
            module = importlib.util.module_from_spec(module_spec)
            module_spec.loader.exec_module(module)
        else:
            where, _, name = str(code.module).rpartition(".")
            # At the end, so that no package that is installed is hidden; they may import each other later.
            sys.path.extend(folder for folder in code.folders if folder not in sys.path)
            module = importlib.import_module(where)
        return cast("Callable[..., Any]", getattr(module, name))
    except Exception as error:
        # The project's own code runs here, so anything may be raised.
        origin = code.file or code.module
        raise Failed("FUNCTION_NOT_LOADED", file=origin, function=name, reason=error) from error


class TrackedSpark:
    """A Spark session whose ``readStream`` notes the Delta tables it reads, and starts them where it must."""

    def __init__(
        self,
        spark: SparkSession,
        starts: Mapping[str, Start | None],
        folders: Mapping[str, str] = NOWHERE,
        more: Mapping[str, str] = NOWHERE,
    ) -> None:
        self._spark, self._starts, self.folders, self._more = spark, starts, folders, more
        self.seen: dict[TableName, Start | None] = {}
        self.reads = 0
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
        self.reads += 1
        start = self._starts.get(table.key) if explicit is None else None
        return {**start_options(start), **self._more}


class _TrackedReader:
    """A ``DataStreamReader`` that remembers its format and options until it's called to read."""

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
        table = TableName.parse(name)
        reader = self._started(table)
        if self._options and table.key in self._spark.folders:
            return reader.format("delta").load(self._spark.folders[table.key])
        return reader.table(name)

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
            self._options[key] = value
            reader = reader.option(key, value)
        return reader


def seen_by_python(
    spark: SparkSession | LocalMetastore, view: View, code: PythonCode, *, asked: bool = True
) -> tuple[Read, ...]:
    """Run a view's Python function to see which tables it follows; what it returns is never computed.

    ``asked`` has the plan of what it returns looked at, which a function of a pipeline can't.

    Raises:
        NeedsSpark: There is no session to run it with.
        TableferryError: It fails.
    """
    if isinstance(spark, LocalMetastore):
        raise NeedsSpark(f"the function of {view.name} has to be run")
    tracked = TrackedSpark(spark, {}, more=MARK if asked else NOWHERE)
    function = load_function(code, "get_df")
    try:
        frame = function(tracked, dict(code.tokens))
        streams = frame.isStreaming
        hidden = streams and (tracked.unseen or not tracked.seen)
        hidden = hidden or (streams and asked and reads_hidden_streams(frame, tracked.reads))
    except Exception as error:
        # The project's own code runs here, so anything may be raised.
        raise Failed("VIEW_FUNCTION_FAILED", location=view.location, reason=first_line(error)) from error
    if hidden:
        unseen = Finding("STREAM_HIDDEN_IN_FUNCTION")
        return (Read(view.name, TableName.at(f"python:{view.name}"), view.location, None, unseen),)
    how = "set startingVersion on the reader in its function"
    return tuple(
        # The function's reader options aren't known.
        Read(view.name, table, view.location, start, how=how, stops_at="nothing")
        for table, start in tracked.seen.items()
    )


MARK = {"tableferry.followed": "true"}
"""Reader options by which a stream is known again in a plan; Delta doesn't mind them."""


_STREAM = re.compile(r"^[\s:|+~-]*StreamingRelation")


_MARKED = "tableferry.followed -> true"


def reads_hidden_streams(frame: DataFrame, followed: int) -> bool:
    """Say whether a frame reads a stream besides those that were given to it.

    The streams are counted in Spark's own plan, for a function may get at any session and any reader. Those
    that it was given, or has asked for, bear the mark; where a plan's text doesn't show options, their number
    (``followed``) has to do.
    """
    name = f"tableferry_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    spark = frame.sparkSession
    try:
        (row,) = spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {quote(name)}").collect()
    finally:
        spark.catalog.dropTempView(name)
    analyzed = row[0].partition("== Analyzed Logical Plan ==")[2].partition("== Optimized")[0]
    streams = [line for line in analyzed.split("\n") if _STREAM.match(line)]
    marked = sum(_MARKED in line for line in streams)
    return len(streams) > (marked if marked or not followed else followed)
