"""The Spark session, and the example project with tables and state of its own for each test.

Where nothing is configured, Spark runs on this machine. Where Databricks Connect is installed and configured,
the tests run in the workspace; then TEST_CATALOG names a catalog in which they may make schemas, and
TEST_VOLUME a volume's path, such as /Volumes/main/default/tests, below which they may write.
"""

{% if cookiecutter.spec_format == "json" %}
import json
{% endif %}
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
{% if cookiecutter.spec_format == "yaml" %}
import yaml
{% endif %}
from pyspark.sql import SparkSession

from tableferry import session

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
    state = Path(os.environ["TEST_VOLUME"], name) if "TEST_VOLUME" in os.environ else tmp_path / "state"
    configs = project / "pipeline_configs"
{% if cookiecutter.spec_format == "json" %}
    substitutions = json.loads((configs / "dev_substitutions.json").read_text(encoding="utf-8"))
    substitutions["tokens"] |= {"pipeline_catalog": catalog, "pipeline_schema": name}
    (configs / "dev_substitutions.json").write_text(json.dumps(substitutions), encoding="utf-8")
    (configs / "global.json").write_text(
        json.dumps({"table_migration_state_volume_path": str(state)}), encoding="utf-8"
    )
{% else %}
    substitutions = yaml.safe_load((configs / "dev_substitutions.yaml").read_text(encoding="utf-8"))
    substitutions["tokens"] |= {"pipeline_catalog": catalog, "pipeline_schema": name}
    (configs / "dev_substitutions.yaml").write_text(yaml.safe_dump(substitutions), encoding="utf-8")
    (configs / "global.yaml").write_text(
        yaml.safe_dump({"table_migration_state_volume_path": str(state)}), encoding="utf-8"
    )
{% endif %}
    return project
