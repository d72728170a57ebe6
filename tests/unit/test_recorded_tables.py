"""A catalog's answers are recorded, and count only while nothing can have changed them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import deltalake
import pytest
from arro3.core import Array, DataType, Table

from tableferry import catalog, localspark, recorded_tables, session
from tableferry.recorded_tables import FILE, METASTORE, NeedsSpark, RecordedTables, Recorder
from tableferry.tables import TableName

ORDERS = TableName.parse("Silver.orders")


class FakeSession:
    """A session with the default catalog and schema, unless a test says otherwise."""

    def __init__(self) -> None:
        self.catalog = SimpleNamespace(
            currentCatalog=lambda: "spark_catalog", currentDatabase=lambda: "default"
        )


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A warehouse with a metastore, and a table."""
    pages = tmp_path / METASTORE / "seg0"
    pages.mkdir(parents=True)
    for name in ("c10.dat", "c20.dat"):
        (pages / name).write_bytes(bytes(100))
    (tmp_path / METASTORE / "db.lck").write_text("1")
    deltalake.write_deltalake(
        orders_folder(tmp_path), Table.from_arrays([Array([1], type=DataType.int32())], names=["id"])
    )
    return tmp_path


def orders_folder(warehouse: Path) -> Path:
    return warehouse / "warehouse" / "silver.db" / "orders"


@pytest.fixture
def recorder(warehouse: Path) -> Recorder:
    return Recorder(cast(Any, FakeSession()), warehouse, "conf")


def recorded(recorder: Recorder, *names: str) -> dict[str, str] | None:
    """Note names, write them, and return what is read then."""
    for name in names:
        recorder.note(TableName.parse(name), orders_folder(recorder.warehouse))
    recorder.write()
    tables = recorded_tables.read(recorder.warehouse, "conf")
    return dict(tables.folders) if tables else None


def test_folder_that_the_catalog_gave_a_table_is_read_again(recorder: Recorder) -> None:
    folder = str(orders_folder(recorder.warehouse))
    assert recorded(recorder, "silver.orders") == {"silver.orders": folder}
    # A later command adds what it has asked.
    other = Recorder(recorder.spark, recorder.warehouse, "conf")
    assert recorded(other, "spark_catalog.silver.lines", "plain") == {
        "silver.orders": folder,
        "silver.lines": folder,
        "default.plain": folder,
    }


def touch(file: Path) -> None:
    """Write what a file has already."""
    file.write_bytes(file.read_bytes())


CHANGES: dict[str, Callable[[Path], object]] = {
    "same bytes": lambda folder: touch(folder / "seg0" / "c10.dat"),
    "longer": lambda folder: (folder / "seg0" / "c10.dat").write_bytes(bytes(101)),
    "new file": lambda folder: (folder / "seg0" / "c30.dat").write_bytes(b""),
    "no file": lambda folder: (folder / "seg0" / "c10.dat").unlink(),
    "no metastore": shutil.rmtree,
    "moved away": lambda folder: folder.rename(folder.with_name("gone")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_record_counts_no_more_once_the_metastore_is_written(recorder: Recorder, change: str) -> None:
    assert recorded(recorder, "silver.orders") is not None
    CHANGES[change](recorder.warehouse / METASTORE)
    assert recorded_tables.read(recorder.warehouse, "conf") is None


def test_lock_that_derby_leaves_is_no_change(recorder: Recorder) -> None:
    assert recorded(recorder, "silver.orders") is not None
    (recorder.warehouse / METASTORE / "db.lck").unlink()
    assert recorded_tables.read(recorder.warehouse, "conf") is not None


def test_answer_from_before_a_change_is_not_recorded(recorder: Recorder) -> None:
    recorder.note(ORDERS, orders_folder(recorder.warehouse))
    touch(recorder.warehouse / METASTORE / "seg0" / "c10.dat")
    assert recorded(recorder) is None
    assert recorded(recorder, "silver.lines") == {"silver.lines": str(orders_folder(recorder.warehouse))}


def test_record_of_another_configuration_or_state_is_replaced(recorder: Recorder) -> None:
    assert recorded(recorder, "silver.orders") is not None
    other = Recorder(recorder.spark, recorder.warehouse, "other conf")
    other.note(TableName.parse("silver.lines"), Path("/elsewhere"))
    other.write()
    assert recorded_tables.read(recorder.warehouse, "conf") is None
    tables = recorded_tables.read(recorder.warehouse, "other conf")
    assert tables is not None
    assert tables.folders == {"silver.lines": "/elsewhere"}


def test_names_that_a_new_session_may_find_elsewhere_are_not_recorded(recorder: Recorder) -> None:
    current = recorder.spark.catalog
    assert recorded(recorder, "ice.silver.orders") is None
    current.currentDatabase = lambda: "silver"  # type: ignore[method-assign]
    assert recorded(recorder, "orders") is None
    assert recorded(recorder, "silver.orders") is not None
    current.currentCatalog = lambda: "main"  # type: ignore[method-assign]
    (recorder.warehouse / FILE).unlink()
    recorder.noted.clear()
    assert recorded(recorder, "silver.orders") is None
    recorder.note(TableName.at("/folder"), Path("/folder"))
    assert recorder.noted == {}


def test_file_system_that_keeps_whole_seconds_records_nothing(recorder: Recorder) -> None:
    for file in (recorder.warehouse / METASTORE / "seg0").iterdir():
        os.utime(file, ns=(0, 7 * 10**9))
    assert recorded(recorder, "silver.orders") is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"metastore": "x"}', '{"metastore": 1, "configuration": 1}']
)
def test_record_that_cannot_be_read_counts_as_none(recorder: Recorder, text: str) -> None:
    (recorder.warehouse / FILE).write_text(text)
    assert recorded_tables.read(recorder.warehouse, "conf") is None


def test_warehouse_that_cannot_be_written_is_left_alone(recorder: Recorder) -> None:
    (recorder.warehouse / "tables.new").mkdir()
    assert recorded(recorder, "silver.orders") is None


def test_only_the_process_s_own_session_is_noted(recorder: Recorder) -> None:
    recorded_tables.start(recorder)
    try:
        recorded_tables.note(cast(Any, FakeSession()), ORDERS, Path("/elsewhere"))
        recorded_tables.write(cast(Any, FakeSession()))
        assert recorder.noted == {}
        recorded_tables.note(recorder.spark, ORDERS, orders_folder(recorder.warehouse))
        recorded_tables.write(recorder.spark)
        assert recorded_tables.read(recorder.warehouse, "conf") is not None
    finally:
        recorded_tables.stop()
    recorded_tables.note(recorder.spark, TableName.parse("a.b"), Path("/elsewhere"))
    assert "a.b" not in recorder.noted


def test_facts_of_a_recorded_table_are_read_from_its_log(warehouse: Path) -> None:
    folder = orders_folder(warehouse)
    tables = RecordedTables({"silver.orders": str(folder), "silver.gone": str(warehouse / "gone")})
    found = catalog.facts(tables, ORDERS)
    assert found is not None
    log = deltalake.DeltaTable(folder)
    assert (found.table_id, found.version) == (str(log.metadata().id), log.version())
    assert catalog.facts(tables, TableName.at(str(folder))) is not None
    for name in (TableName.parse("silver.lines"), TableName.parse("silver.gone"), TableName.at("relative")):
        with pytest.raises(NeedsSpark):
            catalog.facts(tables, name)
    with pytest.raises(NeedsSpark, match="a session's sql is needed"):
        catalog.earliest_version(cast(Any, tables), cast(Any, SimpleNamespace(folder=None, name=ORDERS)))
    assert catalog.current_catalog(tables) == "spark_catalog"


def digest(folder: Path, **environ: str) -> str:
    return recorded_tables.configuration_digest({"a": "b"}, environ, folder)


def test_configuration_is_what_spark_java_hadoop_and_hive_read(tmp_path: Path) -> None:
    plain = digest(tmp_path)
    (tmp_path / "conf").mkdir()
    assert digest(tmp_path) == plain
    assert digest(tmp_path, JAVA_HOME="/java", PATH="/bin", PYSPARK_PYTHON="python3") == plain
    assert digest(tmp_path, SPARK_HOME=str(tmp_path), PATH="/bin") != plain
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS"):
        assert digest(tmp_path, **{name: str(tmp_path / "none")}) != plain
    hadoop = tmp_path / "hadoop"
    hadoop.mkdir()
    before = digest(tmp_path, HADOOP_CONF_DIR=str(hadoop))
    (hadoop / "hive-site.xml").write_text("<configuration/>")
    assert digest(tmp_path, HADOOP_CONF_DIR=str(hadoop)) != before
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.sql.defaultCatalog main\n")
    assert digest(tmp_path) != plain
    assert recorded_tables.configuration_digest({"a": "c"}, {}, tmp_path) != digest(tmp_path)


@pytest.mark.parametrize(
    "environ",
    [
        {"DATABRICKS_RUNTIME_VERSION": "17.3"},
        {"SPARK_REMOTE": "sc://localhost"},
        {"PYSPARK_GATEWAY_PORT": "1"},
        {"SPARK_CONF_DIR": "/elsewhere"},
    ],
)
def test_record_counts_for_a_new_local_session_alone(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    folder = recorder.warehouse
    monkeypatch.setattr("os.environ", {"PATH": os.environ["PATH"]})
    monkeypatch.setattr(localspark, "_running", None)
    configuration = localspark._configuration(folder, *localspark._versions())
    recorder.configuration = configuration
    recorder.note(ORDERS, orders_folder(folder))
    recorder.write()
    assert session.recorded(folder) is not None
    monkeypatch.setenv("TABLEFERRY_WAREHOUSE", str(folder))
    assert session.recorded() is not None
    with monkeypatch.context() as patch:
        patch.setattr(localspark, "_running", object())
        assert session.recorded(folder) is None
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert session.recorded(folder) is None


def test_warehouse_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localspark, "_running", None)
    assert session.recorded(tmp_path / "none") is None
    assert not (tmp_path / "none").exists()
    assert os.listdir(tmp_path) == []
