"""What a revert that is asked for makes of a job."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tableferry.fleet.job import Job, PauseReason, State
from tableferry.fleet.modes.revert import _reverting
from tableferry.fleet.transitions import BACK

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("pair", BACK)
def test_a_reverting_job_resumes_where_it_paused(pair: tuple[State, State]) -> None:
    state, desired = pair
    job = Job(
        1,
        "spark_catalog",
        "sales",
        "orders",
        created_at=NOW,
        last_updated_time=NOW,
        state=state,
        desired_state=desired,
    )
    paused = job.paused(PauseReason.STEP_FAILED, "3 times")
    assert _reverting(paused, from_archive=False) == job
