"""Checks of this machine: Python, Java, packages, disk, folders, the metastore, and the local session."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from tableferry.amounts import size
from tableferry.doctor.check import (
    EVERY_ROUTE,
    Check,
    Observation,
    Place,
    failure,
    not_applicable,
    success,
)
from tableferry.doctor.environment import Environment, nearest_folder
from tableferry.errors import MissingPackage
from tableferry.extras import install
from tableferry.spark import java_process, local_settings, session, warehouse_lock
from tableferry.spark.driver import in_process
from tableferry.spark.local_metastore import FOLDER, NeedsSpark

PYTHON_VERSIONS = ((3, 11), (3, 12), (3, 13))
LEAST_FREE_BYTES = 2 * 10**9

_PIN = re.compile(r"""(pyspark|delta-spark)==([\w.]+)\s*;.*extra\s*==\s*["']local["']""")


def _python(env: Environment) -> Observation:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] in PYTHON_VERSIONS:
        return success(f"Python {version}")
    return failure(f"Python {version}")


def _java(env: Environment) -> Observation:
    if not env.is_local:
        return not_applicable("Spark doesn't run on this machine")
    return success(f"Java {java_process.find_java().version}")


def _packages(env: Environment) -> Observation:
    if not env.is_local:
        return not_applicable("Spark doesn't run on this machine")
    spark, delta = local_settings.versions()
    seen = f"pyspark {spark}, delta-spark {delta}"
    installed = {"pyspark": spark, "delta-spark": delta}
    expected = _pinned_versions()
    wrong = [name for name, version in installed.items() if expected.get(name, version) != version]
    if wrong:
        return failure(f"{seen}; expected {', '.join(f'{name} {expected[name]}' for name in wrong)}")
    return success(seen)


def _pinned_versions() -> dict[str, str]:
    """Return the versions of the packages of local Spark that this package requires."""
    requirements = metadata.requires("tableferry") or ()
    return {pin[1]: pin[2] for requirement in requirements if (pin := _PIN.match(requirement))}


def _disk_space(env: Environment) -> Observation:
    folder = nearest_folder(env.warehouse)
    free = shutil.disk_usage(folder).free
    seen = f"{size(free)} free"
    return (
        success(seen) if free >= LEAST_FREE_BYTES else failure(f"{seen}, less than {size(LEAST_FREE_BYTES)}")
    )


def _warehouse_folder(env: Environment) -> Observation:
    if not env.is_local:
        return not_applicable("tables aren't in a folder of this machine")
    folder = env.create_warehouse()
    file = folder / f"{env.scratch_name}.txt"
    try:
        file.write_text("written by tableferry doctor\n", encoding="utf-8")
        file.unlink()
    except OSError as error:
        return failure(f"{folder} can't be written ({(error.strerror or 'unknown reason').lower()})")
    return success(f"{folder} can be written")


def _metastore(env: Environment) -> Observation:
    if not env.is_local:
        return not_applicable("the metastore isn't on this machine")
    if env.running_session is not None:
        return success("open in this process")
    folder = env.create_warehouse()
    if not (folder / FOLDER).is_dir():
        os.close(warehouse_lock.acquire(folder))
        return success("new: the first session creates it")
    try:
        with session.metastore(folder):
            return success("opens, and no other process uses it")
    except NeedsSpark as error:
        return not_applicable(f"only Spark can open it: {error}")


def _spark_session(env: Environment) -> Observation:
    spark = env.start_session()
    answer = spark.sql("SELECT 1").collect()[0][0]
    if answer != 1:
        return failure(f"SELECT 1 returned {answer}")
    return success(f"Spark {spark.version}, {env.session_kind}")


def _jars(env: Environment) -> Observation:
    if not env.is_local:
        return not_applicable("the cluster's runtime contains Delta")
    try:
        local_settings.versions()
    except MissingPackage as error:
        return not_applicable(f"{error.parameters['package']} is missing")
    wanted = [tuple(text.split(":")) for text in local_settings.packages(iceberg=True).split(",")]
    spark = env.running_session
    names = _session_jars(spark) if spark is not None and in_process(spark) else _downloaded_jars()
    files = [f"{artifact}-{version}.jar" for _, artifact, version in wanted]
    missing = [file for file in files if not any(name.endswith(file) for name in names)]
    if missing:
        return failure(f"missing: {', '.join(missing)}")
    return success(", ".join(files))


def _session_jars(spark: Any) -> list[str]:
    jars = spark.sparkContext._jsc.sc().listJars()
    return [str(jars.apply(number)) for number in range(jars.size())]


def _downloaded_jars() -> list[str]:
    """Return the names of the jars in the folder to which Spark downloads them."""
    return [jar.name for jar in Path.home().glob(".ivy2*/jars/*.jar")]


MACHINE_CHECKS = (
    Check(
        name="python",
        place=Place.MACHINE,
        routes=EVERY_ROUTE,
        proves="This Python is a version that Tableferry supports.",
        remedy="Create an environment with Python 3.11, 3.12 or 3.13.",
        observe=_python,
    ),
    Check(
        name="java",
        place=Place.MACHINE,
        routes=EVERY_ROUTE,
        proves="Java 17 or 21 runs, which local Spark needs.",
        remedy=f"Install Java ({java_process.INSTALL_JAVA}), or set JAVA_HOME to its folder.",
        observe=_java,
    ),
    Check(
        name="packages",
        place=Place.MACHINE,
        routes=EVERY_ROUTE,
        proves="The packages of Spark and Delta have the versions that were tested together.",
        remedy=f"Install them: {install('local')}.",
        observe=_packages,
    ),
    Check(
        name="disk-space",
        place=Place.MACHINE,
        routes=EVERY_ROUTE,
        proves=f"The warehouse's disk has {size(LEAST_FREE_BYTES)} free, for jars and shuffle files.",
        remedy="Free space, or pass another --warehouse.",
        observe=_disk_space,
    ),
    Check(
        name="warehouse-folder",
        place=Place.MACHINE,
        routes=EVERY_ROUTE,
        proves="The folder of local Spark's tables can be written.",
        remedy="Correct its permissions, or pass another --warehouse.",
        observe=_warehouse_folder,
    ),
    Check(
        name="metastore",
        place=Place.MACHINE,
        routes=EVERY_ROUTE,
        proves="The local metastore opens, and no other process has locked it.",
        remedy="Wait until the other process ends, or pass another --warehouse.",
        observe=_metastore,
    ),
    Check(
        name="spark-session",
        place=Place.MACHINE,
        routes=EVERY_ROUTE,
        proves="A Spark session starts and answers a query.",
        remedy="Fix what the error names. The log of local Spark is spark.log in the warehouse's folder.",
        observe=_spark_session,
    ),
    Check(
        name="jars",
        place=Place.MACHINE,
        routes=EVERY_ROUTE,
        proves="The jars of Delta and Iceberg are downloaded, and match Spark and delta-spark.",
        remedy="Start a session with network access: tableferry doctor --check spark-session.",
        observe=_jars,
    ),
)
"""The checks of this machine; the session starts after the checks that need none."""
