"""All transitions of a job, forward and back, as tables.

    Undefined ─ preprocess ─> Ready ─> WritesBlocked ─> IcebergReady ─> IcebergPrimary ─> WritesUnblocked
                                                                         (probation) ─> HiveDropped
    back:  WritesUnblocked ─> WritesBlocked ─> SyncHive ─> HivePrimary ─> WritesUnblocked ─> IcebergDropped

A pair of states has one transition, so the row of a job shows the transition of a crashed worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tableferry.fleet.jobs.job import State


class Action(Enum):
    """The action of a transition; `step_plan.plan` returns its steps."""

    BLOCK = "block writes to the Hive table"
    COPY = "create the copy over the same data files"
    SWITCH = "compare the rows, and swap the names"
    UNBLOCK = "unblock writes"
    ARCHIVE = "compare the rows, and archive the Hive table"
    BLOCK_COPY = "block writes to the copy"
    SYNC = "copy the last changes to the Hive table"
    SWITCH_BACK = "swap the names back"
    UNBLOCK_HIVE = "unblock writes to the Hive table"
    DROP_COPY = "drop the copy"


class Transition(NamedTuple):
    """A transition from a pair of states.

    Attributes:
        then: The desired state after it; the same as the new state if the job rests there.
    """

    action: Action
    then: State


FORWARD: Mapping[tuple[State, State], Transition] = {
    (State.READY, State.WRITES_BLOCKED): Transition(Action.BLOCK, State.ICEBERG_READY),
    (State.WRITES_BLOCKED, State.ICEBERG_READY): Transition(Action.COPY, State.ICEBERG_PRIMARY),
    (State.ICEBERG_READY, State.ICEBERG_PRIMARY): Transition(Action.SWITCH, State.WRITES_UNBLOCKED),
    (State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED): Transition(Action.UNBLOCK, State.WRITES_UNBLOCKED),
    (State.WRITES_UNBLOCKED, State.HIVE_DROPPED): Transition(Action.ARCHIVE, State.HIVE_DROPPED),
}
"""The migrator's transitions."""

BACK: Mapping[tuple[State, State], Transition] = {
    # Not started, or given up before the switch.
    (State.READY, State.ICEBERG_DROPPED): Transition(Action.DROP_COPY, State.ICEBERG_DROPPED),
    (State.WRITES_UNBLOCKED, State.WRITES_BLOCKED): Transition(Action.BLOCK_COPY, State.SYNC_HIVE),
    # From the archive.
    (State.HIVE_DROPPED, State.WRITES_BLOCKED): Transition(Action.BLOCK_COPY, State.SYNC_HIVE),
    (State.WRITES_BLOCKED, State.SYNC_HIVE): Transition(Action.SYNC, State.HIVE_PRIMARY),
    # Switched, and writes are still blocked.
    (State.ICEBERG_PRIMARY, State.SYNC_HIVE): Transition(Action.SYNC, State.HIVE_PRIMARY),
    (State.SYNC_HIVE, State.HIVE_PRIMARY): Transition(Action.SWITCH_BACK, State.WRITES_UNBLOCKED),
    # Paused before the switch, or halfway through it.
    (State.WRITES_BLOCKED, State.HIVE_PRIMARY): Transition(Action.SWITCH_BACK, State.WRITES_UNBLOCKED),
    (State.ICEBERG_READY, State.HIVE_PRIMARY): Transition(Action.SWITCH_BACK, State.WRITES_UNBLOCKED),
    (State.HIVE_PRIMARY, State.WRITES_UNBLOCKED): Transition(Action.UNBLOCK_HIVE, State.ICEBERG_DROPPED),
    (State.WRITES_UNBLOCKED, State.ICEBERG_DROPPED): Transition(Action.DROP_COPY, State.ICEBERG_DROPPED),
}
"""The reverter's transitions."""

REVERT_TO: Mapping[State, State] = {
    State.READY: State.ICEBERG_DROPPED,
    State.WRITES_BLOCKED: State.HIVE_PRIMARY,
    State.ICEBERG_READY: State.HIVE_PRIMARY,
    State.ICEBERG_PRIMARY: State.SYNC_HIVE,
    State.WRITES_UNBLOCKED: State.WRITES_BLOCKED,
    State.HIVE_DROPPED: State.WRITES_BLOCKED,
}
"""The first state of a revert, by the state that it starts from."""
