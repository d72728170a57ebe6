"""Migration views: the pipeline has one for each thing that the plan's flows read."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tableferry import pipelines
from tableferry.pipelines import HistorySource, PipelinePlan, PipelineView, SqlSource

from migration import starting_versions

Frames = dict[str, DataFrame]


def define(dp: Any, spark: SparkSession, plan: PipelinePlan) -> Frames:
    """Define the plan's views; return the rows of those that could be read already, by name.

    A view that reads what the pipeline itself makes is read when the pipeline runs. The others are read here
    and now, for their Python functions may ask for columns, which a function of the pipeline can't.
    """
    frames: Frames = {}
    for view in map(starting_versions.patched, plan.views):
        if not view.inside:
            frames[view.name] = rows(spark, view)
        define_view(dp, view.name, builder(spark, view, frames))
    return frames


def builder(spark: SparkSession, view: PipelineView, frames: Frames) -> Callable[[], DataFrame]:
    """Return the function that gives the pipeline a view's rows."""
    return lambda: frames[view.name] if view.name in frames else rows(spark, view)


def rows(spark: SparkSession, view: PipelineView) -> DataFrame:
    """Return what a view holds: the history that is copied, a query over other views, or a source's rows."""
    match view.source:
        case HistorySource() as source:
            return history(spark, source)
        case SqlSource(statement):
            return spark.sql(statement)
        case _:
            return pipelines.read(spark, view)


def history(spark: SparkSession, source: HistorySource) -> DataFrame:
    """Return the legacy table's rows as they stood when the migration began; for AUTO CDC, as its events.

    They are a stream over the clone that `tableferry pipelines prepare` has made of that version and that
    nobody writes to; where there is none (`source.clone`), that version is read as a batch. An interval is an
    upsert at its start and, unless another one begins right there, a delete at its end.
    """
    copied = pipelines.history_rows(spark, source)
    return pipelines.history_events(spark, source, copied) if source.cdc else copied


def define_view(dp: Any, name: str, build: Callable[[], DataFrame]) -> None:
    """Define a temporary view; `dlt` calls it a view."""
    decorate = getattr(dp, "temporary_view", None) or dp.view
    decorate(name=name)(build)
