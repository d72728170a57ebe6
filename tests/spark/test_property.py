"""Random scenarios of a migration write each row exactly once and each interval exactly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import soak
from tests.spark.scenarios import Change, Damage, Kind, Scenario, ScenarioEvent, scenarios
from tests.spark.tables import schema_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An example runs n scenarios concurrently. A run with appends takes half the time of a run with MERGE.
CONCURRENT: dict[Kind, int] = {
    "append": soak.amount(2, 12),
    "scd1": 12,
    "scd2": soak.amount(2, 12),
}
EXAMPLES: dict[Kind, int] = {
    "append": soak.amount(2, 7),
    "scd1": 4,
    "scd2": soak.amount(2, 3),
}
# Each kind of damage happens once, independently of the random scenarios.
DAMAGE: list[tuple[Kind, Damage, bool]] = soak.amount(
    [("append", "all state is lost", True), ("append", "the spec has other settings", True)],
    [(kind, damage, early) for kind in CONCURRENT for damage in get_args(Damage) for early in (False, True)],
)
Drawn = tuple[tuple[Change, ...], list[ScenarioEvent], bool]
_numbers = count()


def test_run_after_damage_is_refused_or_matches_oracle(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    folder = schema_folder(spark, schema)
    more = (Change(0, 2, 0, False), Change(1, 1, 0, False))

    def run(kind: Kind, damage: Damage, early: bool) -> None:
        root = tmp_path / f"damage_{next(_numbers)}"
        scenario = Scenario(spark, schema, folder, root, kind, (Change(0, 1, 0, False),))
        try:
            scenario.apply(ScenarioEvent("damage", more, damage=damage, early=early))
        except Exception as error:
            error.add_note(f"{kind}: {damage}{', early' if early else ''}")
            raise

    with ThreadPoolExecutor(12) as pool:
        ended = [running.exception() for running in [pool.submit(run, *damage) for damage in DAMAGE]]
    if failures := [error for error in ended if isinstance(error, Exception)]:
        raise ExceptionGroup("scenarios with damage failed", failures)


# Type 2 contains the rows of type 1, and test_cdc_property.py compares both to an oracle.
@pytest.mark.parametrize("kind", soak.amount(["append", "scd2"], ["append", "scd1", "scd2"]))
def test_random_scenario_writes_each_row_exactly_once(
    kind: Kind, spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    folder = schema_folder(spark, schema)

    def run(drawn: Drawn) -> None:
        history, events, union = drawn
        scenario = Scenario(
            spark, schema, folder, tmp_path / f"scenario_{next(_numbers)}", kind, history, union
        )
        for event in events:
            scenario.apply(event)
        scenario.run()

    @soak.slow_examples(EXAMPLES[kind])
    @given(st.lists(scenarios, min_size=CONCURRENT[kind], max_size=CONCURRENT[kind]))
    def interleavings(drawn: list[Drawn]) -> None:
        # Hypothesis starts with n copies of the simplest scenario.
        distinct = {repr(scenario): scenario for scenario in drawn}.values()
        # A single scenario leaves cores idle.
        with ThreadPoolExecutor(len(distinct)) as pool:
            for running in [pool.submit(run, scenario) for scenario in distinct]:
                running.result()

    interleavings()
