"""Starting versions: every stream begins at the version after the copied history.

When the migration began, `tableferry pipelines prepare` recorded at which version each source stood. All up
to that version is in the legacy table's history, so a stream starts at the next one: `view.starts` says
where, by table. Once a flow has a checkpoint, the checkpoint alone decides.
"""

from collections.abc import Mapping
from dataclasses import replace

from tableferry.pipelines import DeltaSource, JoinSource, PipelineView

START_OPTIONS = ("startingversion", "startingtimestamp")


def patched(view: PipelineView) -> PipelineView:
    """Return a view whose readers start where the plan says.

    A table that SQL streams has a view of its own; a Python function's readers are patched while it runs.
    """
    match view.source:
        case DeltaSource() as source:
            return replace(view, source=started(source, view.starts))
        case JoinSource(sides) as source:
            sides = tuple(
                replace(side, source=started(side.source, view.starts)) if side.mode == "stream" else side
                for side in sides
            )
            return replace(view, source=replace(source, sides=sides))
        case _:
            return view


def started(source: DeltaSource, starts: Mapping[str, int | str | None]) -> DeltaSource:
    """Return a table whose reader starts where the plan says: at a version, a timestamp or its checkpoint."""
    if source.table.key not in starts:
        return source
    start = starts[source.table.key]
    options = {name: value for name, value in source.options.items() if name.lower() not in START_OPTIONS}
    if isinstance(start, str) and start.startswith("timestamp:"):
        options["startingTimestamp"] = start.removeprefix("timestamp:")
    elif start is not None:
        options["startingVersion"] = str(start)
    return replace(source, options=options)
