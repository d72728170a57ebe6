"""Whether a target and its checkpoints are known again: by ids, batches and settings, never by names."""

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
    only,
)

from tableferry.pipelines.model.facts import Checkpoint, Facts
from tableferry.pipelines.model.flows import CdcSettings, DataFlow, Target, log_name
from tableferry.pipelines.model.identities import (
    PROPERTY,
    FlowIdentity,
    FlowSettings,
    ForeignWrites,
    Recorded,
    SetBack,
    TableIdentity,
    on_table,
)
from tableferry.pipelines.model.plan import HISTORY_FLOW
from tableferry.pipelines.model.source_offsets import Offset
from tableferry.pipelines.model.steps import AcceptWrites, DefineAppend, DefineTable, Reset
from tableferry.pipelines.model.target_state import Stored
from tableferry.spark.tables import TRANSACTION_RETENTION, TableFacts

BEGUN_FLOW = FlowIdentity({}, {SOURCE.key: "source-id"}, "query-id")
IDENTITY = TableIdentity("orders-id", 0, {FLOW.name: BEGUN_FLOW}, f"{LEGACY}@9")
RUNS = Checkpoint({"source-id": Offset(7, True)}, offered=3, committed=3, id="query-id")
SOUND = Recorded("orders-id", IDENTITY, IDENTITY, {"query-id": 3})
MOVED_ON = TableFacts(SOURCE, "source-id", 8)


def facts_of(recorded: Recorded = SOUND, checkpoint: Checkpoint = RUNS, stored: Stored = COPIED) -> Facts:
    return facts(
        source=MOVED_ON,
        stored=stored,
        checkpoint=checkpoint,
        recorded={ORDERS.key: recorded},
        state="/state",
    )


def refusals(known: Facts, *flows: DataFlow, **request: object) -> list[str]:
    return names(only(known, *flows, **request).refusals)


def identified(known: Facts, *flows: DataFlow, **request: object) -> list[FlowSettings | None]:
    steps = only(known, *flows, **request).steps
    return [step.identify for step in steps if isinstance(step, DefineAppend) and not step.once]


def test_what_is_as_it_was_goes_on_and_is_not_recorded_again() -> None:
    assert refusals(facts_of()) == []
    assert identified(facts_of()) == [None]


def test_a_flow_is_recorded_before_it_starts_and_after_each_full_refresh() -> None:
    fresh = facts_of(Recorded("orders-id"), Checkpoint())
    settings = FlowSettings({}, {SOURCE.key: "source-id"})
    assert identified(fresh) == [settings]
    assert identified(facts_of(), full_refresh=frozenset({ORDERS.key})) == [settings]


@pytest.mark.parametrize("half", [replace(SOUND, on_table=None), replace(SOUND, in_state=None)])
def test_what_one_place_lacks_is_recorded_there_too(half: Recorded) -> None:
    assert refusals(facts_of(half)) == []
    assert len(identified(facts_of(half))) == 1
    assert identified(facts_of(half)) != [None]


def test_flow_that_has_read_nothing_is_recorded_again_with_its_new_source() -> None:
    earlier = replace(BEGUN_FLOW, sources={"bronze.empty": "empty-id"})
    identity = replace(IDENTITY, flows={FLOW.name: earlier})
    known = facts_of(Recorded("orders-id", identity, identity, {"query-id": -1}), Checkpoint(id="query-id"))
    assert refusals(known) == []
    assert identified(known) == [FlowSettings({}, {SOURCE.key: "source-id"})]


def test_flows_from_before_anything_was_recorded_go_on() -> None:
    assert refusals(facts_of(Recorded("orders-id", batches={"query-id": 3}))) == []


@pytest.mark.parametrize(
    ("recorded", "checkpoint", "why"),
    [
        (SOUND, Checkpoint(), "FLOW_CHECKPOINT_MISSING"),
        (replace(SOUND, in_state=None), Checkpoint(), "FLOW_CHECKPOINT_MISSING"),
        (replace(SOUND, on_table=None), Checkpoint(), "FLOW_CHECKPOINT_MISSING"),
        (SOUND, Checkpoint(id="made-again"), "FLOW_CHECKPOINT_MISSING"),
        (SOUND, replace(RUNS, id="another"), "FLOW_CHECKPOINT_REPLACED"),
        (replace(SOUND, table_id="new-id", on_table=None), RUNS, "TARGET_REPLACED"),
        (SOUND, replace(RUNS, offered=2, committed=2), "CHECKPOINT_OLDER_THAN_TARGET: knows of batch 2"),
        (SOUND, Checkpoint(id="query-id"), "CHECKPOINT_OLDER_THAN_TARGET: knows of no batch"),
        (replace(SOUND, batches={"query-id": 2}), RUNS, "CHECKPOINT_AHEAD_OF_TARGET: finished batch 3"),
        (replace(SOUND, batches={"query-id": -1}), RUNS, "CHECKPOINT_AHEAD_OF_TARGET: table has no batch"),
        (replace(SOUND, on_table=replace(IDENTITY, generation=2)), RUNS, "STATE_OLDER_THAN_TABLE: 2 times"),
        (replace(SOUND, set_back=SetBack(ORDERS, 5, 3)), RUNS, "TARGET_SET_BACK: back to version 3 since"),
        (replace(SOUND, set_back=SetBack(ORDERS, 5, -1)), RUNS, "TARGET_SET_BACK: to an older version since"),
        (
            replace(SOUND, set_back=SetBack(log_name(ORDERS), 5, None)),
            RUNS,
            "EVENT_LOG_MISSING: _orders is missing",
        ),
    ],
)
def test_what_was_lost_replaced_or_set_back_is_refused(
    recorded: Recorded, checkpoint: Checkpoint, why: str
) -> None:
    target = only(facts_of(recorded, checkpoint))
    condition, _, detail = why.partition(": ")
    assert condition in names(target.refusals)
    assert any(detail in refusal.message for refusal in target.refusals)
    assert all("--full-refresh silver.orders" in refusal.remedy for refusal in target.refusals)
    assert target.steps == ()
    # And that remedy is taken.
    assert refusals(facts_of(recorded, checkpoint), full_refresh=frozenset({ORDERS.key})) == []


@pytest.mark.parametrize(
    ("stored", "flow", "remedy"),
    [
        (COPIED, dataflow(), "rebuild it with --full-refresh silver.orders"),
        (
            Stored(finished=True),
            dataflow(),
            "remove the folders of silver.orders under /state, to migrate it again",
        ),
        (Stored(finished=True), dataflow(migration=None), "rebuild it with --full-refresh silver.orders"),
    ],
)
def test_a_table_that_is_gone_is_refused_before_anything_starts(
    stored: Stored, flow: DataFlow, remedy: str
) -> None:
    """Where the sources have nothing new, nothing would have asked for it."""
    read = facts(source=TableFacts(SOURCE, "source-id", 6), stored=stored, checkpoint=RUNS, state="/state")
    gone = replace(read, tables={**read.tables, ORDERS.key: None})
    target = only(gone, flow)
    (refusal,) = target.refusals
    check(refusal, "TARGET_MISSING", location="orders_main.json: targetDetails", table=ORDERS, advice=remedy)
    assert only(read, flow).refusals == ()


def test_a_batch_that_died_behind_its_commit_to_the_table_is_no_harm() -> None:
    died = replace(SOUND, batches={"query-id": 4})
    assert refusals(facts_of(died, replace(RUNS, offered=4))) == []


def test_a_table_that_says_nothing_of_batches_is_believed() -> None:
    assert refusals(facts_of(replace(SOUND, batches={}))) == []


def test_a_dropped_log_of_events_is_to_be_restored_as_a_whole() -> None:
    gone = replace(SOUND, set_back=SetBack(log_name(ORDERS), 5, None))
    [refusal] = only(facts_of(gone)).refusals
    check(refusal, "EVENT_LOG_MISSING", version=5, change=f"{log_name(ORDERS)} is missing")
    assert "UNDROP TABLE, or a backup of its version 5" in refusal.remedy


DELETED = ForeignWrites(ORDERS, log_name(ORDERS), 5, 6, ("DELETE",), 2, ("MERGE INTO log",), restorable=True)


@pytest.mark.parametrize(
    ("writes", "condition", "parameters", "remedy"),
    [
        (
            DELETED,
            "ROWS_REMOVED_BY_OTHERS",
            {
                "removed": "rows",
                "writes": "version 6 of silver.orders (DELETE)",
                "other": log_name(ORDERS),
                "left": "events of 2 keys or rows, which the next event of a key restores",
            },
            "run MERGE INTO log; Or undo it by RESTORE TABLE silver.orders TO VERSION AS OF 5",
        ),
        (
            replace(DELETED, table=log_name(ORDERS), other=ORDERS, left=1, restorable=False),
            "ROWS_REMOVED_BY_OTHERS",
            {
                "removed": "events",
                "writes": "version 6 of silver.__tableferry_events_orders (DELETE)",
                "left": "1 row of them, which no later event closes or replaces",
            },
            "run MERGE INTO log; Or rebuild it with --full-refresh silver.orders",
        ),
        (
            replace(DELETED, last=8, left=None, unreadable="VACUUM"),
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
def test_rows_that_only_one_of_target_and_event_log_lost_are_refused(
    writes: ForeignWrites, condition: str, parameters: dict[str, object], remedy: str
) -> None:
    target = only(facts_of(replace(SOUND, foreign_writes=(writes,))))
    (refusal,) = target.refusals
    check(refusal, condition, **parameters)
    assert remedy in refusal.remedy
    assert target.steps == ()


def test_rows_that_target_and_event_log_both_lost_are_recorded_once() -> None:
    versions = {ORDERS.key: 6, log_name(ORDERS).key: 4}
    gone = replace(SOUND, foreign_writes=(replace(DELETED, left=0, statements=()),), versions=versions)
    target = only(facts_of(gone))
    assert not target.refusals
    assert "VALUES_CHANGED_BY_OTHERS" not in names(target.warnings)
    assert [step for step in target.steps if isinstance(step, AcceptWrites)] == [
        AcceptWrites(ORDERS, 0, versions)
    ]


def test_values_changed_by_another_process_are_noted() -> None:
    updated = replace(DELETED, operations=("UPDATE",), left=0, statements=(), only_deletes=False)
    target = only(facts_of(replace(SOUND, foreign_writes=(updated,))))
    assert not target.refusals
    (warning,) = target.warnings
    check(
        warning,
        "VALUES_CHANGED_BY_OTHERS",
        writes="version 6 of silver.orders (UPDATE)",
        other=log_name(ORDERS),
    )


def forgetful(checkpoint: Checkpoint) -> Facts:
    """A table that forgets the batches of a stream that was idle for a week, and has forgotten them."""
    known = facts_of(replace(SOUND, batches={}), checkpoint)
    table = TableFacts(ORDERS, "orders-id", 9, properties={TRANSACTION_RETENTION: "interval 7 days"})
    return replace(known, tables={**known.tables, ORDERS.key: table})


def test_a_table_that_forgets_batches_goes_on_where_all_were_finished() -> None:
    target = only(forgetful(RUNS))
    assert target.refusals == ()
    [note] = [note for note in target.notes if "remembers" in note]
    assert note == (
        "silver.orders remembers a stream's batches for interval 7 days "
        "(delta.setTransactionRetentionDuration), and neither its log nor its history shows whether it has "
        "batch 3 of f_orders. The checkpoint records that it has"
    )


def test_a_table_that_forgot_a_batch_that_was_not_finished_is_refused_without_a_full_refresh() -> None:
    [refusal] = only(forgetful(replace(RUNS, offered=4))).refusals
    check(refusal, "BATCH_NOT_REMEMBERED", batch=4, flow="f_orders")
    assert "copy commits/3 to commits/4 in the flow's folder under /state/checkpoints" in refusal.remedy
    assert "--full-refresh" not in refusal.remedy


def test_a_checkpoint_that_brought_nothing_may_be_lost() -> None:
    nothing_yet = replace(SOUND, batches={"query-id": -1})
    assert refusals(facts_of(nothing_yet, Checkpoint())) == []
    assert len(identified(facts_of(nothing_yet, Checkpoint()))) == 1


def test_a_renamed_flow_is_known_by_its_checkpoint() -> None:
    renamed = dataflow(flows=(replace(FLOW, name="f_new"),))
    known = facts_of(checkpoint=Checkpoint())
    known = replace(
        known,
        reads={(ORDERS.key, "f_new"): known.reads[ORDERS.key, "f_orders"]},
        checkpoints={(ORDERS.key, "f_new"): Checkpoint()},
    )
    assert refusals(replace(known, orphans={ORDERS.key: {"f_orders": RUNS}}), renamed) == []
    (refusal,) = only(known, renamed).refusals
    check(refusal, "FLOW_CHECKPOINT_MISSING", lost="f_orders", flow="f_new")
    explicit = {
        (ORDERS.key, "f_new"): tuple(replace(read, explicit=8) for read in known.reads[ORDERS.key, "f_new"])
    }
    assert refusals(replace(known, reads=explicit), renamed) == []


def test_a_flow_that_is_switched_off_may_keep_its_checkpoint_to_itself() -> None:
    other = replace(FLOW, name="f_other")
    both = replace(IDENTITY, flows={**IDENTITY.flows, "f_off": replace(BEGUN_FLOW, checkpoint="off-id")})
    known = facts_of(replace(SOUND, on_table=both, in_state=both))
    known = replace(
        known,
        reads={**known.reads, (ORDERS.key, "f_other"): known.reads[ORDERS.key, "f_orders"]},
        checkpoints={**known.checkpoints, (ORDERS.key, "f_other"): Checkpoint()},
    )
    assert refusals(known, dataflow(flows=(FLOW, other), disabled=frozenset({"f_off"}))) == []
    (refusal,) = only(known, dataflow(flows=(FLOW, other))).refusals
    check(refusal, "FLOW_CHECKPOINT_MISSING", lost="f_off")


@pytest.mark.parametrize(
    ("changes", "before", "now"),
    [
        ({"keys": ("id", "at")}, "keys id", "keys id, at"),
        ({"scd_type": 2}, "scd_type 1", "scd_type 2"),
        ({"sequence_by": "ts"}, "sequence_by at", "sequence_by ts"),
    ],
)
def test_other_settings_are_one_finding(changes: dict[str, object], before: str, now: str) -> None:
    settings = CdcSettings(("id",), "at", 1)
    spec = dataflow(target=Target(ORDERS, cdc=settings), flows=(replace(FLOW, kind="cdc"),))
    flow = replace(BEGUN_FLOW, settings={"keys": "id", "scd_type": "1", "sequence_by": "at"})
    identity = replace(IDENTITY, flows={FLOW.name: flow})
    known = facts_of(Recorded("orders-id", identity, identity))
    assert refusals(known, spec) == []
    changed = replace(spec, target=Target(ORDERS, cdc=replace(settings, **changes)))  # type: ignore[arg-type]
    (refusal,) = only(known, changed).refusals
    check(refusal, "FLOW_SETTINGS_CHANGED", flow="f_orders", table=ORDERS, before=before, now=now)
    refusal = only(known, dataflow()).refusals[0]
    check(refusal, "FLOW_SETTINGS_CHANGED", before="keys id", now="no keys")


@pytest.mark.parametrize(
    ("now", "before", "after"),
    [
        (CdcSettings(("id", "v"), "at", 1), "keys id", "keys id, v"),
        (CdcSettings(("id",), "at", 2), "scd_type 1", "scd_type 2"),
        (None, "keys id", "no keys"),
    ],
)
@pytest.mark.parametrize("source", [TableFacts(SOURCE, "source-id", 5), MOVED_ON])
def test_a_copy_that_waits_for_its_first_live_batch_keeps_its_settings(
    now: CdcSettings | None, before: str, after: str, source: TableFacts
) -> None:
    made = {"keys": "id", "scd_type": "1", "sequence_by": "at"}

    def known(identity: TableIdentity) -> Facts:
        return facts(
            source=source, stored=COPIED, recorded={ORDERS.key: Recorded("orders-id", None, identity)}
        )

    def spec(cdc: CdcSettings | None) -> DataFlow:
        return dataflow(
            target=Target(ORDERS, cdc=cdc), flows=(replace(FLOW, kind="cdc" if cdc else "append"),)
        )

    copied = TableIdentity("orders-id", 0, {}, f"{LEGACY}@9", made)
    assert refusals(known(copied), spec(CdcSettings(("id",), "at", 1))) == []
    refusal = only(known(copied), spec(now)).refusals[0]
    check(refusal, "TABLE_SETTINGS_CHANGED", table=ORDERS, before=before, now=after)
    assert refusals(known(copied), spec(now), full_refresh=frozenset({ORDERS.key})) == []
    # What a release before this recorded.
    assert refusals(known(replace(copied, settings=None)), spec(now)) == []


def test_a_source_may_be_renamed_but_not_exchanged() -> None:
    was = FlowSettings({}, {"a.b": "1", "c.d": ""})
    assert list(was.changes(FlowSettings({}, {"a.new": "1", "c.d": "2"}))) == []
    assert list(was.changes(FlowSettings({}, {"a.b": "1"}))) == [("sources a.b, c.d", "sources a.b")]
    assert list(was.changes(FlowSettings({}, {**was.sources, "e.f": "3"}))) == [
        ("sources a.b, c.d", "sources a.b, c.d, e.f")
    ]


def test_generations_count_on_from_whatever_is_recorded() -> None:
    later = replace(SOUND, on_table=replace(IDENTITY, generation=4))
    refreshed = only(facts_of(later, Checkpoint()), full_refresh=frozenset({ORDERS.key}))
    assert refreshed.steps[0] == Reset(ORDERS, (ORDERS,), 5, {ORDERS.key: (HISTORY_FLOW,)})
    assert COPIED.tracking
    copied = replace(COPIED, tracking=replace(COPIED.tracking, copied=2))
    lost = facts_of(Recorded("orders-id"), Checkpoint(), copied)
    (refusal,) = only(lost).refusals
    check(refusal, "STATE_OLDER_THAN_COPY", copied=2)
    refreshed = only(lost, full_refresh=frozenset({ORDERS.key}))
    assert refreshed.steps[0] == Reset(ORDERS, (ORDERS,), 3, {ORDERS.key: (HISTORY_FLOW,)})


def test_history_that_nothing_brings_back_is_dropped_only_if_that_is_meant() -> None:
    plain, refresh = dataflow(migration=None), frozenset({ORDERS.key})
    for known in (facts_of(stored=Stored(finished=True)), facts_of(stored=Stored())):
        refusal = only(known, plain, full_refresh=refresh).refusals[0]
        check(refusal, "REFRESH_DROPS_HISTORY", copied=f" (copied from {LEGACY}@9)")
        target = only(known, plain, full_refresh=refresh, drop_history=True)
        assert isinstance(target.steps[0], Reset)
        assert [step.history for step in target.steps if isinstance(step, DefineTable)] == [""]
    forgotten = facts_of(Recorded("orders-id"), stored=Stored(finished=True))
    check(only(forgotten, plain, full_refresh=refresh).refusals[0], "REFRESH_DROPS_HISTORY", copied="")
    running = only(facts_of(), full_refresh=refresh)
    assert [step.history for step in running.steps if isinstance(step, DefineTable)] == [f"{LEGACY}@9"]


def test_a_property_is_read_as_it_was_written_and_says_nothing_of_a_clone() -> None:
    text = IDENTITY.to_json()
    assert TableIdentity.from_json(text) == IDENTITY
    appended = replace(IDENTITY, settings={})
    assert TableIdentity.from_json(appended.to_json()) == appended
    table = TableFacts(ORDERS, "orders-id", 3, properties={PROPERTY: text})
    assert on_table(table) == IDENTITY
    assert on_table(replace(table, table_id="clone-id")) is None
    assert on_table(replace(table, properties={})) is None
    for broken in ("", "{", "[]", "{}", '{"table_id": "x", "generation": "y", "flows": {}, "history": ""}'):
        with raises("IDENTITY_PROPERTY_INVALID", table=ORDERS, property=PROPERTY):
            on_table(replace(table, properties={PROPERTY: broken}))
