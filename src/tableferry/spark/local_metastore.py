"""Read the metastore of a local warehouse without Spark.

A local session's metastore is a Derby database in the warehouse. Java opens it in about a second; a Spark
session takes ten times as long. The schema is that of Hive 2.3, which the Hive client in Spark creates.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tableferry.spark.tables import DEFAULT_CATALOG, TableName

FOLDER = "metastore_db"
"""The name of the Derby database in a warehouse."""

# Spark's HiveExternalCatalog stores a Delta table's folder as the property "path" of its SerDe.
_QUERY = """
    SELECT t.TBL_TYPE, provider.PARAM_VALUE, managed.PARAM_VALUE, path.PARAM_VALUE
    FROM APP.TBLS t
    JOIN APP.DBS d ON d.DB_ID = t.DB_ID
    LEFT JOIN APP.SDS s ON s.SD_ID = t.SD_ID
    LEFT JOIN APP.TABLE_PARAMS provider
        ON provider.TBL_ID = t.TBL_ID AND provider.PARAM_KEY = 'spark.sql.sources.provider'
    LEFT JOIN APP.TABLE_PARAMS managed
        ON managed.TBL_ID = t.TBL_ID AND managed.PARAM_KEY LIKE 'delta.feature.catalog%'
    LEFT JOIN APP.SERDE_PARAMS path ON path.SERDE_ID = s.SERDE_ID AND path.PARAM_KEY = 'path'
    WHERE d.NAME = ? AND t.TBL_NAME = ?
"""

# Environment variables that can give Spark, Hadoop or Hive a different metastore or different jars.
_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR", "HIVE_CONF_DIR")
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_JAVA_PROPERTIES = re.compile(r"-D(spark|hive|javax\.jdo|derby|datanucleus)\.")


class NeedsSpark(Exception):
    """The question can be answered only with a Spark session."""


@dataclass(frozen=True)
class Entry:
    """The metastore's entry of a table.

    Attributes:
        kind: ``MANAGED_TABLE``, ``EXTERNAL_TABLE`` or ``VIRTUAL_VIEW``.
        provider: The data source, such as ``delta``; None for a Hive table.
        path: The URI of a data source table's folder.
        arbitrated: Whether the catalog manages commits, so that the table's log may lack the newest ones.
    """

    kind: str
    provider: str | None
    path: str | None
    arbitrated: bool = False


@dataclass(frozen=True)
class LocalMetastore:
    """Replaces a Spark session in code that only reads the metadata of Delta tables.

    Attributes:
        find: Returns the entry of a table, or None if it doesn't exist. Its arguments are the names of the
            schema and the table, in lower case.
    """

    find: Callable[[str, str], Entry | None]

    def folder_uri(self, name: TableName) -> str | None:
        """Return the URI of a Delta table's folder, or None if no table has that name.

        Raises:
            NeedsSpark: The name belongs to another catalog, or the table isn't a Delta table with a complete
                log.
        """
        schema, _, table = name.key.partition(".")
        # Spark reads delta.`/folder` as the path of a table.
        if name.path is not None or "." in table or "/" in table:
            raise NeedsSpark(f"{name} isn't a name of {DEFAULT_CATALOG}")
        entry = self.find(schema, table)
        if entry is None:
            return None
        if entry.kind == "VIRTUAL_VIEW" or (entry.provider or "").lower() != "delta" or entry.arbitrated:
            raise NeedsSpark(f"{name} isn't a Delta table with a whole log")
        if entry.path is None:
            raise NeedsSpark(f"the metastore has no path of {name}")
        return entry.path

    def __getattr__(self, name: str) -> Any:
        raise NeedsSpark(f"a session's {name} is needed")


def is_certain(environ: Mapping[str, str]) -> bool:
    """Return whether a session with these environment variables surely uses the warehouse's metastore.

    Environment variables and files in Spark's ``conf`` folder can configure a different one.
    """
    if any(environ.get(variable) for variable in _VARIABLES):
        return False
    if any(_JAVA_PROPERTIES.search(environ.get(variable, "")) for variable in _JAVA_VARIABLES):
        return False
    conf = _spark_home() / "conf"
    return not (conf.is_dir() and any(conf.iterdir()))


@contextmanager
def opened(warehouse: Path, java: str) -> Iterator[LocalMetastore]:
    """Open the metastore of a warehouse; the caller holds the warehouse's lock.

    Args:
        warehouse: The warehouse's folder.
        java: The path of the Java program.

    Raises:
        NeedsSpark: Java doesn't start, a jar is missing, or the metastore can't be opened.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from py4j.protocol import Py4JError

    jars = _spark_home() / "jars"
    derby = [str(jar) for jar in jars.glob("derby*.jar")]
    py4j = next((str(jar) for jar in jars.glob("py4j-*.jar")), None)
    if py4j is None or not derby:
        raise NeedsSpark(f"{jars} lacks Derby or py4j")
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    options.append(f"-Dderby.stream.error.file={warehouse / 'derby.log'}")
    try:
        port, token, process = launch_gateway(
            jarpath=py4j, classpath=":".join(derby), java_path=java, javaopts=options,
            die_on_exit=True, enable_auth=True, return_proc=True,
        )  # fmt: skip
    except (OSError, ValueError, Py4JError) as error:
        raise NeedsSpark(f"Java doesn't start: {error}") from error
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        source = gateway.jvm.org.apache.derby.jdbc.EmbeddedDataSource()
        source.setDatabaseName(str(warehouse / FOLDER))
        try:
            statement = source.getConnection().prepareStatement(_QUERY)
        except Py4JError as error:
            raise NeedsSpark(f"the metastore of {warehouse} can't be opened: {error}") from error
        # A statement has one result at a time, and several threads read the metadata of tables.
        lock = threading.Lock()

        def find(schema: str, table: str) -> Entry | None:
            with lock:
                return _entry(statement, schema, table)

        yield LocalMetastore(find)
        _shut_down(source)
    finally:
        gateway.shutdown()
        # Java exits when its standard input is closed.
        process.stdin.close()
        process.wait()


def _entry(statement: Any, schema: str, table: str) -> Entry | None:
    statement.setString(1, schema)
    statement.setString(2, table)
    rows = statement.executeQuery()
    try:
        if not rows.next():
            return None
        kind, provider, managed, path = (rows.getString(column) for column in range(1, 5))
    finally:
        rows.close()
    return Entry(kind, provider, path, arbitrated=managed is not None)


def _shut_down(source: Any) -> None:
    """Shut the database down, so that the next process needs no recovery."""
    from py4j.protocol import Py4JJavaError

    source.setShutdownDatabase("shutdown")
    try:
        source.getConnection()
    except Py4JJavaError as error:
        # Derby reports a successful shutdown as an exception.
        if error.java_exception.getSQLState() != "08006":
            raise


def _spark_home() -> Path:
    package = find_spec("pyspark")
    return Path(package.origin).parent if package and package.origin else Path("pyspark")
