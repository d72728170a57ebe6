"""Fetches the jars of local Spark, and of the servers that tests start, from Maven.

    python -m scripts.fetch_jars

Spark's launcher puts jars into folders of the user's, and finds them there from then on; Spark's own as the
first start of a session would. Hive's metastore comes as the archive that Hive publishes, by Spark's own Ivy:
no jar has the statements that make its database. An Iceberg REST catalog comes as jars of Iceberg's tests,
and S3 for Hadoop with those parts of Amazon's SDK alone that it needs, a thirtieth of the whole.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pyspark

from tableferry import localspark

# Any small program will do: the launcher fetches the jars before it starts it.
_PROGRAM = "org.apache.hadoop.util.VersionInfo"

_SPARK = Path(pyspark.__file__).parent

BROKER = Path.home() / ".cache" / "tableferry-broker"
"""Where the broker's jars are, apart from Spark's, whose classes it doesn't go with."""

_BROKER_PACKAGE = "org.apache.kafka:kafka_2.13:3.9.1"

METASTORE_VERSION = "3.1.3"
METASTORE = Path.home() / ".cache" / "tableferry-metastore" / METASTORE_VERSION
"""Where Hive's metastore is: ``lib`` and ``scripts``."""

# Spark's list of dependencies can't name an archive, so this is Ivy's own. The archive expects a Hadoop that
# is installed; the last jar is what Spark's own lacks of it.
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
"""Where the jars of an Iceberg REST catalog are: Iceberg's own, which its tests use, and what it runs on."""

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
"""Where the jars are by which Spark's Hadoop, of this version, reaches S3."""

# Of the SDK, Hadoop asks for one jar of 600 MB that holds everything. Spark has its own Netty.
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


def main() -> int:
    """Fetch them; return the exit code of what failed, with what it said on standard error."""
    version = metadata.version("pyspark")
    conf = localspark.settings(Path(), version, metadata.version("delta-spark"))
    conf = localspark.with_kafka(localspark.with_iceberg(conf, version))
    return (
        _fetch(conf["spark.jars.packages"])
        or _fetch(_BROKER_PACKAGE, "--conf", f"spark.jars.ivy={BROKER}")
        or _fetch_metastore()
        or _fetch_folder(_REST_CATALOG_PACKAGES, REST_CATALOG)
        or _fetch_folder(_S3_PACKAGES, S3)
    )


def _fetch(packages: str, *options: str) -> int:
    command: list[str | Path] = [_SPARK / "bin" / "spark-submit", "--packages", packages, *options]
    with localspark.one_at_a_time():
        return _run([*command, "--class", _PROGRAM, "spark-internal"])


def _fetch_metastore() -> int:
    """Fetch the archive and unpack it, whole or not at all."""
    with localspark.one_at_a_time(), tempfile.TemporaryDirectory() as name:
        if METASTORE.exists():
            return 0
        folder = Path(name)
        if failed := _retrieve(_METASTORE_PACKAGES, folder):
            return failed
        with tarfile.open(folder / "got" / "hive-standalone-metastore-bin.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        [unpacked] = folder.glob("apache-hive-metastore-*")
        for jar in (folder / "got").glob("*.jar"):
            shutil.move(jar, unpacked / "lib")
        _put(unpacked, METASTORE)
    return 0


def _fetch_folder(packages: str, at: Path) -> int:
    """Fetch what a module depends on into a folder, unless it's there."""
    with localspark.one_at_a_time(), tempfile.TemporaryDirectory() as name:
        if at.exists():
            return 0
        if failed := _retrieve(packages, Path(name)):
            return failed
        _put(Path(name) / "got", at)
    return 0


def _retrieve(module: str, folder: Path) -> int:
    """Let Ivy put what a module depends on into the folder ``got`` of a folder."""
    packages = folder / "ivy.xml"
    packages.write_text(module.strip(), encoding="utf-8")
    [ivy] = (_SPARK / "jars").glob("ivy-*.jar")
    command: list[str | Path] = ["java", "-jar", ivy, "-ivy", packages, "-cache", folder / "cache"]
    if settings := _ivy_settings():
        command += ["-settings", settings]
    return _run([*command, "-retrieve", f"{folder}/got/[artifact](-[classifier]).[ext]"])


def _put(folder: Path, at: Path) -> None:
    """Move a folder to where it is looked for, whole or not at all."""
    at.parent.mkdir(parents=True, exist_ok=True)
    beside = at.with_name(f"{at.name}.{os.getpid()}")
    shutil.move(folder, beside)
    beside.rename(at)


def _ivy_settings() -> str | None:
    """Return the user's own settings of Ivy, which name a mirror, from where Spark's launcher takes them."""
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


if __name__ == "__main__":
    sys.exit(main())
