"""How much a run of the tests looks at: ``make test`` a fixed part, ``make soak`` everything.

``make test-all`` looks at what ``make test`` leaves out for the time that it takes, too.

``make soak`` prints its seed, which TABLEFERRY_SOAK holds here; ``make soak SEED=…`` repeats it. Without that
variable every run draws the same examples.
"""

from __future__ import annotations

import os
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

SEED = int(os.environ.get("TABLEFERRY_SOAK") or 0)
SOAKING = SEED > 0

EVERYTHING_ONCE = SOAKING or bool(os.environ.get("TABLEFERRY_TEST_ALL"))

# What only a soak runs, as another test shows the same behaviour in less time.
only = pytest.mark.soak
# What ``make test`` leaves out for its time, and ``make test-all`` runs: a part of a route's behaviour whose
# main way has a test that isn't left out.
slow = pytest.mark.slow

T = TypeVar("T")

settings.register_profile("test", derandomize=True, deadline=None, print_blob=True, max_examples=20)
# `--hypothesis-seed` gives the randomness, and a database would remember what another seed has found. In CI
# hypothesis takes no seed unless it is told to.
settings.register_profile(
    "soak", derandomize=False, deadline=None, print_blob=True, database=None, max_examples=100
)


def load_profile() -> None:
    """Make hypothesis draw what this run is to look at."""
    settings.load_profile("soak" if SOAKING else "test")


def amount(test: T, soak: T) -> T:
    """Give how many of something to look at, or at what: in ``make test``, and in ``make soak``."""
    return soak if SOAKING else test


def slow_examples(count: int) -> settings:
    """Give settings for so many examples that take seconds each, which hypothesis isn't to shrink for hours.

    The first one that it draws is the simplest there is: one example alone shows next to nothing.
    """
    return settings(
        max_examples=count,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
