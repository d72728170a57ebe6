"""Run a Spark Connect server with the pinned Spark and Delta until its standard input ends.

    <python of an environment with the extra 'local'> server.py FOLDER PORT [KEY=VALUE ...]

It is a separate program because databricks-connect and pyspark can't share an environment. Its settings are
those of local Spark and the given ones; the log is FOLDER/spark.log. The parent process ends it by closing
its standard input, and so does a killed test run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pyspark

from tableferry.spark import local_settings

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def settings(folder: Path, port: int, more: Sequence[str]) -> dict[str, str]:
    """Return the settings of a server on the loopback interface."""
    return {
        **local_settings.settings(folder, iceberg=True),
        "spark.app.name": "tableferry-connect",
        # With the embedded metastore, Iceberg's client can use neither a connection pool nor lock tables.
        "spark.hadoop.datanucleus.connectionPoolingType": "NONE",
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        # Spark returns the default as '3221225472b', but databricks-connect expects a number.
        "spark.sql.session.localRelationSizeLimit": str(3 * 2**30),
        **dict(setting.split("=", 1) for setting in more),
    }


def main(folder: Path, port: int, more: Sequence[str]) -> int:
    """Run the server in a folder; return its exit code."""
    (folder / "tmp").mkdir(parents=True)
    conf = folder / "conf"
    conf.mkdir()
    lines = [f"{key} {value}\n" for key, value in settings(folder, port, more).items()]
    (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    # Functions that the server's Python runs contain the code of tableferry, so the server needs no package.
    python = folder / "python"
    python.mkdir()
    (python / "tableferry.py").write_text('raise ImportError("this server has none")\n', encoding="utf-8")
    home = Path(pyspark.__file__).parent
    with (folder / "spark.log").open("wb") as log:
        server = subprocess.Popen(
            [home / "bin" / "spark-submit", "--class", SERVER_CLASS, "spark-internal"],
            env={
                **os.environ,
                "SPARK_HOME": str(home),
                "SPARK_CONF_DIR": str(conf),
                "PYTHONPATH": str(python),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    return server.wait()


def _end_with_input(server: subprocess.Popen[bytes]) -> None:
    sys.stdin.read()
    server.terminate()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
