"""Read the schemas of ORC and Avro files through the Java of Spark's driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tableferry.errors import Refused, first_line, is_sparks
from tableferry.fleet.copies.iceberg_files.file_columns import (
    ICEBERG_KINDS,
    FileColumn,
    avro_columns,
    decimal_kind,
    hive_columns,
)
from tableferry.fleet.copies.iceberg_files.name_mapping import (
    MappedField,
    with_avro_names,
    with_orc_positions,
)
from tableferry.fleet.hive_tables.hive_table import AVRO_SCHEMAS, HiveTable
from tableferry.formats.hive.locations import escape_wildcards
from tableferry.spark.catalog import SPARK_ERRORS, parallel_map
from tableferry.spark.driver import in_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNREADABLE: tuple[type[Exception], ...] = (ValueError, *SPARK_ERRORS)
# The attribute with the field id in ORC files that Iceberg writes.
_ORC_ID = "iceberg.id"
_LITERAL, _URL = AVRO_SCHEMAS
# The value that means no schema to Hive's SerDe.
_NO_SCHEMA = "none"
ReadColumns: TypeAlias = Callable[[str], tuple[FileColumn, ...]]
"""Reads the columns of the file at a path."""


def avro_reader(spark: SparkSession, table: HiveTable) -> tuple[FileColumn, ...]:
    """Return the columns with the names by which Spark finds them in a table's Avro files.

    Raises:
        Refused: The table's Avro schema can't be read.
    """
    told = {**table.properties, **table.options}
    named = {key: told[key] for key in (_LITERAL, _URL) if told.get(key, _NO_SCHEMA) != _NO_SCHEMA}
    if not named:
        return hive_columns(table.columns)
    try:
        return avro_columns(_avro_schema(spark, named))
    except _UNREADABLE as error:
        raise Refused(
            "AVRO_SCHEMA_NOT_READABLE",
            table=table.name,
            reason=first_line(error),
            properties=" and ".join(AVRO_SCHEMAS),
        ) from error


def _avro_schema(spark: SparkSession, named: Mapping[str, str]) -> str:
    if in_process(spark):
        jvm: Any = spark._jvm
        hives = jvm.org.apache.hadoop.hive.serde2.avro.AvroSerdeUtils
        if _exists(hives):
            # Hive reads the schema from any address, such as a web server.
            conf = spark._jsparkSession.sessionState().newHadoopConf()
            return str(hives.determineSchemaOrThrowException(conf, _properties(jvm, named)).toString())
    if _LITERAL in named:
        return named[_LITERAL]
    [row] = spark.read.text(escape_wildcards(named[_URL]), wholetext=True).collect()
    return str(row[0])


def _properties(jvm: Any, named: Mapping[str, str]) -> Any:
    properties = jvm.java.util.Properties()
    for key, value in named.items():
        properties.setProperty(key, value)
    return properties


def _exists(of_java: Any) -> bool:
    """Return whether a Java class exists; for py4j, a missing class is a package."""
    from py4j.java_gateway import JavaPackage

    return not isinstance(of_java, JavaPackage)


def add_file_names(
    spark: SparkSession, table: HiveTable, mapping: Sequence[MappedField]
) -> list[MappedField]:
    """Add the column names that a table's files may have, by their format, to a name mapping.

    Raises:
        Refused: The table's Avro schema can't be read.
    """
    match table.format:
        case "orc":
            return with_orc_positions(mapping, table.partition_columns)
        case "avro":
            return with_avro_names(mapping, avro_reader(spark, table))
        case _:
            return list(mapping)


def read_schema(spark: SparkSession, form: str, path: str) -> Mapping[str, Any]:
    """Return the schema that Spark reads from a file, in Spark's JSON form."""
    schema: Mapping[str, Any] = spark.read.format(form).load(escape_wildcards(path)).schema.jsonValue()
    return schema


def list_one_file_per_schema(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Return one ORC file for each distinct schema; only the first file if this process can't read ORC."""
    read = columns_reader(spark, "orc") if in_process(spark) else None
    if read is None or len(paths) < 2:
        return list(paths[:1])
    return list(dict(zip(parallel_map(read, paths), paths, strict=True)).values())


def columns_reader(spark: SparkSession, form: str) -> ReadColumns | None:
    """Return a function that reads a file's columns; None if the cluster doesn't expose its Java."""
    jvm: Any = spark._jvm
    known: dict[Any, tuple[FileColumn, ...]] = {}
    try:
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        orc, avro = jvm.org.apache.orc.OrcFile, jvm.org.apache.avro.file.DataFileStream
    except Exception as error:
        if not is_sparks(error):
            raise
        return None
    if not _exists(orc if form == "orc" else avro):
        return None

    def of_orc(path: str) -> tuple[FileColumn, ...]:
        file = orc.createReader(jvm.org.apache.hadoop.fs.Path(path), orc.readerOptions(conf))
        try:
            schema = file.getSchema()
        finally:
            file.close()
        # Java compares the ids too, which the schemas' texts don't show.
        if schema not in known:
            known[schema] = _orc_column("", schema).inner
        return known[schema]

    def of_avro(path: str) -> tuple[FileColumn, ...]:
        place = jvm.org.apache.hadoop.fs.Path(path)
        stream = place.getFileSystem(conf).open(place)
        try:
            text = avro(stream, jvm.org.apache.avro.generic.GenericDatumReader()).getSchema().toString()
        finally:
            stream.close()
        if text not in known:
            known[text] = avro_columns(text)
        return known[text]

    return of_orc if form == "orc" else of_avro


def _orc_column(name: str, kind: Any) -> FileColumn:
    category, number = kind.getCategory().getName(), kind.getAttributeValue(_ORC_ID)
    match category:
        case "struct":
            names = list(kind.getFieldNames())
        case "array":
            names = ["element"]
        case "map":
            names = ["key", "value"]
        case _:
            names = []
    stored = ICEBERG_KINDS.get(category, category)
    if category == "decimal":
        stored = decimal_kind(kind.getPrecision(), kind.getScale())
    inner = tuple(map(_orc_column, names, kind.getChildren() or ()))
    return FileColumn((name,), stored, inner, id=None if number is None else int(number))
