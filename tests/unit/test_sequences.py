"""Which events give the copied rows of an SCD type 1 target their sequences."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import StringType, StructField, StructType
from tests.unit.test_decide import FLOW, ORDERS, SOURCE, STARTED, dataflow, facts, plan_target

from tableferry.pipelines.cdc.fold import Fold
from tableferry.pipelines.model.flows import HISTORY_FLOW, CdcSettings, Target
from tableferry.pipelines.model.steps import BaselineEvents, PlannedFlow
from tableferry.pipelines.model.target_state import Baseline, MigrationStart, TargetState

SCD1 = CdcSettings(keys=("id",), sequence_by="at", scd_type=1)
PROVED = replace(STARTED, certainty="proved")


def events_before(
    start: MigrationStart, cdc: CdcSettings = SCD1, *, explicit: int | None = None, **request: object
) -> BaselineEvents | None:
    flow = dataflow(target=Target(ORDERS, cdc), flows=(replace(FLOW, kind="cdc"),))
    target = plan_target(facts(stored=TargetState(start), explicit=explicit), flow, **request)
    [copy] = [step for step in target.steps if isinstance(step, PlannedFlow) and step.name == HISTORY_FLOW]
    return copy.baseline_events


def test_events_up_to_baseline_give_sequences_for_proved_and_recorded_hand_over() -> None:
    for start in (PROVED, replace(STARTED, certainty="recorded")):
        before = events_before(start)
        assert before is not None
        assert before.until == {SOURCE.key: 5}


def test_assumed_hand_over_gives_no_sequences() -> None:
    assert events_before(STARTED) is None


def test_rows_with_intervals_need_no_sequences_of_events() -> None:
    assert events_before(PROVED, CdcSettings(keys=("id",), sequence_by="at", scd_type=2)) is None


def test_truncates_explicit_starts_and_partial_commits_give_no_sequences() -> None:
    assert events_before(PROVED, replace(SCD1, apply_as_truncates="gone")) is None
    assert events_before(PROVED, explicit=2) is None
    part = Baseline(SOURCE, "source-id", 5, ("v_orders",), within="{}")
    assert events_before(replace(PROVED, baselines={SOURCE.key: part})) is None


def test_key_in_backticks_is_column_of_event_log() -> None:
    settings = CdcSettings(keys=("`the-key`", "id"), sequence_by="at", scd_type=1)
    log = StructType([StructField("The-Key", StringType()), StructField("id", StringType())])
    assert Fold(settings, log).keys == ["The-Key", "id"]
