"""The demo prints the actual counts of its tables, and its project and data are as documented."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import demo
from pyspark.sql import SparkSession
from rich.console import Console
from tests import soak

from tableferry import pipelines
from tableferry.errors import TableferryError
from tableferry.pipelines import specs

COPIED = "rows of history copied; the copy matches the legacy table row for row"


def is_in_sample(tailnum: str | None) -> bool:
    """Return whether an aircraft is in the sample of 7,000 flights.

    The sample contains aircraft that changed carrier, with and without an absence.
    """
    if tailnum is None:
        return False
    return bool(re.fullmatch("N9..AT|N(197|200|232)PQ", tailnum)) or zlib.crc32(tailnum.encode()) % 80 == 0


@pytest.fixture
def schemas(spark: SparkSession, schema: str) -> Iterator[tuple[str, str]]:
    """Two names for schemas that the demo creates; they are dropped with all tables."""
    names = f"{schema}_bronze", f"{schema}_silver"
    yield names
    for name in names:
        spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@soak.slow
def test_demo_prints_actual_counts(spark: SparkSession, schemas: tuple[str, str], tmp_path: Path) -> None:
    bronze, silver = schemas
    printed = io.StringIO()
    console = Console(file=printed, width=200, markup=False, highlight=False)
    demonstration = demo.Demo(spark, tmp_path, console, bronze, silver, is_in_sample)

    assert demo.run_demo(demonstration, keep=True)

    text = printed.getvalue()
    flights = spark.table(f"{bronze}.flights")
    history, year = flights.where("month <= 9").count(), flights.count()
    assert 3_000 < history < year < 9_000
    assert spark.table(f"{silver}.flights").count() == year
    copied = spark.table(f"{silver}.aircraft_legacy").count()
    dimension = spark.table(f"{silver}.aircraft").count()
    assert copied < dimension == spark.table(f"{silver}.aircraft_check").count()

    assert "the hand-over point is recorded by the old streams: batch " in text
    # The stream's position at the first run varies; it has read at least August, and no October.
    (flights_copied,) = re.findall(rf"{silver}.flights: ([0-9,]+) {COPIED}", text)
    assert flights.where("month <= 8").count() <= int(flights_copied.replace(",", "")) <= history
    for fact in (
        f"is proved: {silver}.aircraft_legacy@0 holds exactly the {copied:,} rows made of {bronze}.",
        f"{silver}.aircraft: {copied:,} {COPIED}",
        f"{silver}.flights: proved: it contains exactly the {year:,} rows of {silver}.flights_legacy@",
        f"{silver}.aircraft: proved: it contains exactly the {dimension:,} rows made of "
        f"{bronze}.aircraft_changes@11",
        f"The sources got {flights.where('month = 10').count():,} flights",
        f"{silver}.flights: nothing new",
        f"{bronze}.flights and {silver}.flights match: {year:,} rows",
        f"{silver}.aircraft_check and {silver}.aircraft match: {dimension:,} rows",
        "[LEGACY_TABLE_WRITTEN_RECENTLY] STREAMING UPDATE of stream",
        f"{silver}.flights_legacy: is a view of {silver}.flights now; the legacy table is "
        f"{silver}.flights_legacy__legacy",
        f"{silver}.flights_legacy: is the legacy table again; the view is dropped",
        f"{silver}.flights_legacy is up to date.",
        f"Everything is in {tmp_path}",
    ):
        assert fact in text
    assert "DIFFERS" not in text

    assert pipelines.status(demonstration.project, spark).complete
    finished = pipelines.finish(demonstration.project, spark)
    assert sorted(map(str, finished.finished)) == [f"{silver}.aircraft", f"{silver}.flights"]


@soak.only  # The data are from a package with a pinned version, and the test above uses a sample.
def test_demo_data_contain_all_flights_and_every_kind_of_change(spark: SparkSession, tmp_path: Path) -> None:
    story = demo.Demo(spark, tmp_path, Console(file=io.StringIO()))
    flights = demo.read_flights(story)
    assert flights.num_rows == 336_776
    (tmp_path / "data").mkdir()
    actual = spark.sql(
        """
        WITH changes AS (
            SELECT *, lag(event) OVER w AS event_before, lag(carrier) OVER w AS carrier_before,
                   lag(changed_at) OVER w AS before
            FROM {changes} WINDOW w AS (PARTITION BY tailnum ORDER BY changed_at)
        )
        SELECT count_if(changed_at = before), count_if(event = event_before AND carrier = carrier_before),
               count_if(event = 'gone' AND arrived <= 9), count_if(event = 'gone' AND arrived > 9),
               count_if(event_before = 'gone' AND arrived <= 9),
               count_if(event_before = 'gone' AND arrived > 9),
               count_if(event_before = 'flies' AND carrier <> carrier_before),
               count_if(carrier <> carrier_before AND arrived > 9)
        FROM changes
        """,
        changes=spark.createDataFrame(demo.find_aircraft_changes(story, flights)),
    ).first()
    assert actual is not None
    assert tuple(actual[:2]) == (
        0,
        0,
    )  # No aircraft has two events at the same time or two equal events in a row.
    assert all(actual[2:])


def test_demo_project_migrates_both_targets() -> None:
    project = specs.load(demo.PROJECT)
    assert [str(dataflow.target.name) for dataflow in project.dataflows] == [
        "silver.aircraft",
        "silver.flights",
    ]
    assert all(dataflow.migration for dataflow in project.dataflows)


def test_clear_folder_removes_only_files_of_a_demo(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(TableferryError, match="mine contains files that no demo wrote"):
        demo.clear_folder(mine)
    assert (mine / "thesis.txt").exists()

    folder = tmp_path / "new" / "demo"
    demo.clear_folder(folder)
    (folder / "warehouse").mkdir()
    (folder / "spark.log").write_text("")
    demo.clear_folder(folder)
    assert [path.name for path in folder.iterdir()] == [demo.MARKER]
