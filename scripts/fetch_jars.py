"""Fetches the jars of local Spark, and of the Kafka broker that tests start, from Maven.

    python -m scripts.fetch_jars

Spark's launcher puts them into folders of the user's, and finds them there from then on; Spark's own as the
first start of a session would.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyspark

from tableferry import localspark

# Any small program will do: the launcher fetches the jars before it starts it.
_PROGRAM = "org.apache.hadoop.util.VersionInfo"


BROKER = Path.home() / ".cache" / "tableferry-broker"
"""Where the broker's jars are, apart from Spark's, whose classes it doesn't go with."""

_BROKER_PACKAGE = "org.apache.kafka:kafka_2.13:3.9.1"


def main() -> int:
    """Fetch them; return the launcher's exit code, with what it said on standard error where that isn't 0."""
    version = metadata.version("pyspark")
    conf = localspark.settings(Path(), version, metadata.version("delta-spark"))
    conf = localspark.with_kafka(localspark.with_iceberg(conf, version))
    return _fetch(conf["spark.jars.packages"]) or _fetch(
        _BROKER_PACKAGE, "--conf", f"spark.jars.ivy={BROKER}"
    )


def _fetch(packages: str, *options: str) -> int:
    home = Path(pyspark.__file__).parent
    launcher = home / "bin" / "spark-submit"
    with localspark.one_at_a_time():
        ran = subprocess.run(
            [launcher, "--packages", packages, *options, "--class", _PROGRAM, "spark-internal"],
            env={**os.environ, "SPARK_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
    if ran.returncode:
        print(ran.stderr, file=sys.stderr)
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
