"""After random changes, runs and crashes, the Hive copy has the rows of the target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleet_shadowing import DELTA, ICEBERG, Pair, literal

from tableferry.fleet.jobs.job import TargetFormat

SEEDS = range(soak.SEED, soak.SEED + soak.amount(1, 8))
PLACES = (("mon", 1), ("tue", 2), ("a/b", 3), (None, 1))
STEPS = 6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("form", "partitioned"),
    [
        (ICEBERG, True),
        pytest.param(DELTA, False, marks=soak.only),
        pytest.param(ICEBERG, False, marks=soak.only),
        pytest.param(DELTA, True, marks=soak.only),
    ],
)
@soak.slow
def test_hive_copy_equals_the_target_after_random_changes_and_crashes(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat, partitioned: bool, seed: int
) -> None:
    random = Random(f"{form} {partitioned} {seed}")
    options = random.choice(
        [{}, {f"write.{operation}.mode": "merge-on-read" for operation in ("delete", "update", "merge")}]
        if form is ICEBERG
        else [{}, {"delta.enableDeletionVectors": "true"}, {"delta.columnMapping.mode": "name"}]
    )
    pair = Pair(
        spark, schema, tmp_path, form, keys="day STRING, n INT" if partitioned else "", options=options
    )
    numbers = iter(range(1000))
    pair.make(*made(pair, random, numbers, 6))
    trace = [str(options)]
    for _ in range(STEPS):
        trace.append(change(pair, random, numbers))
        if random.random() < 0.3:
            at = random.randrange(8)
            trace.append(f"crash at {at}: {pair.crash(at)}")
        if random.random() < 0.5:
            trace.append(f"shadow: {pair.run()}")
            assert pair.read() == pair.rows, "\n".join(trace)
    trace.append(f"shadow: {pair.run()}")
    assert pair.read() == pair.rows, "\n".join(trace)


def made(pair: Pair, random: Random, numbers: Iterator[int], count: int) -> list[tuple[object, ...]]:
    """Return rows with unique ids."""
    extras = len(pair.columns.split(", ")) - 2
    return [
        (
            next(numbers),
            random.choice(["a", "b", None]),
            *(random.choice([None, 1, 2]) for _ in range(extras)),
            *(random.choice(PLACES) if pair.keys else ()),
        )
        for _ in range(count)
    ]


def change(pair: Pair, random: Random, numbers: Iterator[int]) -> str:
    """Apply a random change to the target, and return its description."""
    some = random.randrange(3)
    day = random.choice(PLACES)[0]
    at = pair.names.index("day") if pair.keys else 0
    kinds = ["insert", "insert", "overwrite", "update", "delete", "merge", "compact", "partition"]
    kind = random.choice([*kinds, "column", "rename"])
    match kind:
        case "insert":
            pair.insert(*made(pair, random, numbers, 1 + some))
        case "overwrite":
            pair.overwrite(*made(pair, random, numbers, 2))
        case "update":
            pair.sql(f"UPDATE {pair.target} SET name = 'u' WHERE id % 3 = {some}")
            changed = [row for row in pair.rows if row[0] % 3 == some]
            pair.forget(lambda row: row[0] % 3 == some)
            pair.rows.update((row[0], "u", *row[2:]) for row in changed)
        case "delete":
            pair.delete(f"id % 3 = {some}", lambda row: row[0] % 3 == some)
        case "partition" if pair.keys:
            pair.delete(f"day <=> {literal(day)}", lambda row: row[at] == day)
        case "merge":
            new = made(pair, random, numbers, 1)
            old = sorted(pair.rows, key=lambda row: row[0])[:1]
            rows = ", ".join(f"({', '.join(map(literal, row))})" for row in (*new, *old))
            kinds = [part.split()[1] for part in f"{pair.columns}, {pair.keys}".strip(", ").split(", ")]
            pairs = zip(pair.names, kinds, strict=True)
            typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in pairs)
            source = f"SELECT {typed} FROM VALUES {rows} AS v({', '.join(pair.names)})"
            pair.sql(
                f"MERGE INTO {pair.target} t USING ({source}) s "
                f"ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT *"
            )
            pair.forget(lambda row: row in old)
            pair.rows.update([*new, *((row[0], "m", *row[2:]) for row in old)])
        case "compact":
            pair.compact()
        case "column":
            pair.add_column(f"e{next(numbers)}")
        case "rename" if pair.format is ICEBERG or "delta.columnMapping.mode" in pair.options:
            extras = pair.names[2 : len(pair.columns.split(", "))]
            if extras:
                pair.rename_column(random.choice(extras), f"r{next(numbers)}")
                # The last snapshot has the old name until the next snapshot.
                pair.insert(*made(pair, random, numbers, 1))
    return f"{kind} {some} {day}"
