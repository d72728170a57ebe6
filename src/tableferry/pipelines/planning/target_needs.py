"""Decide which facts are read for a target, by the phase of its migration."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.pipelines.model.flows import DataFlow
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning.pipeline_port import LoadingPipeline, Pipeline


@dataclass(frozen=True)
class TargetNeeds:
    """Which facts a plan needs for a target. Its state and its flows' sources are always read.

    Attributes:
        filled_tables: Metadata and evidence of the tables that its flows fill: always; in a pipeline after
            the copy, and not while the pipeline is being defined.
        legacy_table: Metadata of the legacy table: until it is copied, and again for a full refresh. Never
            during a cutover, because its name may be a view then.
        target: Metadata of the target, and the records of other targets: before the migration starts.
        target_rows: Whether the target has rows: before the migration starts, unless it is taken over.
        hand_over: The old streams or the rows that show where they stopped: before the migration starts.
        legacy_writes: Commits to the legacy table: after a take-over; after the start of a copy for reports.
        orphans: Checkpoints of flows that were removed from the spec: unless a full refresh drops them, or a
            pipeline runs the flows.
        brokers: Offsets of Kafka's brokers: while a flow may start at an old stream's offset.
        flows_restart: A full refresh starts all flows again, so their checkpoints don't count.
    """

    filled_tables: bool
    legacy_table: bool
    target: bool
    target_rows: bool
    hand_over: bool
    legacy_writes: bool
    orphans: bool
    brokers: bool
    flows_restart: bool


def decide_needs(
    dataflow: DataFlow,
    stored: TargetState,
    state: TargetState,
    pipeline: Pipeline | None,
    *,
    is_refreshed: bool,
    for_report: bool,
) -> TargetNeeds:
    """Decide which facts are read for a target.

    Args:
        dataflow: The target's spec.
        stored: The state that this pipeline has recorded.
        state: The same, or the state of another pipeline that can be adopted.
        pipeline: The declarative pipeline that runs the flows, if any. While it loads its files, neither the
            filled tables nor the hand-over nor the brokers are read: a plan without a recorded start is
            refused then, and Delta refuses a wrong start.
        is_refreshed: Whether the run rebuilds the target.
        for_report: Whether the facts are for people, who see more than a run needs.
    """
    migration, start = dataflow.migration, state.migration_start
    is_active = migration is not None and not state.finished
    is_unstarted = is_active and start is None
    is_defined = not isinstance(pipeline, LoadingPipeline)
    flows_restart = is_refreshed or state.resetting
    return TargetNeeds(
        filled_tables=pipeline is None or (is_defined and (stored.copied or stored.finished)),
        legacy_table=is_active and not stored.pending_cutover and (not state.copied or flows_restart),
        target=is_unstarted,
        target_rows=is_unstarted and migration is not None and not migration.take_over,
        hand_over=is_unstarted and is_defined,
        legacy_writes=(
            migration is not None
            and start is not None
            and not stored.pending_cutover
            and (for_report or start.is_take_over)
        ),
        orphans=pipeline is None and not is_refreshed,
        brokers=is_active and is_defined and migration is not None and migration.hand_over == "checkpoint",
        flows_restart=flows_restart,
    )
