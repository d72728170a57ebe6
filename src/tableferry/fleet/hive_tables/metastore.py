"""Change table entries with the Hive metastore's client in this process's JVM, where Spark's SQL can't."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from tableferry.errors import Refused, TableError
from tableferry.spark.catalog import explaining
from tableferry.spark.driver import in_process
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_reachable(spark: SparkSession, name: TableName) -> bool:
    """Return whether this process's JVM can access the table's metastore; with Spark Connect it can't."""
    if not in_process(spark) or name.parts[0] != DEFAULT_CATALOG:
        return False
    return spark.conf.get("spark.sql.catalogImplementation") == "hive"


def alter(
    spark: SparkSession, name: TableName, change: Callable[[Any], None], *, cascade: bool = False
) -> None:
    """Change a table's entry, which is Hive's Thrift ``Table``, and refresh it in this session.

    With ``cascade``, the partitions also get the new columns.

    Raises:
        TableError: The table doesn't exist, or the user may not change it.
    """
    database, table = name.parts[-2:]
    with explaining("METASTORE_ENTRY_NOT_CHANGED", table=name):
        with _client(spark) as client:
            entry = client.getTable(database, table)
            change(entry)
            client.alter_table(database, table, entry, cascade)
        spark.sql(f"REFRESH TABLE {name.sql}").collect()


@contextmanager
def _client(spark: SparkSession) -> Iterator[Any]:
    """Provide a client of the session's metastore, inside a ``with``."""
    jvm, java = spark._jvm, spark._jsparkSession
    assert jvm is not None
    hadoop = java.sessionState().newHadoopConf()
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf(hadoop, hadoop.getClass())
    client = jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
    try:
        yield client
    finally:
        client.close()


def list_partitions_with_other_format(spark: SparkSession, name: TableName) -> list[str]:
    """Return the partitions whose file format or read options differ from the table's.

    A partition keeps the table's format and options at its creation. Each is returned as the list of its
    values.

    Raises:
        TableError: The table doesn't exist, or the user may not read it.
    """
    database, table = name.parts[-2:]
    with explaining("METASTORE_PARTITIONS_NOT_READABLE", table=name), _client(spark) as client:
        of_table = _read_options(client.getTable(database, table))
        partitions = client.listPartitions(database, table, -1)
        return [str(list(each.getValues())) for each in partitions if _read_options(each) != of_table]


def column_types(spark: SparkSession, name: TableName) -> dict[str, str]:
    """Return the metastore's types of a table's columns; for Avro, Spark's types may differ.

    Raises:
        TableError: The table doesn't exist, or the user may not read it.
    """
    with explaining("METASTORE_ENTRY_NOT_READABLE", table=name):
        with _client(spark) as client:
            columns = client.getTable(*name.parts[-2:]).getSd().getCols()
        return {column.getName(): column.getType() for column in columns}


def _read_options(entry: Any) -> tuple[str, str, dict[str, str]]:
    """Return the input format, SerDe and SerDe properties of a table or partition."""
    storage = entry.getSd()
    serde = storage.getSerdeInfo()
    parameters = {key: value for key, value in dict(serde.getParameters()).items() if key != "path"}
    return storage.getInputFormat(), serde.getSerializationLib(), parameters


def set_columns(spark: SparkSession, name: TableName, columns: Mapping[str, str | None]) -> None:
    """Replace the columns of a table and of all its partitions; comments stay.

    The metastore compares types by position, and rejects incompatible types (Hive's
    ``hive.metastore.disallow.incompatible.col.type.changes``). It ignores positions that one side lacks.
    So all columns after the last common one are removed before the new ones are added.

    Args:
        spark: The session.
        name: The table.
        columns: All columns except the partition columns, in order, with types; None keeps a column's type.

    Raises:
        Refused: The metastore rejects the new type of the first column.
        TableError: The table doesn't exist, or the user may not change it.
    """
    jvm = spark._jvm
    assert jvm is not None
    field = jvm.org.apache.hadoop.hive.metastore.api.FieldSchema
    existing: dict[str, Any] = {}
    common = 0

    def set_first(count: int, entry: Any) -> None:
        nonlocal common
        before = list(entry.getSd().getCols())
        existing.update({column.getName(): column for column in before if column.getName() not in existing})
        comments = {name: column.getComment() for name, column in existing.items()}
        if any(kind is None and column.lower() not in existing for column, kind in columns.items()):
            # Hive lacks a type, so Spark keeps the columns only in the table's properties.
            return
        after = [
            existing[column.lower()]
            if kind is None
            else field(column.lower(), kind.replace("`", ""), comments.get(column.lower()))
            for column, kind in columns.items()
        ]
        same = (old.getType() == new.getType() for old, new in zip(before, after, strict=False))
        common = sum(takewhile(bool, same))
        fields = jvm.java.util.ArrayList()
        for column in after[:count]:
            fields.add(column)
        entry.getSd().setCols(fields)

    set_all = partial(set_first, len(columns))
    try:
        alter(spark, name, set_all, cascade=True)
    except TableError as error:
        if "types incompatible" not in str(error):
            raise
        if not common:
            raise Refused(
                "METASTORE_REFUSES_COLUMN_CHANGE", table=name, column=next(iter(columns))
            ) from error
        alter(spark, name, partial(set_first, common), cascade=True)
        alter(spark, name, set_all, cascade=True)
    _set_spark_columns(spark, name, columns)


def _set_spark_columns(spark: SparkSession, name: TableName, columns: Mapping[str, str | None]) -> None:
    """Set the columns in the table's properties, where Spark keeps a copy with case-sensitive names."""
    jvm, java = spark._jvm, spark._jsparkSession
    assert jvm is not None
    types = jvm.org.apache.spark.sql.types.DataType
    catalog = java.sharedState().externalCatalog()
    database, table = name.parts[-2:]
    before = json.loads(catalog.getTable(database, table).schema().json())["fields"]
    existing = {field["name"].lower(): field for field in before}

    def field(column: str, kind: str | None) -> dict[str, Any]:
        if kind is None:
            return {**existing[column.lower()], "name": column}
        comment = existing.get(column.lower(), {}).get("metadata", {}).get("comment")
        return {
            "name": column,
            "type": json.loads(types.fromDDL(kind).json()),
            "nullable": True,
            "metadata": {} if comment is None else {"comment": comment},
        }

    schema = {"type": "struct", "fields": [field(*item) for item in columns.items()]}
    catalog.alterTableDataSchema(database, table, types.fromJson(json.dumps(schema)))
    spark.sql(f"REFRESH TABLE {name.sql}").collect()
