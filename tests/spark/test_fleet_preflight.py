"""Preflight finds the blockers of a migration before the first notification, on real tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, dynamic_fleet, errors, hive_table
from tests.spark.tables import tables_in
from typer.testing import CliRunner, Result

from tableferry import cli
from tableferry.fleet.checks.preflight_run import precheck
from tableferry.fleet.jobs.findings import Preflight
from tableferry.fleet.jobs.job import PauseReason, State, TargetFormat
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.queue.records import NewJob
from tableferry.spark import session

ICEBERG, DELTA = TargetFormat.ICEBERG, TargetFormat.DELTA
CHANGES = (PauseReason.SHARED_DIRECTORY, PauseReason.REMOVES_FILES)


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    with dynamic_fleet(spark, schema, tmp_path) as ours:
        yield ours


def seen(ours: Fleet, table: str, form: TargetFormat = ICEBERG, **options: Any) -> Preflight:
    [preflight] = precheck(ours.store, ours.warehouse, [NewJob(ours.name(table), form, **options)])
    return preflight


def reasons(preflight: Preflight) -> set[PauseReason]:
    return {finding.reason for finding in preflight.findings}


@pytest.mark.parametrize("form", soak.amount([ICEBERG], list(TargetFormat)))
def test_preflight_of_an_eligible_table_has_its_size(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a"), (2, "b"), (3, None)])
    preflight = seen(ours, "t", form)
    size = sum(file.stat().st_size for file in (tmp_path / "t").rglob("part-*"))
    assert (preflight.findings, preflight.files, preflight.bytes, preflight.partitions) == ((), 3, size, 3)
    assert preflight.blocked_seconds is None
    hive_table(ours.spark, ours.name("empty").sql, tmp_path / "empty", [])
    for target_format in TargetFormat:
        assert seen(ours, "empty", target_format).findings == ()
    hive_table(ours.spark, ours.name("u").sql, tmp_path / "u", [(1, "a")])
    ours.to_probation("u", form=form)
    # The clock didn't advance during the migration.
    assert seen(ours, "t", form).blocked_seconds == 0.0
    assert not list((tmp_path / "t").rglob("_delta_log"))


@soak.slow
def test_tables_that_share_a_directory_are_found(ours: Fleet, tmp_path: Path) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a")])
    for name, location in (("same", tmp_path / "t"), ("below", tmp_path / "t" / "day=a")):
        ours.spark.sql(
            f"CREATE EXTERNAL TABLE {ours.name(name).sql} (id INT, at TIMESTAMP) STORED AS PARQUET "
            f"LOCATION '{location}'"
        )
    hive_table(ours.spark, ours.name("apart").sql, tmp_path / "t2", [(1, "a")])
    for name in ("u", "u_sync"):
        hive_table(ours.spark, ours.name(name).sql, tmp_path / name, [(1, "a")])
    assert PauseReason.SHARED_DIRECTORY in reasons(seen(ours, "t"))
    assert reasons(seen(ours, "below")) == {PauseReason.SHARED_DIRECTORY}
    assert reasons(seen(ours, "apart")) == set()
    # Shadow would rewrite the Hive copy of `u` into the directory of `u_sync`.
    assert reasons(seen(ours, "u")) == {PauseReason.SHARED_DIRECTORY}
    ours.add("t")
    assert "same at file:" in errors(ours.preprocess())[0]
    assert ours.job("t").pause_reason.startswith("SHARED_DIRECTORY: ")
    assert ours.job("t").state is State.UNDEFINED


def test_table_inside_an_unregistered_delta_table_is_found(ours: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "orders" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{}")
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "orders" / "t", [(1, "a")])
    [finding] = seen(ours, "t").findings
    assert finding.reason is PauseReason.SHARED_DIRECTORY
    assert f"is inside the Delta table {tmp_path / 'orders'}, whose metadata decide" in finding.text


@soak.only  # tests/unit/test_fleet_preflight.py tests each check and its order.
@pytest.mark.parametrize("reason", CHANGES)
def test_change_while_a_table_waits_is_found_before_writes_are_blocked(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: PauseReason
) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a")])
    ours.add("t")
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    if reason is PauseReason.SHARED_DIRECTORY:
        hive_table(ours.spark, ours.name("same").sql, tmp_path / "t", [])
    else:
        ours.spark.sql(
            f"ALTER TABLE {ours.name('t').sql} SET TBLPROPERTIES ('external.table.purge' = 'true')"
        )
    taken: list[object] = []
    monkeypatch.setattr(type(ours.warehouse.access), "take", lambda *given: taken.append(given))
    assert [report.outcome for report in ours.migrate().jobs] == ["paused"]
    job = ours.job("t")
    assert job.pause_reason.startswith(f"{reason.value}: ")
    assert (job.state, taken, bool(job.record.fence)) == (State.READY, [], False)
    if reason is PauseReason.SHARED_DIRECTORY:
        ours.spark.sql(f"DROP TABLE {ours.name('same').sql}")
    else:
        ours.spark.sql(
            f"ALTER TABLE {ours.name('t').sql} SET TBLPROPERTIES ('external.table.purge' = 'false')"
        )
    ours.store.edit(resumed(job), ours.clock())
    assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.WRITES_UNBLOCKED


@soak.slow
def test_table_whose_drop_removes_files_is_found(ours: Fleet, tmp_path: Path) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a")])
    ours.spark.sql(f"ALTER TABLE {ours.name('t').sql} SET TBLPROPERTIES ('external.table.purge' = 'true')")
    [finding] = seen(ours, "t").findings
    assert finding.reason is PauseReason.REMOVES_FILES
    statement = re.search(r"Run (ALTER TABLE .*)\.", finding.text)
    assert statement
    ours.spark.sql(statement[1])
    assert seen(ours, "t").findings == ()


@soak.only  # tests/spark/test_odd_names.py also migrates a table with such names.
def test_odd_column_names_need_column_mapping_in_delta(ours: Fleet, tmp_path: Path) -> None:
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('t').sql} "
        "(id INT, `net price` INT, s STRUCT<`a b`: INT, c: STRING>) "
        f"STORED AS PARQUET LOCATION '{tmp_path / 't'}'"
    )
    values = "SELECT {0}, 10, named_struct('a b', {0}, 'c', '{0}')"
    ours.spark.sql(f"INSERT INTO {ours.name('t').sql} {values.format(1)}")
    assert seen(ours, "t", ICEBERG).findings == ()
    [finding] = seen(ours, "t", DELTA).findings
    assert finding.reason is PauseReason.UNSUPPORTED_SCHEMA
    assert "net price, s.a b. Set column_mapping: true" in finding.text
    ours.warehouse = replace(ours.warehouse, column_mapping=True)
    assert seen(ours, "t", DELTA).findings == ()
    ours.to_probation("t", form=DELTA)
    ours.write("t", f"INSERT INTO {{t}} {values.format(2)}")
    ours.write("t", "UPDATE {t} SET `net price` = 11 WHERE id = 1")
    assert errors(ours.shadow()) == []
    assert ours.rows("t") == ours.rows("t_hive") == [(1, 11, (1, "1")), (2, 10, (2, "2"))]
    ours.write("t", "DELETE FROM {t} WHERE id = 1")
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == [(2, 10, (2, "2"))]


@soak.only  # Iceberg allows all names; the test above has Delta.
def test_odd_field_names_are_migrated_to_iceberg(ours: Fleet, tmp_path: Path) -> None:
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('t').sql} (id INT, s STRUCT<`a b`: INT, c: STRING>) "
        f"STORED AS PARQUET LOCATION '{tmp_path / 't'}'"
    )
    value = "named_struct('a b', {0}, 'c', '{0}')"
    ours.spark.sql(f"INSERT INTO {ours.name('t').sql} SELECT 1, {value.format(1)}")
    assert seen(ours, "t").findings == ()
    ours.to_probation("t")
    ours.write("t", f"INSERT INTO {{t}} SELECT 2, {value.format(2)}")
    assert errors(ours.shadow()) == []
    ours.write("t", "DELETE FROM {t} WHERE id = 1")
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == [(2, (2, "2"))]


@soak.slow
def test_unwritable_hive_copy_is_found_before_writes_are_blocked(ours: Fleet, tmp_path: Path) -> None:
    # A directory with a longer name can't be created.
    folder = tmp_path / ("t" * 252)
    hive_table(ours.spark, ours.name("t").sql, folder, [(1, "a")])
    before = sorted(folder.rglob("*"))
    ours.add("t")
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    for _ in range(3):
        [error] = errors(ours.migrate())
        assert f"{ours.name('t')}: No row can be written in file:{folder}_sync " in error
    job = ours.job("t")
    assert job.pause_reason.startswith("STEP_FAILED: [HIVE_COPY_NOT_WRITABLE] ")
    assert (job.state, bool(job.record.fence)) == (State.READY, False)
    assert tables_in(ours.spark, ours.schema) == ["t"]
    assert (sorted(folder.rglob("*")), [path.name for path in tmp_path.iterdir() if path.is_dir()]) == (
        before,
        [folder.name],
    )


@soak.slow
def test_partitions_outside_the_directory_are_found_for_delta(ours: Fleet, tmp_path: Path) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a")])
    ours.spark.sql(
        f"ALTER TABLE {ours.name('t').sql} ADD PARTITION (day = 'z') LOCATION '{tmp_path / 'elsewhere'}'"
    )
    assert reasons(seen(ours, "t")) == set()
    preflight = seen(ours, "t", DELTA)
    assert reasons(preflight) == {PauseReason.UNSUPPORTED_LAYOUT}
    assert "elsewhere" in preflight.findings[0].text
    # An overwrite of the other table removes the files.
    hive_table(ours.spark, ours.name("u").sql, tmp_path / "elsewhere", [(1, "a")])
    assert PauseReason.SHARED_DIRECTORY in reasons(seen(ours, "t"))


def test_partitions_that_share_a_directory_are_found(ours: Fleet, tmp_path: Path) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a")])
    ours.spark.sql(
        f"ALTER TABLE {ours.name('t').sql} ADD PARTITION (day = 'z') LOCATION '{tmp_path / 't' / 'day=a'}'"
    )
    for form in (ICEBERG, DELTA):
        preflight = seen(ours, "t", form)
        assert reasons(preflight) == {PauseReason.UNSUPPORTED_LAYOUT}
        assert "share a directory" in preflight.findings[0].text


@soak.slow
def test_partitions_with_other_serde_properties_are_found(ours: Fleet, tmp_path: Path) -> None:
    name = ours.name("t").sql
    ours.spark.sql(
        f"CREATE TABLE {name} (id INT, name STRING) PARTITIONED BY (day STRING) ROW FORMAT DELIMITED "
        f"FIELDS TERMINATED BY ',' STORED AS TEXTFILE LOCATION '{tmp_path}/t'"
    )
    for day in ("a", "b"):
        ours.spark.sql(f"INSERT INTO {name} PARTITION (day = '{day}') VALUES (1, 'x')")
    assert reasons(seen(ours, "t", rewrite=True)) == set()
    ours.spark.sql(f"ALTER TABLE {name} PARTITION (day = 'b') SET SERDEPROPERTIES ('field.delim' = '|')")
    preflight = seen(ours, "t", rewrite=True)
    assert reasons(preflight) == {PauseReason.UNSUPPORTED_LAYOUT}
    assert "other properties of its SerDe, than the table states: ['b']" in preflight.findings[0].text


@pytest.mark.parametrize("inner", [pytest.param("INT", marks=soak.slow), "TINYINT"])
def test_avro_column_with_another_type_in_the_metastore_is_found(
    ours: Fleet, tmp_path: Path, inner: str
) -> None:
    name = ours.name("t").sql
    ours.spark.sql(
        f"CREATE TABLE {name} (id TINYINT, `Deep` STRUCT<`A`: {inner}, b: ARRAY<VARCHAR(3)>>) STORED AS AVRO "
        f"LOCATION '{tmp_path}/t'"
    )
    ours.spark.sql(f"INSERT INTO {name} VALUES (1, NULL)")
    findings = seen(ours, "t").findings
    assert {finding.reason for finding in findings} <= {PauseReason.UNSUPPORTED_SCHEMA}
    differs = f"{ours.name('t')}: The column deep is struct<A:tinyint,b:array<varchar(3)>>"
    assert [finding.text.partition(" in the metastore")[0] for finding in findings] == (
        [] if inner == "INT" else [f"[AVRO_COLUMN_TYPE_DIFFERS] {differs}"]
    )


@pytest.mark.parametrize(
    ("kind", "column", "text"),
    [
        # tests/unit/test_convert_metrics.py tests findings from footers.
        pytest.param(
            "TIMESTAMP",
            pa.array([1], pa.timestamp("ms", "UTC")),
            "x.parquet has instants in milliseconds in at",
            marks=soak.slow,
        ),
        pytest.param(
            "TIMESTAMP",
            pa.array(["no time"]),
            "stores at as BINARY .STRING., which Iceberg can.t read as timestamp",
            marks=soak.slow,
        ),
        ("STRUCT<a: INT>", pa.array(["no struct"]), "has rows that can.t be read"),
        pytest.param("TIMESTAMP", None, "x.parquet is not a Parquet file", marks=soak.slow),
        ("DECIMAL(9, 2)", pa.array([Decimal("1.250")]), "x.parquet stores at with 3 decimal places"),
    ],
)
def test_files_that_iceberg_cannot_read_are_found(
    ours: Fleet, tmp_path: Path, kind: str, column: pa.Array | None, text: str
) -> None:
    name = ours.name("t").sql
    ours.spark.sql(f"CREATE EXTERNAL TABLE {name} (at {kind}) STORED AS PARQUET LOCATION '{tmp_path / 't'}'")
    if column is None:
        (tmp_path / "t" / "x.parquet").write_text("nothing of the kind")
    else:
        pq.write_table(pa.table({"at": column}), tmp_path / "t" / "x.parquet")
    preflight = seen(ours, "t")
    assert reasons(preflight) == {PauseReason.UNSUPPORTED_LAYOUT}
    assert re.search(text, preflight.findings[0].text)


@soak.slow
@pytest.mark.parametrize("form", TargetFormat)
def test_lists_in_the_older_form_are_found_for_iceberg(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    with session.settings(ours.spark, {"spark.sql.parquet.writeLegacyFormat": "true"}, "the test"):
        ours.spark.sql("SELECT array(1) AS l").write.parquet(f"{tmp_path}/t")
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('t').sql} (l ARRAY<INT>) STORED AS PARQUET LOCATION '{tmp_path}/t'"
    )
    findings = seen(ours, "t", form).findings
    assert [" has lists of the older form in l, " in finding.text for finding in findings] == (
        [True] if form is ICEBERG else []
    )


def test_values_that_python_cannot_represent_are_eligible(ours: Fleet, tmp_path: Path) -> None:
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('t').sql} (day DATE, at TIMESTAMP, m MAP<ARRAY<INT>, BINARY>) "
        f"STORED AS PARQUET LOCATION '{tmp_path / 't'}'"
    )
    ours.spark.sql(
        f"INSERT INTO {ours.name('t').sql} SELECT DATE '+10000-01-01', TIMESTAMP '0001-01-01 00:00:00', "
        "map(array(1), X'00')"
    )
    assert reasons(seen(ours, "t")) == set()


def test_preflight_command_reports_findings_as_text_json_and_html(ours: Fleet, tmp_path: Path) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a")])
    hive_table(ours.spark, ours.name("csv").sql, tmp_path / "csv", [(1, "a")])
    ours.spark.sql(f"ALTER TABLE {ours.name('csv').sql} SET TBLPROPERTIES ('external.table.purge' = 'true')")

    def call(*arguments: str, status: int) -> Result:
        store = f"sqlite:///{tmp_path / 'fleet.db'}"
        done = CliRunner().invoke(cli.app, ["fleet", "preflight", *arguments, "--store", store])
        assert done.exit_code == status, done.output
        return done

    assert "[NO_TABLE_WAITS]" in call(status=1).stderr
    output = call(f"{ours.schema}.t", status=0).stdout
    assert re.match(rf"{ours.name('t')}: parquet to Iceberg, 1 file, [0-9.]+ .?B, 1 partition\n", output)
    assert output.endswith("The table can be migrated.\n")
    ours.add("t", "csv", form=DELTA)
    page = tmp_path / "preflight.html"
    data = json.loads(call("--output", "json", "--html", str(page), status=1).stdout)
    assert (data["ok"], [len(table["findings"]) for table in data["tables"]]) == (False, [0, 1])
    assert "REMOVES_" in page.read_text("utf-8")
