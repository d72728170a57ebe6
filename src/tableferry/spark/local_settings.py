"""The settings and jars of local Spark: Delta, a Hive metastore in Derby, and all files in one folder."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from tableferry.errors import MissingPackage
from tableferry.extras import install
from tableferry.spark import local_metastore
from tableferry.spark.tables import DEFAULT_CATALOG, DELTA_CATALOG

ICEBERG_CATALOG = "ice"
MASTER_VARIABLE = "TABLEFERRY_MASTER"
DEFAULT_MASTER = "local[2]"

SCALA_VERSION = "2.13"
ICEBERG_VERSION = "1.12.0"
KAFKA_VERSION = "4.1.1"
"""The version of Spark's Kafka connector; it works with each patch release of Spark."""
IN_SPARK = (
    "com.fasterxml.jackson.core:jackson-databind",
    "com.github.luben:zstd-jni",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.parquet:parquet-hadoop",
    "org.locationtech.jts:jts-core",
    "org.xerial.snappy:snappy-java",
)
"""Dependencies of Delta and of the Kafka connector that Spark's own jars already contain.

They are excluded because they are half of the download, and each session would copy them.
"""


def versions() -> tuple[str, str]:
    """Return the versions of pyspark and delta-spark without importing them.

    Raises:
        MissingPackage: One of them isn't installed.
    """
    try:
        return metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as error:
        # Databricks Connect installs the package pyspark, but no distribution of that name.
        raise MissingPackage(
            "LOCAL_SPARK_PACKAGE_MISSING", package=error.name, command=install("local")
        ) from error


def packages(*, iceberg: bool = False, kafka: bool = False) -> str:
    """Return the value of ``spark.jars.packages`` for Delta and the given additions."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    spark_version = ".".join(versions()[0].split(".")[:2])
    more = []
    if iceberg:
        more.append(
            f"org.apache.iceberg:iceberg-spark-runtime-{spark_version}_{SCALA_VERSION}:{ICEBERG_VERSION}"
        )
    if kafka:
        more.append(f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{KAFKA_VERSION}")
    builder = configure_spark_with_delta_pip(SparkSession.Builder(), more)
    # A builder starts Java without a log file and without the warehouse's lock, so only its setting is used.
    return str(builder._options["spark.jars.packages"])


def settings(folder: Path, *, iceberg: bool = False, kafka: bool = False) -> dict[str, str]:
    """Return the Spark settings of a local session."""
    temporary = folder / "tmp"
    conf = {
        "spark.master": os.environ.get(MASTER_VARIABLE) or DEFAULT_MASTER,
        "spark.jars.packages": packages(iceberg=iceberg, kafka=kafka),
        "spark.jars.excludes": ",".join(IN_SPARK),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        f"spark.sql.catalog.{DEFAULT_CATALOG}": DELTA_CATALOG,
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={folder / local_metastore.FOLDER};create=true"
        ),
        "spark.hadoop.hive.exec.scratchdir": str(temporary / "hive"),
        "spark.local.dir": str(temporary),
        "spark.driver.extraJavaOptions": _java_options(
            {"derby.stream.error.file": folder / "derby.log", "java.io.tmpdir": temporary}
        ),
        # The machine's host name may resolve to an address that a VPN or a firewall blocks.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        # With the defaults, each small query has 50 to 200 tasks, and three jobs with adaptive execution.
        # VACUUM's listing has up to 10,000 tasks, even for few directories.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.sql.adaptive.enabled": "false",
        # A batch of a CDC flow needs about 50 generated classes, and Spark caches 100 by default. With other
        # queries between the batches, each batch would recompile all of its classes.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # By default, each operation on a column searches for its line of code, and takes five times as long.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Vectored reads (several ranges concurrently) of row groups of 130 MB hung for five minutes and then
        # failed. They save no time on a local disk.
        "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
        "spark.ui.enabled": "false",
        # Only the UI shows the long form of a plan, which takes a tenth of the time of a small query.
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
    }
    return _with_iceberg(conf) if iceberg else conf


def _with_iceberg(conf: dict[str, str]) -> dict[str, str]:
    """Return the settings with Iceberg's catalog added.

    Delta remains the catalog ``spark_catalog``. Iceberg tables are named ``ice.schema.table``, and are in
    the same metastore as Hive's and Delta's tables.
    """
    extension = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    return {
        **conf,
        "spark.sql.extensions": f"{conf['spark.sql.extensions']},{extension}",
        f"spark.sql.catalog.{ICEBERG_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{ICEBERG_CATALOG}.type": "hive",
        # With the cache, the session doesn't see what other sessions write to a table that it has read.
        f"spark.sql.catalog.{ICEBERG_CATALOG}.cache-enabled": "false",
    }


def _java_options(properties: dict[str, Path]) -> str:
    """Format Java properties for Spark's launcher, in quotes because paths can contain spaces."""
    quoted = []
    for name, value in properties.items():
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        quoted.append(f'"-D{name}={escaped}"')
    return " ".join(quoted)
