"""A table goes all the way and back by the commands that a scheduler calls, with real letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.postoffice import PostOffice
from tests.spark.fleets import hive_table
from typer.testing import CliRunner

from tableferry import cli

OWNER = "ann@corp.example"


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostOffice]:
    """A mail server, and a folder whose settings name it."""
    monkeypatch.chdir(tmp_path)
    with PostOffice() as office:
        Path("fleet.yml").write_text(
            "initial_gap_days: 0\nprobation_gap_days: 0\n"
            f"mail: {{host: 127.0.0.1, port: {office.port}, sender: data@corp.example}}\n"
        )
        yield office


def call(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, ["fleet", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def outcomes(mode: str, *arguments: str) -> list[tuple[str, str]]:
    """Run a mode, and return what became of each table."""
    found: dict[str, Any] = json.loads(call(mode, *arguments, "--output", "json"))
    return [(each["table"].rpartition(".")[2], each["outcome"]) for each in found["jobs"]]


def test_a_table_goes_all_the_way_and_back(
    spark: SparkSession, schema: str, tmp_path: Path, post: PostOffice
) -> None:
    hive_table(spark, f"{schema}.orders", tmp_path / "orders", [(1, "a"), (2, None)])
    spark.sql(f"CREATE TABLE {schema}.notes (line STRING) STORED AS TEXTFILE")
    spark.sql(f"CREATE VIEW {schema}.recent AS SELECT * FROM {schema}.orders")
    call("init")

    assert call("add", f"{schema}.*", "--owner", OWNER).startswith("Added 2 tables.\n")
    query = f"SELECT 'spark_catalog', '{schema}', 'orders'"
    assert call("add", "--query", query).startswith("Added 0 tables; 1 had a job already.")

    assert set(outcomes("preprocess", "--dryrun", "true")) == {("orders", "planned"), ("notes", "planned")}
    assert set(outcomes("preprocess", "--worker", "2/2")) == {("orders", "done"), ("notes", "paused")}
    assert "IS_CSV_TEXT" in call("list", "--paused")

    assert call("communicate", "--dry-run").endswith("nothing was sent.\n")
    assert [each.suffix for each in Path(".tableferry/letters").iterdir()] == [".eml"]
    assert post.delivered == []
    assert "1 table with a letter of level 1" in call("communicate")
    assert [to for _, to in post.delivered] == [OWNER]

    planned = call("migrate", "--dry-run")
    assert f"spark_catalog.{schema}.orders: Ready → WritesBlocked\n  block writes to" in planned
    migrated = call("migrate", "--batch-size", "10")
    assert migrated.endswith("1 done\nNext: tableferry fleet communicate (1 table)\n")
    assert spark.table(f"ice.{schema}.orders").count() == spark.table(f"{schema}.orders_hive").count() == 2
    assert call("shadow") == "No job is due.\n"

    call("communicate")
    assert "its probation is over" in call("preprocess", "--dry-run")
    assert call("preprocess").endswith("Next: tableferry fleet migrate (1 table)\n")
    assert outcomes("migrate") == [("orders", "done")]
    assert outcomes("preprocess") == [("orders", "done")]
    call("communicate")
    assert len(post.delivered) == 3
    shown = json.loads(call("show", f"{schema}.orders", "--output", "json"))
    assert [each["level"] for each in shown["letters"]] == [1, 2, 3]
    assert call("archive").startswith("1 job moved to the archive")

    spark.sql(f"INSERT INTO ice.{schema}.orders VALUES (3, TIMESTAMP '2026-01-03 10:00:00', 'b')")
    assert outcomes("revert", f"{schema}.orders", "--from-archive") == [("orders", "done")]
    assert spark.table(f"{schema}.orders").count() == 3
    assert "paused: REVERTED" in call("show", f"{schema}.orders")
