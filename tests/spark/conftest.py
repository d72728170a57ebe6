"""One Spark session for the whole run, and a separate schema for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests import metastore, object_stores, quick, servers

from tableferry.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count(1)

_SETTINGS = {
    # Queries over literals write as on two cores.
    "spark.sql.leafNodeDefaultParallelism": "2",
    # Each task that reads a Delta log first generates code, which takes longer than to read the few lines.
    "spark.sql.files.minPartitionNum": "1",
}


@pytest.fixture(scope="session")
def s3_port() -> int:
    """The port of the S3 server, which Spark needs when it starts."""
    return servers.free_port()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, s3_port: int) -> Iterator[SparkSession]:
    """The session that `resolve` returns without configuration except for the metastore and S3."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", quick.JAVA_OPTIONS)
    # Query plans fill the default heap of 1 GB after ten minutes.
    os.environ.setdefault("SPARK_DRIVER_MEMORY", "3g")
    with ExitStack() as stack:
        settings = _SETTINGS | quick.SETTINGS | object_stores.spark_settings(s3_port)
        if metastore.WANTED:
            folder, hadoop = tmp_path_factory.mktemp("metastore"), object_stores.hadoop_settings(s3_port)
            address = stack.enter_context(metastore.serving(folder, hadoop))
            settings |= {"spark.hadoop.hive.metastore.uris": address}
        conf = tmp_path_factory.mktemp("conf")
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARK_CONF_DIR", str(conf))
            if "PYTEST_XDIST_WORKER" in os.environ:
                # Each worker has a separate session, and the machine has one core per worker.
                patch.setenv("TABLEFERRY_MASTER", "local[1]")
            spark = session.resolve(tmp_path_factory.mktemp("warehouse"), iceberg=True, kafka=True)
        stack.callback(session.stop, spark)
        yield spark


@pytest.fixture
def schema(spark: SparkSession) -> str:
    """The name of an empty schema, which is deleted with the warehouse of the run."""
    name = f"test_{next(_numbers)}"
    spark.sql(f"CREATE SCHEMA {name}")
    return name
