"""`make demo-fleet` prints correct results, here for a few of its tables."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import demo_fleet
from pyspark.sql import SparkSession
from rich.console import Console
from tests import soak

from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.settings import FleetSettings, MailSettings

FEW = ("flights_ua", "flights_b6", "planes", "planes_orc", "airports_csv")


@pytest.fixture
def unmade(spark: SparkSession, schema: str) -> Iterator[str]:
    """Provide the name of a schema that the demo creates, and drop the schema with its tables."""
    yield f"{schema}_demo"
    spark.sql(f"DROP SCHEMA IF EXISTS {schema}_demo CASCADE")


@soak.only  # In make test, test_fleet_end_to_end.py runs all five modes.
def test_fleet_demo_prints_correct_results(spark: SparkSession, unmade: str, tmp_path: Path) -> None:
    printed = io.StringIO()
    mailbox = demo_fleet.Mailbox()
    store = open_store(f"sqlite:///{tmp_path / 'fleet.db'}")
    few = [recipe for recipe in demo_fleet.recipes() if recipe.table in FEW]
    with demo_fleet.mail_server(mailbox) as port:
        demonstration = demo_fleet.Demo(
            spark,
            tmp_path,
            Console(file=printed, width=200, markup=False, highlight=False),
            few,
            store,
            FleetSettings(mail=MailSettings(host="127.0.0.1", port=port)),
            mailbox,
            schema=unmade,
        )
        assert demo_fleet.run_demo(demonstration), printed.getvalue()
    store.close()

    text = printed.getvalue()
    assert f"{unmade}.airports_csv paused: IS_CSV_TEXT" in text
    assert "3 of 3 tables have the same rows as their Hive copies" in text
    assert re.search(r"flights_\w+ +iceberg +IcebergDropped +REVERTED", text)
    assert "DIFFERS" not in text
    assert "The worker is killed between two renames" in text
    assert f"{unmade}.flights_b6 paused: WRITTEN_LATE" in text
    assert re.search(r"([\d,]+) rows in flights_b6, \1 were written", text)
    assert "3 of 3 have all rows that were written" in text
    levels = {re.search(r"\d", str(email["Message-ID"]))[0] for email in mailbox.messages}  # type: ignore[index]
    assert levels == {"1", "2", "3"}


def test_fleet_demo_has_eight_tables() -> None:
    assert len({recipe.table for recipe in demo_fleet.recipes()}) == 8
