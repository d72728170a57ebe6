"""The one way to a Spark session: Databricks' own, Databricks Connect's, SPARK_REMOTE's, or a local one.

Nothing here needs pyspark before a session is asked for.
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

from tableferry import localspark, workspace
from tableferry.activity import activity
from tableferry.driver import in_process
from tableferry.errors import SessionError
from tableferry.extras import install
from tableferry.local_metastore import LocalMetastore, NeedsSpark
from tableferry.quoting import quote
from tableferry.redaction import CORE_CAN_BE_SET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

DEFAULT_WAREHOUSE = ".tableferry"
WAREHOUSE_VARIABLE = "TABLEFERRY_WAREHOUSE"

# A server that is up answers within milliseconds, and one behind a gateway within a second or two.
_ANSWER_SECONDS = 10
_SERVERLESS = "serverless compute"

Kind = Literal["runtime", "databricks-connect", "remote", "local"]


@dataclass(frozen=True)
class Choice:
    """Where the session will come from.

    Attributes:
        kind: The kind of session.
        detail: The runtime's version, the compute in the workspace, or the remote's address.
        serverless: Whether serverless compute has to be asked for, as no cluster is named.
    """

    kind: Kind
    detail: str = ""
    serverless: bool = False


def to_stderr(line: str) -> None:
    """Print a line where it can't mix with a command's output."""
    print(line, file=sys.stderr, flush=True)


def resolve(
    warehouse: str | Path | None = None,
    *,
    app_name: str = "tableferry",
    iceberg: bool = False,
    kafka: bool = False,
    say: Callable[[str], None] = to_stderr,
) -> SparkSession:
    """Give the Spark session that this environment calls for, and say in one line which it is.

    In this order: the session of a Databricks runtime, Databricks Connect where it is configured, the Spark
    Connect server in ``SPARK_REMOTE``, Spark on this machine with Delta and a Hive metastore.

    Args:
        warehouse: The folder that holds everything a local session writes: tables, metastore, logs and
            temporary files. Default: ``TABLEFERRY_WAREHOUSE``, else ``.tableferry``. Only for local sessions.
        app_name: The name under which Spark shows the application.
        iceberg: Whether a local session gets Iceberg too, in the catalog ``ice`` over the same metastore.
        kafka: Whether a local session gets Spark's connector for Kafka too.
        say: Takes the line; it goes to stderr by default.

    Raises:
        SessionError: No session can be had; the message says what is missing.
    """
    choice = choose(os.environ, databricks_connect=has_databricks_connect())
    with activity(_log, "wait for Spark", level=logging.DEBUG):
        if choice.kind == "local":
            requested = warehouse if warehouse is not None else os.environ.get(WAREHOUSE_VARIABLE) or None
            spark = localspark.start(
                requested, default=DEFAULT_WAREHOUSE, app_name=app_name, iceberg=iceberg, kafka=kafka, say=say
            )
        else:
            spark = _take(choice, app_name, say)
    _quiet()
    return spark


@contextmanager
def metastore(warehouse: str | Path | None = None) -> Iterator[LocalMetastore]:
    """Open the metastore of this warehouse without Spark, to read in which folders its tables are.

    Args:
        warehouse: As for `resolve`.

    Raises:
        NeedsSpark: Only a session can tell: in a workspace, through Spark Connect, where configuration files
            can name another metastore, and where this process has a session.
        SessionError: As `resolve`, for a local session.
    """
    if choose(os.environ, databricks_connect=has_databricks_connect()).kind != "local":
        raise NeedsSpark("the session isn't a local one")
    folder = warehouse or os.environ.get(WAREHOUSE_VARIABLE) or DEFAULT_WAREHOUSE
    with localspark.metastore(folder) as opened:
        yield opened


def stop(spark: SparkSession) -> None:
    """End a session, and a local one's Java process too, so that its warehouse is free again."""
    if not localspark.stop(spark):
        spark.stop()


def use(spark: SparkSession, catalog: str | None, schema: str | None) -> None:
    """Let names without a catalog or schema mean these, as they do in the pipeline.

    Raises:
        SessionError: There is no such catalog or schema, or it may not be used.
    """
    try:
        if catalog is not None:
            spark.catalog.setCurrentCatalog(catalog)
        if schema is not None:
            # Unlike the catalog's, this name is parsed.
            spark.catalog.setCurrentDatabase(quote(schema))
    except Exception as error:
        # Which errors there are depends on the kind of session.
        where = ".".join(filter(None, (catalog, schema)))
        raise SessionError(
            f"{where} can't be used ({_first_line(error)}): correct the tokens pipeline_catalog and "
            "pipeline_schema, or ask for the right to use it"
        ) from error


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str], origin: str) -> Iterator[None]:
    """Apply Spark settings for the length of a ``with``.

    Args:
        spark: The session.
        values: The settings.
        origin: What asks for them, for the error.

    Raises:
        SessionError: Spark doesn't take one of them.
    """
    old: dict[str, str | None] = {}
    try:
        for key, value in values.items():
            try:
                before = spark.conf.get(key, None)
                spark.conf.set(key, value)
                old[key] = before
            except Exception as error:
                # Which errors there are depends on the kind of session, and none of them says where.
                raise SessionError(
                    f"{origin}: {key} can't be set ({_first_line(error)}): remove it"
                ) from error
        yield
    finally:
        for key, earlier in old.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


def beside(spark: SparkSession) -> SparkSession | None:
    """Return a session over the same tables whose settings are its own, and begin as this one's.

    None where a thread can't have one: through Spark Connect.
    """
    if not in_process(spark):
        return None
    other = spark.newSession()
    # Without the first, those of Spark's core can't be set.
    for key, value in sorted(spark.conf.getAll.items(), key=lambda setting: setting[0] != CORE_CAN_BE_SET):
        if other.conf.get(key, None) != value:
            other.conf.set(key, value)
    return other


def choose(environ: Mapping[str, str], *, databricks_connect: bool) -> Choice:
    """Decide from the environment where the session comes from.

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
        # What follows the first semicolon are parameters, and one of them can be a token.
        return Choice("remote", remote.split(";")[0].rstrip("/"))
    return Choice("local")


def on_serverless() -> bool:
    """Return whether the session that `resolve` gives runs on Databricks' serverless compute."""
    choice = choose(os.environ, databricks_connect=has_databricks_connect())
    if choice.kind == "runtime":
        # Its runtime is called so, as its version is that of the client in it.
        return choice.detail.startswith("client.") or os.environ.get("IS_SERVERLESS", "").lower() == "true"
    return choice.detail.startswith(_SERVERLESS)


def on_databricks(spark: SparkSession, *, asked: bool = True) -> bool:
    """Return whether a session runs on Databricks, whichever client it is reached with.

    Within its runtime the environment says so. From outside, through Databricks Connect or Spark Connect,
    only the session can tell: the function ``current_version`` is Databricks' own. ``asked`` is False where
    it can't be asked.
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
    """Name the compute: a cluster where one is given, else serverless."""
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
    """Keep pyspark from printing every failed query's stack trace as JSON: the error is raised as well."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before Spark 4
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
        # The client raises bare Exception, ValueError and errors of its transport for the same causes.
        raise SessionError(
            f"Databricks Connect gives no session on {choice.detail} ({_first_line(error)}): check "
            "DATABRICKS_HOST, the profile and its login, or unset them to work locally"
        ) from error
    return session


def _remote(url: str, address: str, app_name: str) -> SparkSession:
    try:
        from pyspark.sql import SparkSession

        _reach(url)
        # The client's warnings about its retries say less than the error that follows them.
        with warnings.catch_warnings(action="ignore"):
            session = SparkSession.builder.remote(url).appName(app_name).getOrCreate()
            # It connects with its first request, and an address where nobody listens is to be reported here.
            _ = session.version
    except ImportError as error:
        raise SessionError(
            f"SPARK_REMOTE is {address}, and Spark Connect's client isn't complete here "
            f"({_first_line(error)}): {install('remote')}, or unset SPARK_REMOTE to work locally"
        ) from error
    except Exception as error:
        # Errors of grpc, of the client and of the server's own start share no base.
        raise SessionError(
            f"no Spark Connect server answers at {address}, which is what SPARK_REMOTE says "
            f"({_first_line(error)}): start it, or unset SPARK_REMOTE to work locally"
        ) from error
    return session


def _reach(url: str) -> None:
    """Make sure that somebody listens: the client itself would try again for up to ten minutes."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(url).toChannel()
    try:
        # Whoever doesn't know this question says so at once, and is there.
        channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=_ANSWER_SECONDS)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise
    finally:
        channel.close()


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    # An error of grpc is a block of fields, and this one is for people.
    if details := re.search(r'details = "(.*?)[";]', text):
        return details[1]
    lines = text.splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__
