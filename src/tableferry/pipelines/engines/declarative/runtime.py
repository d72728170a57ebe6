"""The API of a declarative pipeline for a bundle's `src/migration`, the same on every runtime.

It has the functions of `pyspark.pipelines`, and calls those of `dlt` on runtimes before 17. It also defines
data quality rules, operational metadata columns, snapshots and materialized views.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tableferry.errors import TableError
from tableferry.pipelines.engines.declarative.plan import PipelineMaterializedView, PipelinePlan
from tableferry.pipelines.model.flows import CdcSettings, Expectation, Target
from tableferry.pipelines.model.steps import PlannedFlow
from tableferry.pipelines.sources.metadata_columns import add_metadata_columns
from tableferry.pipelines.sources.rows import apply_expectations, flag_or_quarantine_rows, prefix_columns
from tableferry.pipelines.sources.snapshots import next_snapshot
from tableferry.spark.quoting import identifier, unquote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    Rows = Callable[[], DataFrame]

_UPDATE_ID = "pipeline.pipeline_update_id"
_DECORATORS = {"warn": "expect_all", "drop": "expect_all_or_drop", "fail": "expect_all_or_fail"}


class PipelineRuntime:
    """The API of the pipeline that loads a bundle's source files.

    Each method omits arguments that are None; ``location`` is the place in the spec for messages.

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
        """Return a decorator that defines a view; in `dlt`, the function is ``view``."""
        define = getattr(self._dp, "temporary_view", None) or self._dp.view
        decorator: Callable[[Rows], None] = define(name=name)
        return decorator

    def append_flow(self, location: str, **arguments: Any) -> Callable[[Rows], None]:
        """Return a decorator that defines an append flow."""
        decorator: Callable[[Rows], None] = _call(self._dp.append_flow, location, **arguments)
        return decorator

    def create_auto_cdc_flow(self, location: str, name: str, **arguments: Any) -> None:
        """Define an AUTO CDC flow; in `dlt`, the function is ``apply_changes`` with ``flow_name``.

        Raises:
            TableError: The runtime lacks both functions.
        """
        create = self._find_function("create_auto_cdc_flow", "apply_changes", location)
        named = {"name" if _has_argument(create, "name") else "flow_name": name}
        _call(create, location, **named, **arguments)

    def read(self, view: str, *, streamed: bool) -> DataFrame:
        """Read a view of the pipeline, as a stream or as a batch."""
        return (self.spark.readStream if streamed else self.spark.read).table(view)

    def rows_of(self, flow: PlannedFlow) -> str:
        """Return the name of the view with exactly the rows that a flow writes; define it if it's missing.

        Rules and metadata columns of a table would also apply to the history, so this view has them.
        """
        view, where = flow.flow.view, flow.cdc.where if flow.cdc and not flow.is_initial_copy else None
        if not (where or flow.expectations or flow.metadata or flow.flow.column_prefix):
            return view
        frame = self.frames.get(view) if flow.flow.column_prefix else None
        columns = None if frame is None else frame.columns

        def rows() -> DataFrame:
            frame = prefix_columns(self.read(view, streamed=flow.streamed), flow.flow, columns)
            if flow.metadata:
                frame = add_metadata_columns(frame, flow.metadata, self._update_details())
            frame = flag_or_quarantine_rows(frame, flow.expectations)
            return frame.where(where) if where else frame

        name = identifier(f"rows_of_{unquote(flow.name)}")
        self.temporary_view(name)(self._apply_rules(flow.expectations, rows))
        return name

    def define_others(self, plan: PipelinePlan) -> None:
        """Define the flows from snapshots, and the materialized views."""
        if plan.has_update_id_column and hasattr(self._dp, "on_event_hook"):
            self._dp.on_event_hook(self._record_update_id)
        for target in plan.snapshots:
            self._define_snapshots(target)
        for view in plan.materialized:
            self._define_materialized_view(view)

    def _define_snapshots(self, target: Target) -> None:
        """Apply a view's newest snapshot with AUTO CDC, or each historical snapshot in order."""
        settings = target.snapshots
        assert settings is not None
        create = self._find_function(
            "create_auto_cdc_from_snapshot_flow", "apply_changes_from_snapshot", settings.location
        )
        view = settings.source if isinstance(settings.source, str) else None
        _call(
            create,
            settings.location,
            target=target.name.plain_sql,
            source=view or (lambda latest: next_snapshot(self.spark, settings, latest)),
            keys=list(settings.keys),
            stored_as_scd_type=settings.scd_type,
            track_history_column_list=list(settings.track_history_column_list) or None,
            track_history_except_column_list=list(settings.track_history_except_column_list) or None,
        )

    def _define_materialized_view(self, view: PipelineMaterializedView) -> None:
        def rows() -> DataFrame:
            frame = self.spark.read.table(view.view)
            frame = add_metadata_columns(frame, view.target.metadata, self._update_details())
            return flag_or_quarantine_rows(frame, view.target.expectations)

        # `dlt` has one function for both kinds of table.
        create = getattr(self._dp, "materialized_view", None) or self._dp.table
        decorate = _call(create, view.table.location, name=view.table.name, **view.table.arguments)
        decorate(self._apply_rules(view.target.expectations, rows))

    def _find_function(self, name: str, older: str, location: str) -> Callable[..., Any]:
        function: Callable[..., Any] | None = getattr(self._dp, name, None) or getattr(self._dp, older, None)
        if function is None:
            raise TableError("RUNTIME_LACKS_FUNCTION", location=location, function=name)
        return function

    def _apply_rules(self, rules: Iterable[Expectation], rows: Rows) -> Rows:
        """Apply data quality rules: the pipeline's expectations, or filters if it has none."""
        if not hasattr(self._dp, "expect_all"):
            filters = tuple(rule for rule in rules if rule.action in _DECORATORS)
            return lambda: apply_expectations(rows(), filters)
        for action, decorator in _DECORATORS.items():
            constraints = {rule.name: rule.constraint for rule in rules if rule.action == action}
            if constraints:
                rows = getattr(self._dp, decorator)(constraints)(rows)
        return rows

    def _update_details(self) -> dict[str, str]:
        """Return the details of the update for operational metadata columns."""
        details = {
            "pipeline_id": self.spark.conf.get("pipelines.id", None),
            "start_utc_timestamp": self._started,
            "update_id": self.spark.conf.get(_UPDATE_ID, None),
        }
        return {name: value for name, value in details.items() if value is not None}

    def _record_update_id(self, event: dict[str, Any]) -> None:
        """Store the id of the running update from an event; only events contain it."""
        update = event.get("origin", {}).get("update_id", "")
        if update and not self.spark.conf.get(_UPDATE_ID, ""):
            self.spark.conf.set(_UPDATE_ID, update)


def cdc_arguments(settings: CdcSettings) -> dict[str, Any]:
    """Return the arguments of an AUTO CDC flow for a feed, from the spec's settings."""
    return {
        "sequence_by": F.expr(settings.sequence_by),
        "ignore_null_updates": settings.ignore_null_updates or None,
        "apply_as_deletes": _parse_expression(settings.apply_as_deletes),
        "apply_as_truncates": _parse_expression(settings.apply_as_truncates),
        "column_list": list(settings.column_list) or None,
        "except_column_list": list(settings.except_column_list) or None,
        "track_history_column_list": list(settings.track_history_column_list) or None,
        "track_history_except_column_list": list(settings.track_history_except_column_list) or None,
    }


def _parse_expression(text: str | None) -> Column | None:
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
