"""An Iceberg REST catalog that is a server: the one of Iceberg's own tests, over a SQLite database.

    python -m tests.rest_catalog FOLDER

runs one, prints its address, and ends with its standard input: for tests whose pyspark has no Java.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from scripts.fetch_jars import REST_CATALOG

_SPARK = Path(pyspark.__file__).parent / "jars"
# What Iceberg needs of a Hadoop, and what both write their logs with.
_HADOOP = ("hadoop-client-*", "commons-logging-*", "log4j-*")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run a catalog, and give its address; the folder takes its database and its tables' metadata."""
    [py4j] = _SPARK.glob("py4j-*.jar")
    hadoop = [str(jar) for name in _HADOOP for jar in sorted(_SPARK.glob(f"{name}.jar"))]
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join([f"{REST_CATALOG}/*", *hadoop]),
        javaopts=["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        yield _address(gateway.jvm, folder)
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()


def _address(jvm: Any, folder: Path) -> str:
    """Start the server, and return its address."""
    catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    settings = {
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "warehouse": str(folder / "warehouse"),
        # With views.
        "jdbc.schema-version": "V1",
    }
    catalog.initialize("catalog", settings)
    rest, jetty = jvm.org.apache.iceberg.rest, jvm.org.eclipse.jetty
    servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))
    context = jetty.ee10.servlet.ServletContextHandler()
    context.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
    server.setHandler(context)
    server.start()
    return f"http://127.0.0.1:{server.getConnectors()[0].getLocalPort()}"


if __name__ == "__main__":
    with serving(Path(sys.argv[1])) as served:
        print(served, flush=True)
        sys.stdin.read()
