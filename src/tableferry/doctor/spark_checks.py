"""Checks of tables through the Spark session: history, clones, streams, renames, Hive and Iceberg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tableferry.doctor.check import (
    Check,
    Observation,
    Place,
    Route,
    Runs,
    Source,
    failure,
    not_applicable,
    success,
)
from tableferry.doctor.environment import Environment
from tableferry.errors import first_line, is_sparks
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

RESET_ALLOWED = "pipelines.reset.allowed"

_NO_CHECKPOINT = "a stream needs a folder for its checkpoint: pass --state with a volume or a URI"
_HISTORY_COLUMNS = ("version", "timestamp", "operation", "operationParameters")
_CLONE = (
    Source("Clone a table", "https://docs.databricks.com/aws/en/tables/operations/clone"),
    Source(
        "Shallow clones in Unity Catalog",
        "https://docs.databricks.com/aws/en/tables/operations/clone-unity-catalog",
    ),
    Source(
        "Upgrade Hive tables",
        "https://docs.azure.cn/databricks/data-governance/unity-catalog/migrate",
    ),
)
_SERVERLESS = (
    Source(
        "Serverless compute limitations",
        "https://docs.databricks.com/en/compute/serverless/limitations",
    ),
)
_UNDOCUMENTED = (Source("no page", ""),)


def _versioned_table(env: Environment) -> TableName:
    """Return a scratch Delta table: rows 1 and 2 in one commit, row 3 in the next one."""

    def make() -> TableName:
        spark, table = env.session(), env.scratch_table("history")
        spark.sql(f"CREATE TABLE {table.sql} (id BIGINT, word STRING) USING delta")
        spark.sql(f"INSERT INTO {table.sql} VALUES (1, 'a'), (2, 'b')")
        spark.sql(f"INSERT INTO {table.sql} VALUES (3, 'c')")
        return table

    return env.once("history", make)


def _versions(env: Environment, table: TableName) -> list[int]:
    """Return the versions of the table's INSERT statements, oldest first."""
    commits = env.session().sql(f"DESCRIBE HISTORY {table.sql}").collect()
    return sorted(row["version"] for row in commits if row["operation"] == "WRITE")


def _describe_history(env: Environment) -> Observation:
    if env.pipeline is not None:
        return history_of(env, env.pipeline.table)
    return history_of(env, _versioned_table(env).sql)


def history_of(env: Environment, quoted: str) -> Observation:
    """Check the columns and the versions of a table's history; its name is quoted for SQL."""
    frame = env.session().sql(f"DESCRIBE HISTORY {quoted}")
    if missing := [column for column in _HISTORY_COLUMNS if column not in frame.columns]:
        return failure(f"DESCRIBE HISTORY has no column {', '.join(missing)}")
    versions = sorted(row["version"] for row in frame.collect())
    if not versions or versions != list(range(versions[0], versions[-1] + 1)):
        return failure(f"DESCRIBE HISTORY returns the versions {versions}")
    return success(f"DESCRIBE HISTORY returns the versions {versions[0]} to {versions[-1]}")


def _describe_detail(env: Environment) -> Observation:
    if env.pipeline is None:
        return detail_of(env, _versioned_table(env).sql)
    try:
        return detail_of(env, env.pipeline.table)
    except Exception as error:
        if not is_sparks(error):
            raise
        # The job `prepare` has checked each table's identity, so an update continues without the answer.
        return success(f"refused inside this pipeline, and not needed there: {first_line(error)}")


def detail_of(env: Environment, quoted: str) -> Observation:
    """Check the columns of a table's details; its name is quoted for SQL."""
    (details,) = env.session().sql(f"DESCRIBE DETAIL {quoted}").collect()
    if not details["id"] or not details["location"] or details["format"] != "delta":
        return failure(f"DESCRIBE DETAIL returns {details}")
    return success("DESCRIBE DETAIL returns the table's id, format and location")


def _pinned_version(env: Environment) -> Observation:
    table = _versioned_table(env)
    first, _ = _versions(env, table)
    ids = _ids(env, f"SELECT id FROM {table.sql} VERSION AS OF {first}")
    return _expect_ids(ids, [1, 2], f"version {first}")


def _ids(env: Environment, query: str) -> list[int]:
    return sorted(row["id"] for row in env.session().sql(query).collect())


def _expect_ids(ids: list[int], expected: list[int], where: str) -> Observation:
    if ids != expected:
        return failure(f"{where} has the rows {ids} instead of {expected}")
    return success(f"{where} has exactly its rows")


def _cloned_table(env: Environment) -> tuple[TableName, str]:
    """Return a clone of the scratch table's first version with rows, and the kind of clone."""

    def make() -> tuple[TableName, str]:
        table, clone, spark = _versioned_table(env), env.scratch_table("clone"), env.session()
        first, _ = _versions(env, table)
        try:
            spark.sql(f"CREATE TABLE {clone.sql} DEEP CLONE {table.sql} VERSION AS OF {first}")
        except Exception as error:
            # Delta has deep clones only on Databricks; `pipelines prepare` makes a shallow one there.
            if not is_sparks(error) or env.on_databricks:
                raise
            spark.sql(f"CREATE TABLE {clone.sql} SHALLOW CLONE {table.sql} VERSION AS OF {first}")
            return clone, "shallow clone"
        return clone, "deep clone"

    return env.once("clone", make)


def _clone(env: Environment) -> Observation:
    clone, kind = _cloned_table(env)
    return _expect_ids(_ids(env, f"SELECT id FROM {clone.sql}"), [1, 2], f"the {kind} of a pinned version")


def _stream_over_clone(env: Environment) -> Observation:
    clone, kind = _cloned_table(env)
    if env.spark_folder is None:
        return not_applicable(_NO_CHECKPOINT)
    return _expect_ids(stream_ids(env, clone, "streamed_clone"), [1, 2], f"a stream over the {kind}")


def _starting_version(env: Environment) -> Observation:
    table = _versioned_table(env)
    if env.spark_folder is None:
        return not_applicable(_NO_CHECKPOINT)
    _, second = _versions(env, table)
    ids = stream_ids(env, table, "streamed_rows", {"startingVersion": str(second)})
    return _expect_ids(ids, [3], f"a stream with startingVersion={second}")


def stream_ids(
    env: Environment, table: TableName, name: str, options: Mapping[str, str] | None = None
) -> list[int]:
    """Stream a table into a scratch table once, and return the ids that arrived."""
    spark, target = env.session(), env.scratch_table(name)
    rows = spark.readStream.options(**(options or {})).table(table.sql)
    writer = rows.writeStream.option("checkpointLocation", f"{env.spark_folder}/{name}")
    writer.trigger(availableNow=True).toTable(target.sql, format="delta").awaitTermination()
    return _ids(env, f"SELECT id FROM {target.sql}")


def _reset_allowed(env: Environment) -> Observation:
    spark, table = env.session(), env.scratch_table("reset")
    properties = f"TBLPROPERTIES ('{RESET_ALLOWED}' = 'false')"
    spark.sql(f"CREATE TABLE {table.sql} (id BIGINT) USING delta {properties}")
    rows = spark.sql(f"SHOW TBLPROPERTIES {table.sql}").collect()
    value = {row["key"]: row["value"] for row in rows}.get(RESET_ALLOWED)
    if value != "false":
        return failure(f"the table property {RESET_ALLOWED} is {value} after it was set to false")
    return success(f"a table keeps {RESET_ALLOWED}=false")


def _rename(env: Environment) -> Observation:
    spark, old, new = env.session(), env.scratch_table("old"), env.scratch_table("renamed")
    spark.sql(f"CREATE TABLE {old.sql} (id BIGINT) USING delta")
    spark.sql(f"INSERT INTO {old.sql} VALUES (1)")
    before = _table_id(env, old)
    spark.sql(f"ALTER TABLE {old.sql} RENAME TO {new.sql}")
    if (after := _table_id(env, new)) != before:
        return failure(f"the table's id was {before}, and is {after} after the rename")
    view = TableName(old.parts)
    spark.sql(f"CREATE VIEW {view.sql} AS SELECT * FROM {new.sql}")
    ids = _ids(env, f"SELECT id FROM {view.sql}")
    spark.sql(f"DROP VIEW {view.sql}")
    if ids != [1]:
        return failure(f"a view with the old name has the rows {ids}")
    return success("a table kept its id, and a view has its old name")


def _table_id(env: Environment, table: TableName) -> Any:
    return env.session().sql(f"DESCRIBE DETAIL {table.sql}").collect()[0]["id"]


def _hive_schema(env: Environment) -> TableName:
    """Return a scratch schema of the Hive metastore."""
    if not env.on_databricks:
        return env.scratch_schema
    return env.once("hive", lambda: env.create_schema(env.session(), ("hive_metastore",)))


def _hive_table(env: Environment) -> Observation:
    spark = env.session()
    table = TableName((*_hive_schema(env).parts, f"{env.scratch_name}_hive"))
    env.drop_later(spark, table.sql)
    spark.sql(f"CREATE TABLE {table.sql} (id BIGINT) PARTITIONED BY (day STRING) STORED AS PARQUET")
    spark.sql(f"INSERT INTO {table.sql} PARTITION (day = '2026-01-01') VALUES (1)")
    details = {row[0].strip(): row[1] for row in spark.sql(f"DESCRIBE EXTENDED {table.sql}").collect()}
    if details.get("Provider") != "hive":
        return failure(f"CREATE TABLE … STORED AS PARQUET made a table of {details.get('Provider')}")
    return _expect_ids(_ids(env, f"SELECT id FROM {table.sql}"), [1], "a Hive SerDe table")


def _iceberg_table(env: Environment) -> Observation:
    spark, catalog = env.session(), env.options.iceberg_catalog
    if spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        return failure(f"the session has no catalog {catalog}")
    quoted = f"{quote(catalog)}.{quote(_hive_schema(env).parts[-1])}.{quote(f'{env.scratch_name}_iceberg')}"
    env.drop_later(spark, quoted)
    spark.sql(f"CREATE TABLE {quoted} (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {quoted} VALUES (1)")
    return _expect_ids(_ids(env, f"SELECT id FROM {quoted}"), [1], "an Iceberg table")


_PIPELINES = (Route.PIPELINES,)
_FLEET = (Route.FLEET,)

SPARK_CHECKS = (
    Check(
        name="describe-history",
        place=Place.TABLES,
        routes=(Route.PIPELINES, Route.CONVERT),
        proves="DESCRIBE HISTORY returns every version with its time and operation.",
        remedy="Grant this identity SELECT on the tables, and use a runtime with Delta.",
        observe=_describe_history,
        sources=_UNDOCUMENTED,
        runs=Runs.ALSO_IN_PIPELINE,
    ),
    Check(
        name="describe-detail",
        place=Place.TABLES,
        routes=_PIPELINES,
        proves="DESCRIBE DETAIL returns a table's id; a pipeline may refuse it while it loads its file.",
        remedy="Grant this identity SELECT on the tables, and use a runtime with Delta.",
        observe=_describe_detail,
        sources=_UNDOCUMENTED,
        runs=Runs.ALSO_IN_PIPELINE,
    ),
    Check(
        name="pinned-version",
        place=Place.TABLES,
        routes=_PIPELINES,
        proves="VERSION AS OF reads exactly the rows of an older version.",
        remedy="Use a runtime with Delta.",
        observe=_pinned_version,
        sources=_CLONE[:1],
    ),
    Check(
        name="clone-of-pinned-version",
        place=Place.TABLES,
        routes=_PIPELINES,
        proves="CLONE … VERSION AS OF makes a table of exactly the pinned version.",
        remedy="Grant CREATE TABLE on the schema, or set pinnedClone to false in the specs.",
        observe=_clone,
        sources=_CLONE,
    ),
    Check(
        name="stream-over-clone",
        place=Place.TABLES,
        routes=_PIPELINES,
        proves="A stream over the clone of a pinned version reads exactly its rows.",
        remedy="Set pinnedClone to false in the specs, so that the copy reads the version as a batch.",
        observe=_stream_over_clone,
        sources=_CLONE,
    ),
    Check(
        name="starting-version",
        place=Place.TABLES,
        routes=_PIPELINES,
        proves="A stream with the reader option startingVersion reads only the rows of later commits.",
        remedy="Don't start the live flows on this runtime: they would read rows twice.",
        observe=_starting_version,
        sources=_UNDOCUMENTED,
    ),
    Check(
        name="reset-allowed",
        place=Place.TABLES,
        routes=_PIPELINES,
        proves=f"A table keeps the property {RESET_ALLOWED}=false.",
        remedy="Don't start a full refresh of the pipeline: it would truncate the migrated tables.",
        observe=_reset_allowed,
        sources=(
            Source(
                "Full refresh for streaming tables", "https://docs.databricks.com/aws/en/ldp/full-refresh-st"
            ),
        ),
    ),
    Check(
        name="rename",
        place=Place.TABLES,
        routes=(Route.PIPELINES, Route.FLEET),
        proves="A renamed table keeps its id, and its old name can become a view.",
        remedy="Grant MANAGE on the table, and CREATE TABLE on its schema.",
        observe=_rename,
        sources=_UNDOCUMENTED,
    ),
    Check(
        name="hive-tables",
        place=Place.TABLES,
        routes=_FLEET,
        proves="This compute creates, writes and reads Hive SerDe tables.",
        remedy="Use classic compute, and grant CREATE SCHEMA on hive_metastore.",
        observe=_hive_table,
        sources=_UNDOCUMENTED,
    ),
    Check(
        name="iceberg-tables",
        place=Place.TABLES,
        routes=_FLEET,
        proves="The session has a catalog of Iceberg tables, in which it creates, writes and reads one.",
        remedy="Add Iceberg's runtime and catalog to a classic cluster's settings, or migrate to Delta.",
        observe=_iceberg_table,
        sources=_SERVERLESS,
    ),
)
