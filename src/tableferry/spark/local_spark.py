"""Start and stop local Spark: Delta, a Hive metastore in Derby, and all of their files in one folder."""

# The files of a warehouse:
#
#     <warehouse>/warehouse/        the tables
#     <warehouse>/metastore_db/     the metastore
#     <warehouse>/metastore.lock    locked by the process that uses the metastore; contains its process id
#     <warehouse>/spark.log         the output of Spark's Java process since its last start
#     <warehouse>/derby.log         Derby's error log
#     <warehouse>/tmp/              shuffle files and other temporary files
#
# Derby admits one process. The lock is taken before Java starts, so that a second process fails with a clear
# error.

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.errors import SessionError
from tableferry.spark import java_process, local_metastore, local_settings, warehouse_lock
from tableferry.spark.local_metastore import LocalMetastore, NeedsSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_METASTORE_SERVER = "hive.metastore.uris"


@dataclass
class _Running:
    """The local session of this process, its py4j gateway and the lock's file descriptor."""

    spark: SparkSession
    gateway: Any
    lock: int


_running: _Running | None = None


def start(
    warehouse: str | Path | None,
    *,
    default: str,
    app_name: str,
    say: Callable[[str], None],
    iceberg: bool = False,
    kafka: bool = False,
) -> SparkSession:
    """Start a local session on a folder, or return the active session.

    Args:
        warehouse: The folder. None accepts an active session on any folder, and otherwise uses ``default``.
        default: The folder of a new session if ``warehouse`` is None.
        app_name: The application name in Spark.
        say: Takes one line of text that names the session.
        iceberg: Whether the session needs Iceberg's catalog.
        kafka: Whether the session needs the Kafka connector.

    Raises:
        SessionError: Java or a package is missing, the folder is in use or can't be used, or the active
            session doesn't fit the arguments.
    """
    global _running
    spark_version, delta_version = local_settings.versions()
    if _running is not None and _stopped(_running.spark):
        _end(_running)
        _running = None
    if (active := _active(warehouse, say)) is not None:
        if iceberg and active.conf.get(f"spark.sql.catalog.{local_settings.ICEBERG_CATALOG}", None) is None:
            raise SessionError("SESSION_WITHOUT_ICEBERG", catalog=local_settings.ICEBERG_CATALOG)
        if kafka and "spark-sql-kafka" not in (active.conf.get("spark.jars.packages", "") or ""):
            raise SessionError("SESSION_WITHOUT_KAFKA")
        return active

    folder = warehouse_lock.create_folder(warehouse if warehouse is not None else default)
    java_process.check_java()
    lock = warehouse_lock.acquire(folder)
    try:
        say(f"Spark: local {spark_version} with Delta {delta_version}, warehouse {folder}")
        conf = local_settings.settings(folder, iceberg=iceberg, kafka=kafka) | {"spark.app.name": app_name}
        _running = _launch(folder, conf, lock)
    except BaseException:
        os.close(lock)
        raise
    return _running.spark


@contextmanager
def metastore(warehouse: str | Path) -> Iterator[LocalMetastore]:
    """Open the metastore of a local session on a warehouse, without Spark.

    Raises:
        NeedsSpark: This process has a session, the configuration may name a different metastore, or the
            warehouse has no metastore yet.
        SessionError: Java or a package is missing, or the folder is in use or can't be used.
    """
    if _running is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        raise NeedsSpark("this process has a session")
    if not local_metastore.is_certain(os.environ):
        raise NeedsSpark("configuration files can name another metastore")
    local_settings.versions()
    if not (Path(warehouse).expanduser() / local_metastore.FOLDER).is_dir():
        raise NeedsSpark(f"{warehouse} has no metastore")
    folder = warehouse_lock.create_folder(warehouse)
    java = java_process.check_java()
    lock = warehouse_lock.acquire(folder)
    try:
        with java_process.locale_for(folder), local_metastore.opened(folder, java) as tables:
            yield tables
    finally:
        os.close(lock)


def stop(spark: SparkSession) -> bool:
    """Stop the local session and its Java process; return False if ``spark`` isn't that session."""
    global _running
    if _running is None or _running.spark is not spark:
        return False
    _end(_running)
    _running = None
    return True


def _active(warehouse: str | Path | None, say: Callable[[str], None]) -> SparkSession | None:
    """Return the session that this process already has, or None.

    Raises:
        SessionError: That session uses a different warehouse.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # spark-submit starts Java with the user's settings before a session exists.
    if SparkContext._active_spark_context is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    spark = _running.spark if _running is not None else SparkSession.builder.getOrCreate()
    folder = (spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:")
    if warehouse is not None:
        wanted = warehouse_lock.create_folder(warehouse) / "warehouse"
        if Path(folder).resolve() != wanted:
            raise SessionError("SESSION_ON_OTHER_WAREHOUSE", warehouse=folder)
    say(f"Spark: the session that is already active, {spark.version}, warehouse {folder}")
    return spark


def _launch(folder: Path, conf: dict[str, str], lock: int) -> _Running:
    """Start Java and the session.

    Raises:
        SessionError: Java exits, or the session or its metastore can't be opened.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    spark_conf = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    gateway = java_process.launch(folder, spark_conf, lock)
    try:
        spark = SparkSession(SparkContext(conf=spark_conf, gateway=gateway), options=conf)
        # The first query opens the metastore.
        spark.sql("SHOW SCHEMAS LIKE 'default'").collect()
        _use_server(spark)
    except SessionError:
        java_process.end(gateway)
        raise
    except Exception as error:
        # Errors of pyspark, py4j and Java have no common base class. Their text can be read only while Java
        # runs.
        reason = java_process.not_open_error(folder, str(error))
        java_process.end(gateway)
        raise reason from error
    return _Running(spark, gateway, lock)


def _use_server(spark: SparkSession) -> None:
    """Check the metastore server in ``hive.metastore.uris``; without a server, switch off Iceberg's lock.

    Raises:
        SessionError: The server is too new for the Hive client that Spark and Iceberg use.
    """
    context = spark.sparkContext._jsc
    assert context is not None
    hadoop = context.hadoopConfiguration()
    address = hadoop.get(_METASTORE_SERVER)
    if not address:
        # Iceberg's lock needs a class that Spark's Hive lacks; a single process needs no lock.
        hadoop.set("iceberg.engine.hive.lock-enabled", "false")
        return
    try:
        spark.catalog.tableExists("default.missing_table")
    except Exception as error:
        # pyspark or py4j raises the errors of Hive and Thrift.
        if "Invalid method name" not in str(error):
            raise
        raise SessionError("METASTORE_SERVER_TOO_NEW", address=address) from error


def _stopped(spark: SparkSession) -> bool:
    return spark.sparkContext._jsc is None


def _end(running: _Running) -> None:
    if not _stopped(running.spark):
        running.spark.stop()
    java_process.end(running.gateway)
    os.close(running.lock)
