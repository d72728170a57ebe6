"""Every row exactly once and every interval exact, whatever happens in whatever order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import soak
from tests.spark.tables import schema_folder
from tests.spark.worlds import Change, Happening, Kind, World, worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How many worlds live at once, and how often: an append's run costs half of what a run with MERGEs does.
AT_ONCE: dict[Kind, int] = {
    "append": soak.amount(4, 12),
    "scd1": 12,
    "scd2": soak.amount(3, 12),
}
EXAMPLES: dict[Kind, int] = {
    "append": soak.amount(2, 7),
    "scd1": 4,
    "scd2": soak.amount(2, 3),
}
Drawn = tuple[tuple[Change, ...], list[Happening], bool]
_numbers = count()


# Type 2 holds what type 1 keeps of each key, and test_cdc_property.py compares both to an oracle.
@pytest.mark.parametrize("kind", soak.amount(["append", "scd2"], ["append", "scd1", "scd2"]))
def test_every_row_exactly_once(kind: Kind, spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """Several interleavings at once, for a single one leaves cores idle."""

    folder = schema_folder(spark, schema)

    def live(drawn: Drawn) -> None:
        history, story, union = drawn
        world = World(spark, schema, folder, tmp_path / f"world_{next(_numbers)}", kind, history, union)
        for one in story:
            world.happen(one)
        world.run()

    @soak.slow_examples(EXAMPLES[kind])
    @given(st.lists(worlds, min_size=AT_ONCE[kind], max_size=AT_ONCE[kind]))
    def interleavings(drawn: list[Drawn]) -> None:
        # Hypothesis begins with the simplest world, as often as there are worlds.
        distinct = {repr(world): world for world in drawn}.values()
        with ThreadPoolExecutor(len(distinct)) as pool:
            for done in [pool.submit(live, one) for one in distinct]:
                done.result()

    interleavings()
