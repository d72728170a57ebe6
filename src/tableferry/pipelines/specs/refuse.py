"""What other tools support and Tableferry doesn't: refused by name, before anything else is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tableferry.errors import Finding, Problem
from tableferry.pipelines.specs.source_location import SourceLocation

# A location that is refused, or (without a problem) one that makes no sense beside one that is.
Refusal = tuple[SourceLocation, Problem | None]

_SINKS = ("delta_sink", "kafka_sink", "foreach_batch_sink", "custom_python_sink")


def unsupported(spec: dict[str, Any], location: SourceLocation) -> Iterator[Refusal]:
    """Find what a main file asks for and can't have, each with the location that is refused."""
    target = spec.get("targetFormat")
    if isinstance(target, str) and target in _SINKS:
        yield _refused(location.at("targetFormat"), Finding("SPEC_SINK_NOT_SUPPORTED", format=target))
        yield location.at("targetDetails"), None
        if migrates(spec):
            yield _refused(
                location.at("tableMigrationDetails"), Finding("SPEC_MIGRATION_INTO_SINK", format=target)
            )
    if spec.get("cdcSnapshotSettings") is not None and migrates(spec):
        yield _refused(location.at("cdcSnapshotSettings"), Finding("SPEC_MIGRATION_WITH_SNAPSHOTS"))
        if "sourceType" not in spec:
            # The settings bring a source of their own then.
            for key in ("sourceSystem", "sourceViewName", "mode", "sourceType", "sourceDetails"):
                yield location.at(key), None
    yield from unsupported_source(spec, location)
    yield from unsupported_groups(spec, location)


def migrates(spec: dict[str, Any]) -> bool:
    """Say whether a main file asks for a migration."""
    migration = spec.get("tableMigrationDetails")
    return isinstance(migration, dict) and migration.get("enabled") is True


def unsupported_groups(data: dict[str, Any], location: SourceLocation) -> Iterator[Refusal]:
    """Find what the flow groups of a file ask for and can't have."""
    groups = data.get("flowGroups")
    for position, group in enumerate(groups if isinstance(groups, list) else []):
        if isinstance(group, dict):
            yield from unsupported_group(group, location.at("flowGroups", position))


def unsupported_group(group: dict[str, Any], location: SourceLocation) -> Iterator[Refusal]:
    """Find what a flow group asks for and can't have."""
    for name, table in _mappings(group.get("stagingTables")):
        table_location = location.at("stagingTables", name)
        if table.get("type") == "MV":
            problem = table_location.at("type").problem(Finding("SPEC_STAGING_VIEW_NOT_SUPPORTED"))
            yield table_location, problem
    for flow_name, flow in _mappings(group.get("flows")):
        for name, view in _mappings(flow.get("views")):
            yield from unsupported_source(view, location.at("flows", flow_name, "views", name))


def unsupported_source(view: dict[str, Any], location: SourceLocation) -> Iterator[Refusal]:
    """Find what a view's source asks for and can't have."""
    kind, details = view.get("sourceType"), view.get("sourceDetails")
    if not isinstance(details, dict):
        return
    details_location = location.at("sourceDetails")
    if kind in ("cloudFiles", "batchFiles", "kafka") and "pythonTransform" in details:
        yield _refused(
            details_location.at("pythonTransform"),
            Finding("SPEC_TRANSFORM_NOT_SUPPORTED", source=kind),
        )


def _refused(location: SourceLocation, finding: Finding) -> Refusal:
    return location, location.problem(finding)


def _mappings(value: Any) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, dict):
        return []
    return [(key, item) for key, item in value.items() if isinstance(item, dict)]
