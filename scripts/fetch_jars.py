"""Fetches the jars of local Spark from Maven, as the first start of a session would.

    python -m scripts.fetch_jars

Spark's launcher puts them into a folder of the user's, and finds them there from then on.
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


def main() -> int:
    """Fetch them; return the launcher's exit code, with what it said on standard error where that isn't 0."""
    version = metadata.version("pyspark")
    conf = localspark.settings(Path(), version, metadata.version("delta-spark"))
    packages = localspark.with_iceberg(conf, version)["spark.jars.packages"]
    home = Path(pyspark.__file__).parent
    with localspark.one_at_a_time():
        ran = subprocess.run(
            [home / "bin" / "spark-submit", "--packages", packages, "--class", _PROGRAM, "spark-internal"],
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
