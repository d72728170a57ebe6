"""Every transition, forward and back, as a table.

    Undefined ─ preprocess ─> Ready ─> WritesBlocked ─> IcebergReady ─> IcebergPrimary ─> WritesUnblocked
                                                                         (probation) ─> HiveDropped
    back:  WritesUnblocked ─> WritesBlocked ─> SyncHive ─> HivePrimary ─> WritesUnblocked ─> IcebergDropped

A pair of states names one transition alone: what a crashed worker was about to do is in the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tableferry.fleet.jobs.job import State


class Action(Enum):
    """What a transition does to the tables; ``plan`` turns it into steps."""

    BLOCK = "block writes to the Hive table"
    COPY = "make the copy over the same data files"
    SWITCH = "verify, and swap the names"
    UNBLOCK = "let writers in"
    ARCHIVE = "verify, and archive the Hive table"
    BLOCK_COPY = "block writes to the copy"
    SYNC = "bring the Hive table up to date"
    SWITCH_BACK = "swap the names back"
    UNBLOCK_HIVE = "let writers in to the Hive table"
    DROP_COPY = "drop the copy"


class Transition(NamedTuple):
    """What a pair of states leads to.

    Attributes:
        then: The desired state when it's done; the one reached if the job rests there.
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
    # Switched, and writers not yet let in.
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
"""Where a revert begins from each state that has anything to revert."""
