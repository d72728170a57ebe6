"""The phases of a target and the actions of a flow. docs/concepts/pipelines.md shows both tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Phase = Literal[
    "plain", "later", "new", "copying", "waiting", "ready", "differs", "complete", "finished", "refused"
]
"""Where a target stands before a run."""

Action = Literal["start", "continue", "idle", "wait", "done"]
"""What a run does with a flow."""


@dataclass(frozen=True)
class PhaseFacts:
    """A phase of a target.

    Attributes:
        label: The phase in reports.
        condition: When a target is in it.
        next: The phases that a target can be in after the next run, full refresh or finish.
    """

    label: str
    condition: str
    next: tuple[Phase, ...]


_STARTED: tuple[Phase, ...] = ("copying", "waiting", "ready", "differs", "complete")

PHASES: Mapping[Phase, PhaseFacts] = {
    "plain": PhaseFacts("no migration", "the spec has no migration, and none was finished", ("new",)),
    "later": PhaseFacts(
        "waits for other copies", "a source of its flows is a target whose history isn't copied yet", ("new",)
    ),
    "new": PhaseFacts("not begun", "no baseline is recorded", _STARTED),
    "copying": PhaseFacts("copying", "the history isn't copied, or a full refresh copies it again", _STARTED),
    "waiting": PhaseFacts(
        "waiting for sources",
        "the history is copied, and a source has no commit after its baseline",
        ("copying", "ready", "complete"),
    ),
    "ready": PhaseFacts(
        "copied, ready to flow",
        "the history is copied, and a flow that hasn't started has a commit to read",
        ("copying", "waiting", "complete"),
    ),
    "differs": PhaseFacts(
        "copied, but the copy differs",
        "the copy was compared with the legacy table and differs",
        ("copying",),
    ),
    "complete": PhaseFacts(
        "complete: safe to remove",
        "the copy equals the legacy table, and every streaming flow has committed a batch",
        ("copying", "waiting", "ready", "finished"),
    ),
    "finished": PhaseFacts("finished", "`finish` has removed the migration; its flows continue", ()),
    "refused": PhaseFacts(
        "refused", "a finding prevents the run", ("plain", "later", "new", *_STARTED, "finished")
    ),
}

OVER = frozenset[Phase]({"complete", "plain", "finished"})
"""The phases in which nothing of a migration remains to be done."""

ACTIONS: Mapping[Action, str] = {
    "start": "it starts on a fresh checkpoint, at its hand-over",
    "continue": "it continues from its checkpoint",
    "idle": "its sources have no new commits",
    "wait": "it is left out, because a source has no commit after the baseline",
    "done": "it is a run-once flow that has run",
}
"""What each action of a flow means."""


def phase_label(phase: Phase) -> str:
    """Return a phase in the words of reports."""
    return PHASES[phase].label
