"""Details of many tables in one call to the session catalog."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tableferry.spark import catalog
from tableferry.spark.local_metastore import LocalMetastore
from tableferry.spark.tables import TableName


def test_session_details_equal_described_details(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    odd = TableName((schema, "Odd_Name1"))
    names = [odd, TableName((schema, "plain")), TableName(("spark_catalog", schema, "elsewhere"))]
    spark.sql(f"CREATE TABLE {odd.sql} (id INT) USING delta LOCATION '{tmp_path}/a b%20c'")
    spark.sql(f"CREATE TABLE {schema}.plain (id INT) USING delta")
    spark.sql(f"CREATE TABLE {schema}.elsewhere (id INT) USING parquet LOCATION '{tmp_path}/parquet'")
    spark.sql(f"CREATE VIEW {schema}.shown AS SELECT 1 AS id")
    missing, view = TableName((schema, "missing")), TableName((schema, "shown"))
    found = catalog.session_details(spark, [*names, missing, view])
    # Absence in this catalog isn't evidence: `facts` describes such a table.
    assert missing.key not in found
    assert catalog.facts(spark, missing, details=found.get(missing.key)) is None
    assert found[view.key]["Type"] == "VIEW"
    for name in names:
        details, described = found[name.key], catalog.described(spark, name)
        assert details["Provider"].lower() == described["Provider"].lower()
        assert details["Type"] == described["Type"]
        assert details["Location"] == described["Location"]
    for name in names[:2]:
        facts = catalog.facts(spark, name)
        assert facts == catalog.facts(spark, name, details=found[name.key])


def test_session_details_leave_out_other_catalogs_and_missing_schemas(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    other = [TableName(("lake", schema, "t")), TableName.at(str(tmp_path)), TableName(("t",))]
    assert catalog.session_details(spark, other) == {}
    spark.sql(f"CREATE TABLE {schema}.plain (id INT) USING delta")
    plain, elsewhere = TableName((schema, "plain")), TableName(("no_such_schema", "t"))
    assert catalog.session_details(spark, [elsewhere, plain]).keys() == {plain.key}
    # Another implementation of the session catalog, such as Unity Catalog's, has tables that Spark's lacks.
    replaced = spark.newSession()
    replaced.conf.set("spark.sql.catalog.spark_catalog", "example.OtherCatalog")
    assert catalog.session_details(replaced, [plain]) == {}
    metastore = LocalMetastore.__new__(LocalMetastore)
    assert catalog.session_details(metastore, [TableName((schema, "t"))]) == {}
