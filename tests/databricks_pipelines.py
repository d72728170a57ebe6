"""A fake of `pyspark.pipelines` on Databricks, built from the signatures in its documentation.

docs/operations/on-databricks.md lists the pages with dates. Calls that a page forbids raise `Refused`. The
fake records all calls by name.
"""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIGRATE = Path(__file__).parents[1] / "src" / "pipelines" / "migrate.py"

_TABLE = """name, comment=None, spark_conf=None, table_properties=None, path=None, partition_cols=None,
    cluster_by_auto=False, cluster_by=None, schema=None, expect_all=None, expect_all_or_drop=None,
    expect_all_or_fail=None, row_filter=None, private=False"""
_CDC = """target, source, keys, sequence_by, ignore_null_updates=False, apply_as_deletes=None,
    apply_as_truncates=None, column_list=None, except_column_list=None, stored_as_scd_type=1,
    track_history_column_list=None, track_history_except_column_list=None, {name}=None, once=False"""

_SNAPSHOTS = """target, source, keys, stored_as_scd_type, track_history_column_list=None,
    track_history_except_column_list=None"""

SIGNATURES = {
    "create_streaming_table": _TABLE,
    "temporary_view": "*, name=None, comment=None",
    "append_flow": """*, target, name=None, once=False, depends_on=None, spark_conf=None, comment=None,
        import_checkpoint=None""",
    "create_auto_cdc_flow": _CDC.format(name="name"),
    "create_auto_cdc_from_snapshot_flow": _SNAPSHOTS,
    "materialized_view": """*, name=None, comment=None, spark_conf=None, table_properties=None, path=None,
        partition_cols=None, cluster_by_auto=False, cluster_by=None, refresh_policy=None, schema=None,
        row_filter=None, private=False""",
    "on_event_hook": "hook",
    "expect_all": "expectations",
    "expect_all_or_drop": "expectations",
    "expect_all_or_fail": "expectations",
}
# `dlt`, the older module, which Databricks still supports.
OLDER = {
    **{name: SIGNATURES[name] for name in ("expect_all", "expect_all_or_drop", "expect_all_or_fail")},
    "create_streaming_table": _TABLE,
    "view": SIGNATURES["temporary_view"],
    "append_flow": "*, target, name=None, once=False, spark_conf=None, comment=None",
    "apply_changes": _CDC.format(name="flow_name"),
    "apply_changes_from_snapshot": _SNAPSHOTS,
    "table": f"*, {_TABLE.partition(', expect_all')[0].replace('name,', 'name=None,')}, row_filter=None",
}

_PART = r"(?:\w+|`(?:[^`]|``)+`)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")


class Refused(Exception):
    """The error with which the platform ends an update."""


class Platform:
    """The functions of a pipeline's API, with a record of their calls.

    Attributes:
        tables: The arguments of each table, without its name.
        views: What builds each view.
        expected: The expectations on views, by their action.
        appends: The arguments of each append flow, and what builds it.
        cdc: The arguments of each AUTO CDC flow.
        snapshots: The arguments of AUTO CDC from snapshots into each table.
        materialized: The arguments of each materialized view, and what builds it.
        hooks: The functions that are called for each event.
    """

    def __init__(self, signatures: dict[str, str] = SIGNATURES) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.views: dict[str, Callable[[], DataFrame]] = {}
        self.expected: dict[str, dict[str, str]] = {}
        self.appends: dict[str, tuple[dict[str, Any], Callable[[], DataFrame]]] = {}
        self.cdc: dict[str, dict[str, Any]] = {}
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.materialized: dict[str, tuple[dict[str, Any], Callable[[], DataFrame]]] = {}
        self.hooks: list[Callable[[dict[str, Any]], None]] = []
        for name, parameters in signatures.items():
            setattr(self, name, self._function(name, parameters))

    def load(self) -> None:
        """Load the file of the bundle that the pipeline loads."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pyspark, "pipelines", self, raising=False)
            runpy.run_path(str(MIGRATE))

    def update(self, spark: SparkSession, checkpoints: Path) -> list[str]:
        """Run the append flows like the platform; return the names of those that ran."""
        for name, build in self.views.items():
            build().createOrReplaceTempView(name)
        ran = []
        for name, (flow, build) in self.appends.items():
            checkpoint, target, rows = checkpoints / name, flow["target"], build()
            if rows.isStreaming is flow.get("once", False):
                raise Refused(f"{name}: a flow that runs once returns a batch, and any other one a stream")
            if "once" not in flow:
                writer = rows.writeStream.format("delta").trigger(availableNow=True)
                writer.option("checkpointLocation", str(checkpoint)).toTable(target).awaitTermination()
            elif not checkpoint.exists():
                rows.write.format("delta").mode("append").saveAsTable(target)
                checkpoint.mkdir(parents=True)
            ran.append(name)
        for name in self.views:
            spark.catalog.dropTempView(name)
        return ran

    def _function(self, name: str, parameters: str) -> Callable[..., Any]:
        """Create a function from a signature, so that Python checks its callers."""
        names: dict[str, Any] = {"ask": getattr(self, f"_{name}", None) or self._expectations(name)}
        exec(f"def {name}({parameters}): return ask({{**locals()}})", names)
        return names[name]  # type: ignore[no-any-return]

    def _create_streaming_table(self, asked: dict[str, Any]) -> None:
        if asked.get("partition_cols") and asked.get("cluster_by"):
            raise Refused("a table can't have both partitions and clustering columns")
        name = self._new(asked["name"], {*self.tables, *self.views})
        self.tables[name] = _given(asked)

    def _temporary_view(self, asked: dict[str, Any]) -> Callable[[Callable[[], DataFrame]], None]:
        def define(build: Callable[[], DataFrame]) -> None:
            name = asked["name"] or build.__name__
            self.views[self._new(name, {*self.tables, *self.views})] = _without_arguments(build)

        return define

    _view = _temporary_view

    def _append_flow(self, asked: dict[str, Any]) -> Callable[[Callable[[], DataFrame]], None]:
        self._check_target(asked["target"])

        def define(build: Callable[[], DataFrame]) -> None:
            name = self._new(asked["name"] or build.__name__, {*self.appends, *self.cdc})
            self.appends[name] = (_given(asked), _without_arguments(build))

        return define

    def _create_auto_cdc_flow(self, asked: dict[str, Any]) -> None:
        self._check_target(asked["target"])
        for kind in ("column_list", "track_history_column_list"):
            if asked[kind] and asked[kind.replace("column_list", "except_column_list")]:
                raise Refused(f"only one of {kind} and its except can be given")
        if asked["stored_as_scd_type"] not in (1, 2, "1", "2"):
            raise Refused(f"SCD type {asked['stored_as_scd_type']}")
        if asked["apply_as_truncates"] is not None and str(asked["stored_as_scd_type"]) == "2":
            raise Refused("apply_as_truncates is for SCD type 1")
        _parsed(asked["source"])
        name = asked.get("name") or asked.get("flow_name") or asked["target"]
        self.cdc[self._new(name, {*self.appends, *self.cdc})] = _given(asked)

    _apply_changes = _create_auto_cdc_flow

    def _create_auto_cdc_from_snapshot_flow(self, asked: dict[str, Any]) -> None:
        self._check_target(asked["target"])
        if asked["target"] in {*self.snapshots, *(flow["target"] for flow in self.cdc.values())}:
            raise Refused(f"{asked['target']} has another flow of AUTO CDC")
        if asked["track_history_column_list"] and asked["track_history_except_column_list"]:
            raise Refused("only one of track_history_column_list and its except can be given")
        if not callable(asked["source"]):
            _parsed(asked["source"])
        self.snapshots[asked["target"]] = _given(asked)

    _apply_changes_from_snapshot = _create_auto_cdc_from_snapshot_flow

    def _materialized_view(self, asked: dict[str, Any]) -> Callable[[Callable[[], DataFrame]], None]:
        def define(build: Callable[[], DataFrame]) -> None:
            name = self._new(asked["name"], {*self.tables, *self.views, *self.materialized})
            self.materialized[name] = (_given(asked), _without_arguments(build))

        return define

    _table = _materialized_view

    def _on_event_hook(self, asked: dict[str, Any]) -> None:
        self.hooks.append(asked["hook"])

    def _expectations(self, name: str) -> Callable[[dict[str, Any]], Any]:
        def expecting(asked: dict[str, Any]) -> Callable[[Callable[[], DataFrame]], Callable[[], DataFrame]]:
            self.expected[name] = asked["expectations"]
            return _without_arguments

        return expecting

    def _check_target(self, target: str) -> None:
        _parsed(target)
        if target not in self.tables:
            raise Refused(f"{target} isn't a table of the pipeline")

    def _new(self, name: str, taken: set[str]) -> str:
        if _parsed(name) in taken:
            raise Refused(f"{name} is defined twice")
        return name


def _parsed(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refused(f"INVALID_IDENTIFIER: {name}: write it in backticks")
    return name


def _without_arguments(build: Callable[[], DataFrame]) -> Callable[[], DataFrame]:
    if inspect.signature(build).parameters:
        raise Refused("a function of a pipeline takes no arguments")
    return build


def _given(asked: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in asked.items()
        if key not in ("name", "flow_name") and value is not None and value is not False
    }
