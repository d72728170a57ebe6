"""The plan of a shadow run, its progress properties and the changes of targets, from plain values."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ByteType, StringType, StructField, StructType
from tests import conditions

from tableferry.fleet.hive_copy.delta_changes import DeltaTarget
from tableferry.fleet.hive_copy.iceberg_changes import IcebergTarget
from tableferry.fleet.hive_copy.iceberg_metadata import Metadata
from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_copy.update_plan import (
    AddedRows,
    Changes,
    Columns,
    Plan,
    check_partition_values,
    plan_columns,
    plan_updates,
)
from tableferry.fleet.hive_tables.partition_conditions import chunks, spec, where
from tableferry.fleet.hive_tables.partitions import Partition, canonical, parse, parsed, spell
from tableferry.fleet.hive_tables.progress_properties import (
    FOLDER,
    PENDING,
    RUNS,
    SWEEP,
    TARGET,
    WATERMARK,
    ShadowProgress,
)
from tableferry.fleet.shadow_runs.unused_directories import find_unused_directories
from tableferry.fleet.warehouse.context import Access, Warehouse
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT
from tableferry.formats.hive.partitions import NULL
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A: Partition = ("a",)
B: Partition = ("b",)
C: Partition = ("c",)
SHARED = "file:/w/t"


class TestPlanUpdates:
    def plan(self, changes: Changes, locations: dict[Partition, str], **options: Any) -> Plan:
        given = {"shared": None, "exact": frozenset(), "interrupted": False} | options
        return plan_updates(changes, locations, **given)

    def test_rows_are_inserted_into_existing_partition(self) -> None:
        plan = self.plan(Changes({A: AddedRows(), B: AddedRows()}, frozenset((C,))), {A: "x"})
        assert plan == Plan(append=(A,), rewrite=(C, B))

    def test_partition_is_rewritten_after_interrupted_run(self) -> None:
        plan = self.plan(Changes({A: AddedRows()}), {A: "x"}, interrupted=True)
        assert plan == Plan(rewrite=(A,))

    def test_directory_is_shared_if_it_contains_only_current_files(self) -> None:
        added = {values: AddedRows(f"{SHARED}/day={values[0]}") for values in (A, B, C)}
        locations = {A: "file:///w/t/day=a", C: "file:/w/t_sync/day=c"}
        plan = self.plan(Changes(added), locations, shared=SHARED, exact={A, B, C})
        assert plan == Plan(in_place=(A,), share={B: f"{SHARED}/day=b"}, append=(C,))
        # A directory with other files is neither shared nor extended.
        plan = self.plan(Changes(added), locations, shared=SHARED)
        assert plan == Plan(append=(C,), rewrite=(A, B))

    def test_rows_are_never_inserted_into_target_directory(self) -> None:
        plan = self.plan(Changes({A: AddedRows()}), {A: f"{SHARED}/day=a"}, shared=SHARED)
        assert plan == Plan(rewrite=(A,))

    def test_moved_rows_are_rewritten_only_in_shared_directory(self) -> None:
        locations = {A: f"{SHARED}/day=a", B: "file:/w/t_sync/day=b"}
        plan = self.plan(Changes(moved=frozenset((A, B, C))), locations, shared=SHARED)
        assert plan == Plan(rewrite=(A,))


PROPERTIES = {TARGET: "id", WATERMARK: "7", PENDING: "8", FOLDER: "/w/t_sync/id"}


class TestMarks:
    def test_recorded_watermark_has_precedence(self) -> None:
        marks = ShadowProgress.read(PROPERTIES, "/w/t", "id", "3")
        assert marks == ShadowProgress("7", "8", "/w/t_sync/id")
        assert marks.interrupted_version == "8"

    def test_given_watermark_is_used_before_first_run(self) -> None:
        assert ShadowProgress.read({}, "/w/t", "id", "3").watermark == "3"
        assert ShadowProgress.read({}, "/w/t/", "0123456789", None) == ShadowProgress(
            None, "", "/w/t_sync/01234567"
        )

    def test_watermark_recorded_as_unknown_stays_unknown(self) -> None:
        """The given version may belong to an earlier table, because Delta versions are small numbers."""
        unknown = PROPERTIES | {WATERMARK: ""}
        assert ShadowProgress.read(unknown, "/w/t", "id", "3").watermark is None
        # Spark omits empty properties.
        shown = {key: value for key, value in unknown.items() if value}
        assert ShadowProgress.read(shown, "/w/t", "id", "3").watermark is None

    def test_marks_of_another_target_are_ignored(self) -> None:
        assert ShadowProgress.read(PROPERTIES, "/w/t", "other", "3") == ShadowProgress(
            "3", "", "/w/t_sync/other"
        )

    def test_finished_runs_of_another_target_are_kept(self) -> None:
        properties = PROPERTIES | {f"{RUNS}_000": "aaaaaaaa,bbbbbbbb"}
        assert ShadowProgress.read(properties, "/w/t", "other", None).runs == ("aaaaaaaa", "bbbbbbbb")

    def test_pending_sweep_is_not_half_copied(self) -> None:
        assert (
            ShadowProgress.read(PROPERTIES | {PENDING: SWEEP}, "/w/t", "id", None).interrupted_version == ""
        )


class TestColumns:
    def test_missing_column_is_added(self) -> None:
        hive, target = {"id": "int", "day": "string"}, {"ID": "int", "Day": "string", "new": "array<int>"}
        column_plan = plan_columns(hive, target, ["day"], {}, "t")
        assert column_plan == Columns({"id": "int", "new": "array<int>"}, {"new": "array<int>"})
        assert column_plan
        assert not plan_columns(hive, {"id": "int", "day": "string"}, ["day"], {}, "t")

    def test_substituted_type_is_unchanged(self) -> None:
        assert not plan_columns({"n": "smallint"}, {"n": "int"}, [], {"smallint": "int"}, "t")
        assert plan_columns({"n": "smallint"}, {"n": "int"}, [], {}, "t").replaced == ("n",)
        hive, target = "struct<smallint:array<smallint>,n:string>", "struct<smallint:array<int>,n:string>"
        assert not plan_columns({"n": hive}, {"n": target}, [], {"smallint": "int"}, "t")
        other = target.replace("<smallint:", "<other:")
        assert plan_columns({"n": hive}, {"n": other}, [], {"smallint": "int"}, "t").replaced == ("n",)

    def test_replaced_or_widened_column_is_refused_without_metastore(self) -> None:
        name = TableName(("hive_metastore", "s", "t"))
        nowhere = Warehouse(cast("SparkSession", None), cast("Access", None))
        copy = HiveCopy(nowhere, name, {}, StructType(), (), "/w/t", {}, "parquet", frozenset())
        copy.check_columns(Columns({"id": "int"}, {"id": "int"}))
        with conditions.raises("HIVE_COLUMNS_REPLACED", table=name, columns=("old",), new_columns="`id` int"):
            copy.check_columns(Columns({"id": "int"}, {"id": "int"}, ("old",)))
        wider = Columns({"id": "int", "n": "smallint"}, {}).widening(["n"], {"id": "int", "N": "int"})
        assert wider
        with conditions.raises("HIVE_COLUMNS_TOO_NARROW", columns=["n"], new_columns="`id` int, `n` int"):
            copy.check_columns(wider)

    @pytest.mark.parametrize("kind", ["variant", "array<time(6)>", "struct<a:interval day to second>"])
    def test_type_that_hive_lacks_is_refused(self, kind: str) -> None:
        with conditions.raises("COLUMN_TYPE_NOT_IN_HIVE", table="t", column="new"):
            plan_columns({"id": "int"}, {"id": "int", "new": kind}, [], {}, "t")
        plan_columns(
            {"id": "int"}, {"id": "int", "new": "struct<time:string,variant:timestamp>"}, [], {}, "t"
        )

    def test_changed_columns_of_avro_schema_are_refused(self) -> None:
        name = TableName(("spark_catalog", "s", "t"))
        nowhere = Warehouse(cast("SparkSession", None), cast("Access", None))
        schema = {"avro.schema.url": "s3://b/t.avsc"}
        copy = HiveCopy(nowhere, name, {}, StructType(), (), "/w/t", schema, "", frozenset())
        # The schema may also be a property of the SerDe.
        told = replace(copy, properties={}, options=frozenset(schema))
        for each in (copy, told):
            each.check_columns(Columns({"id": "int"}, {}))
            with conditions.raises(
                "AVRO_SCHEMA_OUTDATED", property="avro.schema.url", columns="`id` int, `n` int"
            ):
                each.check_columns(Columns({"id": "int", "n": "int"}, {"n": "int"}))

    def test_timestamp_ntz_becomes_timestamp(self) -> None:
        column_plan = plan_columns({"id": "int"}, {"id": "int", "at": "array<timestamp_ntz>"}, [], {}, "t")
        assert column_plan.added == {"at": "array<timestamp>"}

    def test_dropped_renamed_or_retyped_column_is_replaced(self) -> None:
        hive = {"id": "int", "Old": "string", "n": "smallint", "gone": "date", "day": "string"}
        target = {"new": "string", "ID": "bigint", "day": "string", "n": "int"}
        assert plan_columns(hive, target, ["day"], {"smallint": "int"}, "t") == Columns(
            {"new": "string", "id": "bigint", "n": "smallint"}, {"new": "string"}, ("id", "Old", "gone")
        )

    @pytest.mark.parametrize(
        ("target", "condition"),
        [
            ({"id": "int"}, "PARTITION_COLUMN_DROPPED"),
            ({"id": "int", "day": "date"}, "PARTITION_COLUMN_RETYPED"),
        ],
    )
    def test_changed_partition_column_is_refused(self, target: dict[str, str], condition: str) -> None:
        with conditions.raises(condition, table="t", column="day", type="string"):
            plan_columns({"id": "int", "day": "string"}, target, ["day"], {}, "t")


class TestPartitions:
    @pytest.mark.parametrize(
        ("text", "kind", "expected"),
        [
            ("007", "int", "7"),
            ("-1", "bigint", "-1"),
            ("1.5", "decimal(10,2)", "1.50"),
            ("2", "decimal(3)", "2"),
            ("TRUE", "boolean", "true"),
            ("2024-01-01 00:00:00.0", "timestamp", "2024-01-01 00:00:00"),
            ("2024-01-01 00:00:00.120", "timestamp", "2024-01-01 00:00:00.12"),
            ("2024-01-01 00:00:10", "timestamp", "2024-01-01 00:00:10"),
            ("007", "string", "007"),
            (NULL, "int", None),
            # Spark and Python round differently by default.
            ("1.005", "decimal(5,2)", "1.01"),
            # The canonical text has no exponent.
            ("0", "decimal(10,7)", "0.0000000"),
            ("0.0000001", "decimal(10,7)", "0.0000001"),
        ],
    )
    def test_partition_value_is_canonical_as_spark_casts_it(
        self, text: str, kind: str, expected: str | None
    ) -> None:
        assert canonical(text, kind) == expected

    @pytest.mark.parametrize(
        ("spec", "kind"),
        [("m=tmp", "int"), ("m=1_0", "bigint"), ("m=1.5", "int"), ("m=x", "decimal(3)"), ("m=", "int")],
    )
    def test_value_outside_its_type_is_refused_with_its_partition(self, spec: str, kind: str) -> None:
        with conditions.raises("PARTITION_VALUE_OF_OTHER_TYPE", table="c.s.t", partition=spec, types=kind):
            parsed(TableName(("c", "s", "t")), spec, [kind])

    @given(
        st.lists(st.none() | st.text(st.characters(min_codepoint=1, codec="utf-8"), min_size=1), min_size=1)
    )
    def test_parsed_path_equals_written_values(self, values: list[str | None]) -> None:
        columns = [f"c{number}" for number in range(len(values))]
        path = spell(tuple(values), columns)
        assert path.count("/") == len(values) - 1
        assert parse(path, ["string"] * len(values)) == tuple(values)

    def test_value_that_hive_cannot_store_is_refused(self) -> None:
        code = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
        day = StructField("day", StringType())
        keys = [day, StructField("n", ByteType()), StructField("code", StringType(), True, code)]
        check_partition_values([("long enough", "-128", "abc"), (None, None, None)], keys, "t")
        with conditions.raises("PARTITION_VALUE_EMPTY", table="t", column="code"):
            check_partition_values([("a", None, "")], keys, "t")
        with conditions.raises(
            "PARTITION_VALUE_NOT_IN_HIVE", value=128, type="tinyint", new_column="`n` INT"
        ):
            check_partition_values([("a", "128", None)], keys, "t")
        with conditions.raises("PARTITION_VALUE_IS_NULL_IN_HIVE", column="day", value=NULL):
            check_partition_values([(NULL, "1", None)], keys, "t")
        with conditions.raises(
            "PARTITION_VALUE_NOT_IN_HIVE", value=1234, type="varchar(3)", new_column="`code` STRING"
        ):
            check_partition_values([("a", "1", "1234")], keys, "t")

    def test_conditions(self) -> None:
        assert where([()], [], {}) == "true"
        assert where([A, (None,), ("o'",)], ["day"], {"Day": "string"}) == (
            r"`day` IN ('a', 'o\'') OR `day` IS NULL"
        )
        two = where([("a", None), (None, "1")], ["d", "n"], {"d": "date", "n": "int"})
        assert two == "(`d` = CAST('a' AS date) AND `n` IS NULL) OR (`d` IS NULL AND `n` = CAST('1' AS int))"
        assert spec(("a\\", None), ["d", "n"]) == r"PARTITION (`d` = 'a\\', `n` = null)"
        assert literal("'") == r"'\''"
        assert [len(some) for some in chunks([A] * 450)] == [200, 200, 50]


class TestUnused:
    def test_topmost_unused_directories_are_found(self) -> None:
        root = "file:/w/t_sync/id"
        directories = ("v1", "v1/a", "v1/a/b", "v2", "v2/a", "v2/b", "v3", "v3/x")
        used = ["/w/t_sync/id/v2/a", "file:/w/t/c", "file:///w/t_sync/id/v3"]
        assert find_unused_directories(directories, root, used) == (f"{root}/v1", f"{root}/v2/b")

    def test_only_paths_of_locations_are_compared(self) -> None:
        used = ["s3a://lake/t", "s3a://lake/t_sync/id/v1/k=1"]
        assert find_unused_directories(["v1", "v1/k=1", "v2"], "s3://lake/t_sync/id", used) == (
            "s3://lake/t_sync/id/v2",
        )


def metadata(**more: Any) -> Metadata:
    """A table with three snapshots, the second with a different schema."""
    fields = [{"id": 1, "name": "id", "type": "int"}, {"id": 2, "name": "Day", "type": "string"}]
    content = {
        "table-uuid": "u",
        "current-snapshot-id": 3,
        "current-schema-id": 1,
        "schemas": [
            {"schema-id": 0, "fields": fields},
            {"schema-id": 1, "fields": [*fields, {"id": 3, "name": "x", "type": "int"}]},
        ],
        "partition-specs": [
            {"spec-id": 0, "fields": [part(2, "identity", 1000, "day")]},
            {"spec-id": 1, "fields": [part(2, "identity", 1000, "d"), part(1, "bucket[4]", 1001, "b")]},
            {"spec-id": 2, "fields": [part(1, "identity", 1002, "id")]},
        ],
        "snapshots": [
            {"snapshot-id": 1, "schema-id": 0, "summary": {"operation": "append"}},
            {"snapshot-id": 2, "parent-snapshot-id": 1, "schema-id": 1, "summary": {"operation": "delete"}},
            {"snapshot-id": 3, "parent-snapshot-id": 2, "summary": {"changed-partition-count": "0"}},
        ],
    }
    return Metadata.parse(content | more)


def part(source: int, transform: str, number: int, name: str) -> dict[str, Any]:
    return {"source-id": source, "transform": transform, "field-id": number, "name": name}


class TestMetadata:
    def test_snapshots_since(self) -> None:
        table_metadata = metadata()
        assert table_metadata.current == "3"
        since = table_metadata.since("1")
        assert since is not None
        assert [(snapshot.id, snapshot.operation, snapshot.changed) for snapshot in since] == [
            ("2", "delete", True),
            ("3", "overwrite", False),
        ]
        assert table_metadata.since("3") == ()
        assert table_metadata.since("4") is None
        assert table_metadata.since(NO_SNAPSHOT) is None

    def test_expired_snapshot_breaks_history(self) -> None:
        assert metadata(snapshots=[{"snapshot-id": 3, "parent-snapshot-id": 2}]).since("1") is None

    def test_table_without_snapshots(self) -> None:
        empty = metadata(**{"current-snapshot-id": -1, "snapshots": []})
        assert (empty.current, empty.since(NO_SNAPSHOT)) == (NO_SNAPSHOT, ())

    def test_same_columns_compares_ids(self) -> None:
        table_metadata = metadata()
        assert table_metadata.same_columns("0", ["id", "day"])
        assert not table_metadata.same_columns("0", ["x"])
        assert not table_metadata.same_columns("9", ["id"])
        other = {"schema-id": 1, "fields": [{"id": 7, "name": "id", "type": "int", "doc": "new"}]}
        repeated = metadata(
            schemas=[{"schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "int"}]}, other]
        )
        assert not repeated.same_columns("0", ["id"])
        assert repeated.same_columns("1", ["id"])

    def test_columns_renamed_after_last_snapshot_are_detected(self) -> None:
        fields = [{"id": 1, "name": "id", "type": "int"}]
        added = [*fields, {"id": 2, "name": "x", "type": "int"}]
        renamed = [{"id": 1, "name": "nr", "type": "int"}]
        snapshots = [{"snapshot-id": 3, "schema-id": 0}]
        for newest, expected in ((added, False), (renamed, True)):
            schemas = [{"schema-id": 0, "fields": fields}, {"schema-id": 1, "fields": newest}]
            table_metadata = metadata(schemas=schemas, snapshots=snapshots)
            assert (table_metadata.schema, table_metadata.newest, table_metadata.is_renamed) == (
                "0",
                "1",
                expected,
            )

    def test_column_with_initial_default_is_found(self) -> None:
        fields = [
            {"id": 1, "name": "id", "type": "int"},
            {"id": 2, "name": "x", "type": "int", "initial-default": 5},
        ]
        table_metadata = metadata(
            schemas=[{"schema-id": 0, "fields": fields[:1]}, {"schema-id": 1, "fields": fields}]
        )
        assert table_metadata.columns_with_initial_default("0") == ("x",)
        assert table_metadata.columns_with_initial_default("1") == ()

    def test_specs_that_partition_by_all_columns(self) -> None:
        assert metadata().partition_fields(["day"]) == {0: ("d",), 1: ("d",)}
        assert metadata().partition_fields(["gone"]) == {}

    def test_metadata_of_format_version_1(self) -> None:
        old = Metadata.parse(
            {
                "table-uuid": "u",
                "schema": {"fields": [{"id": 1, "name": "day", "type": "string"}]},
                "partition-spec": [part(1, "identity", 1000, "day")],
            }
        )
        assert old.partition_fields(["day"]) == {0: ("day",)}
        assert old.current == NO_SNAPSHOT


SWAPPED = [
    {
        "schema-id": number,
        "fields": [{"id": 1, "name": first, "type": "int"}, {"id": 2, "name": second, "type": "int"}],
    }
    for number, (first, second) in enumerate((("a", "b"), ("b", "a")))
]


class TestExpiredSnapshots:
    """The snapshot of the watermark has expired, and all later snapshots exist."""

    def target(self, **more: Any) -> IcebergTarget:
        spark = cast("SparkSession", None)
        snapshots = [{"snapshot-id": 3, "parent-snapshot-id": 2, "schema-id": 1}]
        found = metadata(**({"snapshots": snapshots} | more))
        return IcebergTarget(spark, TableName(("ice", "s", "t")), found)

    def test_rows_are_compared_if_columns_may_have_changed(self) -> None:
        marks = ShadowProgress("2", "", "/w/t_sync/u")
        changes = self.target(schemas=SWAPPED).changes(marks, {"a": "int", "b": "int"}, [])
        assert changes.compare_all == "columns were renamed, dropped or retyped"
        fields = [{"id": 1, "name": "id", "type": "int"}, {"id": 2, "name": "x", "type": "int"}]
        filled = [fields[0], fields[1] | {"initial-default": 5}]
        schemas = [
            {"schema-id": number, "fields": fields} for number, fields in enumerate((fields[:1], filled))
        ]
        changes = self.target(schemas=schemas).changes(marks, {"id": "int"}, [])
        assert "was added with a value for the rows before it" in changes.compare_all

    def test_added_columns_cause_no_changes(self) -> None:
        """The snapshot changed no rows, so no rows are copied."""
        snapshot = {"snapshot-id": 3, "parent-snapshot-id": 2, "schema-id": 1}
        unchanged = snapshot | {"summary": {"operation": "replace"}}
        marks = ShadowProgress("2", "", "/w/t_sync/u")
        assert self.target(snapshots=[unchanged]).changes(marks, {"id": "int"}, []) == Changes()

    def test_partitions_of_files_in_expired_snapshot_are_unknown(self) -> None:
        target = self.target()
        snapshots = target.metadata.since("2")
        assert snapshots is not None
        removed: Any = (2, "3", 0, "file:/w/t/a.parquet")
        found = target._values_in([removed], snapshots, ["day"])
        assert found == "snapshot 2, which has files that were replaced, has expired"


class Frame:
    """A DataFrame that records only its conditions."""

    schema = StructType([StructField("id", StringType()), StructField("k", StringType())])

    def __init__(self) -> None:
        self.conditions: list[str] = []

    def where(self, condition: str) -> Frame:
        self.conditions.append(condition)
        return self


def test_added_files_are_filtered_by_partition() -> None:
    """Hive's files have the same names in all partitions, and a RESTORE adds them again."""
    frame = Frame()
    spark: Any = SimpleNamespace(sql=lambda _: frame)
    target = DeltaTarget(spark, TableName(("c", "s", "t")), "id", "7", SHARED, ("k",), mapped=False)
    changes = Changes({A: AddedRows(files=("000000_0",)), B: AddedRows(files=("x%20y", "b"))})
    target.added_rows(changes, "6", [A, B], ["k"])
    name = "substring_index(input_file_name(), '/', -1)"
    assert frame.conditions == [
        "`k` IN ('a', 'b')",
        f"((`k` IN ('a')) AND {name} IN ('000000_0')) OR "
        f"((`k` IN ('b')) AND {name} IN ('b', 'x y', 'x%20y'))",
    ]


def test_all_commits_are_read_without_watermark() -> None:
    """The log belongs to a recreated table, which owns all files that it names."""
    spark = MagicMock()
    read = spark.read.schema.return_value.json
    read.return_value.where.return_value.selectExpr.return_value.collect.return_value = [("a%20b",)]
    target = DeltaTarget(spark, TableName(("c", "s", "t")), "id", "1", SHARED, (), mapped=False)
    assert target.files_logged_since(None) == [f"{SHARED}/a b"]
    read.assert_called_once_with([f"{SHARED}/_delta_log/{version:020}.json" for version in (0, 1)])
    # Overwrites before the watermark don't matter.
    assert target.replaced_all_since(None) == ""
