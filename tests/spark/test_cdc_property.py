from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from tests import soak
from tests.oracle import Event, scd1, scd2

from tableferry.formats.delta.commits import commits_after, newest_version
from tableferry.pipelines.cdc import key_ranges
from tableferry.pipelines.engines.streaming.cdc_batches import COMPACTED_EVERY, apply_events
from tableferry.pipelines.engines.streaming.table_creation import create_tables
from tableferry.pipelines.handover import foreign_writes
from tableferry.pipelines.model.flows import CdcSettings, ScdType, Target, event_log_name
from tableferry.pipelines.model.identities import ForeignWrites
from tableferry.spark.catalog import facts
from tableferry.spark.tables import TableName


class Crash(Exception):
    """Simulates the death of the process."""


COLUMNS = (
    "`sub key` string, `a.b` int, k int, `C``d` string, __sequence int, __operation string, __exact boolean"
)
DATA = ("a.b", "C`d")
LEGACY = ["k", "`sub key`", "`a.b`", "`C``d`"]
VARIANTS: list[tuple[ScdType, dict[str, Any]]] = [
    (1, {}),
    (1, {"ignore_null_updates": True}),
    (1, {"apply_as_truncates": "false"}),
    (1, {"ignore_null_updates": True, "apply_as_truncates": "false"}),
    (2, {}),
    (2, {"ignore_null_updates": True}),
    (2, {"track_history_column_list": ("A.B",)}),
    (2, {"ignore_null_updates": True, "track_history_except_column_list": ("a.b",)}),
]
# Nearly every setting once; the scenarios of test_property.py have none.
VARIANTS = soak.amount([VARIANTS[3], VARIANTS[6]], VARIANTS)
VALUES = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "x"]))
LIVE = st.dictionaries(
    st.integers(1, 6), st.tuples(st.sampled_from(["upsert", "upsert", "delete", "both"]), VALUES), max_size=5
)
HISTORY = st.dictionaries(st.integers(1, 6), st.tuples(st.integers(1, 3), VALUES), max_size=3)


def list_events(
    key: tuple[Any, ...], live: dict[int, Any], history: dict[int, Any], scd: int
) -> Iterable[Event]:
    for at, (operation, values) in live.items():
        if operation != "delete":
            yield Event(key, at, "upsert", dict(zip(DATA, values, strict=True)))
        if operation != "upsert":
            yield Event(key, at, "delete")
    starts = sorted(history)
    for at, following in pairwise([*starts, 99]):
        length, values = history[at]
        lowest = None if scd == 1 and at == starts[0] else at
        yield Event(key, lowest, "upsert", dict(zip(DATA, values, strict=True)), exact=True)
        if at + length < following:
            yield Event(key, at + length, "delete", exact=True)


def create_events(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    return spark.createDataFrame(
        [
            (
                *(event.key or (None, None))[1:],
                event.values.get("a.b"),
                (event.key or (None, None))[0],
                event.values.get("C`d"),
                event.sequence,
                event.operation,
                event.exact,
            )
            for event in events
        ],
        COLUMNS,
    )


STORY = st.tuples(
    st.lists(st.tuples(LIVE, HISTORY), min_size=soak.amount(10, 20), max_size=soak.amount(20, 40)),
    st.sets(st.integers(1, 4), min_size=1, max_size=2),
    st.integers(0, 10_000),
)


@soak.slow_examples(soak.amount(2, 4))
@given(stories=st.lists(STORY, min_size=len(VARIANTS), max_size=len(VARIANTS)))
def test_target_matches_oracle_for_any_order_and_batches_of_events(
    spark: SparkSession, schema: str, stories: list[tuple[Any, ...]]
) -> None:
    if len(set(map(repr, stories))) == 1:
        return  # Hypothesis' simplest example: the same story for each variant.
    seed = stories[0][-1]
    # All variants run concurrently, because one alone leaves cores idle.
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(VARIANTS)) as pool:
        # Low limits, so that some batches exceed them.
        patch.setattr(key_ranges, "_MAX_KEY_LITERALS", (1_000, 2)[seed % 2])
        patch.setattr(key_ranges, "MAX_EVENTS", (20_000, 6)[seed // 2 % 2])
        done = [
            pool.submit(apply_story, spark, TableName((schema, f"t{at}")), *variant, *story)
            for at, (variant, story) in enumerate(zip(VARIANTS, stories, strict=True))
        ]
    for variant, future in zip(VARIANTS, done, strict=True):
        if error := future.exception():
            error.add_note(f"variant: {variant}")
            raise error


def apply_story(
    spark: SparkSession,
    name: TableName,
    scd: ScdType,
    options: dict[str, Any],
    stories: list[tuple[dict[int, Any], dict[int, Any]]],
    truncates: set[int],
    seed: int,
) -> None:
    keys = [(at // 2 if at > 1 else None, "é" if at % 2 else None) for at in range(len(stories))]
    events = [
        event
        for key, (live, history) in zip(keys, stories, strict=True)
        for event in list_events(key, live, history, scd)
    ]
    if "apply_as_truncates" in options:
        events += [Event((), at, "truncate") for at in truncates]
    chance = random.Random(seed)
    chance.shuffle(events)
    crashing = chance.randrange(2)
    # The user deletes rows after the first batch, unless that batch is repeated, which would restore them.
    deletes_rows = crashing == 1
    cut = chance.randrange(len(events) // 2 if deletes_rows else 0, len(events) + 1)
    batches = [events[:cut], events[cut:]]
    # Some start with a copy, whose rows the target gets without a fold.
    copied = chance.random() < 0.5
    if copied:
        batches = [[event for event in events if event.exact], [event for event in events if not event.exact]]
    cdc = CdcSettings(keys=("K", "SUB KEY"), sequence_by="s", scd_type=scd, **options)
    spark.sql(f"DROP TABLE IF EXISTS {name.sql}")
    target = Target(name, cdc)
    spark.sql(f"DROP TABLE IF EXISTS {event_log_name(target.name).sql}")
    create_tables(spark, target, create_events(spark, events).schema)

    # Batch numbers of a first batch, of a later batch and of a batch that compacts the log.
    numbers = [chance.choice([0, 1, COMPACTED_EVERY - 1]) for _ in batches]
    if copied:
        numbers[0] = 0
    point = chance.choice(["events of", "rows of"])
    if numbers[crashing] == COMPACTED_EVERY - 1:
        point = chance.choice([point, "compacting"])

    # A large log is read by ranges of keys, a small one isn't.
    log_size = key_ranges.LogSize(large_bytes=chance.choice([0, 2**40]))

    def crash(what: str) -> None:
        if what.startswith(point):
            raise Crash(what)

    def apply_batch(at: int, before: Callable[[str], None] = lambda _: None) -> None:
        events = create_events(spark, batches[at])
        rows = create_legacy_rows(spark, batches[0], cdc) if copied and at == 0 else None
        apply_events(
            events,
            target.name,
            cdc,
            batch_number=numbers[at],
            before_commit=before,
            log_size=log_size,
            copied_rows=rows,
        )

    for at in range(len(batches)):
        if at == 1 and deletes_rows:
            batches[0] = delete_rows(spark, target, batches[0], chance)
        if at == crashing:
            with pytest.raises(Crash):
                apply_batch(at, crash)
            if chance.random() < 0.5:
                continue
        apply_batch(at)
    apply_batch(crashing)

    events = [event for batch in batches for event in batch]
    columns = [*LEGACY, "__START_AT", "__END_AT"] if scd == 2 else LEGACY
    actual = [tuple(row) for row in spark.table(target.name.sql).select(*columns).collect()]
    assert sorted(map(repr, actual)) == sorted(map(repr, compute_expected_rows(events, cdc)))


def delete_rows(
    spark: SparkSession, target: Target, events: Sequence[Event], chance: random.Random
) -> list[Event]:
    """Delete a key or a row, run the statements of the refusal, and return the remaining events."""
    cdc, log = target.cdc, event_log_name(target.name)
    assert cdc is not None
    rows = compute_expected_rows(events, cdc)
    if not rows:
        return list(events)
    row = chance.choice(sorted(rows, key=repr))
    versions = {name: newest_version(spark, name) for name in (target.name, log)}
    one_row = cdc.scd_type == 2 and chance.random() < 0.5
    condition = "k <=> {k} AND `sub key` <=> {sub}" + (" AND __START_AT = {start}" if one_row else "")
    condition = condition.format(
        k="NULL" if row[0] is None else row[0],
        sub="NULL" if row[1] is None else f"'{row[1]}'",
        start=row[-2],
    )
    spark.sql(f"DELETE FROM {target.name.sql} WHERE {condition}")

    def found() -> tuple[ForeignWrites, ...]:
        known = [facts(spark, name) for name in (target.name, log)]
        assert known[0] is not None
        assert known[1] is not None
        commits = [commits_after(spark, name, version) for name, version in versions.items()]
        assert cdc is not None
        return foreign_writes.find_foreign_writes(spark, cdc, known[0], known[1], *commits)

    [writes] = found()
    assert writes.remaining == 1
    for statement in writes.statements:
        spark.sql(statement)
    assert [writes.remaining for writes in found()] == [0, 0]
    if not one_row or [other[:2] for other in rows].count(row[:2]) == 1:
        return [event for event in events if event.key != row[:2]]
    return [
        Event(event.key, event.sequence, "delete")
        if event.key == row[:2] and event.operation == "upsert" and is_in(event.sequence, *row[-2:])
        else event
        for event in events
    ]


def is_in(sequence: Any, start: Any, end: Any) -> bool:
    return bool(sequence >= start and (end is None or sequence < end))


def compute_expected_rows(events: Sequence[Event], cdc: CdcSettings) -> list[tuple[Any, ...]]:
    ignore = cdc.ignore_null_updates
    if cdc.scd_type == 1:
        return [(*key, *row.values()) for key, row in scd1(events, DATA, ignore_nulls=ignore).items()]
    tracked: Sequence[str] = DATA
    if cdc.track_history_column_list or cdc.track_history_except_column_list:
        tracked = DATA[:1] if cdc.track_history_column_list else DATA[1:]
    return [
        (*state.key, *state.values.values(), state.start, state.end)
        for state in scd2(events, DATA, ignore_nulls=ignore, tracked=tracked)
    ]


def create_legacy_rows(spark: SparkSession, events: Sequence[Event], cdc: CdcSettings) -> DataFrame:
    """Return the rows that these events alone give, as the legacy table."""
    columns = "k int, `sub key` string, `a.b` int, `C``d` string"
    if cdc.scd_type == 2:
        columns += ", __START_AT int, __END_AT int"
    return spark.createDataFrame(compute_expected_rows(events, cdc), columns)
