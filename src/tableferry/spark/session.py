"""Create the Spark session: a Databricks runtime's, Databricks Connect's, SPARK_REMOTE's, or a local one.

This module imports pyspark only when a session is requested.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tableferry import workspace
from tableferry.errors import MissingPackage, SessionError
from tableferry.extras import install
from tableferry.progress import task
from tableferry.spark import local_spark
from tableferry.spark.driver import in_process
from tableferry.spark.local_metastore import LocalMetastore, NeedsSpark
from tableferry.spark.quoting import quote
from tableferry.spark.redaction import CORE_CAN_BE_SET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

DEFAULT_WAREHOUSE = ".tableferry"
WAREHOUSE_VARIABLE = "TABLEFERRY_WAREHOUSE"

# A running server answers within milliseconds, or within two seconds through a gateway.
_ANSWER_SECONDS = 10
_SERVERLESS = "serverless compute"

Kind = Literal["runtime", "databricks-connect", "remote", "local"]


@dataclass(frozen=True)
class Choice:
    """The kind and the place of the session to create.

    Attributes:
        kind: The kind of session.
        detail: The runtime's version, the compute in the workspace, or the address of the server.
        serverless: Whether the client must request serverless compute, because no compute is configured.
    """

    kind: Kind
    detail: str = ""
    serverless: bool = False


def to_stderr(line: str) -> None:
    """Print a line to stderr, so that it can't mix with a command's output."""
    print(line, file=sys.stderr, flush=True)


def resolve(
    warehouse: str | Path | None = None,
    *,
    app_name: str = "tableferry",
    iceberg: bool = False,
    kafka: bool = False,
    say: Callable[[str], None] = to_stderr,
) -> SparkSession:
    """Return the Spark session for this environment, and report its kind in one line.

    The first of these that is available:

    1. the session of the Databricks runtime
    2. Databricks Connect, if it is configured
    3. the Spark Connect server in ``SPARK_REMOTE``
    4. local Spark with Delta and a Hive metastore

    Args:
        warehouse: The folder of a local session's tables, metastore, logs and temporary files. Default:
            ``TABLEFERRY_WAREHOUSE``, or ``.tableferry`` if that isn't set.
        app_name: The name of the application in Spark.
        iceberg: Whether a local session also gets Iceberg, as the catalog ``ice`` in the same metastore.
        kafka: Whether a local session also gets Spark's Kafka connector.
        say: Takes the line; prints it to stderr by default.

    Raises:
        SessionError: The session can't be created; the message names the reason.
    """
    choice = choose(os.environ, databricks_connect=has_databricks_connect())
    with task(_log, "wait for Spark", level=logging.DEBUG):
        if choice.kind == "local":
            requested = warehouse if warehouse is not None else os.environ.get(WAREHOUSE_VARIABLE) or None
            spark = local_spark.start(
                requested, default=DEFAULT_WAREHOUSE, app_name=app_name, iceberg=iceberg, kafka=kafka, say=say
            )
        else:
            spark = _take(choice, app_name, say)
    _quiet()
    return spark


@contextmanager
def metastore(warehouse: str | Path | None = None) -> Iterator[LocalMetastore]:
    """Open the metastore of a local warehouse without Spark, to read the folders of its tables.

    Args:
        warehouse: As for `resolve`.

    Raises:
        NeedsSpark: The session isn't local or exists already, configuration files may name a different
            metastore, or the warehouse has no metastore yet.
        SessionError: As `resolve`, for a local session.
    """
    if choose(os.environ, databricks_connect=has_databricks_connect()).kind != "local":
        raise NeedsSpark("the session isn't a local one")
    folder = warehouse or os.environ.get(WAREHOUSE_VARIABLE) or DEFAULT_WAREHOUSE
    with local_spark.metastore(folder) as opened:
        yield opened


def stop(spark: SparkSession) -> None:
    """Stop a session; for a local one also stop its Java process, which unlocks its warehouse."""
    if not local_spark.stop(spark):
        spark.stop()


def use(spark: SparkSession, catalog: str | None, schema: str | None) -> None:
    """Set the session's current catalog and schema to those of the pipeline.

    Raises:
        SessionError: The catalog or the schema doesn't exist, or the user may not use it.
    """
    try:
        if catalog is not None:
            spark.catalog.setCurrentCatalog(catalog)
        if schema is not None:
            # Spark parses the name of a schema, but not that of a catalog.
            spark.catalog.setCurrentDatabase(quote(schema))
    except Exception as error:
        # The class of the error depends on the kind of session.
        where = ".".join(filter(None, (catalog, schema)))
        raise SessionError("SPARK_SCHEMA_NOT_USABLE", schema=where, reason=_first_line(error)) from error


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str], origin: str) -> Iterator[None]:
    """Apply Spark settings inside the ``with``, and restore the earlier values after it.

    Args:
        spark: The session.
        values: The settings.
        origin: The origin of the settings, for the error message.

    Raises:
        SessionError: Spark refuses a setting.
    """
    old: dict[str, str | None] = {}
    try:
        for key, value in values.items():
            try:
                before = spark.conf.get(key, None)
                spark.conf.set(key, value)
                old[key] = before
            except Exception as error:
                # The class of the error depends on the kind of session, and none names the setting's origin.
                raise SessionError(
                    "SPARK_SETTING_REFUSED", origin=origin, setting=key, reason=_first_line(error)
                ) from error
        yield
    finally:
        for key, earlier in old.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


def beside(spark: SparkSession) -> SparkSession | None:
    """Return a new session on the same tables with a copy of this session's settings.

    Return None for a Spark Connect session.
    """
    if not in_process(spark):
        return None
    other = spark.newSession()
    # CORE_CAN_BE_SET goes first, because without it Spark's core settings can't be set.
    for key, value in sorted(spark.conf.getAll.items(), key=lambda setting: setting[0] != CORE_CAN_BE_SET):
        if other.conf.get(key, None) != value:
            other.conf.set(key, value)
    return other


def choose(environ: Mapping[str, str], *, databricks_connect: bool) -> Choice:
    """Return the kind of session that the environment configures.

    Args:
        environ: The environment variables.
        databricks_connect: Whether Databricks Connect is installed.
    """
    if version := environ.get(workspace.RUNTIME_VARIABLE):
        return Choice("runtime", version)
    if databricks_connect:
        profile = workspace.profile(environ)
        if workspace.configured(environ):
            return _workspace(environ, profile)
    if remote := environ.get("SPARK_REMOTE"):
        # The parameters after the first semicolon may contain a token.
        return Choice("remote", remote.split(";")[0].rstrip("/"))
    return Choice("local")


def on_serverless() -> bool:
    """Return whether the session that `resolve` gives runs on Databricks' serverless compute."""
    choice = choose(os.environ, databricks_connect=has_databricks_connect())
    if choice.kind == "runtime":
        # On serverless compute, the runtime's version is the client's version, such as "client.1".
        return choice.detail.startswith("client.") or os.environ.get("IS_SERVERLESS", "").lower() == "true"
    return choice.detail.startswith(_SERVERLESS)


def on_databricks(spark: SparkSession, *, asked: bool = True) -> bool:
    """Return whether a session runs on Databricks.

    In a Databricks runtime an environment variable shows it. Otherwise this function checks whether the
    session has the function ``current_version``, which only Databricks has.

    Args:
        spark: The session.
        asked: Whether to query the session; if not, the result is False outside a Databricks runtime.
    """
    if os.environ.get(workspace.RUNTIME_VARIABLE):
        return True
    return asked and bool(spark.catalog.functionExists("current_version"))


def has_databricks_connect() -> bool:
    """Return whether Databricks Connect is installed, without importing it."""
    try:
        return find_spec("databricks.connect") is not None
    except (ImportError, ValueError):
        return False


def _workspace(environ: Mapping[str, str], profile: Mapping[str, str]) -> Choice:
    """Return the choice of compute: the configured cluster, or serverless compute."""
    cluster = environ.get("DATABRICKS_CLUSTER_ID") or profile.get("cluster_id")
    serverless = environ.get("DATABRICKS_SERVERLESS_COMPUTE_ID") or profile.get("serverless_compute_id")
    host = environ.get("DATABRICKS_HOST") or profile.get("host") or "the default workspace"
    if cluster and not environ.get("DATABRICKS_SERVERLESS_COMPUTE_ID"):
        return Choice("databricks-connect", f"cluster {cluster} of {host}")
    return Choice("databricks-connect", f"{_SERVERLESS} of {host}", serverless=not serverless)


def _take(choice: Choice, app_name: str, say: Callable[[str], None]) -> SparkSession:
    if choice.kind == "runtime":
        say(f"Spark: the session of Databricks runtime {choice.detail}")
        return _runtime()
    if choice.kind == "databricks-connect":
        say(f"Spark: Databricks Connect, {choice.detail}")
        return _databricks_connect(choice)
    say(f"Spark: Spark Connect at {choice.detail}")
    return _remote(os.environ["SPARK_REMOTE"], choice.detail, app_name)


def _quiet() -> None:
    """Keep pyspark from printing a failed query's stack trace as JSON, because it also raises the error."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Before Spark 4.
        return
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _runtime() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _databricks_connect(choice: Choice) -> SparkSession:
    try:
        from databricks.connect import DatabricksSession

        builder = DatabricksSession.builder
        if profile := os.environ.get("DATABRICKS_CONFIG_PROFILE"):
            builder = builder.profile(profile)
        if choice.serverless:
            builder = builder.serverless(True)
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        # The client raises plain Exception, ValueError or transport errors for the same causes.
        raise SessionError(
            "DATABRICKS_CONNECT_FAILED", compute=choice.detail, reason=_first_line(error)
        ) from error
    return session


def _remote(url: str, address: str, app_name: str) -> SparkSession:
    try:
        from pyspark.sql import SparkSession

        _reach(url)
        # The error after the client's retries contains more than its warnings about them.
        with warnings.catch_warnings(action="ignore"):
            session = SparkSession.builder.remote(url).appName(app_name).getOrCreate()
            # The session connects with its first request; this one reports an unreachable address here.
            _ = session.version
    except ImportError as error:
        raise MissingPackage(
            "MISSING_PACKAGE_FOR_SPARK_CONNECT",
            address=address,
            reason=_first_line(error),
            command=install("remote"),
        ) from error
    except Exception as error:
        # Errors of grpc, of the client and of the server's start have no common base class.
        raise SessionError("SPARK_REMOTE_UNREACHABLE", address=address, reason=_first_line(error)) from error
    return session


def _reach(url: str) -> None:
    """Check that a server answers within 10 seconds, because the client would retry for up to ten minutes.

    Raises:
        grpc.RpcError: The server is unavailable or doesn't answer in time.
    """
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(url).toChannel()
    try:
        # A server without health checks returns an error immediately, which proves that it runs.
        channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=_ANSWER_SECONDS)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise
    finally:
        channel.close()


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    # The text of a grpc error is a block of fields; `details` is the readable one.
    if details := re.search(r'details = "(.*?)[";]', text):
        return details[1]
    lines = text.splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__
