"""The choice of the footer reader, without Spark."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import tableferry
from tableferry.convert import Reader, readers
from tableferry.convert.catalog.shares import task
from tableferry.convert.discovery import listing
from tableferry.errors import SessionError
from tableferry.formats.delta.statistics import INDEXED
from tableferry.formats.parquet import data_scan, directory_footers
from tableferry.spark.provider import SparkProvider


def no_session() -> NoReturn:
    raise SessionError("no Java here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "events"
    root.mkdir()
    for number in range(5):
        pq.write_table(pa.table({"id": [number], "name": [f"{number}"]}), root / f"{number}.parquet")
    (root / "note").write_text("no Parquet")
    return root


@pytest.mark.parametrize("many", [1, 1000])
def test_process_reads_all_footers_without_session(
    folder: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(readers, "SPARK_PAYS_FROM", many)
    files = listing.list_files(folder)
    footers = readers.read_footers(
        folder, files, SparkProvider(None, no_session), Reader.AUTO, leaves=INDEXED
    )
    assert list(footers) == list(directory_footers.read(folder, files))


@pytest.mark.parametrize("block", [1, 2, 100])
def test_threads_read_same_footers_on_slow_storage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    files = listing.list_files(folder)
    here = list(directory_footers.read(folder, files))
    asked = threading.Event()

    def by_threads(*arguments: Any) -> Any:
        asked.set()
        return pooled(*arguments)

    pooled = directory_footers.by_threads
    monkeypatch.setattr(directory_footers, "_MOST_WAIT", -1.0)
    monkeypatch.setattr(directory_footers, "_BLOCK", block)
    monkeypatch.setattr(directory_footers, "by_threads", by_threads)

    assert list(directory_footers.read(folder, files)) == here
    assert asked.is_set()


def test_spark_reader_requires_a_session(folder: Path) -> None:
    with pytest.raises(SessionError, match="no Java"):
        readers.read_footers(
            folder,
            listing.list_files(folder),
            SparkProvider(None, no_session),
            Reader.SPARK,
            leaves=INDEXED,
        )


def test_unreachable_remote_does_not_stop_a_conversion(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "SPARK_PAYS_FROM", 1)
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1")
    files = listing.list_files(folder)
    footers = readers.read_footers(
        folder, files, SparkProvider(None, no_session), Reader.AUTO, leaves=INDEXED
    )
    assert list(footers) == list(directory_footers.read(folder, files))


# A task on a machine without the package.
ELSEWHERE = """
import pickle, sys
sys.modules["tableferry"] = None
import pyarrow as pa
with open(sys.argv[1], "rb") as file:
    task = pickle.load(file)
ids = pa.record_batch({"id": pa.array(range(int(sys.argv[2])), pa.int64())})
with open(sys.argv[3], "wb") as file:
    pickle.dump([row for batch in task([ids, ids.slice(0, 0)]) for row in batch.to_pylist()], file)
"""


@pytest.mark.parametrize("scan", [False, True])
def test_tasks_run_without_installed_tableferry(folder: Path, tmp_path: Path, scan: bool) -> None:
    read = partial(data_scan.read, paths=frozenset()) if scan else directory_footers.read
    files = listing.list_files(folder)
    cloudpickle.register_pickle_by_value(tableferry)  # type: ignore[no-untyped-call]
    try:
        pickled = cloudpickle.dumps(task(str(folder), files, read))  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(tableferry)  # type: ignore[no-untyped-call]
    (tmp_path / "task").write_bytes(pickled)
    arguments = [str(tmp_path / "task"), str(len(files)), str(tmp_path / "rows")]
    command = [sys.executable, "-c", ELSEWHERE, *arguments]
    subprocess.run(command, check=True, env={"PATH": os.environ["PATH"]})
    rows = pickle.loads((tmp_path / "rows").read_bytes())
    assert [row["rows"] for row in rows] == [1, 1, 1, 1, 1, -1]
    assert [row["described"] is None for row in rows] == [False, True, True, True, True, True]
    assert scan or rows[4]["text"] == '4\n"4"\n4\n"4"\n0\n0'
    assert rows[5]["text"].startswith("is not a Parquet file")
