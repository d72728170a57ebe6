"""Fetch the jars of local Spark, and of the servers that tests start, from Maven.

    python -m scripts.fetch_jars NAME...

The names are those of `FETCHERS`, and are fetched concurrently. Spark's launcher puts Spark's jars into a
folder of the user's, where each session finds them. Ivy, which Spark contains, puts the jars of each server
into a folder under ``~/.cache``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyspark

from tableferry.spark import java_process, local_settings

# Any small program: the launcher fetches the jars before it starts it.
_PROGRAM = "org.apache.hadoop.util.VersionInfo"

_SPARK = Path(pyspark.__file__).parent

BROKER_VERSION = "3.9.1"
BROKER = Path.home() / ".cache" / "tableferry-broker" / BROKER_VERSION
"""The jars of a Kafka broker, apart from Spark's: their classes conflict."""

_BROKER_PACKAGES = f"""
<ivy-module version="2.0">
  <info organisation="tableferry" module="broker"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{BROKER_VERSION}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

METASTORE_VERSION = "3.1.3"
METASTORE = Path.home() / ".cache" / "tableferry-metastore" / METASTORE_VERSION
"""The archive of Hive's metastore, unpacked: ``lib`` and ``scripts``."""

# Hive publishes the metastore as an archive, because no jar contains the statements that create its database.
# It expects an installed Hadoop; the last jar is the one that Spark's Hadoop lacks.
_METASTORE_PACKAGES = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tableferry" module="metastore"/>
  <dependencies>
    <dependency org="org.apache.hive" name="hive-standalone-metastore" rev="{METASTORE_VERSION}"
                transitive="false">
      <artifact name="hive-standalone-metastore" type="tar.gz" ext="tar.gz" m:classifier="bin"/>
    </dependency>
    <dependency org="org.postgresql" name="postgresql" rev="42.7.8" conf="default->master"/>
    <dependency org="commons-collections" name="commons-collections" rev="3.2.2" conf="default->master"/>
  </dependencies>
</ivy-module>
"""


REST_CATALOG_VERSION = "1.11.0"
REST_CATALOG = Path.home() / ".cache" / "tableferry-rest-catalog" / REST_CATALOG_VERSION
"""The jars of an Iceberg REST catalog: the one of Iceberg's tests, and its web server."""

# The newest version whose test classes are published.
_REST_CATALOG_PACKAGES = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tableferry" module="rest-catalog"/>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{REST_CATALOG_VERSION}">
      <artifact name="iceberg-core" type="jar" ext="jar"/>
      <artifact name="iceberg-core" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="12.1.2"
                conf="default->default"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="3.54.1.0" conf="default->master"/>
  </dependencies>
</ivy-module>
"""


S3_VERSION = "3.4.2"
S3 = Path.home() / ".cache" / "tableferry-s3" / S3_VERSION
"""The jars with which Spark's Hadoop, which has this version, reads S3."""

# Hadoop depends on the whole SDK, a jar of 600 MB; these are the parts that it needs. Spark has Netty.
_S3_PACKAGES = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tableferry" module="s3"/>
  <dependencies>
    <dependency org="org.apache.hadoop" name="hadoop-aws" rev="{S3_VERSION}" conf="default->master,compile"/>
    <dependency org="software.amazon.awssdk" name="s3-transfer-manager" rev="2.29.52"
                conf="default->default"/>
    <dependency org="software.amazon.awssdk" name="sts" rev="2.29.52" conf="default->default"/>
    <exclude org="software.amazon.awssdk" module="bundle"/>
    <exclude org="io.netty"/>
    <exclude org="org.slf4j"/>
    <exclude org="commons-logging"/>
    <exclude org="commons-codec"/>
  </dependencies>
</ivy-module>
"""


def main(names: Sequence[str]) -> int:
    """Run the named fetchers; return 1 if one failed, and print its output to standard error."""
    with ThreadPoolExecutor() as threads:
        return max(threads.map(lambda name: FETCHERS[name](), names), default=0)


def _fetch_packages(*, iceberg: bool = False, kafka: bool = False) -> int:
    """Let Spark's launcher fetch the jars of a local session."""
    command: list[str | Path] = [
        _SPARK / "bin" / "spark-submit",
        *("--packages", local_settings.packages(iceberg=iceberg, kafka=kafka)),
        *("--exclude-packages", ",".join(local_settings.IN_SPARK)),
        *("--class", _PROGRAM, "spark-internal"),
    ]
    with java_process.download_lock():
        return _run(command)


def _fetch_metastore() -> int:
    """Fetch the archive and unpack it."""
    with tempfile.TemporaryDirectory() as name:
        if METASTORE.exists():
            return 0
        folder = Path(name)
        if failed := _retrieve(_METASTORE_PACKAGES, folder):
            return failed
        [packed] = (folder / "got").glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        [unpacked] = folder.glob("apache-hive-metastore-*")
        for jar in (folder / "got").glob("*.jar"):
            shutil.move(jar, unpacked / "lib")
        _publish(unpacked, METASTORE)
    return 0


def _fetch_folder(packages: str, at: Path) -> int:
    """Fetch the dependencies of a module into a folder, unless it exists."""
    with tempfile.TemporaryDirectory() as name:
        if at.exists():
            return 0
        if failed := _retrieve(packages, Path(name)):
            return failed
        _publish(Path(name) / "got", at)
    return 0


def _retrieve(module: str, folder: Path) -> int:
    """Let Ivy put the dependencies of a module into the folder ``got`` of a folder."""
    packages = folder / "ivy.xml"
    packages.write_text(module.strip(), encoding="utf-8")
    [ivy] = (_SPARK / "jars").glob("ivy-*.jar")
    command: list[str | Path] = ["java", "-jar", ivy, "-ivy", packages, "-cache", folder / "cache"]
    if settings := _ivy_settings():
        command += ["-settings", settings]
    # Two organisations may give a jar the same name.
    return _run([*command, "-retrieve", f"{folder}/got/[organisation]_[artifact](-[classifier]).[ext]"])


def _publish(folder: Path, at: Path) -> None:
    """Rename a folder to its final name, so that it is complete or missing.

    If another process has published the same folder, that folder stays.
    """
    at.parent.mkdir(parents=True, exist_ok=True)
    beside = at.with_name(f"{at.name}.{os.getpid()}")
    shutil.move(folder, beside)
    try:
        beside.rename(at)
    except OSError:
        if not at.exists():
            raise
        shutil.rmtree(beside)


def _ivy_settings() -> str | None:
    """Return the user's Ivy settings, which name a mirror, from Spark's configuration."""
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or _SPARK / "conf", "spark-defaults.conf")
    if not defaults.exists():
        return None
    found = re.search(
        r"^\s*spark\.jars\.ivySettings[\s=:]+(\S+)", defaults.read_text(encoding="utf-8"), re.MULTILINE
    )
    return found[1] if found else None


def _run(command: Sequence[str | Path]) -> int:
    ran = subprocess.run(
        command,
        env={**os.environ, "SPARK_HOME": str(_SPARK)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        print(ran.stdout[-3000:], ran.stderr, file=sys.stderr)
    return ran.returncode


FETCHERS: Mapping[str, Callable[[], int]] = {
    "spark": partial(_fetch_packages, iceberg=True),
    "kafka": partial(_fetch_packages, kafka=True),
    "broker": partial(_fetch_folder, _BROKER_PACKAGES, BROKER),
    "metastore": _fetch_metastore,
    "rest-catalog": partial(_fetch_folder, _REST_CATALOG_PACKAGES, REST_CATALOG),
    "s3": partial(_fetch_folder, _S3_PACKAGES, S3),
}
"""Spark with Delta and Iceberg, its connector for Kafka, and the servers of tests."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
