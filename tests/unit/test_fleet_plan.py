"""Each transition is planned from the existing names, so the next run continues after any crash."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.fleet.jobs.job import Job, OldName, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.step_plan import Kind, next_transition, plan, target_kind
from tableferry.fleet.jobs.steps import (
    BlockWrites,
    CheckLate,
    CheckSuspended,
    CheckView,
    CopyAccess,
    DropCopy,
    DropView,
    MakeManaged,
    MakeTarget,
    MakeView,
    RemoveRewritten,
    Rename,
    RewriteAhead,
    RewriteRest,
    Shadow,
    ShadowWritten,
    Step,
    UnblockWrites,
    Verify,
    VerifyRewritten,
    VerifyShadow,
)
from tableferry.fleet.jobs.transitions import BACK, FORWARD, REVERT_TO
from tableferry.spark.tables import TableName

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = "spark_catalog.sales.orders"
FORMATS = st.sampled_from(TargetFormat)
FOLDER = "file:/w/orders_iceberg"
PLACES = st.sampled_from([None, *OldName])
"""The meaning of the old name, if the new table is in another schema."""


def job(
    state: State,
    desired: State,
    form: TargetFormat = TargetFormat.ICEBERG,
    probation: int = 14,
    old_name: OldName | None = None,
    *,
    rewritten: bool = False,
) -> Job:
    return Job(
        1,
        "spark_catalog",
        "sales",
        "orders",
        created_at=NOW,
        last_updated_time=NOW,
        state=state,
        desired_state=desired,
        target_format=form,
        probation_gap_days=probation,
        in_process=True,
        target_schema="lake" if old_name else None,
        old_name=old_name,
        rewrite=rewritten or None,
        record=JobRecord(rewritten={"files": 1, "bytes": 10, "folder": FOLDER} if rewritten else None),
    )


def done(step: Step, names: dict[TableName, Kind]) -> None:
    """Apply a step to names."""
    match step:
        case Rename(table, to):
            assert to not in names, f"{to} would be overwritten"
            names[to] = names.pop(table)
        case (
            MakeTarget(source, target, form)
            | RewriteAhead(target, source, form)
            | RewriteRest(target, source, form)
        ):
            assert names[source] is Kind.HIVE
            names[target] = Kind.ICEBERG if form is TargetFormat.ICEBERG else Kind.DELTA
        case VerifyRewritten(target, source, _):
            assert (names[source], target in names) == (Kind.HIVE, True)
        case DropCopy(table, _, _):
            assert names.pop(table) is not Kind.HIVE
        case MakeView(table, target):
            assert target in names
            assert names.setdefault(table, Kind.VIEW) is Kind.VIEW
        case DropView(table, _):
            assert names.pop(table) is Kind.VIEW
        case (
            Shadow(target, hive, _)
            | ShadowWritten(target, hive, _)
            | VerifyShadow(target, hive)
            | CopyAccess(target, hive)
        ):
            assert names[hive] is Kind.HIVE
            assert names[target] in (Kind.ICEBERG, Kind.DELTA)


def performed(job: Job, names: dict[TableName, Kind], crashes: list[int]) -> Job:
    """Run a job to its end, with a crash after n steps of each run; the next run sees only the names."""
    left = iter(crashes)
    while (transition := next_transition(job)) is not None:
        budget = next(left, None)
        steps = plan(job, names)
        for number, step in enumerate(steps):
            if number == budget:
                break
            done(step, names)
        else:
            if budget is None or budget > len(steps):
                job = replace(job, state=job.desired_state, desired_state=transition.then)
            # Otherwise it died before the state was saved.
    return job


def test_no_transition_leads_both_forward_and_back() -> None:
    assert not FORWARD.keys() & BACK.keys()
    for state, desired in REVERT_TO.items():
        assert (state, desired) in BACK


@pytest.mark.parametrize("transitions", [FORWARD, BACK])
def test_every_transition_leads_to_another_or_to_rest(transitions: dict[tuple[State, State], object]) -> None:
    for pair in transitions:
        state, desired = pair
        for _ in range(len(State)):
            transition = next_transition(job(state, desired))
            if transition is None:
                break
            state, desired = desired, transition.then
        assert state is desired
        assert state in (State.WRITES_UNBLOCKED, State.HIVE_DROPPED, State.ICEBERG_DROPPED)


CRASHES = st.lists(st.integers(0, 6), max_size=12)


def at_rest(names: Names, kind: Kind, hive: TableName) -> dict[TableName, Kind]:
    """Return the tables of a resting job."""
    view = {names.main: Kind.VIEW} if names.elsewhere and names.hive != names.main else {}
    return {**view, names.target: kind, hive: Kind.HIVE}


@given(FORMATS, PLACES, CRASHES, CRASHES, st.booleans(), st.booleans())
def test_every_interrupted_run_continues_into_the_archive(
    form: TargetFormat,
    old_name: OldName | None,
    first: list[int],
    second: list[int],
    archive: bool,
    rewritten: bool,
) -> None:
    start = job(State.READY, State.WRITES_BLOCKED, form, old_name=old_name, rewritten=rewritten)
    names = Names.of(start)
    tables = {names.main: Kind.HIVE}
    done = performed(start, tables, first)
    assert done.pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    assert tables == at_rest(names, target_kind(done), names.hive)
    if archive:
        done = performed(replace(done, desired_state=State.HIVE_DROPPED), tables, second)
        assert tables == at_rest(names, target_kind(done), names.archived)


@given(FORMATS, PLACES, st.integers(0, 5), CRASHES, st.integers(0, 7), st.booleans())
def test_every_state_is_reverted_after_any_crash(
    form: TargetFormat,
    old_name: OldName | None,
    transitions: int,
    crashes: list[int],
    halfway: int,
    rewritten: bool,
) -> None:
    reverting = job(State.READY, State.WRITES_BLOCKED, form, old_name=old_name, rewritten=rewritten)
    names = Names.of(reverting)
    tables = {names.main: Kind.HIVE}
    pairs = [reverting.pair]
    for _ in range(transitions):
        transition = next_transition(reverting)
        if transition is None:
            reverting = replace(reverting, desired_state=State.HIVE_DROPPED)
            continue
        for step in plan(reverting, tables):
            done(step, tables)
        reverting = replace(reverting, state=reverting.desired_state, desired_state=transition.then)
        pairs.append(reverting.pair)
    # The job may be reverted during a transition, after some of its steps and before its state was saved.
    for step in plan(reverting, tables)[:halfway]:
        done(step, tables)
    reverting = performed(replace(reverting, desired_state=REVERT_TO[reverting.state]), tables, crashes)
    assert reverting.pair == (State.ICEBERG_DROPPED, State.ICEBERG_DROPPED)
    assert tables == {names.main: Kind.HIVE}, pairs


def test_rows_are_compared_before_each_switch_and_the_archive() -> None:
    switching = job(State.ICEBERG_READY, State.ICEBERG_PRIMARY)
    names = Names.of(switching)
    steps = plan(switching, {names.main: Kind.HIVE, names.copy: Kind.ICEBERG})
    assert steps.index(Verify(names.main, names.copy)) < steps.index(Rename(names.main, names.hive))

    both = {names.main: Kind.ICEBERG, names.hive: Kind.HIVE}
    archive = plan(job(State.WRITES_UNBLOCKED, State.HIVE_DROPPED), both)
    assert archive[-2] == Rename(names.hive, names.archived)
    assert VerifyShadow(names.main, names.hive) in archive
    # Without probation the Hive copy gets no changes, so the archive has the rows of the switch.
    late = CheckLate(names.main, names.hive, TargetFormat.ICEBERG)
    assert archive[0] == late
    without = plan(job(State.WRITES_UNBLOCKED, State.HIVE_DROPPED, probation=0), both)
    assert without == (late, *archive[-2:])
    # Writes between the check and the rename, also after a worker died there.
    last_look = CheckLate(names.main, names.archived, TargetFormat.ICEBERG, decide=False)
    assert archive[-1] == last_look
    renamed = {names.main: Kind.ICEBERG, names.archived: Kind.HIVE}
    assert plan(job(State.WRITES_UNBLOCKED, State.HIVE_DROPPED), renamed) == (last_look,)

    back = plan(job(State.WRITES_BLOCKED, State.SYNC_HIVE), both)
    assert back[-2:] == (VerifyShadow(names.main, names.hive), CopyAccess(names.main, names.hive))


@pytest.mark.parametrize(
    ("state", "desired", "tables", "condition", "parameters"),
    [
        (
            State.READY,
            State.WRITES_BLOCKED,
            {},
            "MIGRATION_TABLE_MOVED",
            {"table": ORDERS, "actual": "doesn't exist", "expected": "a Hive table"},
        ),
        (
            State.READY,
            State.WRITES_BLOCKED,
            {"main": Kind.ICEBERG},
            "MIGRATION_TABLE_MOVED",
            {"table": ORDERS, "actual": "is an Iceberg table"},
        ),
        (
            State.ICEBERG_READY,
            State.ICEBERG_PRIMARY,
            {"main": Kind.HIVE},
            "MIGRATION_TABLE_MOVED",
            {"table": f"{ORDERS}_iceberg", "actual": "doesn't exist"},
        ),
        (
            State.ICEBERG_READY,
            State.ICEBERG_PRIMARY,
            {"main": Kind.HIVE, "copy": Kind.ICEBERG, "hive": Kind.HIVE},
            "TABLE_NAME_TAKEN",
            {"new_name": f"{ORDERS}_hive", "table": ORDERS},
        ),
        (
            State.SYNC_HIVE,
            State.HIVE_PRIMARY,
            {"main": Kind.ICEBERG, "copy": Kind.ICEBERG, "hive": Kind.HIVE},
            "TABLE_NAME_TAKEN",
            {"new_name": f"{ORDERS}_iceberg", "table": ORDERS},
        ),
        (
            State.WRITES_UNBLOCKED,
            State.HIVE_DROPPED,
            {"main": Kind.ICEBERG, "archived": Kind.HIVE, "hive": Kind.HIVE},
            "TABLE_NAME_TAKEN",
            {"new_name": f"{ORDERS}_hive_archived", "table": f"{ORDERS}_hive"},
        ),
        (
            State.HIVE_DROPPED,
            State.WRITES_BLOCKED,
            {"main": Kind.ICEBERG, "archived": Kind.HIVE, "hive": Kind.HIVE},
            "TABLE_NAME_TAKEN",
            {"new_name": f"{ORDERS}_hive", "table": f"{ORDERS}_hive_archived"},
        ),
    ],
)
def test_names_that_no_transition_leaves_are_refused(
    state: State, desired: State, tables: dict[str, Kind], condition: str, parameters: dict[str, str]
) -> None:
    refused_job = job(state, desired)
    names = Names.of(refused_job)
    with conditions.raises(condition, **parameters):
        plan(refused_job, {getattr(names, which): kind for which, kind in tables.items()})


@pytest.mark.parametrize("made", [Kind.HIVE, Kind.VIEW])
def test_revert_is_refused_before_the_block_if_the_hive_name_is_taken(made: Kind) -> None:
    back = job(State.HIVE_DROPPED, State.WRITES_BLOCKED, old_name=OldName.TABLE)
    names = Names.of(back)
    assert names.hive == names.main
    archived = {names.target: Kind.ICEBERG, names.archived: Kind.HIVE}
    assert BlockWrites(names.target) in plan(back, archived)
    with conditions.raises("TABLE_NAME_TAKEN", new_name=ORDERS, command=f"tableferry fleet resume {ORDERS}"):
        plan(back, {**archived, names.main: made})


def test_revert_after_the_switch_keeps_rows_written_to_the_copy() -> None:
    reverting = job(State.ICEBERG_READY, State.HIVE_PRIMARY)
    names = Names.of(reverting)
    steps = plan(reverting, {names.main: Kind.ICEBERG, names.hive: Kind.HIVE})
    assert steps[:2] == (
        Shadow(names.main, names.hive, reverting.target_format),
        VerifyShadow(names.main, names.hive),
    )
    # Changes of privileges, and rows that were written during the first rename.
    assert steps[2:] == (
        CopyAccess(names.main, names.hive),
        CheckLate(names.main, names.hive, reverting.target_format),
        Rename(names.main, names.copy),
        Shadow(names.copy, names.hive, reverting.target_format),
        Rename(names.hive, names.main),
    )


@pytest.mark.parametrize("state", [State.WRITES_BLOCKED, State.ICEBERG_READY])
@pytest.mark.parametrize("old_name", OldName)
@pytest.mark.parametrize("form", TargetFormat)
@pytest.mark.parametrize("copied", [False, True])
def test_revert_keeps_a_foreign_table_with_the_new_name(
    form: TargetFormat, old_name: OldName, state: State, copied: bool
) -> None:
    reverting = job(state, State.HIVE_PRIMARY, form, old_name=old_name)
    names = Names.of(reverting)
    tables = {names.main: Kind.HIVE, names.target: Kind.OTHER}
    if copied:
        tables[names.copy] = target_kind(reverting)
    steps = plan(reverting, tables)
    # A process may have written to an existing copy.
    own = (ShadowWritten(names.copy, names.main, form),) if copied and state is State.ICEBERG_READY else ()
    assert steps == own


@pytest.mark.parametrize("old_name", [None, *OldName])
@pytest.mark.parametrize(
    "pair",
    [
        (State.ICEBERG_READY, State.ICEBERG_PRIMARY),
        (State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED),
        (State.WRITES_UNBLOCKED, State.HIVE_DROPPED),
        (State.WRITES_UNBLOCKED, State.WRITES_BLOCKED),
        (State.WRITES_BLOCKED, State.SYNC_HIVE),
    ],
)
def test_foreign_table_is_never_used_as_the_new_table(
    pair: tuple[State, State], old_name: OldName | None
) -> None:
    moving = job(*pair, old_name=old_name)
    names = Names.of(moving)
    # In place, an interrupted switch first requires the copy.
    refusal = re.compile("a table of another process|doesn't exist")
    with conditions.raises("MIGRATION_TABLE_MOVED", actual=refusal):
        plan(moving, at_rest(names, Kind.OTHER, names.hive))


def test_revert_before_the_switch_checks_no_late_files() -> None:
    for old_name in (None, OldName.VIEW):
        reverting = job(State.ICEBERG_READY, State.HIVE_PRIMARY, old_name=old_name)
        names = Names.of(reverting)
        untouched = plan(reverting, {names.main: Kind.HIVE, names.copy: Kind.ICEBERG})
        assert not any(isinstance(step, Shadow) for step in untouched)
        # A worker died between the two renames.
        halfway = plan(reverting, {names.hive: Kind.HIVE, names.copy: Kind.ICEBERG})
        assert halfway == (
            ShadowWritten(names.copy, names.hive, reverting.target_format),
            Rename(names.hive, names.main),
        )


def test_view_with_the_old_name_is_checked_before_the_block() -> None:
    for pair in ((State.WRITES_UNBLOCKED, State.WRITES_BLOCKED), (State.SYNC_HIVE, State.HIVE_PRIMARY)):
        reverting = job(*pair, old_name=OldName.VIEW)
        names = Names.of(reverting)
        both = {names.target: Kind.ICEBERG, names.hive: Kind.HIVE}
        steps = plan(reverting, {**both, names.main: Kind.VIEW})
        look = steps.index(CheckView(names.main, names.target))
        assert not any(isinstance(step, BlockWrites | Rename) for step in steps[:look])
        with conditions.raises(
            "MIGRATION_TABLE_MOVED", table=ORDERS, actual="is a Hive table", expected="a view"
        ):
            plan(reverting, {**both, names.main: Kind.HIVE})


def test_suspended_runs_are_checked_before_the_copy_is_dropped() -> None:
    reverted = job(State.WRITES_UNBLOCKED, State.ICEBERG_DROPPED)
    names = Names.of(reverted)
    look, managed = CheckSuspended(names.main), MakeManaged(names.main)
    drop = DropCopy(names.copy, names.main, reverted.target_format)
    assert plan(reverted, {names.main: Kind.HIVE, names.copy: Kind.ICEBERG}) == (look, drop, managed)
    # The state after a worker died between the copy's last rename and its drop.
    assert plan(reverted, {names.main: Kind.HIVE, names.dropped: Kind.ICEBERG}) == (look, drop, managed)
    assert plan(reverted, {names.main: Kind.HIVE}) == (look, managed)


def test_revert_during_a_block_unblocks_writes() -> None:
    given_up = job(State.READY, State.ICEBERG_DROPPED)
    tables = {given_up.name: Kind.HIVE}
    assert UnblockWrites(given_up.name) not in plan(given_up, tables)
    assert plan(given_up.with_record(rights=[{"grants": {}}]), tables)[0] == UnblockWrites(given_up.name)


def test_rewritten_copy_is_compared_before_the_switch_and_removed_by_a_revert() -> None:
    ready, form = job(State.READY, State.WRITES_BLOCKED, rewritten=True), TargetFormat.ICEBERG
    names = Names.of(ready)
    assert plan(ready, {names.main: Kind.HIVE})[-2:] == (
        RewriteAhead(names.copy, names.main, form),
        BlockWrites(names.main),
    )
    blocked = job(State.WRITES_BLOCKED, State.ICEBERG_READY, rewritten=True)
    both = {names.main: Kind.HIVE, names.copy: Kind.ICEBERG}
    assert plan(blocked, both)[1] == RewriteRest(names.copy, names.main, form)
    for old_name in (None, OldName.VIEW):
        switching = job(State.ICEBERG_READY, State.ICEBERG_PRIMARY, old_name=old_name, rewritten=True)
        own = Names.of(switching)
        steps = plan(switching, {own.main: Kind.HIVE, own.copy: Kind.ICEBERG})
        assert steps[1] == VerifyRewritten(own.copy, own.main, form)
    reverted = job(State.WRITES_UNBLOCKED, State.ICEBERG_DROPPED, rewritten=True)
    assert plan(reverted, both)[1:3] == (
        DropCopy(names.copy, names.main, form),
        RemoveRewritten(names.copy, names.main, FOLDER),
    )
    # The names after a worker died before the removal.
    assert plan(reverted, {names.main: Kind.HIVE})[1] == RemoveRewritten(names.copy, names.main, FOLDER)


def test_resting_job_has_no_steps() -> None:
    assert plan(job(State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED), {}) == ()


def test_steps_are_described_in_one_line() -> None:
    blocked = job(State.WRITES_BLOCKED, State.ICEBERG_READY, TargetFormat.DELTA)
    assert [str(step) for step in plan(blocked, {blocked.name: Kind.HIVE})] == [
        "make spark_catalog.sales.orders external, so that a rename moves no file",
        "create spark_catalog.sales.orders_delta as Delta over the files of spark_catalog.sales.orders",
        "copy the definition of spark_catalog.sales.orders to spark_catalog.sales.orders_delta",
        "record the files of spark_catalog.sales.orders",
    ]
