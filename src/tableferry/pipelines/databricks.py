"""The Databricks engine: defines a plan in the pipeline whose source file is being loaded.

It calls `pyspark.pipelines` as Databricks has it (or `dlt`, its older name) and looks up what this runtime's
functions take. A run-once flow is the platform's own ``once=True``: it runs a single time, and again with a
full refresh. Not run on Databricks: the tests hold it against the documented signatures
(https://docs.databricks.com/aws/en/ldp/developer/python-ref).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableferry.errors import TableError
from tableferry.pipelines import history
from tableferry.pipelines.flows import CdcSettings, Expectation, HistorySource, Migration, Project, Target
from tableferry.pipelines.fold import DELETE, EXACT, OPERATION, SEQUENCE
from tableferry.pipelines.graph import (
    Build,
    Datasets,
    ambiguous,
    call,
    flow_name,
    made,
    table_arguments,
    takes,
)
from tableferry.pipelines.rows import history_rows, prefixed
from tableferry.pipelines.steps import DefineAppend, DefineAutoCdc, DefineTable, DefineView, FlowDefinition

_EXPECT = {"warn": "expect_all", "drop": "expect_all_or_drop", "fail": "expect_all_or_fail"}


class DatabricksEngine:
    """Defines tables, views and flows in the pipeline that is being loaded."""

    def __init__(self, dp: Any, spark: SparkSession, project: Project) -> None:
        self._dp, self._spark, self._conf = dp, spark, dict(project.spark_config)
        self._tables: dict[str, Target] = {}
        self._datasets = Datasets(spark, self._define, ambiguous(project), made=made(project))

    def view(self, definition: DefineView) -> None:
        """Name an input; it's defined when a flow reads it."""
        self._datasets.add(definition)

    def table(self, definition: DefineTable) -> None:
        """Define a streaming table."""
        target = definition.target
        self._tables[target.name.key] = target
        call(
            self._dp.create_streaming_table,
            f"{target.place}: {target.name}",
            {
                **table_arguments(self._spark, target),
                "spark_conf": {**self._conf, **target.spark_conf} or None,
                "cluster_by_auto": target.cluster_auto or None,
            },
        )

    def append(self, definition: DefineAppend) -> None:
        """Append a view's rows to a table."""
        source, streams = self._source(definition), self._datasets.streams(definition)
        add = call(
            self._dp.append_flow,
            f"{definition.flow.place}: {definition.flow.name}",
            {
                "target": str(definition.flow.target),
                "name": flow_name(definition.flow.name, definition.owner),
                "once": definition.once or None,
            },
        )
        add(lambda: self._datasets.frame(source, whole=not streams))

    def cdc(self, definition: DefineAutoCdc) -> None:
        """Apply a view's events to a table with AUTO CDC."""
        function = getattr(self._dp, "create_auto_cdc_flow", None) or getattr(self._dp, "apply_changes", None)
        where = f"{definition.flow.place}: {definition.flow.name}"
        if function is None:
            raise TableError(
                f"{where}: this runtime has no create_auto_cdc_flow: run it with the streaming engine "
                "(tableferry pipelines run)"
            )
        copied = isinstance(self._datasets.view(definition).source, HistorySource)
        call(
            function,
            where,
            {
                "target": str(definition.flow.target),
                "source": self._source(definition),
                "keys": list(definition.settings.keys),
                "stored_as_scd_type": definition.settings.scd_type,
                # `dlt` calls it so.
                "name" if takes(function, "name") else "flow_name": flow_name(
                    definition.flow.name, definition.owner
                ),
                "once": definition.once or None,
                **(_as_copied() if copied else _as_fed(definition.settings)),
            },
        )

    def _source(self, definition: FlowDefinition) -> str:
        """Return the name of the view that holds exactly what a flow brings, and define it."""
        view, name = (
            self._datasets.view(definition),
            f"rows_of_{flow_name(definition.flow.name, definition.owner)}",
        )
        if isinstance(view.source, HistorySource):
            copied = history_rows(self._spark, view.source)
            if isinstance(definition, DefineAutoCdc):
                copied = _events(copied, view.source.migration, definition.settings)
            self._define(name, lambda: copied)
            return name
        whole = not self._datasets.streams(definition)
        read = self._datasets.named(definition.owner, definition.flow.view, whole=whole)
        rules = self._tables[definition.flow.target.key].expectations
        where = definition.settings.where if isinstance(definition, DefineAutoCdc) else None
        if not (rules or where or definition.flow.column_prefix):
            return read

        def rows() -> DataFrame:
            frame = prefixed(self._datasets.frame(read, whole=whole), definition.flow)
            return frame.where(where) if where else frame

        # Rules of the table would judge the copied history too, which came through its own gates long ago.
        self._define(name, self._expecting(rules, rows))
        return name

    def _define(self, name: str, build: Build) -> None:
        define = getattr(self._dp, "temporary_view", None) or self._dp.view
        define(name=name)(build)

    def _expecting(self, rules: Iterable[Expectation], build: Build) -> Build:
        for action, function in _EXPECT.items():
            constraints = {rule.name: rule.constraint for rule in rules if rule.action == action}
            if constraints:
                decorate: Callable[[Build], Build] = getattr(self._dp, function)(constraints)
                build = decorate(build)
        return build


def _as_copied() -> dict[str, Any]:
    """Return AUTO CDC's settings for the copied history: none of the feed's, whose columns it may lack."""
    return {
        "sequence_by": F.col(SEQUENCE),
        "apply_as_deletes": F.expr(f"{OPERATION} = '{DELETE}'"),
        "except_column_list": [SEQUENCE, OPERATION],
    }


def _as_fed(settings: CdcSettings) -> dict[str, Any]:
    return {
        "sequence_by": F.expr(settings.sequence_by),
        "ignore_null_updates": settings.ignore_null_updates or None,
        "apply_as_deletes": F.expr(settings.apply_as_deletes) if settings.apply_as_deletes else None,
        "apply_as_truncates": F.expr(settings.apply_as_truncates) if settings.apply_as_truncates else None,
        "column_list": list(settings.column_list) or None,
        "except_column_list": list(settings.except_column_list) or None,
        "track_history_column_list": list(settings.track_history_column_list) or None,
        "track_history_except_column_list": list(settings.track_history_except_column_list) or None,
    }


def _events(frame: DataFrame, migration: Migration, settings: CdcSettings) -> DataFrame:
    """Return the copied rows as events; AUTO CDC itself keeps the rows as exact as the events are."""
    history.check_sequence(frame, settings, migration.place)
    return history.history_events(frame, settings).drop(EXACT)
