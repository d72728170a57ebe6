"""A Hive metastore server of Apache Hive, on PostgreSQL.

Clients use loopback; this version always listens on all addresses.

With ``TABLEFERRY_METASTORE=server`` the tests with Spark use it instead of Derby in the test process
(`make metastore`).
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import psycopg
import pyspark
from scripts.fetch_jars import METASTORE, S3
from tests import servers

WANTED = os.environ.get("TABLEFERRY_METASTORE") == "server"
"""Whether the tests of Spark are to use one."""

_START_SECONDS = 120
_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
# Jars of an installed Hadoop that the archive needs; Spark has them.
_HADOOP = ("hadoop-client-*", "slf4j-api-*", "jcl-over-slf4j-*", "log4j-*", "commons-[cl]*")
# A transactional table requires the class that reads it.
_HIVE = ("hive-exec-*", "hive-serde-*", "hive-common-*", "hive-shims-*", "orc-*")


@contextmanager
def serving(folder: Path, hadoop: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a metastore on a separate database, and yield its address for ``hive.metastore.uris``.

    Args:
        folder: The folder of its settings, its log, and the tables of the schema ``default``.
        hadoop: Settings of the tables' storage, which it reads when tables are created.
    """
    with servers.postgresql() as url:
        database = urlsplit(url)
        _make_schema(database.port)
        port = servers.free_port()
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://127.0.0.1:{database.port}/postgres",
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": database.username or "",
            "javax.jdo.option.ConnectionPassword": servers.PASSWORD,
            "metastore.warehouse.dir": f"file:{folder}/warehouse",
            # The defaults of both are classes of Hive's own, which the archive is without.
            "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
            "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
            # A class that the archive lacks would write its log.
            "metastore.async.log.enabled": "false",
            **(hadoop or {}),
        }
        with _running(folder, port, settings):
            yield f"thrift://127.0.0.1:{port}"


def _make_schema(port: int | None) -> None:
    [script] = (METASTORE / "scripts/metastore/upgrade/postgres").glob("hive-schema-3.1.*.postgres.sql")
    # PostgreSQL has no such setting since version 12; Hive's own tool leaves the error aside.
    statements = re.sub("SET default_with_oids.*;", "", script.read_text(encoding="utf-8"))
    with psycopg.connect(
        host="127.0.0.1", port=port, user="ferry", password=servers.PASSWORD, dbname="postgres"
    ) as connection:
        connection.execute(statements.encode())


@contextmanager
def _running(folder: Path, port: int, settings: Mapping[str, str]) -> Iterator[None]:
    """Run the server from the moment it answers."""
    properties = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    (folder / "metastore-site.xml").write_text(
        f"<configuration>{''.join(properties)}</configuration>", encoding="utf-8"
    )
    spark = Path(pyspark.__file__).parent / "jars"

    def of_spark(names: Iterable[str]) -> list[str]:
        return [str(jar) for name in names for jar in sorted(spark.glob(f"{name}.jar"))]

    path = [str(folder), *of_spark(_HADOOP), f"{METASTORE}/lib/*", *of_spark(_HIVE), f"{S3}/*"]
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", os.pathsep.join(path), _MAIN, "-p", str(port)]
    log = folder / "metastore.log"
    with log.open("wb") as sink:
        server = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError as error:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(
                        f"the metastore doesn't answer:\n{log.read_text()[-3000:]}"
                    ) from error
                time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()
