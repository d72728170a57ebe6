"""Materialized views as users write them, made into `flows.MaterializedView`."""

from __future__ import annotations

from dataclasses import replace

from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.compile_targets import Targets
from tableferry.pipelines.specs.documents import MaterializedDocument


def materialized_view(targets: Targets, document: MaterializedDocument) -> flows.MaterializedView | None:
    """Make a materialized view, or say what is wrong with it."""
    written, details, location = document.spec, document.spec.table_details, document.location
    target = targets.laid_out(
        targets.names.target,
        details,
        document.path,
        location.at("tableDetails"),
        metadata=document.owner.features.operational_metadata_enabled,
    )
    target = replace(
        target, comment=details.comment, spark_conf=details.spark_conf, row_filter=details.row_filter
    )
    target, quarantine = targets.judged(target, document)
    if quarantine is not None:
        quarantine = replace(quarantine, spark_conf=target.spark_conf)
    view = _view(targets, document)
    if view is None:
        return None
    return flows.MaterializedView(
        document.owner.data_flow_id,
        document.owner.data_flow_group,
        location.file,
        target,
        {view.name: view},
        view.name,
        written.refresh_policy,
        details.private,
        quarantine,
    )


def _view(targets: Targets, document: MaterializedDocument) -> flows.View | None:
    written, location = document.spec, document.location
    source = written.source_view
    if source is None or document.view is None:
        sources = targets.sources(document.path, set())
        sql = sources.sql(written.sql_statement, written.sql_path, location)
        name = f"v_{targets.names.target.table}"
        return None if sql is None else flows.View(name, "batch", sql, str(location))
    sources = targets.sources(document.path, {source.source_view_name})
    view = sources.view(source.source_view_name, document.view, location.at("sourceView"))
    if view is not None and isinstance(view.source, flows.DeltaSource):
        # A materialized view holds what is there now, whatever the source is set to give a stream.
        view = replace(view, source=replace(view.source, change_feed=False, from_setup=False))
    return view
