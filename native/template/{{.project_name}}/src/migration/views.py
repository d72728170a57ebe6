"""Views: the pipeline has a view for each input of the plan's flows."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from tableferry import pipelines
from tableferry.pipelines import HistorySource, PipelinePlan, PipelineRuntime, PipelineView, SqlSource

from migration import starting_versions


def define(dp: PipelineRuntime, plan: PipelinePlan) -> None:
    """Define the plan's views.

    A view that reads the pipeline's own tables is read when the pipeline runs. The other views are read now,
    because their Python functions may request columns, which a function of the pipeline can't.
    """
    for view in map(starting_versions.patched, plan.views):
        if not view.inside:
            dp.frames[view.name] = rows(dp, view)
        dp.temporary_view(view.name)(reader(dp, view))


def reader(dp: PipelineRuntime, view: PipelineView) -> Callable[[], DataFrame]:
    """Return a function that returns a view's rows; those of a view that was read already are kept."""
    return lambda: dp.frames[view.name] if view.name in dp.frames else rows(dp, view)


def rows(dp: PipelineRuntime, view: PipelineView) -> DataFrame:
    """Read a view: the history to copy, a query over other views, or a source."""
    match view.source:
        case HistorySource() as source:
            return history(dp, source)
        case SqlSource(statement):
            return dp.spark.sql(statement)
        case _:
            return pipelines.read(dp.spark, view)


def history(dp: PipelineRuntime, source: HistorySource) -> DataFrame:
    """Return the legacy table's rows at the version at which the migration began; for AUTO CDC, as events.

    They are a stream over the clone of that version that `tableferry pipelines prepare` created. Without a
    clone (`source.clone`), that version is read as a batch. An interval is an upsert at its start and, unless
    the key's next interval starts at the same time, a delete at its end.
    """
    copied = pipelines.history_rows(dp.spark, source)
    return pipelines.history_events(dp.spark, source, copied) if source.cdc else copied
