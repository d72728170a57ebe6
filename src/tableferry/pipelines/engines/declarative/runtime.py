"""The API of a declarative pipeline as a bundle's `src/migration` calls it, the same on every runtime.

It has the functions of `pyspark.pipelines`. On runtimes before 17, `dlt` has other names and arguments for
some of them; `PipelineRuntime` calls those. It also defines what a bundle needn't show: data quality rules,
operational metadata columns, snapshots and materialized views.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tableferry.errors import TableError
from tableferry.pipelines.engines.declarative.plan import (
    PipelineFlow,
    PipelineMaterializedView,
    PipelinePlan,
    PipelineSnapshots,
)
from tableferry.pipelines.model.flows import CdcSettings, Expectation
from tableferry.pipelines.sources.metadata_columns import add_metadata_columns
from tableferry.pipelines.sources.rows import apply_expectations, flag_or_quarantine_rows, prefix_columns
from tableferry.pipelines.sources.snapshots import next_snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    Rows = Callable[[], DataFrame]

_UPDATE_ID = "pipeline.pipeline_update_id"
_DECORATORS = {"warn": "expect_all", "drop": "expect_all_or_drop", "fail": "expect_all_or_fail"}


class PipelineRuntime:
    """The API of the pipeline that loads a bundle's source files.

    An argument that is None isn't passed on. ``location`` is the place in the spec that an error names.

    Attributes:
        spark: The pipeline's session.
        frames: The rows of views that were read already, by name.
        on_databricks: Whether flows can run once, which only Databricks supports.
    """

    def __init__(self, dp: Any, spark: SparkSession) -> None:
        """Wrap ``dp``: `pyspark.pipelines`, or `dlt` on older runtimes of Databricks."""
        self.spark = spark
        self.frames: dict[str, DataFrame] = {}
        self.on_databricks = _has_argument(dp.append_flow, "once")
        self._dp = dp
        self._started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

    def create_streaming_table(self, location: str, **arguments: Any) -> None:
        """Define a streaming table."""
        _call(self._dp.create_streaming_table, location, **arguments)

    def temporary_view(self, name: str) -> Callable[[Rows], None]:
        """Return a decorator that defines a view; `dlt` has ``view``."""
        define = getattr(self._dp, "temporary_view", None) or self._dp.view
        decorator: Callable[[Rows], None] = define(name=name)
        return decorator

    def append_flow(self, location: str, **arguments: Any) -> Callable[[Rows], None]:
        """Return a decorator that defines an append flow."""
        decorator: Callable[[Rows], None] = _call(self._dp.append_flow, location, **arguments)
        return decorator

    def create_auto_cdc_flow(self, location: str, name: str, **arguments: Any) -> None:
        """Define an AUTO CDC flow; `dlt` has ``apply_changes``, and ``flow_name``.

        Raises:
            TableError: The runtime has neither.
        """
        create = self._function("create_auto_cdc_flow", "apply_changes", location)
        named = {"name" if _has_argument(create, "name") else "flow_name": name}
        _call(create, location, **named, **arguments)

    def read(self, view: str, *, streamed: bool) -> DataFrame:
        """Read a view of the pipeline, as a stream or whole."""
        return (self.spark.readStream if streamed else self.spark.read).table(view)

    def rows_of(self, flow: PipelineFlow) -> str:
        """Return the name of the view with exactly a flow's rows; define it unless the flow reads it.

        Rules and metadata columns of a table would apply to the history too, so they belong to this view.
        """
        where = flow.cdc.where if flow.cdc and not flow.history else None
        if not (where or flow.expectations or flow.metadata or flow.written.column_prefix):
            return flow.view
        frame = self.frames.get(flow.view) if flow.written.column_prefix else None
        columns = None if frame is None else frame.columns

        def rows() -> DataFrame:
            frame = prefix_columns(self.read(flow.view, streamed=flow.streamed), flow.written, columns)
            if flow.metadata:
                frame = add_metadata_columns(frame, flow.metadata, self._details())
            frame = flag_or_quarantine_rows(frame, flow.expectations)
            return frame.where(where) if where else frame

        self.temporary_view(flow.rows)(self._expecting(flow.expectations, rows))
        return flow.rows

    def define_others(self, plan: PipelinePlan) -> None:
        """Define what fills tables from snapshots, and the materialized views."""
        if plan.wants_update_id and hasattr(self._dp, "on_event_hook"):
            self._dp.on_event_hook(self._remember_update)
        for snapshots in plan.snapshots:
            self._apply_snapshots(snapshots)
        for view in plan.materialized:
            self._materialize(view)

    def _apply_snapshots(self, snapshots: PipelineSnapshots) -> None:
        """Apply a view's newest snapshot with AUTO CDC, or one historical snapshot after the other."""
        create = self._function(
            "create_auto_cdc_from_snapshot_flow", "apply_changes_from_snapshot", snapshots.location
        )
        settings = snapshots.settings
        _call(
            create,
            snapshots.location,
            target=snapshots.target,
            source=snapshots.view or (lambda latest: next_snapshot(self.spark, settings, latest)),
            keys=list(settings.keys),
            stored_as_scd_type=settings.scd_type,
            track_history_column_list=list(settings.track_history_column_list) or None,
            track_history_except_column_list=list(settings.track_history_except_column_list) or None,
        )

    def _materialize(self, view: PipelineMaterializedView) -> None:
        def rows() -> DataFrame:
            frame = add_metadata_columns(self.spark.read.table(view.view), view.metadata, self._details())
            return flag_or_quarantine_rows(frame, view.expectations)

        # `dlt` has one function for both kinds of table.
        create = getattr(self._dp, "materialized_view", None) or self._dp.table
        decorate = _call(create, view.table.location, name=view.table.name, **view.table.arguments)
        decorate(self._expecting(view.expectations, rows))

    def _function(self, name: str, older: str, location: str) -> Callable[..., Any]:
        function: Callable[..., Any] | None = getattr(self._dp, name, None) or getattr(self._dp, older, None)
        if function is None:
            raise TableError("RUNTIME_LACKS_FUNCTION", location=location, function=name)
        return function

    def _expecting(self, rules: Iterable[Expectation], rows: Rows) -> Rows:
        """Apply data quality rules: the pipeline's expectations, or filters if it has none."""
        if not hasattr(self._dp, "expect_all"):
            filters = tuple(rule for rule in rules if rule.action in _DECORATORS)
            return lambda: apply_expectations(rows(), filters)
        for action, decorator in _DECORATORS.items():
            constraints = {rule.name: rule.constraint for rule in rules if rule.action == action}
            if constraints:
                rows = getattr(self._dp, decorator)(constraints)(rows)
        return rows

    def _details(self) -> dict[str, str]:
        """Return the details of the update that operational metadata columns can contain."""
        known = {
            "pipeline_id": self.spark.conf.get("pipelines.id", None),
            "start_utc_timestamp": self._started,
            "update_id": self.spark.conf.get(_UPDATE_ID, None),
        }
        return {name: value for name, value in known.items() if value is not None}

    def _remember_update(self, event: dict[str, Any]) -> None:
        """Store the id of the running update, which only the pipeline's events contain."""
        update = event.get("origin", {}).get("update_id", "")
        if update and not self.spark.conf.get(_UPDATE_ID, ""):
            self.spark.conf.set(_UPDATE_ID, update)


def cdc_arguments(settings: CdcSettings) -> dict[str, Any]:
    """Return the arguments of an AUTO CDC flow for a feed, as the spec has them."""
    return {
        "sequence_by": F.expr(settings.sequence_by),
        "ignore_null_updates": settings.ignore_null_updates or None,
        "apply_as_deletes": _expression(settings.apply_as_deletes),
        "apply_as_truncates": _expression(settings.apply_as_truncates),
        "column_list": list(settings.column_list) or None,
        "except_column_list": list(settings.except_column_list) or None,
        "track_history_column_list": list(settings.track_history_column_list) or None,
        "track_history_except_column_list": list(settings.track_history_except_column_list) or None,
    }


def _expression(text: str | None) -> Column | None:
    return F.expr(text) if text else None


def _call(function: Callable[..., Any], location: str, **arguments: Any) -> Any:
    """Call a function of the pipeline's API.

    Raises:
        TableError: The runtime's function lacks one of the arguments.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    lacking = [name for name in given if not _has_argument(function, name)]
    if lacking:
        raise TableError(
            "RUNTIME_LACKS_ARGUMENT",
            location=location,
            arguments=" and ".join(lacking),
            function=function.__name__,
        )
    return function(**given)


def _has_argument(function: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(function).parameters
    return name in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )
