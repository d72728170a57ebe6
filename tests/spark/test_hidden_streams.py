"""Streams that a project's Python code starts outside the given session are found before the copy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import soak
from tests.conditions import raises
from tests.spark.projects import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string"
HIDDEN_READER = """
from pyspark.sql import SparkSession

def hidden(name):
    return SparkSession.getActiveSession().readStream.table(name)

"""
VIEWS = {
    "alone": "    return hidden(tokens['other'])",
    "beside": "    return spark.readStream.table(tokens['table']).union(hidden(tokens['other']))",
    # Two streams of the same table, one of them hidden.
    "twin": "    return spark.readStream.table(tokens['table']).union(hidden(tokens['table']))",
}


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    project = Project(tmp_path / "shop", schema, spark)
    for table in ("src", "other", "legacy"):
        project.create(table, FEED, (1, "a"))
    return project


def test_function_with_hidden_stream_is_refused(project: Project) -> None:
    tables = {"table": f"{project.schema}.src", "other": f"{project.schema}.other"}
    for name, body in VIEWS.items():
        project.write(
            f"dataflows/d/python_functions/{name}.py", f"{HIDDEN_READER}def get_df(spark, tokens):\n{body}\n"
        )
        function = {"functionPath": f"{name}.py", "tokens": tables}
        spec = project.standard(name, function, migration={"table": "legacy"}, sourceType="python")
        with (
            project.nothing_written(),
            raises("STREAM_HIDDEN_IN_FUNCTION"),
        ):
            project.run()
        spec.unlink()


@soak.slow
def test_stream_used_twice_is_read_once(project: Project) -> None:
    project.write(
        "dataflows/d/python_functions/twice.py",
        """
def get_df(spark, tokens):
    rows = spark.readStream.table(tokens["table"])
    return rows.union(rows.selectExpr("id + 10", "v"))
""",
    )
    function = {"functionPath": "twice.py", "tokens": {"table": f"{project.schema}.src"}}
    project.standard("twice", function, migration={"table": "legacy"}, sourceType="python")
    project.run()
    project.insert("src", (2, "b"))
    project.run()
    assert project.rows("twice") == [(1, "a"), (12, "b"), (2, "b")]


@soak.slow
def test_transform_with_second_stream_is_refused(project: Project) -> None:
    body = "    return df.selectExpr('id', 'upper(v) AS v')"
    transform = project.write(
        "dataflows/d/python_functions/change.py", f"{HIDDEN_READER}def apply_transform(df, tokens):\n{body}\n"
    )
    source = project.delta("src", pythonTransform={"functionPath": "change.py"})
    project.standard("changed", source, migration={"table": "legacy"})
    project.run()
    project.insert("src", (2, "b"))
    project.run()
    assert project.rows("changed") == [(1, "a"), (2, "B")]

    other = f"hidden('{project.schema}.other')"
    transform.write_text(f"{HIDDEN_READER}def apply_transform(df, tokens):\n    return df.union({other})\n")
    project.insert("src", (3, "c"))
    with (
        project.nothing_written(),
        raises("TRANSFORM_READS_STREAM", file=re.compile(r"change\.py$")),
    ):
        project.run()
