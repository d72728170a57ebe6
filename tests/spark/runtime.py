"""What a pipeline on Databricks is to a test: its documented functions, and its event log's answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.pipelines.pipeline import NO_STARTS, Flows, Kind, Progress, Starts
from tableferry.pipelines.plans import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Build = Callable[[], "DataFrame"]


class Runtime:
    """What `pyspark.pipelines` is on Databricks: its reference's signatures, and a memory of the calls."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.views: dict[str, Build] = {}
        self.expected: dict[str, dict[str, str]] = {}
        self.appends: dict[str, tuple[str, bool, Build]] = {}
        self.cdc: dict[str, dict[str, Any]] = {}

    def create_streaming_table(
        self,
        name: str,
        comment: str | None = None,
        spark_conf: dict[str, str] | None = None,
        table_properties: dict[str, str] | None = None,
        path: str | None = None,
        partition_cols: list[str] | None = None,
        cluster_by_auto: bool = False,
        cluster_by: list[str] | None = None,
        schema: Any = None,
        expect_all: dict[str, str] | None = None,
        expect_all_or_drop: dict[str, str] | None = None,
        expect_all_or_fail: dict[str, str] | None = None,
        row_filter: str | None = None,
    ) -> None:
        assert name not in self.tables
        self.tables[name] = _given(locals())

    def temporary_view(self, *, name: str) -> Callable[[Build], None]:
        def define(build: Build) -> None:
            assert name not in self.views
            self.views[name] = build

        return define

    def append_flow(
        self,
        *,
        target: str,
        name: str | None = None,
        once: bool = False,
        spark_conf: dict[str, str] | None = None,
        comment: str | None = None,
    ) -> Callable[[Build], None]:
        def define(build: Build) -> None:
            assert name not in self.appends
            self.appends[str(name)] = (target, once, build)

        return define

    def create_auto_cdc_flow(
        self,
        target: str,
        source: str,
        keys: list[str],
        sequence_by: Column,
        ignore_null_updates: bool = False,
        apply_as_deletes: Column | None = None,
        apply_as_truncates: Column | None = None,
        column_list: list[str] | None = None,
        except_column_list: list[str] | None = None,
        stored_as_scd_type: int = 1,
        track_history_column_list: list[str] | None = None,
        track_history_except_column_list: list[str] | None = None,
        name: str | None = None,
        once: bool = False,
    ) -> None:
        self.cdc[str(name)] = _given(locals())

    def expect_all(self, rules: dict[str, str]) -> Callable[[Build], Build]:
        return self._expecting("warn", rules)

    def expect_all_or_drop(self, rules: dict[str, str]) -> Callable[[Build], Build]:
        return self._expecting("drop", rules)

    def expect_all_or_fail(self, rules: dict[str, str]) -> Callable[[Build], Build]:
        return self._expecting("fail", rules)

    def update(self, spark: SparkSession, checkpoints: Path) -> list[str]:
        """Do as the platform does with append flows; return the names of those that ran."""
        for name, build in self.views.items():
            build().createOrReplaceTempView(name)
        ran = []
        for name, (target, once, build) in self.appends.items():
            place = checkpoints / name
            if once and not place.exists():
                build().write.format("delta").mode("append").saveAsTable(target)
                place.mkdir(parents=True)
            elif not once:
                writer = build().writeStream.format("delta").trigger(availableNow=True)
                writer.option("checkpointLocation", str(place)).toTable(target).awaitTermination()
            ran.append(name)
        for name in self.views:
            spark.catalog.dropTempView(name)
        return ran

    def _expecting(self, action: str, rules: dict[str, str]) -> Callable[[Build], Build]:
        def decorate(build: Build) -> Build:
            self.expected[action] = rules
            return build

        return decorate


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in arguments.items()
        if key not in ("self", "name") and value is not None and value is not False
    }


class Ran:
    """A pipeline on Databricks whose event log says that these flows have completed."""

    kind: Kind = "databricks"

    def __init__(self, *flows: str) -> None:
        self.flows = flows

    def progress(self, flows: Flows, starts: Starts = NO_STARTS) -> Progress:
        return {
            (owner.key, flow): Checkpoint(done=True, others=True, offered=0, committed=0)
            if flow in self.flows
            else Checkpoint()
            for owner, flow in flows
        }
