"""Checks of declarative pipelines on Databricks: functions, flows into one table, and the event log."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

from tableferry.doctor.check import (
    Check,
    Observation,
    Place,
    Route,
    Runs,
    Source,
    failure,
    not_applicable,
    success,
)
from tableferry.doctor.environment import SCRATCH, Environment, InPipeline
from tableferry.doctor.spark_checks import RESET_ALLOWED

try:
    from tableferry.pipelines.engines.databricks import event_log

    _HAS_PIPELINES = True
except ImportError:  # A bundle with the package's source may lack this route.
    _HAS_PIPELINES = False

# The names are constant, because a pipeline keeps a table of each name that it ever had.
TARGET = f"{SCRATCH}_flows"
ONCE_FLOW, LIVE_FLOW = f"{SCRATCH}_once", f"{SCRATCH}_live"
_ROWS = f"{SCRATCH}_rows"
_QUOTED = "`tableferry-doctor scratch`"

_EVENTS = 250

_TABLE = (
    "name", "comment", "spark_conf", "table_properties", "path", "partition_cols", "cluster_by_auto",
    "cluster_by", "schema", "row_filter",
)  # fmt: skip
_CDC = (
    "target", "source", "keys", "sequence_by", "ignore_null_updates", "apply_as_deletes",
    "apply_as_truncates", "column_list", "except_column_list", "stored_as_scd_type",
    "track_history_column_list", "track_history_except_column_list", "once",
)  # fmt: skip
_SNAPSHOTS = (
    "target", "source", "keys", "stored_as_scd_type", "track_history_column_list",
    "track_history_except_column_list",
)  # fmt: skip
_VIEW = (
    "name", "comment", "spark_conf", "table_properties", "path", "partition_cols", "cluster_by_auto",
    "cluster_by", "schema", "row_filter", "refresh_policy", "private",
)  # fmt: skip
_AS_OF_DLT = ("refresh_policy", "private")


def _functions(env: Environment) -> Any:
    """Return the module with the functions of pipelines; None if this process can't import it."""
    if env.pipeline is not None:
        return env.pipeline.functions
    for name in ("pyspark.pipelines", "dlt"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _has_function(names: Sequence[str], arguments: Sequence[str], env: Environment) -> Observation:
    """Check that the runtime has a function under one of its names, with these arguments.

    Args:
        names: The function's name, and its older name in `dlt`.
        arguments: The arguments that a migration passes.
        env: The environment.
    """
    if env.pipeline is None and env.choice.kind != "runtime":
        return not_applicable("only pipelines on Databricks have all of these functions")
    functions = _functions(env)
    if functions is None:
        return not_applicable("only a pipeline can import pyspark.pipelines or dlt on this runtime")
    name = next((name for name in names if hasattr(functions, name)), None)
    if name is None:
        return failure(f"the runtime has no function {names[0]}")
    parameters = inspect.signature(getattr(functions, name)).parameters.values()
    accepted = {parameter.name for parameter in parameters}
    optional = set() if name == names[0] else set(_AS_OF_DLT)
    missing = [argument for argument in arguments if argument not in accepted | optional]
    if missing and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return failure(f"{name} lacks {', '.join(missing)}")
    return success(f"{name} accepts the arguments of a migration")


def _quoted_names(env: Environment) -> Observation:
    view = _view_decorator(_pipeline(env))
    view(name=_QUOTED)(lambda: env.session().sql("SELECT 1 AS id"))
    return success(f"the pipeline accepts the name {_QUOTED}")


def _flows_into_one_table(env: Environment) -> Observation:
    """Define both flows inside a pipeline; elsewhere, read their results from its event log."""
    if env.pipeline is None:
        return _results_of_flows(env)
    _define_flows(env, env.pipeline)
    return success("the pipeline accepts both flows; its event log will have their results")


def _define_flows(env: Environment, pipeline: InPipeline) -> None:
    functions, spark = pipeline.functions, env.session()
    functions.create_streaming_table(
        name=TARGET, comment="Scratch table of tableferry doctor", table_properties={RESET_ALLOWED: "false"}
    )
    row = ("1 AS id", "1 AS version")
    _view_decorator(pipeline)(name=_ROWS)(lambda: spark.readStream.table(pipeline.table).selectExpr(*row))
    create = getattr(functions, "create_auto_cdc_flow", None) or functions.apply_changes
    named = "name" if "name" in inspect.signature(create).parameters else "flow_name"
    flow: dict[str, Any] = {"target": TARGET, "source": _ROWS, "keys": ["id"], "sequence_by": "version"}
    create(**flow, **{named: ONCE_FLOW}, once=True)
    create(**flow, **{named: LIVE_FLOW})


def _results_of_flows(env: Environment) -> Observation:
    if not _HAS_PIPELINES or not env.options.pipeline_id:
        return not_applicable(
            "only a pipeline can try this: let its source file call "
            "tableferry.doctor.examine_in_pipeline, run it, and pass its --pipeline-id"
        )
    flows = (ONCE_FLOW, LIVE_FLOW)
    events = event_log.find_newest_events(env.options.pipeline_id, flows)
    statuses = {flow: events[flow].status for flow in flows if flow in events}
    seen = ", ".join(f"{flow} is {status}" for flow, status in statuses.items())
    if "FAILED" in statuses.values():
        return failure(seen)
    if not all(flow in events and events[flow].committed for flow in flows):
        return not_applicable(f"the pipeline hasn't finished both flows yet ({seen or 'no events'})")
    return success(seen)


def _event_log_fields(env: Environment) -> Observation:
    if not _HAS_PIPELINES:
        return not_applicable("this bundle has no pipelines")
    if not env.options.pipeline_id:
        return not_applicable("no pipeline is given: pass --pipeline-id of one that has run")
    events = list(islice(event_log.fetch_events(env.options.pipeline_id), _EVENTS))
    if not events:
        return not_applicable("the pipeline's event log has no flow_progress event yet: run it once")
    unreadable = sum(1 for event in events if event_log.parse_event(event) is None)
    if unreadable:
        return failure(f"{unreadable} of {len(events)} flow_progress events lack the flow or its status")
    return success(f"{len(events)} flow_progress events have the flow, its status and the time")


def _pipeline(env: Environment) -> InPipeline:
    assert env.pipeline is not None
    return env.pipeline


def _view_decorator(pipeline: InPipeline) -> Callable[..., Any]:
    view: Callable[..., Any] = getattr(pipeline.functions, "temporary_view", None) or pipeline.functions.view
    return view


def _signature_check(
    name: str, names: Sequence[str], arguments: Sequence[str], sources: tuple[Source, ...]
) -> Check:
    arguments_too = " with every argument that a migration passes" if arguments else ""
    return Check(
        name=name,
        place=Place.PIPELINE,
        routes=(Route.PIPELINES,),
        proves=f"The pipeline's runtime has `{names[0]}`{arguments_too}.",
        remedy="Choose a newer channel for the pipeline, or remove the specs' keys that need the argument.",
        observe=partial(_has_function, names, arguments),
        sources=sources,
        runs=Runs.ALSO_IN_PIPELINE,
    )


_LEARN = "https://learn.microsoft.com/en-us/azure/databricks/ldp/"
_PYTHON = Source("Python reference", "https://docs.databricks.com/aws/en/ldp/developer/python-ref")

PIPELINE_CHECKS = (
    _signature_check(
        "create-streaming-table",
        ("create_streaming_table",),
        _TABLE,
        (_PYTHON, Source("create_streaming_table", f"{_LEARN}developer/ldp-python-ref-streaming-table")),
    ),
    _signature_check("temporary-view", ("temporary_view", "view"), ("name",), (_PYTHON,)),
    _signature_check(
        "append-flow",
        ("append_flow",),
        ("target", "name", "once", "spark_conf"),
        (Source("append_flow", f"{_LEARN}developer/ldp-python-ref-append-flow"),),
    ),
    _signature_check(
        "auto-cdc-flow",
        ("create_auto_cdc_flow", "apply_changes"),
        _CDC,
        (Source("create_auto_cdc_flow", f"{_LEARN}developer/ldp-python-ref-apply-changes"),),
    ),
    _signature_check(
        "auto-cdc-from-snapshot-flow",
        ("create_auto_cdc_from_snapshot_flow", "apply_changes_from_snapshot"),
        _SNAPSHOTS,
        (
            Source(
                "create_auto_cdc_from_snapshot_flow",
                "https://docs.databricks.com/gcp/en/dlt-ref/dlt-python-ref-apply-changes-from-snapshot",
            ),
        ),
    ),
    _signature_check(
        "materialized-view",
        ("materialized_view", "table"),
        _VIEW,
        (
            Source(
                "materialized_view",
                "https://docs.databricks.com/gcp/en/ldp/developer/ldp-python-ref-materialized-view",
            ),
        ),
    ),
    _signature_check("event-hook", ("on_event_hook",), (), (Source("no page", ""),)),
    Check(
        name="quoted-names",
        place=Place.PIPELINE,
        routes=(Route.PIPELINES,),
        proves="The pipeline accepts names in backticks where SQL needs them.",
        remedy="Rename tables and views whose names need backticks.",
        observe=_quoted_names,
        sources=(Source("no page", ""),),
        runs=Runs.ONLY_IN_PIPELINE,
    ),
    Check(
        name="run-once-beside-auto-cdc",
        place=Place.PIPELINE,
        routes=(Route.PIPELINES,),
        proves="A run-once flow and a live AUTO CDC flow fill one table.",
        remedy="Migrate SCD targets with the streaming engine: tableferry pipelines run.",
        observe=_flows_into_one_table,
        sources=(
            Source(
                "Replicate a table with AUTO CDC",
                "https://docs.databricks.com/aws/en/ldp/database-replication",
            ),
            Source("AUTO CDC … INTO", f"{_LEARN}developer/ldp-sql-ref-apply-changes-into"),
            Source("CREATE FLOW, which contradicts this", f"{_LEARN}developer/ldp-sql-ref-create-flow"),
        ),
        runs=Runs.IN_PIPELINE_AND_EVENT_LOG,
    ),
    Check(
        name="event-log",
        place=Place.PIPELINE,
        routes=(Route.PIPELINES,),
        proves="The pipeline's event log has the flow, its status and the time, from which status is read.",
        remedy="Grant CAN VIEW on the pipeline, and report the fields that are missing.",
        observe=_event_log_fields,
        sources=(
            Source("Event log schema", "https://docs.databricks.com/aws/en/ldp/monitor-event-log-schema"),
        ),
    ),
)
