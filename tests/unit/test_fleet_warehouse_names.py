"""What needs Spark's Python package and no JVM: mentions, properties, and the log of an empty table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deltalake
import pytest

from tableferry.convert.entry import Entry
from tableferry.convert.facts import PartitionColumn
from tableferry.convert.types import LONG, STRING, Field, Struct
from tableferry.errors import Refused
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse.definitions import kept
from tableferry.fleet.warehouse.delta import begin_empty
from tableferry.fleet.warehouse.existing import kind_of
from tableferry.fleet.warehouse.views import mentioned
from tableferry.tables import TableName

VIEW = TableName(("spark_catalog", "db", "v"))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT * FROM t", {"other.t"}),
        ("SELECT * FROM db.t JOIN `Spark_Catalog`.`x`.`T` USING (id)", {"db.t", "x.t"}),
        (
            "WITH c AS (SELECT 1 FROM db.t) SELECT (SELECT max(a) FROM u) FROM c",
            {"db.t", "other.u", "other.c"},
        ),
        ("SELECT 'db.t' AS text FROM x.y -- db.t", {"x.y"}),
        ("THIS ((ISN'T SQL FROM db.t", {"other.t"}),
    ],
)
def test_what_a_view_mentions(text: str, keys: set[str]) -> None:
    said = {"view_text": text, "view_catalog_and_namespace": "spark_catalog.other"}
    assert mentioned(said, VIEW) >= keys
    if "ISN'T" not in text:
        assert mentioned(said, VIEW) == keys


def test_a_view_that_doesn_t_say_where_it_was_made_is_of_its_own_schema() -> None:
    assert mentioned({"view_text": "SELECT 1 FROM t"}, VIEW) == {"db.t"}
    assert mentioned({"view_text": "SELECT 1 FROM t"}, TableName(("c", "s", "v"))) == {"c.s.t"}


def test_properties_that_somebody_set_are_carried() -> None:
    theirs = {"EXTERNAL": "TRUE", "numFiles": "3", "spark.sql.sources.schema": "{}", "gc.enabled": "true"}
    theirs |= {"transient_lastDdlTime": "1", "external.table.purge": "true", "tableferry.source": "x"}
    assert kept({**theirs, "team": "a", "Retention": "30"}) == {"team": "a", "Retention": "30"}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Type: VIEW\nView Text: SELECT 1\nProvider: delta", Kind.VIEW),
        ("Type: MANAGED\nProvider: delta", Kind.DELTA),
        ("Type: EXTERNAL\nProvider: iceberg", Kind.ICEBERG),
        # A property before it may have lines of its own.
        ("Provider: hive\nTable Properties: [a=b\nView: x, table_type=ICEBERG, uuid=1]", Kind.ICEBERG),
        ("Provider: hive\nTable Properties: [table_type=iceberg]", Kind.ICEBERG),
        ("Type: EXTERNAL\nProvider: hive\nTable Properties: [my_table_type=ICEBERG]", Kind.HIVE),
        ("Type: MANAGED\nProvider: parquet", Kind.HIVE),
    ],
)
def test_what_an_entry_is(said: str, kind: Kind) -> None:
    assert kind_of(said) is kind


def test_the_log_of_an_empty_table_has_the_catalog_s_columns(tmp_path: Path) -> None:
    columns = Struct((Field("id", LONG, metadata={"comment": "its number"}), Field("k", STRING)))
    entry = Entry(
        TableName(("spark_catalog", "db", "t")),
        "parquet",
        "external",
        f"file:{tmp_path}",
        tmp_path,
        columns=columns,
        partition_columns=(PartitionColumn("k", STRING),),
        comment="nothing yet",
        properties={"team": "a"},
    )
    # What an emptied directory may hold.
    (tmp_path / "k=1").mkdir()
    begin_empty(entry)
    table = deltalake.DeltaTable(str(tmp_path))
    assert table.file_uris() == []
    assert [field.name for field in table.schema().fields] == ["id", "k"]
    assert table.metadata().partition_columns == ["k"]
    assert table.metadata().description == "nothing yet"
    assert table.metadata().configuration == {"team": "a"}
    with pytest.raises(Refused, match="is empty"):
        begin_empty(replace(entry, folder=None))
