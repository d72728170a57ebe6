"""The amount of examples in a run of the tests: ``make test`` a fixed part, ``make soak`` everything.

``make test-all`` also runs the slow tests that ``make test`` leaves out.

``make soak`` prints its seed, which is in TABLEFERRY_SOAK; ``make soak SEED=…`` repeats it. Without that
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

# Only a soak runs these tests, because another test shows the same behaviour in less time.
only = pytest.mark.soak
# Slow tests, which ``make test-all`` runs: a part of a route's behaviour whose
# main path has a test in ``make test``.
slow = pytest.mark.slow

T = TypeVar("T")

settings.register_profile("test", derandomize=True, deadline=None, print_blob=True, max_examples=20)
# `--hypothesis-seed` sets the randomness, and a database would keep examples of another seed. In CI
# hypothesis uses no seed by default.
settings.register_profile(
    "soak", derandomize=False, deadline=None, print_blob=True, database=None, max_examples=100
)


def load_profile() -> None:
    """Load the hypothesis profile of this run."""
    settings.load_profile("soak" if SOAKING else "test")


def amount(test: T, soak: T) -> T:
    """Return the number of examples, or the examples: of ``make test`` or of ``make soak``."""
    return soak if SOAKING else test


def slow_examples(count: int) -> settings:
    """Return settings for n examples of some seconds each, which hypothesis shouldn't shrink for hours.

    The first example is the simplest one, so a single example shows little.
    """
    return settings(
        max_examples=count,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
