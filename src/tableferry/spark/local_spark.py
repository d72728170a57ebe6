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
# Derby admits one process. This module takes the lock before Java starts, so that a second process fails
# with a clear error. Java inherits the lock and releases it only after it closes the metastore.

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.errors import SessionError
from tableferry.extras import install
from tableferry.spark import local_metastore
from tableferry.spark.local_metastore import LocalMetastore, NeedsSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSIONS = (17, 21)
SCALA_VERSION = "2.13"
ICEBERG_VERSION = "1.12.0"
ICEBERG_CATALOG = "ice"
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
MASTER_VARIABLE = "TABLEFERRY_MASTER"
DEFAULT_MASTER = "local[2]"

INSTALL_JAVA = "Debian/Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17"

# The time that the Java process of a killed run has to exit before its warehouse counts as in use.
_TIMEOUT_SECONDS = 20.0

_METASTORE_SERVER = "hive.metastore.uris"

# Derby's SQLSTATE for "another process has booted this database".
_DERBY_IN_USE = "XSDB6"


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
    spark_version, delta_version = _versions()
    if _running is not None and _stopped(_running.spark):
        _end(_running)
        _running = None
    if (active := _active(warehouse, say)) is not None:
        if iceberg and active.conf.get(f"spark.sql.catalog.{ICEBERG_CATALOG}", None) is None:
            raise SessionError(
                f"the Spark session of this process has no Iceberg catalog {ICEBERG_CATALOG}: stop that "
                "session, or start it with iceberg=True"
            )
        if kafka and "spark-sql-kafka" not in (active.conf.get("spark.jars.packages", "") or ""):
            raise SessionError(
                "the Spark session of this process has no connector for Kafka: stop that session, or start "
                "it with kafka=True"
            )
        return active

    folder = _folder(warehouse if warehouse is not None else default)
    check_java()
    lock = _lock(folder)
    try:
        say(f"Spark: local {spark_version} with Delta {delta_version}, warehouse {folder}")
        conf = settings(folder, spark_version, delta_version) | {"spark.app.name": app_name}
        if iceberg:
            conf = with_iceberg(conf, spark_version)
        if kafka:
            conf = with_kafka(conf)
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
    _versions()
    if not (Path(warehouse).expanduser() / local_metastore.FOLDER).is_dir():
        raise NeedsSpark(f"{warehouse} has no metastore")
    folder = _folder(warehouse)
    java = check_java()
    lock = _lock(folder)
    try:
        with _locale_for(folder), local_metastore.opened(folder, java) as tables:
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


def settings(folder: Path, spark_version: str, delta_version: str) -> dict[str, str]:
    """Return the Spark settings of a local session."""
    short_version = ".".join(spark_version.split(".")[:2])
    temporary = folder / "tmp"
    return {
        "spark.master": os.environ.get(MASTER_VARIABLE) or DEFAULT_MASTER,
        "spark.jars.packages": f"io.delta:delta-spark_{short_version}_{SCALA_VERSION}:{delta_version}",
        "spark.jars.excludes": ",".join(IN_SPARK),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
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


def with_iceberg(conf: Mapping[str, str], spark_version: str) -> dict[str, str]:
    """Return the settings of a local session with Iceberg's catalog added.

    Delta remains the catalog ``spark_catalog``. Iceberg tables are named ``ice.schema.table``, and are in
    the same metastore as Hive's and Delta's tables.
    """
    short_version = ".".join(spark_version.split(".")[:2])
    package = f"org.apache.iceberg:iceberg-spark-runtime-{short_version}_{SCALA_VERSION}:{ICEBERG_VERSION}"
    extension = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    return {
        **conf,
        "spark.jars.packages": f"{conf['spark.jars.packages']},{package}",
        "spark.sql.extensions": f"{conf['spark.sql.extensions']},{extension}",
        f"spark.sql.catalog.{ICEBERG_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{ICEBERG_CATALOG}.type": "hive",
        # With the cache, the session doesn't see what other sessions write to a table that it has read.
        f"spark.sql.catalog.{ICEBERG_CATALOG}.cache-enabled": "false",
    }


def with_kafka(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a local session with Spark's Kafka connector added."""
    package = f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{KAFKA_VERSION}"
    return {**conf, "spark.jars.packages": f"{conf['spark.jars.packages']},{package}"}


def check_java() -> str:
    """Check the Java that Spark's launcher would use, and return the path of its program.

    Raises:
        SessionError: Java is missing, doesn't run, or has a version that Spark doesn't support.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    supported = " or ".join(str(version) for version in JAVA_VERSIONS)
    remedy = f"install it ({INSTALL_JAVA}), or point JAVA_HOME at it"
    if java is None:
        raise SessionError(f"local Spark needs Java {supported}, and there is no java on PATH: {remedy}")
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SessionError(f"local Spark needs Java {supported}, and {java} doesn't run: {remedy}") from error
    # Versions up to Java 8 begin with "1.".
    match = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    if match is None or int(match[1]) not in JAVA_VERSIONS:
        version = match[1] if match else "of an unknown version"
        raise SessionError(f"local Spark needs Java {supported}, and {java} is Java {version}: {remedy}")
    return java


def _versions() -> tuple[str, str]:
    """Return the versions of pyspark and delta-spark without importing them.

    Raises:
        SessionError: One of them isn't installed.
    """
    try:
        return metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as error:
        # Databricks Connect installs the package pyspark, but no distribution of that name.
        raise SessionError(
            f"local Spark needs the package {error.name}: {install('local')} in an environment without "
            "databricks-connect, or configure Databricks (DATABRICKS_HOST) or SPARK_REMOTE"
        ) from error


def _folder(warehouse: str | Path) -> Path:
    """Create the folder of a warehouse and return its absolute path.

    Raises:
        SessionError: The warehouse is a URI, its path has an unsupported character, or it can't be created.
    """
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:", str(warehouse)):
        raise SessionError(f"the warehouse {warehouse} isn't a local folder: give the path of one")
    folder = Path(warehouse).expanduser().resolve()
    # A semicolon ends the database name in Derby's URL; a comma in spark.local.dir separates two folders.
    if bad := next((character for character in ";,\n" if character in str(folder)), None):
        raise SessionError(f"the warehouse {folder} has {bad!r} in its path: give another --warehouse")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SessionError(
            f"the warehouse {folder} can't be made ({error.strerror}): give another --warehouse"
        ) from error
    return folder


def _lock(folder: Path) -> int:
    """Lock the folder's metastore for this process and the Java process that it will start.

    Raises:
        SessionError: Another process holds the lock, or the file can't be written or locked.
    """
    import fcntl  # Missing on Windows, where the other kinds of sessions work.

    file = folder / "metastore.lock"
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SessionError(
            f"{file} can't be written ({error.strerror}): fix its permissions, or give another --warehouse"
        ) from error
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            # After the holder was killed, its Java process notices that and exits within two seconds.
            if _alive(holder) or time.monotonic() > deadline:
                os.close(lock)
                raise SessionError(
                    f"{folder} is in use by process {holder}: wait for its end if it's a run of yours, or "
                    "give another --warehouse (tables by a Hive metastore that is a server are seen from any)"
                ) from None
            time.sleep(0.1)
        except OSError as error:
            os.close(lock)
            raise SessionError(
                f"{file} can't be locked ({error.strerror}): give a --warehouse on a local disk"
            ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _alive(holder: str) -> bool:
    try:
        os.kill(int(holder), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
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
    if warehouse is not None and Path(folder).resolve() != _folder(warehouse) / "warehouse":
        raise SessionError(
            f"this process already has a Spark session, on the warehouse {folder}: stop that session, or "
            "leave --warehouse out"
        )
    say(f"Spark: the session that is already active, {spark.version}, warehouse {folder}")
    return spark


def _launch(folder: Path, conf: dict[str, str], lock: int) -> _Running:
    """Start Java and the session, and write Java's output to ``spark.log``.

    Raises:
        SessionError: Java exits, or the session or its metastore can't be opened.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # Python workers must run the same Python; Spark would use the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log = folder / "spark.log"
    # A killed run may have left files. This process holds the lock, so no other process needs them.
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    (folder / "tmp").mkdir(exist_ok=True)
    spark_conf = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    launch: Callable[..., Any] = launch_gateway  # It has no annotations.
    with log.open("wb") as sink, _locale_for(folder), one_at_a_time():
        try:
            gateway = launch(spark_conf, popen_kwargs={"stdout": sink, "stderr": sink, "pass_fds": (lock,)})
        except PySparkRuntimeError as error:
            raise _why(log, conf["spark.jars.packages"]) from error
    try:
        spark = SparkSession(SparkContext(conf=spark_conf, gateway=gateway), options=conf)
        running = _Running(spark, gateway, lock)
        # The first query opens the metastore.
        spark.sql("SHOW SCHEMAS LIKE 'default'").collect()
        _use_server(spark)
    except SessionError:
        _end_java(gateway)
        raise
    except Exception as error:
        # Errors of pyspark, py4j and Java have no common base class. Their text can be read only while Java
        # runs.
        reason = _why_not_open(folder, log, str(error))
        _end_java(gateway)
        raise reason from error
    return running


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
        spark.catalog.tableExists("default.a_table_that_nobody_has")
    except Exception as error:
        # pyspark or py4j raises the errors of Hive and Thrift.
        if "Invalid method name" not in str(error):
            raise
        raise SessionError(
            f"the Hive metastore at {address} is too new: it can't be asked for a table by the client of "
            "Hive 2.3 that Spark and Iceberg have: name one of Hive 3.1 or older in hive.metastore.uris"
        ) from error


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait while another process of this user starts Java.

    Spark's launcher downloads jars into a folder in the user's home. Two concurrent launchers would read each
    other's partial files.
    """
    import fcntl

    lock = os.open(
        Path(tempfile.gettempdir(), f"tableferry-{os.getuid()}.lock"), os.O_RDWR | os.O_CREAT, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _why(log: Path, package: str) -> SessionError:
    """Return the error for a Java process that exited before Spark was ready."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lowered = text.lower()
    if "unresolved dependenc" in lowered or "download failed" in lowered:
        return SessionError(
            f"the jar {package} couldn't be fetched: it comes from Maven with the first start, so run again "
            "with network access, or name your mirror's spark.jars.ivySettings in spark-defaults.conf (the "
            f"log is {log})"
        )
    return SessionError(f"Spark's Java process ended before it was ready ({_cause(text)}): see {log}")


def _why_not_open(folder: Path, log: Path, message: str) -> SessionError:
    """Return the error for a session that couldn't start in a running Java process."""
    text = message + "\n" + log.read_text(encoding="utf-8", errors="replace")
    if _DERBY_IN_USE in text:
        return SessionError(
            f"{folder / local_metastore.FOLDER} is in use by another program: stop it, or give another "
            "--warehouse"
        )
    return SessionError(f"Spark couldn't start on {folder} ({_cause(text)}): see {log}")


def _cause(text: str) -> str:
    """Return the line of a log that names the deepest cause."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    errors = [line for line in lines if re.match(r"(Exception|Error|.*\b\w+(Exception|Error)\b)", line)]
    candidates = causes[-1:] or errors[:1] or [line for line in lines if line][-1:] or ["no reason given"]
    return candidates[0][:300].rstrip(".:")


def _java_options(properties: dict[str, Path]) -> str:
    """Format Java properties for Spark's launcher, in quotes because paths can contain spaces."""
    quoted = []
    for name, value in properties.items():
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        quoted.append(f'"-D{name}={escaped}"')
    return " ".join(quoted)


@contextmanager
def _locale_for(folder: Path) -> Iterator[None]:
    """Set a UTF-8 locale inside the ``with`` if the folder's path isn't ASCII.

    In other locales Java replaces such characters by ``?``.
    """
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    effective = next((os.environ[name] for name in names if os.environ.get(name)), "")
    if str(folder).isascii() or "utf" in effective.lower():
        yield
        return
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LC_ALL"]
        else:
            os.environ["LC_ALL"] = before


def _stopped(spark: SparkSession) -> bool:
    return spark.sparkContext._jsc is None


def _end(running: _Running) -> None:
    if not _stopped(running.spark):
        running.spark.stop()
    _end_java(running.gateway)
    os.close(running.lock)


def _end_java(gateway: Any) -> None:
    """Stop the Java process and clear pyspark's references to it, so that the next session starts another."""
    from pyspark import SparkContext

    if (context := SparkContext._active_spark_context) is not None:
        context.stop()
    gateway.shutdown()
    if gateway.proc is not None:
        # Java exits when its standard input is closed.
        gateway.proc.stdin.close()
        gateway.proc.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
