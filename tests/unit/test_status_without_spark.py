"""`pipelines status` starts Spark only if the metastore and the tables' logs aren't sufficient."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import deltalake
import pytest
from arro3.core import Array, DataType, Table
from rich.console import Console
from tests.unit.conftest import ProjectFiles
from typer.testing import CliRunner, Result

from tableferry import cli, pipelines
from tableferry.errors import SessionError
from tableferry.pipelines import reports
from tableferry.pipelines.model.target_state import Baseline, MigrationStart, PinnedCopy, Tracking
from tableferry.pipelines.state.store import StateStore
from tableferry.spark import local_metastore, session
from tableferry.spark.local_metastore import Entry, LocalMetastore, NeedsSpark
from tableferry.spark.tables import TableName

STARTED = "this run asked for a session"
QUERY = "5f1c0e3e-0b5e-4a2b-9d0a-1c1f0e7b2a11"
TARGET, LEGACY, SOURCE = (
    TableName.parse(name) for name in ("silver.orders", "silver.orders_legacy", "bronze.orders")
)
NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Finished:
    """A project whose migration is finished, in a local warehouse."""

    def __init__(self, project: ProjectFiles, warehouse: Path) -> None:
        self.project, self.warehouse = project, warehouse
        self.spec: dict[str, Any] = project.append()
        self.write()
        self.entries: dict[tuple[str, str], Entry] = {}
        self.source_id = self.append(SOURCE)
        self.append(TARGET, transactions=[deltalake.Transaction(QUERY, 0)])
        for name in (SOURCE, TARGET):
            self.register(name, f"file:{self.folder(name)}")
        store = StateStore(project.root / "state", "p1")
        copy = PinnedCopy(LEGACY, "legacy id", 3)
        start = MigrationStart("p1", TARGET, copy, {SOURCE.key: Baseline(SOURCE, self.source_id, 0)}, NOW)
        assert store.record_start(start)
        store.record_progress(start, Tracking({}, copied=0))
        (flow,) = project.load(environment="dev").dataflows[0].streaming_flows
        self.checkpoint_folder = store.checkpoint_folder(TARGET, 0, flow.name)
        self.read_to(1)
        store.finish(TARGET)

    def write(self) -> None:
        self.project.write("dataflows/sales/dataflowspec/orders_main.json", self.spec)

    def folder(self, name: TableName) -> Path:
        schema, table = name.parts
        return self.warehouse / "warehouse" / f"{schema}.db" / table

    def append(self, name: TableName, **properties: Any) -> str:
        """Commit a row to a table, and return the table's id."""
        columns = ("ORDER_ID", "AMOUNT", "LOAD_TIMESTAMP")
        rows = Table.from_arrays([Array([1], type=DataType.int32())] * 3, names=list(columns))
        deltalake.write_deltalake(
            self.folder(name),
            rows,
            mode="append",
            commit_properties=deltalake.CommitProperties(app_transactions=properties.get("transactions")),
        )
        return str(deltalake.DeltaTable(self.folder(name)).metadata().id)

    def read_to(self, version: int) -> None:
        """Write a checkpoint according to which the flow has read the source up to a version."""
        offset = {
            "sourceVersion": 1, "reservoirId": self.source_id, "reservoirVersion": version, "index": -1,
            "isStartingVersion": False,
        }  # fmt: skip
        for name, text in (
            ("metadata", json.dumps({"id": QUERY})),
            ("offsets/0", f"v1\n{{}}\n{json.dumps(offset)}"),
            ("commits/0", "v1\n{}"),
        ):
            file = self.checkpoint_folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def register(self, name: TableName, path: str, **entry: Any) -> None:
        """Enter a table into the metastore."""
        schema, table = name.parts
        self.entries[schema, table] = Entry(
            **{"kind": "MANAGED_TABLE", "provider": "delta", "path": path, **entry}
        )

    def status(self, *arguments: str, code: int = 0) -> Result:
        words = ["pipelines", "status", str(self.project.root), "--warehouse", str(self.warehouse)]
        words += ["--pipeline-id", "p1", "--environment", "dev", *arguments]
        result = CliRunner().invoke(cli.app, words)
        assert result.exit_code == code, result.output
        return result

    def data(self, *arguments: str) -> Any:
        return json.loads(self.status("--output", "json", *arguments).stdout)


@pytest.fixture
def finished(project: ProjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finished:
    def resolve(*_: object, **__: object) -> Any:
        raise SessionError(STARTED)

    finished = Finished(project, tmp_path / "lake")

    @contextmanager
    def metastore(warehouse: str | Path | None) -> Iterator[LocalMetastore]:
        assert Path(warehouse or "") == finished.warehouse
        yield LocalMetastore(lambda schema, table: finished.entries.get((schema, table)))

    monkeypatch.setattr(session, "resolve", resolve)
    monkeypatch.setattr(session, "metastore", metastore)
    return finished


def test_status_of_a_finished_project_needs_no_spark(finished: Finished) -> None:
    shown = finished.data()
    assert shown["complete"] is True
    (target,) = shown["targets"]
    assert (target["phase"], target["refusals"], target["waitingFor"]) == ("finished", [], [])
    assert [flow["action"] for flow in target["flows"]] == ["idle"]
    assert "silver.orders" in finished.status().stdout
    # The versions are read from the current logs.
    finished.append(SOURCE)
    assert [flow["action"] for flow in finished.data()["targets"][0]["flows"]] == ["continue"]


def test_status_without_the_migration_in_the_spec_needs_no_spark(finished: Finished) -> None:
    del finished.spec["tableMigrationDetails"]
    finished.write()
    (target,) = finished.data()["targets"]
    assert (target["phase"], [flow["action"] for flow in target["flows"]]) == ("plain", ["idle"])


def test_dropped_source_is_reported_without_spark(finished: Finished) -> None:
    del finished.entries["bronze", "orders"]
    (target,) = finished.data()["targets"]
    assert "bronze.orders doesn't exist" in json.dumps(target)


def lost_source(finished: Finished) -> None:
    finished.folder(SOURCE).rename(finished.warehouse / "elsewhere")


def python_source(finished: Finished) -> None:
    finished.project.write("dataflows/sales/python_functions/get.py", "def get_df(spark, tokens): 1 / 0")
    finished.spec |= {"sourceType": "python", "sourceDetails": {"functionPath": "get.py"}}
    finished.write()


def file_source(finished: Finished) -> None:
    del finished.spec["tableMigrationDetails"]
    finished.spec |= {
        "sourceType": "cloudFiles",
        "sourceDetails": {"path": "/landing", "readerOptions": {"cloudFiles.format": "json"}},
    }
    finished.write()


def view(finished: Finished) -> None:
    finished.register(SOURCE, f"file:{finished.folder(SOURCE)}", kind="VIRTUAL_VIEW", provider=None)


def parquet_table(finished: Finished) -> None:
    finished.register(SOURCE, f"file:{finished.folder(SOURCE)}", provider="parquet")


def arbitrated_table(finished: Finished) -> None:
    finished.register(SOURCE, f"file:{finished.folder(SOURCE)}", arbitrated=True)


def table_elsewhere(finished: Finished) -> None:
    finished.register(SOURCE, "s3a://lake/orders")


def not_finished(finished: Finished) -> None:
    document = finished.checkpoint_folder.parents[1] / "state.json"
    document.write_text(json.dumps({**json.loads(document.read_text()), "finished": False}))


@pytest.mark.parametrize(
    "change",
    [
        lost_source,
        python_source,
        file_source,
        view,
        parquet_table,
        arbitrated_table,
        table_elsewhere,
        not_finished,
    ],
)
def test_status_starts_spark_if_facts_are_only_in_the_catalog(
    finished: Finished, change: Callable[[Finished], None]
) -> None:
    change(finished)
    assert STARTED in finished.status(code=1).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--token", "pipeline_schema=silver"),
        ("--token", "pipeline_catalog=main"),
        ("--engine", "declarative", "--storage", "storage"),
    ],
)
def test_status_starts_spark_if_names_may_refer_to_other_tables(
    finished: Finished, arguments: tuple[str, ...]
) -> None:
    assert STARTED in finished.status(*arguments, code=1).stderr


def test_wrong_state_is_reported_as_it_is_with_spark(finished: Finished) -> None:
    (finished.checkpoint_folder / "metadata").write_text("{")
    assert STARTED not in (shown := finished.status(code=1).stderr)
    assert "[FLOW_CHECKPOINT_DAMAGED]" in shown
    assert "isn't a complete metadata file" in shown


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SPARK_HOME", "/opt/spark"),
        ("SPARK_CONF_DIR", "/etc/spark"),
        ("HADOOP_CONF_DIR", "/etc/hadoop"),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.hadoop.hive.metastore.uris=thrift://db:9083 pyspark-shell"),
        ("JAVA_TOOL_OPTIONS", "-Dspark.sql.catalogImplementation=in-memory"),
    ],
)
def test_configuration_can_name_another_metastore(variable: str, value: str) -> None:
    assert local_metastore.is_certain({"JAVA_TOOL_OPTIONS": "-Xmx2g -Dhttp.proxyHost=proxy", "PATH": "/bin"})
    assert not local_metastore.is_certain({variable: value})


def test_names_of_other_catalogs_need_spark() -> None:
    entries = {("default", "orders"): Entry("MANAGED_TABLE", "delta", "file:/lake/o")}
    metastore = LocalMetastore(lambda schema, table: entries.get((schema, table)))
    for name in ("orders", "DEFAULT.Orders", "spark_catalog.default.orders"):
        assert metastore.folder_uri(TableName.parse(name)) == "file:/lake/o", name
    assert metastore.folder_uri(TableName.parse("silver.orders")) is None
    for name in ("main.default.orders", "delta.`/lake/o`"):
        with pytest.raises(NeedsSpark):
            metastore.folder_uri(TableName.parse(name))


def test_warehouse_without_metastore_needs_spark(tmp_path: Path) -> None:
    with pytest.raises(NeedsSpark), session.metastore(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


def snapshot_target(finished: Finished) -> str:
    """Add a target that snapshots fill; return the line that names it."""
    path = "dataflows/sales/dataflowspec/days_main.json"
    source = {"format": "csv", "path": "/v/day_{version}.csv", "versionType": "integer"}
    finished.project.write(
        path,
        {
            "dataFlowId": "days",
            "dataFlowGroup": "sales",
            "dataFlowType": "standard",
            "targetFormat": "delta",
            "targetDetails": {"database": "silver", "table": "days"},
            "cdcSnapshotSettings": {
                "keys": ["id"],
                "scd_type": "1",
                "snapshotType": "historical",
                "sourceType": "file",
                "source": source,
            },
        },
    )
    return (
        f"{path} (silver.days) is skipped: [SPEC_SNAPSHOTS_OUTSIDE_DATABRICKS] Snapshot CDC of "
        "silver.days runs only on Databricks. Run the project in a pipeline on Databricks."
    )


def shown(print_: Callable[[Console, Any], None], report: object) -> list[str]:
    """Return the lines that a report prints."""
    out = StringIO()
    print_(Console(file=out, width=300), report)
    return out.getvalue().splitlines()


def test_plan_run_and_status_skip_target_of_snapshots_by_name(finished: Finished) -> None:
    line = snapshot_target(finished)
    project = finished.project.load(environment="dev")
    metastore: Any = LocalMetastore(lambda schema, table: finished.entries.get((schema, table)))
    plan = pipelines.plan(project, metastore, pipeline_id="p1")
    run = pipelines.run(project, metastore, pipeline_id="p1")
    status = pipelines.status(project, metastore, pipeline_id="p1")
    for data, lines in (
        (reports.plan_data(plan), shown(reports.print_plan, plan)),
        (reports.run_data(run), shown(reports.print_run, run)),
        (reports.status_data(status), shown(reports.print_status, status)),
    ):
        assert [target["target"] for target in data["targets"]] == ["silver.orders"]
        (skipped,) = data["skipped"]
        assert (skipped["file"], skipped["target"]) == (line.split(" ")[0], "silver.days")
        assert line in lines
    assert run.ok
    assert not plan.refusals


def test_status_with_a_skipped_target_is_no_failure_unless_the_target_is_named(finished: Finished) -> None:
    line = snapshot_target(finished)
    result = finished.status()
    assert line in " ".join(result.stdout.split())
    rows = [row for row in result.stdout.splitlines() if row.startswith("silver.")]
    assert [row.split()[:2] for row in rows] == [["silver.orders", "finished"]]
    asked = finished.status("--target", "silver.days", code=1)
    assert "Snapshot CDC of silver.days runs only on Databricks" in asked.output
