"""The schemas of a Hive table's ORC and Avro files, read by the Java of Spark's driver, and not by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tableferry.errors import Refused, first_line, is_sparks
from tableferry.fleet.warehouse.file_columns import (
    AVRO_SCHEMAS,
    FileColumn,
    avro_columns,
    decimal_kind,
    hindrance,
    hive_columns,
    read_by_avro,
    read_by_orc,
)
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.hive_table import HiveTable, iceberg_ids
from tableferry.fleet.warehouse.name_mapping import MappedField, with_avro_names, with_orc_positions
from tableferry.formats.hive.locations import escape_wildcards
from tableferry.spark.catalog import SPARK_ERRORS, parallel_map
from tableferry.spark.driver import in_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST = 1000
# What ORC's and Avro's readers throw of a file that isn't theirs; all else may pass.
_NOT_THEIRS = ("FileFormatException", "InvalidAvroMagicException")
_UNREADABLE: tuple[type[Exception], ...] = (ValueError, *SPARK_ERRORS)
# The attribute by which Iceberg finds columns of the files that it writes itself.
_ORC_ID = "iceberg.id"
_LITERAL, _URL = AVRO_SCHEMAS
# What Hive's SerDe takes for none.
_NO_SCHEMA = "none"
_ORC = {
    **dict.fromkeys(("tinyint", "smallint", "int"), "int"),
    "bigint": "long",
    "timestamp with local time zone": "timestamptz",
    **dict.fromkeys(("varchar", "char"), "string"),
    "array": "list",
}


def hindrances(
    spark: SparkSession,
    table: HiveTable,
    files: Sequence[ListedFile],
    defaults: Mapping[str, str],
) -> list[str]:
    """Say which ORC or Avro files can't be those of an Iceberg table with a Hive table's columns, and why.

    Of more than 1,000 files so many are looked at. Nothing is known of any where Spark's driver isn't this
    process, or keeps its Java to itself, nor of one that can't be read right now.

    Args:
        spark: The session.
        table: The Hive table.
        files: Its files.
        defaults: What a column is in the rows of files that lack it, where that isn't null.

    Raises:
        Refused: The Avro schema that the table has its columns by can't be read.
    """
    if not in_process(spark):
        return []
    read = _reader(spark, table.format)
    if read is None:
        return []
    expected = hive_columns(table.stored_columns, defaults, iceberg_ids(table.columns))
    if table.format == "avro":
        expected = read_by_avro(expected, avro_reader(spark, table))
    chosen = files[:: max(1, -(-len(files) // _MOST))]

    def why(file: ListedFile) -> str:
        try:
            found = read(file.path)
        except ValueError as error:
            return f"has a schema that Hive reads no rows by: {error}"
        except Exception as error:
            if not is_sparks(error):
                raise
            is_none = any(kind in str(error) for kind in _NOT_THEIRS)
            return f"is none of {table.format.upper()}'s ({first_line(error)})" if is_none else ""
        if table.format == "avro":
            return hindrance(expected, found)
        named = read_by_orc(expected, found)
        if not {name for column in named for name in column.names} & {column.name for column in found}:
            return "has none of the table's columns, and Iceberg reads no such ORC file: take it away"
        return hindrance(named, found)

    found = zip(chosen, parallel_map(why, chosen), strict=True)
    return [f"{file.path} {reason}" for file, reason in found if reason]


def avro_reader(spark: SparkSession, table: HiveTable) -> tuple[FileColumn, ...]:
    """Return the columns by whose names Spark finds those of a table's Avro files.

    Raises:
        Refused: The schema that the table names can't be read.
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
        if _is_there(hives):
            # It may be anywhere, on a web server too.
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


def _is_there(of_java: Any) -> bool:
    """Say whether a class is there: what isn't is a package to py4j."""
    from py4j.java_gateway import JavaPackage

    return not isinstance(of_java, JavaPackage)


def with_names_in_files(
    spark: SparkSession, table: HiveTable, mapping: Sequence[MappedField]
) -> list[MappedField]:
    """Add the names to a name mapping that a table's files may have for its columns by their format.

    Raises:
        Refused: The Avro schema that the table has its columns by can't be read.
    """
    match table.format:
        case "orc":
            return with_orc_positions(mapping, table.partition_columns)
        case "avro":
            return with_avro_names(mapping, avro_reader(spark, table))
        case _:
            return list(mapping)


def schema_of(spark: SparkSession, form: str, path: str) -> Mapping[str, Any]:
    """Return the schema that Spark sees in a file, in its JSON form."""
    schema: Mapping[str, Any] = spark.read.format(form).load(escape_wildcards(path)).schema.jsonValue()
    return schema


def one_of_each_schema(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Return an ORC file for each schema that some have; the first alone where none can be read here."""
    read = _reader(spark, "orc") if in_process(spark) else None
    if read is None or len(paths) < 2:
        return list(paths[:1])
    return list(dict(zip(parallel_map(read, paths), paths, strict=True)).values())


def _reader(spark: SparkSession, form: str) -> Callable[[str], tuple[FileColumn, ...]] | None:
    """Return what reads a file's columns; None if the cluster keeps its Java to itself."""
    jvm: Any = spark._jvm
    known: dict[Any, tuple[FileColumn, ...]] = {}
    try:
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        orc, avro = jvm.org.apache.orc.OrcFile, jvm.org.apache.avro.file.DataFileStream
    except Exception as error:
        if not is_sparks(error):
            raise
        return None
    if not _is_there(orc if form == "orc" else avro):
        return None

    def of_orc(path: str) -> tuple[FileColumn, ...]:
        file = orc.createReader(jvm.org.apache.hadoop.fs.Path(path), orc.readerOptions(conf))
        try:
            schema = file.getSchema()
        finally:
            file.close()
        # As Java compares them: of their texts, two may differ by ids alone.
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
    stored = _ORC.get(category, category)
    if category == "decimal":
        stored = decimal_kind(kind.getPrecision(), kind.getScale())
    inner = tuple(map(_orc_column, names, kind.getChildren() or ()))
    return FileColumn((name,), stored, inner, id=None if number is None else int(number))
