"""The declarative engine: defines a plan in an open-source pipeline (``spark-pipelines run``, Spark 4.1 on).

Its ``append_flow`` has no ``once``, and every flow into a streaming table must be a stream. So the copy is a
stream over a clone of the legacy table that is pinned to the copy's version and that nobody writes to: its
checkpoint makes it once, and a full refresh brings it again.

Spark 4.1 ignores a reader's options in front of ``.table(…)`` without a word, ``startingVersion`` included,
so that rows come twice; ``.load(folder)`` honours them. So a table that is read with options is read from its
folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableError
from tableferry.pipelines import views
from tableferry.pipelines.decide import NO_CDC, NO_ONCE
from tableferry.pipelines.flows import HistorySource, Project, Target
from tableferry.pipelines.graph import Build, Datasets, ambiguous, call, flow_name, made, table_arguments
from tableferry.pipelines.python_code import NOWHERE
from tableferry.pipelines.rows import judged, prefixed
from tableferry.pipelines.steps import DefineAppend, DefineAutoCdc, DefineTable, DefineView
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def pinned_name(target: TableName) -> TableName:
    """Name the clone of the legacy table that the copy into a target reads."""
    return TableName((*target.parts[:-1], f"{target.table}__tableferry_pinned"))


class DeclarativeEngine:
    """Defines tables, views and flows in the pipeline that is being loaded."""

    def __init__(
        self,
        dp: Any,
        spark: SparkSession,
        project: Project,
        folders: Mapping[str, str] = NOWHERE,
    ) -> None:
        self._dp, self._spark, self._conf = dp, spark, dict(project.spark_config)
        self._tables: dict[str, Target] = {}
        self._datasets = Datasets(spark, self._define, ambiguous(project), folders, made(project))

    def view(self, definition: DefineView) -> None:
        """Name an input; it's defined when a flow reads it."""
        self._datasets.add(definition)

    def table(self, definition: DefineTable) -> None:
        """Define a streaming table, in the format of ``spark.sql.sources.default``.

        Naming the format makes every second update fail with DELTA_CANNOT_CHANGE_PROVIDER.
        """
        target = definition.target
        self._tables[target.name.key] = target
        call(
            self._dp.create_streaming_table,
            f"{target.place}: {target.name}",
            table_arguments(self._spark, target),
        )

    def append(self, definition: DefineAppend) -> None:
        """Append a view's rows to a table.

        Raises:
            TableError: It's a run-once flow of the spec's own.
        """
        flow = definition.flow
        where = f"{flow.place}: {flow.name}"
        target = self._tables[flow.target.key]
        source = self._datasets.view(definition).source
        if isinstance(source, HistorySource):
            pinned = self._spark.readStream.table(pinned_name(definition.owner).sql)
            history = views.shaped(pinned, source.migration)
            build: Build = lambda: history  # noqa: E731
        elif definition.once:
            raise TableError(f"{where} {NO_ONCE}")
        else:
            read = self._datasets.named(definition.owner, flow.view, whole=False)
            columns = self._datasets.columns(read) if flow.column_prefix else None
            if flow.column_prefix and columns is None:
                raise TableError(
                    f"{where} has a column_prefix, and what {flow.view} has for columns only shows once the "
                    "pipeline runs: give the columns their names in the view itself"
                )

            def build() -> DataFrame:
                frame = prefixed(self._datasets.frame(read, whole=False), flow, columns)
                return judged(frame, target.expectations)

        given = {
            "target": str(flow.target),
            "name": flow_name(flow.name, definition.owner),
            "spark_conf": {**self._conf, **target.spark_conf} or None,
        }
        call(self._dp.append_flow, where, given)(build)

    def cdc(self, definition: DefineAutoCdc) -> None:
        """Refuse AUTO CDC, which `decide` has done before.

        Raises:
            TableError: Always.
        """
        raise TableError(f"{definition.flow.place}: {definition.flow.target} {NO_CDC}")

    def _define(self, name: str, build: Build) -> None:
        self._dp.temporary_view(name=name)(build)
