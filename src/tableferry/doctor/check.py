"""A check of the environment: its assumption, its observation, its remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tableferry.doctor.environment import Environment


class Outcome(StrEnum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "doesn't apply"


class Place(StrEnum):
    """The part of the environment that a check is about."""

    MACHINE = "this machine"
    STATE = "state"
    TABLES = "tables"
    FLEET = "fleet"
    WORKSPACE = "workspace"
    PIPELINE = "pipeline"


class Runs(StrEnum):
    """Where a check can be made."""

    ANYWHERE = "in a job or on a laptop"
    ALSO_IN_PIPELINE = "in a job, and inside a pipeline"
    ONLY_IN_PIPELINE = "inside a pipeline"
    IN_PIPELINE_AND_EVENT_LOG = "inside a pipeline; a job then reads the result from its event log"


class Route(StrEnum):
    """A kind of migration, as its command group is named."""

    PIPELINES = "pipelines"
    FLEET = "fleet"
    CONVERT = "convert"


EVERY_ROUTE = tuple(Route)


@dataclass(frozen=True)
class Observation:
    """The observation of a check.

    Attributes:
        outcome: The outcome.
        seen: What was seen, or the reason why the check doesn't apply; without a final period.
        remedy: A remedy that is more exact than the one of the check.
    """

    outcome: Outcome
    seen: str
    remedy: str = ""


def success(seen: str) -> Observation:
    """Return the observation that the assumption is true."""
    return Observation(Outcome.PASSED, seen)


def failure(seen: str, remedy: str = "") -> Observation:
    """Return the observation that the assumption is wrong."""
    return Observation(Outcome.FAILED, seen, remedy)


def not_applicable(reason: str) -> Observation:
    """Return the observation that the check can't be made here, or isn't needed here."""
    return Observation(Outcome.NOT_APPLICABLE, reason)


@dataclass(frozen=True)
class Source:
    """A page of the platform's documentation that states the assumption.

    Attributes:
        title: The page's title.
        url: The page's address; empty if no page states the assumption.
    """

    title: str
    url: str


@dataclass(frozen=True)
class Check:
    """One assumption about the environment, and the function that tries it.

    Attributes:
        name: The stable name, for ``--check``.
        place: The part of the environment.
        routes: The routes that need the assumption.
        proves: One sentence: what is true if the check passes.
        remedy: The user's next step if it fails.
        observe: Tries the assumption. A `TableferryError` or an error of Spark is a failure.
        sources: The pages that state the assumption.
        runs: Where it can be made.
    """

    name: str
    place: Place
    routes: tuple[Route, ...]
    proves: str
    remedy: str
    observe: Callable[[Environment], Observation]
    sources: tuple[Source, ...] = ()
    runs: Runs = Runs.ANYWHERE
