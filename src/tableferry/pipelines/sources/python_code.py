"""Load a project's Python functions, and track the tables that they stream."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from tableferry.errors import Failed
from tableferry.pipelines.model.flows import PythonCode, Start, explicit_start
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader


NO_ENTRIES: Mapping[str, str] = {}

FOLLOWED_OPTIONS = {"tableferry.followed": "true"}
"""A reader option that identifies a stream in a plan; Delta ignores it."""

_FOLLOWED_IN_PLAN = "tableferry.followed -> true"
_STREAM_RELATION = re.compile(r"^[\s:|+~-]*StreamingRelation")


def start_options(start: Start | None) -> dict[str, str]:
    """Return the reader options that start a stream at a version or timestamp."""
    match start:
        case None:
            return {}
        case str() if start.startswith("timestamp:"):
            return {"startingTimestamp": start.removeprefix("timestamp:")}
        case _:
            return {"startingVersion": str(start)}


def load_function(code: PythonCode, name: str) -> Callable[..., Any]:
    """Load the function of a Python source or transform: ``name`` in a file, or ``module.function``.

    Raises:
        TableferryError: The function can't be loaded.
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
            module_name, _, name = str(code.module).rpartition(".")
            # At the end of the path, so that no installed package is hidden; imports at call time need it.
            sys.path.extend(folder for folder in code.folders if folder not in sys.path)
            module = importlib.import_module(module_name)
        return cast("Callable[..., Any]", getattr(module, name))
    except Exception as error:
        # The project's code may raise any exception.
        origin = code.file or code.module
        raise Failed("FUNCTION_NOT_LOADED", file=origin, function=name, reason=error) from error


class TrackedSpark:
    """A Spark session whose ``readStream`` records the Delta tables that it reads, and sets their starts."""

    def __init__(
        self,
        spark: SparkSession,
        starts: Mapping[str, Start | None],
        folders: Mapping[str, str] = NO_ENTRIES,
        extra_options: Mapping[str, str] = NO_ENTRIES,
    ) -> None:
        self._spark, self._starts, self.folders, self._extra_options = spark, starts, folders, extra_options
        self.followed_tables: dict[TableName, Start | None] = {}
        self.read_count = 0
        self.has_unknown_reads = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    @property
    def readStream(self) -> _TrackedReader:
        """Start reading a stream, as ``SparkSession.readStream`` does."""
        return _TrackedReader(self, self._spark.readStream)

    def record_read(self, table: TableName, options: Mapping[str, str]) -> Mapping[str, str]:
        """Record a streamed table, and return the options that set its start.

        A start in the function has priority, except ``latest``: the plan starts after the baseline instead,
        because commits between the baseline and the first batch would be skipped.
        """
        explicit = explicit_start(options)
        self.followed_tables[table] = explicit
        self.read_count += 1
        start = self._starts.get(table.key) if explicit in (None, "latest") else None
        return {**start_options(start), **self._extra_options}


class _TrackedReader:
    """A ``DataStreamReader`` that records its format and options until a table is read."""

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
        reader = self._set_start(table)
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
            reader = self._set_start(TableName.at(where))
        else:
            reader = self._reader
            self._spark.has_unknown_reads = True
        return reader.load(path, format=format, schema=schema)

    def _set_start(self, table: TableName) -> DataStreamReader:
        reader = self._reader
        for key, value in self._spark.record_read(table, self._options).items():
            self._options[key] = value
            reader = reader.option(key, value)
        return reader


def has_hidden_streams(frame: DataFrame, followed: int) -> bool:
    """Return whether a DataFrame reads streams that Tableferry doesn't follow.

    A function may use any session and reader, so the streams are counted in Spark's plan. Followed streams
    have an option that identifies them. If the plan's text shows no options, the number of followed reads
    (``followed``) decides.
    """
    name = f"tableferry_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    spark = frame.sparkSession
    try:
        (row,) = spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {quote(name)}").collect()
    finally:
        spark.catalog.dropTempView(name)
    analyzed = row[0].partition("== Analyzed Logical Plan ==")[2].partition("== Optimized")[0]
    streams = [line for line in analyzed.split("\n") if _STREAM_RELATION.match(line)]
    identified = sum(_FOLLOWED_IN_PLAN in line for line in streams)
    return len(streams) > (identified if identified or not followed else followed)
