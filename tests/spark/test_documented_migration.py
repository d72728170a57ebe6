"""The simplest migration in docs/how-to/migrate-a-table.md prints what the page shows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tableferry import pipelines
from tableferry.pipelines import reports

PAGE = Path(__file__).parents[2] / "docs/how-to/migrate-a-table.md"


@pytest.fixture
def schemas(spark: SparkSession, schema: str) -> Iterator[tuple[str, str]]:
    """The names of two schemas, which are dropped after the test."""
    names = f"{schema}_bronze", f"{schema}_silver"
    yield names
    for name in names:
        spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def read_block(text: str, language: str) -> str:
    """Return the first block of a language in the page."""
    block = re.search(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block
    return block[1]


def normalize(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_simplest_migration_prints_documented_output(
    spark: SparkSession, schema: str, schemas: tuple[str, str], tmp_path: Path
) -> None:
    bronze, silver = schemas
    page = PAGE.read_text(encoding="utf-8").partition("\n## Write the spec")[0]
    project = tmp_path / "shop"
    spec = read_block(page, "yaml").replace("database: bronze", f"database: {bronze}")
    spec = spec.replace("database: silver", f"database: {silver}")
    for name, text in (
        ("dataflows/orders/dataflowspec/orders_main.yaml", spec),
        ("pipeline_configs/global.json", '{"table_migration_state_volume_path": "state"}'),
    ):
        assert name in page
        file = project / name
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    for statement in re.findall(r'^spark\.sql\("(.*)"\)$', read_block(page, "python"), re.MULTILINE):
        spark.sql(re.sub(r"\b(bronze|silver)\b", rf"{schema}_\1", statement))

    printed = io.StringIO()
    console = Console(file=printed, width=200, markup=False, highlight=False)
    reports.print_plan(console, pipelines.plan(project, spark))
    reports.print_run(console, pipelines.run(project, spark))
    old_job = re.search(r"`(INSERT INTO silver\..*?)`", page)
    assert old_job
    spark.sql(old_job[1].replace("silver.", f"{silver}."))
    reports.print_status(console, pipelines.status(project, spark))
    reports.print_verify(console, pipelines.verify(project, spark))
    reports.print_finish(console, pipelines.finish(project, spark))

    output = normalize(printed.getvalue().replace(bronze, "bronze").replace(silver, "silver"))
    documented = "".join(re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    assert [line for line in normalize(documented) if line not in output] == []
