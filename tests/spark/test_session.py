from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import soak
from tests.conditions import raises

from tableferry.spark import java_process, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = """
import sys
from tableferry.errors import SessionError
from tableferry.spark import session
try:
    session.resolve(sys.argv[1])
except SessionError as error:
    print(error.condition, *error.parameters.values(), sep="\\n")
"""

# Java options and Derby's address can fail at blanks, quotes and characters outside ASCII.
FOLDER = "ein Ort/schön ✓ 100% \"q\" 'p'"

WORK = """
from tableferry.spark import session
spark = session.resolve()
spark.sql("CREATE SCHEMA s")
spark.sql("CREATE TABLE s.t USING delta AS SELECT 1 AS id, 'é' AS name")
spark.sql("INSERT INTO s.t VALUES (2, '✓')")
print(sorted(tuple(row) for row in spark.table("s.t").collect()))
try:
    spark.sql("SELECT nope FROM s.t")
except Exception as error:
    print(type(error).__name__)
"""


def folder_of(spark: SparkSession) -> Path:
    warehouse = spark.conf.get("spark.sql.warehouse.dir")
    assert warehouse is not None
    return Path(warehouse.removeprefix("file:")).parent


def run(code: str, *arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_second_process_on_the_same_metastore_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = folder_of(spark)
    second = run(SECOND, str(folder), cwd=tmp_path)
    expected = f"WAREHOUSE_IN_USE\n{folder}\n{os.getpid()}\n"
    assert (second.stdout, second.stderr, second.returncode) == (expected, "", 0)


@soak.slow
def test_everything_is_under_one_folder_and_one_line_is_reported(tmp_path: Path) -> None:
    where, home = tmp_path / "where", tmp_path / FOLDER
    where.mkdir()
    worker = run(WORK, cwd=where, TABLEFERRY_WAREHOUSE=str(home))
    assert worker.stdout == "[(1, 'é'), (2, '✓')]\nAnalysisException\n"
    assert worker.stderr == f"Spark: local 4.1.4 with Delta 4.4.0, warehouse {home}\n"
    assert list(where.iterdir()) == []
    assert {"warehouse", "metastore_db", "spark.log", "derby.log"} <= {file.name for file in home.iterdir()}
    assert (home / "warehouse" / "s.db" / "t" / "_delta_log").is_dir()


@soak.only
def test_two_concurrent_first_starts_both_get_their_jars(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.jars.ivy {tmp_path / 'ivy'}\n", encoding="utf-8")

    def start(warehouse: str) -> subprocess.CompletedProcess[str]:
        return run(WORK, cwd=tmp_path, SPARK_CONF_DIR=str(tmp_path), TABLEFERRY_WAREHOUSE=warehouse)

    with ThreadPoolExecutor() as pool:
        workers = list(pool.map(start, ("a", "b")))
    assert [worker.stdout for worker in workers] == ["[(1, 'é'), (2, '✓')]\nAnalysisException\n"] * 2


def test_one_process_of_a_user_at_a_time_starts_java() -> None:
    file = Path(tempfile.gettempdir(), f"tableferry-{os.getuid()}.lock")
    with java_process.download_lock(), file.open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_active_session_is_returned_again(spark: SparkSession, tmp_path: Path) -> None:
    messages: list[str] = []
    folder = folder_of(spark)
    assert session.resolve(folder, say=messages.append) is spark
    assert session.resolve(say=messages.append) is spark
    assert messages == [f"Spark: the session that is already active, 4.1.4, warehouse {folder}/warehouse"] * 2


def test_another_warehouse_in_the_same_process_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with raises("SESSION_ON_OTHER_WAREHOUSE", warehouse=folder_of(spark) / "warehouse"):
        session.resolve(tmp_path, say=lambda line: None)


def test_delta_and_the_session_time_zone(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.t USING delta AS SELECT 1 AS id")
    detail = spark.sql(f"DESCRIBE DETAIL {schema}.t").first()
    assert detail is not None
    assert detail["format"] == "delta"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
