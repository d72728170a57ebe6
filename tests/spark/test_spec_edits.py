"""Random edits of a spec between runs, with Spark: each run is refused, or writes each row exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests import soak
from tests.spark.tables import schema_folder
from tests.spec_edits import FIRST, KNOWN, STARTS, TURNS, Drawn, Scenario

from tableferry import pipelines
from tableferry.pipelines.model.phases import Phase
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count()
CONCURRENT = 12


@dataclass
class Warehouse:
    """A schema and a project that uses it: the scenario's backend with Spark."""

    spark: SparkSession
    schema: str
    root: Path
    lake: Path

    def register(self, table: str) -> None:
        """Register a table in the catalog."""
        self.spark.sql(f"CREATE TABLE {self.schema}.{table} USING delta LOCATION '{self.lake / table}'")

    def run(self) -> None:
        """Run the project once."""
        pipelines.run(self.root, self.spark, pipeline_id="p")

    def status(self) -> tuple[Phase, str]:
        """Return the phase and the certainty of the hand-over from `pipelines.status`."""
        [target] = pipelines.status(self.root, self.spark, pipeline_id="p").plan.targets
        return target.phase, target.migration_start.certainty if target.migration_start else ""

    def baselines(self, target: str) -> Mapping[str, int] | None:
        """Return the recorded baselines."""
        start = StateStore(self.root / "state", "p").read(TableName((self.schema, target))).migration_start
        if start is None:
            return None
        return {baseline.table.table: baseline.version for baseline in start.baselines.values()}


def test_spec_edits_between_runs_lose_and_repeat_no_row(spark: SparkSession, tmp_path: Path) -> None:
    def run(drawn: Drawn) -> None:
        start, first, turns = drawn
        name = f"spec_edits_{next(_numbers)}"
        spark.sql(f"CREATE SCHEMA {name}")
        warehouse = Warehouse(spark, name, tmp_path / name, schema_folder(spark, name))
        Scenario(warehouse, start, first).play(turns)

    @soak.slow_examples(8)
    @given(st.lists(st.tuples(STARTS, FIRST, TURNS), min_size=1, max_size=CONCURRENT))
    def scenarios(drawn: list[Drawn]) -> None:
        distinct = {repr(scenario): scenario for scenario in drawn}
        with ThreadPoolExecutor(CONCURRENT) as pool:
            for running in [pool.submit(run, scenario) for scenario in distinct.values()]:
                running.result()

    for known in soak.amount(KNOWN[:1], KNOWN):
        run(known)
    if soak.SOAKING:
        scenarios()
