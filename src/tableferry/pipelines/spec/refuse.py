"""What other tools support and Tableferry doesn't: refused by name, before anything else is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tableferry.errors import Problem
from tableferry.pipelines.spec.source_location import SourceLocation

# A location that is refused, or (without a problem) one that makes no sense beside one that is.
Refusal = tuple[SourceLocation, Problem | None]

_SINKS = ("delta_sink", "kafka_sink", "foreach_batch_sink", "custom_python_sink")
_SNAPSHOT = (
    "cdcSnapshotSettings can't stand beside a migration, as AUTO CDC FROM SNAPSHOT can't share a target with "
    "AUTO CDC: feed the target from a change feed with cdcSettings, or set enabled to false"
)


def unsupported(spec: dict[str, Any], location: SourceLocation) -> Iterator[Refusal]:
    """Find what a main file asks for and can't have, each with the location that is refused."""
    target = spec.get("targetFormat")
    if isinstance(target, str) and target in _SINKS:
        yield _refused(
            location.at("targetFormat"),
            f"targetFormat {target} isn't supported: use delta, or leave the sink in its own pipeline",
        )
        yield location.at("targetDetails"), None
        if migrates(spec):
            yield _refused(
                location.at("tableMigrationDetails"),
                f"a migration needs a target in the delta format, not {target}: set targetFormat to delta or "
                "enabled to false",
            )
    if spec.get("cdcSnapshotSettings") is not None and migrates(spec):
        yield _refused(location.at("cdcSnapshotSettings"), _SNAPSHOT)
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
            problem = table_location.at("type").problem(
                "staging tables of type MV aren't supported: use ST and fill it with an append_sql flow"
            )
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
            f"pythonTransform isn't supported for {kind}: use a source of type python",
        )


def _refused(location: SourceLocation, message: str) -> Refusal:
    return location, location.problem(message)


def _mappings(value: Any) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, dict):
        return []
    return [(key, item) for key, item in value.items() if isinstance(item, dict)]
