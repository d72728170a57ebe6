"""The Spark session, and the example project with separate tables and state for each test.

Spark runs on this machine. Tests marked `workspace` run only where they are asked for, in an environment with
Databricks Connect (README.md says how); TEST_CATALOG names a catalog in which they may create schemas.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from pyspark.sql import SparkSession
from tableferry.spark import session

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that the package itself would take here."""
    # Java's optimising compiler costs so short a run more than it gives back.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    spark = session.resolve(tmp_path_factory.mktemp("warehouse"))
    yield spark
    session.stop(spark)


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    """The name of an empty schema that goes, with all its tables, when the test ends."""
    schema = f"{os.environ.get('TEST_CATALOG', 'spark_catalog')}.test_{uuid4().hex[:12]}"
    spark.sql(f"CREATE SCHEMA {schema}")
    yield schema
    spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def project(schema: str, tmp_path: Path) -> Path:
    """A copy of src/orders whose tables and state are the test's own."""
    project = tmp_path / "orders"
    shutil.copytree(ROOT / "src" / "orders", project)
    catalog, name = schema.split(".")
    configs = project / "pipeline_configs"
    substitutions = yaml.safe_load((configs / "dev_substitutions.yaml").read_text(encoding="utf-8"))
    substitutions["tokens"] |= {"pipeline_catalog": catalog, "pipeline_schema": name}
    (configs / "dev_substitutions.yaml").write_text(yaml.safe_dump(substitutions), encoding="utf-8")
    (configs / "global.yaml").write_text(
        yaml.safe_dump({"table_migration_state_volume_path": str(tmp_path / "state")}), encoding="utf-8"
    )
    return project
