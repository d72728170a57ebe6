"""The identity of a target and its checkpoints: ids, batches and settings, not names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.conditions import check, names, raises
from tests.unit.test_decide import (
    COPIED,
    FLOW,
    LEGACY,
    ORDERS,
    SOURCE,
    dataflow,
    facts,
    plan_target,
)

from tableferry.pipelines.model.facts import Checkpoint, Facts
from tableferry.pipelines.model.flows import HISTORY_FLOW, CdcSettings, DataFlow, Target, event_log_name
from tableferry.pipelines.model.identities import (
    PROPERTY,
    FlowIdentity,
    FlowSettings,
    ForeignWrites,
    TableEvidence,
    TableIdentity,
    TableRollback,
    parse_identity_property,
)
from tableferry.pipelines.model.source_offsets import DeltaOffset
from tableferry.pipelines.model.steps import DefineTable, PlannedFlow, RecordVersions, ResetTarget
from tableferry.pipelines.model.target_state import TargetState
from tableferry.spark.tables import TRANSACTION_RETENTION, TableFacts

RECORDED_FLOW = FlowIdentity({}, {SOURCE.key: "source-id"}, "query-id")
IDENTITY = TableIdentity("orders-id", 0, {FLOW.name: RECORDED_FLOW}, f"{LEGACY}@9")
CHECKPOINT = Checkpoint({"source-id": DeltaOffset(7, True)}, offered=3, committed=3, id="query-id")
RECORDED = TableEvidence("orders-id", IDENTITY, IDENTITY, {"query-id": 3})
SOURCE_AFTER_BASELINE = TableFacts(SOURCE, "source-id", 8)


def identity_facts(
    recorded: TableEvidence = RECORDED, checkpoint: Checkpoint = CHECKPOINT, stored: TargetState = COPIED
) -> Facts:
    return facts(
        source=SOURCE_AFTER_BASELINE,
        stored=stored,
        checkpoint=checkpoint,
        table_evidence={ORDERS.key: recorded},
        state="/state",
    )


def refusals(known: Facts, *flows: DataFlow, **request: object) -> list[str]:
    return names(plan_target(known, *flows, **request).refusals)


def list_settings_to_record(known: Facts, *flows: DataFlow, **request: object) -> list[FlowSettings | None]:
    steps = plan_target(known, *flows, **request).steps
    return [step.unrecorded_settings for step in steps if isinstance(step, PlannedFlow) and not step.once]


def test_flow_with_recorded_identity_continues_without_recording() -> None:
    assert refusals(identity_facts()) == []
    assert list_settings_to_record(identity_facts()) == [None]


def test_flow_identity_is_recorded_before_start_and_after_full_refresh() -> None:
    fresh = identity_facts(TableEvidence("orders-id"), Checkpoint())
    settings = FlowSettings({}, {SOURCE.key: "source-id"})
    assert list_settings_to_record(fresh) == [settings]
    assert list_settings_to_record(identity_facts(), full_refresh=frozenset({ORDERS.key})) == [settings]


@pytest.mark.parametrize(
    "half", [replace(RECORDED, property_identity=None), replace(RECORDED, state_identity=None)]
)
def test_identity_missing_on_table_or_in_state_is_recorded_again(half: TableEvidence) -> None:
    assert refusals(identity_facts(half)) == []
    assert len(list_settings_to_record(identity_facts(half))) == 1
    assert list_settings_to_record(identity_facts(half)) != [None]


def test_flow_without_batch_is_recorded_with_new_source() -> None:
    earlier = replace(RECORDED_FLOW, sources={"bronze.empty": "empty-id"})
    identity = replace(IDENTITY, flows={FLOW.name: earlier})
    known = identity_facts(
        TableEvidence("orders-id", identity, identity, {"query-id": -1}), Checkpoint(id="query-id")
    )
    assert refusals(known) == []
    assert list_settings_to_record(known) == [FlowSettings({}, {SOURCE.key: "source-id"})]


def test_flow_without_recorded_identity_continues() -> None:
    assert refusals(identity_facts(TableEvidence("orders-id", batches={"query-id": 3}))) == []


@pytest.mark.parametrize(
    ("recorded", "checkpoint", "why"),
    [
        (RECORDED, Checkpoint(), "FLOW_CHECKPOINT_MISSING"),
        (replace(RECORDED, state_identity=None), Checkpoint(), "FLOW_CHECKPOINT_MISSING"),
        (replace(RECORDED, property_identity=None), Checkpoint(), "FLOW_CHECKPOINT_MISSING"),
        (RECORDED, Checkpoint(id="made-again"), "FLOW_CHECKPOINT_MISSING"),
        (RECORDED, replace(CHECKPOINT, id="another"), "FLOW_CHECKPOINT_REPLACED"),
        (replace(RECORDED, table_id="new-id", property_identity=None), CHECKPOINT, "TARGET_REPLACED"),
        (
            RECORDED,
            replace(CHECKPOINT, offered=2, committed=2),
            "CHECKPOINT_OLDER_THAN_TARGET: records batch 2",
        ),
        (RECORDED, Checkpoint(id="query-id"), "CHECKPOINT_OLDER_THAN_TARGET: records no batch"),
        (
            replace(RECORDED, batches={"query-id": 2}),
            CHECKPOINT,
            "CHECKPOINT_AHEAD_OF_TARGET: finished batch 3",
        ),
        (
            replace(RECORDED, batches={"query-id": -1}),
            CHECKPOINT,
            "CHECKPOINT_AHEAD_OF_TARGET: table has no batch",
        ),
        (
            replace(RECORDED, property_identity=replace(IDENTITY, generation=2)),
            CHECKPOINT,
            "STATE_OLDER_THAN_TABLE: 2 times",
        ),
        (
            replace(RECORDED, rollback=TableRollback(ORDERS, 5, 3)),
            CHECKPOINT,
            "TARGET_SET_BACK: back to version 3 since",
        ),
        (
            replace(RECORDED, rollback=TableRollback(ORDERS, 5, -1)),
            CHECKPOINT,
            "TARGET_SET_BACK: to an older version since",
        ),
        (
            replace(RECORDED, rollback=TableRollback(event_log_name(ORDERS), 5, None)),
            CHECKPOINT,
            "EVENT_LOG_MISSING: _orders is missing",
        ),
    ],
)
def test_lost_replaced_or_restored_table_or_checkpoint_is_refused(
    recorded: TableEvidence, checkpoint: Checkpoint, why: str
) -> None:
    target = plan_target(identity_facts(recorded, checkpoint))
    condition, _, detail = why.partition(": ")
    assert condition in names(target.refusals)
    assert any(detail in refusal.message for refusal in target.refusals)
    assert all("--full-refresh silver.orders" in refusal.remedy for refusal in target.refusals)
    assert target.steps == ()
    # The remedy works.
    assert refusals(identity_facts(recorded, checkpoint), full_refresh=frozenset({ORDERS.key})) == []


@pytest.mark.parametrize(
    ("stored", "flow", "remedy"),
    [
        (COPIED, dataflow(), "rebuild it with --full-refresh silver.orders"),
        (
            TargetState(finished=True),
            dataflow(),
            "remove the folders of silver.orders under /state, to migrate it again",
        ),
        (
            TargetState(finished=True),
            dataflow(migration=None),
            "rebuild it with --full-refresh silver.orders",
        ),
    ],
)
def test_missing_target_is_refused_without_new_commits(
    stored: TargetState, flow: DataFlow, remedy: str
) -> None:
    """Without new commits no flow reads the target, so only this check finds it."""
    read = facts(
        source=TableFacts(SOURCE, "source-id", 6), stored=stored, checkpoint=CHECKPOINT, state="/state"
    )
    gone = replace(read, tables={**read.tables, ORDERS.key: None})
    target = plan_target(gone, flow)
    (refusal,) = target.refusals
    check(refusal, "TARGET_MISSING", location="orders_main.json: targetDetails", table=ORDERS, advice=remedy)
    assert plan_target(read, flow).refusals == ()


def test_batch_interrupted_after_table_commit_is_accepted() -> None:
    died = replace(RECORDED, batches={"query-id": 4})
    assert refusals(identity_facts(died, replace(CHECKPOINT, offered=4))) == []


def test_table_without_recorded_batches_is_accepted() -> None:
    assert refusals(identity_facts(replace(RECORDED, batches={}))) == []


def test_dropped_event_log_is_refused_with_restore_as_remedy() -> None:
    gone = replace(RECORDED, rollback=TableRollback(event_log_name(ORDERS), 5, None))
    [refusal] = plan_target(identity_facts(gone)).refusals
    check(refusal, "EVENT_LOG_MISSING", version=5, change=f"{event_log_name(ORDERS)} is missing")
    assert "UNDROP TABLE, or a backup of its version 5" in refusal.remedy


DELETED = ForeignWrites(
    ORDERS, event_log_name(ORDERS), 5, 6, ("DELETE",), 2, ("MERGE INTO log",), restorable=True
)


@pytest.mark.parametrize(
    ("writes", "condition", "parameters", "remedy"),
    [
        (
            DELETED,
            "ROWS_REMOVED_BY_OTHERS",
            {
                "removed": "rows",
                "writes": "version 6 of silver.orders (DELETE)",
                "other": event_log_name(ORDERS),
                "left": "events of 2 keys or rows, which the next event of a key restores",
            },
            "run MERGE INTO log; Or undo it by RESTORE TABLE silver.orders TO VERSION AS OF 5",
        ),
        (
            replace(DELETED, table=event_log_name(ORDERS), counterpart=ORDERS, remaining=1, restorable=False),
            "ROWS_REMOVED_BY_OTHERS",
            {
                "removed": "events",
                "writes": "version 6 of silver.__tableferry_events_orders (DELETE)",
                "left": "1 row of them, which no later event closes or replaces",
            },
            "run MERGE INTO log; Or rebuild it with --full-refresh silver.orders",
        ),
        (
            replace(DELETED, last=8, remaining=None, unreadable="VACUUM"),
            "ROWS_MAYBE_REMOVED",
            {
                "writes": "versions 6 to 8 of silver.orders (DELETE)",
                "before": 5,
                "reason": "VACUUM",
                "rows": "events of the same keys",
            },
            "ALTER TABLE silver.orders SET TBLPROPERTIES ('tableferry.reviewedVersion' = '8')",
        ),
    ],
)
def test_rows_removed_from_only_target_or_event_log_are_refused(
    writes: ForeignWrites, condition: str, parameters: dict[str, object], remedy: str
) -> None:
    target = plan_target(identity_facts(replace(RECORDED, foreign_writes=(writes,))))
    (refusal,) = target.refusals
    check(refusal, condition, **parameters)
    assert remedy in refusal.remedy
    assert target.steps == ()


def test_rows_removed_from_target_and_event_log_are_accepted_once() -> None:
    versions = {ORDERS.key: 6, event_log_name(ORDERS).key: 4}
    gone = replace(
        RECORDED, foreign_writes=(replace(DELETED, remaining=0, statements=()),), versions=versions
    )
    target = plan_target(identity_facts(gone))
    assert not target.refusals
    assert "VALUES_CHANGED_BY_OTHERS" not in names(target.warnings)
    assert [step for step in target.steps if isinstance(step, RecordVersions)] == [
        RecordVersions(ORDERS, 0, versions)
    ]


def test_values_changed_by_another_process_are_warned_about() -> None:
    updated = replace(DELETED, operations=("UPDATE",), remaining=0, statements=(), only_deletes=False)
    target = plan_target(identity_facts(replace(RECORDED, foreign_writes=(updated,))))
    assert not target.refusals
    (warning,) = target.warnings
    check(
        warning,
        "VALUES_CHANGED_BY_OTHERS",
        writes="version 6 of silver.orders (UPDATE)",
        other=event_log_name(ORDERS),
    )


def forgotten_batches(checkpoint: Checkpoint) -> Facts:
    """Return the facts of a table that dropped the batches of a stream that was idle for a week."""
    known = identity_facts(replace(RECORDED, batches={}), checkpoint)
    table = TableFacts(ORDERS, "orders-id", 9, properties={TRANSACTION_RETENTION: "interval 7 days"})
    return replace(known, tables={**known.tables, ORDERS.key: table})


def test_forgotten_batches_are_accepted_if_checkpoint_finished_them() -> None:
    target = plan_target(forgotten_batches(CHECKPOINT))
    assert target.refusals == ()
    [note] = [note for note in target.notes if "remembers" in note]
    assert note == (
        "silver.orders remembers a stream's batches for interval 7 days "
        "(delta.setTransactionRetentionDuration), and neither its log nor its history shows whether it has "
        "batch 3 of f_orders. The checkpoint records that it has"
    )


def test_forgotten_pending_batch_is_refused_without_full_refresh() -> None:
    [refusal] = plan_target(forgotten_batches(replace(CHECKPOINT, offered=4))).refusals
    check(refusal, "BATCH_NOT_REMEMBERED", batch=4, flow="f_orders")
    assert "copy commits/3 to commits/4 in the flow's folder under /state/checkpoints" in refusal.remedy
    assert "--full-refresh" not in refusal.remedy


def test_lost_checkpoint_without_batch_is_accepted() -> None:
    nothing_yet = replace(RECORDED, batches={"query-id": -1})
    assert refusals(identity_facts(nothing_yet, Checkpoint())) == []
    assert len(list_settings_to_record(identity_facts(nothing_yet, Checkpoint()))) == 1


def test_renamed_flow_is_identified_by_checkpoint() -> None:
    renamed = dataflow(flows=(replace(FLOW, name="f_new"),))
    known = identity_facts(checkpoint=Checkpoint())
    known = replace(
        known,
        reads={(ORDERS.key, "f_new"): known.reads[ORDERS.key, "f_orders"]},
        checkpoints={(ORDERS.key, "f_new"): Checkpoint()},
    )
    assert (
        refusals(replace(known, orphaned_checkpoints={ORDERS.key: {"f_orders": CHECKPOINT}}), renamed) == []
    )
    (refusal,) = plan_target(known, renamed).refusals
    check(refusal, "FLOW_CHECKPOINT_MISSING", lost="f_orders", flow="f_new")
    explicit = {
        (ORDERS.key, "f_new"): tuple(replace(read, explicit=8) for read in known.reads[ORDERS.key, "f_new"])
    }
    assert refusals(replace(known, reads=explicit), renamed) == []


def test_missing_checkpoint_of_disabled_flow_is_accepted() -> None:
    other = replace(FLOW, name="f_other")
    both = replace(IDENTITY, flows={**IDENTITY.flows, "f_off": replace(RECORDED_FLOW, checkpoint="off-id")})
    known = identity_facts(replace(RECORDED, property_identity=both, state_identity=both))
    known = replace(
        known,
        reads={**known.reads, (ORDERS.key, "f_other"): known.reads[ORDERS.key, "f_orders"]},
        checkpoints={**known.checkpoints, (ORDERS.key, "f_other"): Checkpoint()},
    )
    assert refusals(known, dataflow(flows=(FLOW, other), disabled=frozenset({"f_off"}))) == []
    (refusal,) = plan_target(known, dataflow(flows=(FLOW, other))).refusals
    check(refusal, "FLOW_CHECKPOINT_MISSING", lost="f_off")


@pytest.mark.parametrize(
    ("changes", "before", "now"),
    [
        ({"keys": ("id", "at")}, "keys id", "keys id, at"),
        ({"scd_type": 2}, "scd_type 1", "scd_type 2"),
        ({"sequence_by": "ts"}, "sequence_by at", "sequence_by ts"),
    ],
)
def test_changed_cdc_settings_are_one_finding(changes: dict[str, object], before: str, now: str) -> None:
    settings = CdcSettings(("id",), "at", 1)
    spec = dataflow(target=Target(ORDERS, cdc=settings), flows=(replace(FLOW, kind="cdc"),))
    flow = replace(RECORDED_FLOW, settings={"keys": "id", "scd_type": "1", "sequence_by": "at"})
    identity = replace(IDENTITY, flows={FLOW.name: flow})
    known = identity_facts(TableEvidence("orders-id", identity, identity))
    assert refusals(known, spec) == []
    changed = replace(spec, target=Target(ORDERS, cdc=replace(settings, **changes)))  # type: ignore[arg-type]
    (refusal,) = plan_target(known, changed).refusals
    check(refusal, "FLOW_SETTINGS_CHANGED", flow="f_orders", table=ORDERS, before=before, now=now)
    refusal = plan_target(known, dataflow()).refusals[0]
    check(refusal, "FLOW_SETTINGS_CHANGED", before="keys id", now="no keys")


@pytest.mark.parametrize(
    ("now", "before", "after"),
    [
        (CdcSettings(("id", "v"), "at", 1), "keys id", "keys id, v"),
        (CdcSettings(("id",), "at", 2), "scd_type 1", "scd_type 2"),
        (None, "keys id", "no keys"),
    ],
)
@pytest.mark.parametrize("source", [TableFacts(SOURCE, "source-id", 5), SOURCE_AFTER_BASELINE])
def test_changed_settings_before_first_live_batch_are_refused(
    now: CdcSettings | None, before: str, after: str, source: TableFacts
) -> None:
    made = {"keys": "id", "scd_type": "1", "sequence_by": "at"}

    def known(identity: TableIdentity) -> Facts:
        return facts(
            source=source,
            stored=COPIED,
            table_evidence={ORDERS.key: TableEvidence("orders-id", None, identity)},
        )

    def spec(cdc: CdcSettings | None) -> DataFlow:
        return dataflow(
            target=Target(ORDERS, cdc=cdc), flows=(replace(FLOW, kind="cdc" if cdc else "append"),)
        )

    copied = TableIdentity("orders-id", 0, {}, f"{LEGACY}@9", made)
    assert refusals(known(copied), spec(CdcSettings(("id",), "at", 1))) == []
    refusal = plan_target(known(copied), spec(now)).refusals[0]
    check(refusal, "TABLE_SETTINGS_CHANGED", table=ORDERS, before=before, now=after)
    assert refusals(known(copied), spec(now), full_refresh=frozenset({ORDERS.key})) == []
    # State of an older version lacks the settings.
    assert refusals(known(replace(copied, settings=None)), spec(now)) == []


def test_renamed_source_is_unchanged_and_other_table_id_is_a_change() -> None:
    was = FlowSettings({}, {"a.b": "1", "c.d": ""})
    assert list(was.changes(FlowSettings({}, {"a.new": "1", "c.d": "2"}))) == []
    assert list(was.changes(FlowSettings({}, {"a.b": "1"}))) == [("sources a.b, c.d", "sources a.b")]
    assert list(was.changes(FlowSettings({}, {**was.sources, "e.f": "3"}))) == [
        ("sources a.b, c.d", "sources a.b, c.d, e.f")
    ]


def test_full_refresh_continues_from_newest_recorded_generation() -> None:
    later = replace(RECORDED, property_identity=replace(IDENTITY, generation=4))
    refreshed = plan_target(identity_facts(later, Checkpoint()), full_refresh=frozenset({ORDERS.key}))
    assert refreshed.steps[0] == ResetTarget(ORDERS, (ORDERS,), 5, {ORDERS.key: (HISTORY_FLOW,)})
    assert COPIED.tracking
    copied = replace(COPIED, tracking=replace(COPIED.tracking, copied=2))
    lost = identity_facts(TableEvidence("orders-id"), Checkpoint(), copied)
    (refusal,) = plan_target(lost).refusals
    check(refusal, "STATE_OLDER_THAN_COPY", copied=2)
    refreshed = plan_target(lost, full_refresh=frozenset({ORDERS.key}))
    assert refreshed.steps[0] == ResetTarget(ORDERS, (ORDERS,), 3, {ORDERS.key: (HISTORY_FLOW,)})


def test_full_refresh_without_migration_drops_history_only_on_request() -> None:
    plain, refresh = dataflow(migration=None), frozenset({ORDERS.key})
    for known in (identity_facts(stored=TargetState(finished=True)), identity_facts(stored=TargetState())):
        refusal = plan_target(known, plain, full_refresh=refresh).refusals[0]
        check(refusal, "REFRESH_DROPS_HISTORY", copied=f" (copied from {LEGACY}@9)")
        target = plan_target(known, plain, full_refresh=refresh, drop_history=True)
        assert isinstance(target.steps[0], ResetTarget)
        assert [step.history for step in target.steps if isinstance(step, DefineTable)] == [""]
    forgotten = identity_facts(TableEvidence("orders-id"), stored=TargetState(finished=True))
    check(plan_target(forgotten, plain, full_refresh=refresh).refusals[0], "REFRESH_DROPS_HISTORY", copied="")
    running = plan_target(identity_facts(), full_refresh=refresh)
    assert [step.history for step in running.steps if isinstance(step, DefineTable)] == [f"{LEGACY}@9"]


def test_identity_property_round_trips_and_is_ignored_on_clone() -> None:
    text = IDENTITY.to_json()
    assert TableIdentity.from_json(text) == IDENTITY
    appended = replace(IDENTITY, settings={})
    assert TableIdentity.from_json(appended.to_json()) == appended
    table = TableFacts(ORDERS, "orders-id", 3, properties={PROPERTY: text})
    assert parse_identity_property(table) == IDENTITY
    assert parse_identity_property(replace(table, table_id="clone-id")) is None
    assert parse_identity_property(replace(table, properties={})) is None
    for broken in ("", "{", "[]", "{}", '{"table_id": "x", "generation": "y", "flows": {}, "history": ""}'):
        with raises("IDENTITY_PROPERTY_INVALID", table=ORDERS, property=PROPERTY):
            parse_identity_property(replace(table, properties={PROPERTY: broken}))
