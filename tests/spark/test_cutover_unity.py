"""The command cutover on tables of Unity Catalog: real Spark renames, and a fake workspace keeps grants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conditions import check, names
from tests.spark.projects import Project
from tests.spark.test_cutover import cut_over, migrated, plan, read, undo
from tests.workspace import FakeWorkspace

from tableferry.errors import Refused
from tableferry.pipelines.cutover import commands
from tableferry.pipelines.cutover.catalog_entries import SparkCatalog
from tableferry.spark.tables import DEFAULT_CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The columns of the information schema that the command reads; all are texts.
INFORMATION = {
    "views": ("table_schema", "table_name", "view_definition"),
    "table_tags": ("schema_name", "table_name", "tag_name", "tag_value"),
    "column_tags": ("schema_name", "table_name", "column_name", "tag_name", "tag_value"),
}
LINEAGE = (
    "entity_type STRING, entity_id STRING, source_table_full_name STRING, created_by STRING, event_date DATE"
)


@contextmanager
def system_tables(spark: SparkSession, warehouse: Path) -> Iterator[None]:
    """Provide the information schema of the default catalog, and the lineage table of the account."""
    conf = "spark.sql.catalog.system"
    spark.conf.set(conf, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{conf}.type", "hadoop")
    spark.conf.set(f"{conf}.warehouse", str(warehouse))
    spark.sql("CREATE NAMESPACE IF NOT EXISTS system.access")
    spark.sql(f"CREATE TABLE system.access.table_lineage ({LINEAGE}) USING iceberg")
    spark.sql("CREATE SCHEMA information_schema")
    for name, columns in INFORMATION.items():
        texts = ", ".join(f"{column} STRING" for column in columns)
        spark.sql(f"CREATE TABLE information_schema.{name} ({texts}) USING delta")
    yield
    spark.sql("DROP SCHEMA information_schema CASCADE")
    spark.sql("DROP TABLE system.access.table_lineage")


@pytest.fixture
def unity(
    spark: SparkSession,
    schema: str,
    tmp_path: Path,
    logged_in: FakeWorkspace,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[FakeWorkspace]:
    """Provide Spark's default catalog as one of Unity Catalog, whose objects a fake workspace knows, too."""
    execute = SparkCatalog.execute

    def execute_and_follow(self: SparkCatalog, statement: str) -> None:
        execute(self, statement)
        logged_in.follow(statement, f"{DEFAULT_CATALOG}.{schema}")

    monkeypatch.setattr(SparkCatalog, "execute", execute_and_follow)
    monkeypatch.setattr(commands, "is_in_unity_catalog", lambda name: name == DEFAULT_CATALOG)
    with system_tables(spark, tmp_path / "system"):
        yield logged_in


def test_cutover_on_unity_catalog_carries_grants_and_names_jobs_views_and_filters(
    spark: SparkSession, schema: str, unity: FakeWorkspace, tmp_path: Path
) -> None:
    project = migrated(Project(tmp_path / "shop", f"{DEFAULT_CATALOG}.{schema}", spark))
    legacy, target = f"{project.schema}.out_legacy", f"{project.schema}.out"
    unity.put_table(legacy, "boss@corp.com", bi={"SELECT"}, etl={"MODIFY", "SELECT"})
    unity.put_table(target, "me@corp.com")
    unity.tables[legacy]["row_filter"] = {"function_name": "f", "input_column_names": ["id"]}
    view = f"'{project.schema}', 'report', 'SELECT id FROM {legacy}'"
    spark.sql(f"INSERT INTO information_schema.views VALUES ({view})")
    spark.sql(
        "INSERT INTO system.access.table_lineage VALUES "
        f"('JOB', '12', '{legacy}', 'ann@corp.com', current_date()),"
        f"('JOB', '13', '{target}', 'ann@corp.com', current_date()),"
        f"('PIPELINE', 'p', '{legacy}', 'ann@corp.com', date_sub(current_date(), 31))"
    )
    planned = plan(project)
    assert names(planned.refusals) == ["CUTOVER_TARGET_UNPROTECTED"]
    found = {finding.condition: finding for finding in planned.warnings}
    check(found["LEGACY_NAME_READ_BY_JOBS"], "LEGACY_NAME_READ_BY_JOBS", entities=["job 12"])
    assert "report" in found["LEGACY_NAME_READ_BY_VIEWS"].message
    assert "VIEW_OWNER_DIFFERS" in found
    with project.nothing_written(), pytest.raises(Refused):
        cut_over(project)
    unity.tables[target]["row_filter"] = unity.tables[legacy]["row_filter"]

    cut_over(project)
    assert read(project) == [(1, "a"), (2, "b"), (3, "c")]
    assert unity.granted(legacy) == {"bi": {"SELECT"}, "etl": {"SELECT"}}
    assert unity.granted(f"{legacy}__legacy") == {"bi": {"SELECT"}, "etl": {"MODIFY", "SELECT"}}
    undo(project)
    assert read(project) == [(1, "a"), (2, "b")]
    assert unity.granted(legacy) == {"bi": {"SELECT"}, "etl": {"MODIFY", "SELECT"}}
    assert set(unity.tables) == {legacy, target}
