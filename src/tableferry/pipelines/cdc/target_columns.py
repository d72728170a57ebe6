"""The columns of the tables that flows fill: their CREATE TABLE, schema evolution and type conversions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tableferry.errors import TableError
from tableferry.pipelines.model.flows import Target
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.tables import TableName

COLUMN_MAPPING = "delta.columnMapping.mode"

_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
_INTEGER_DIGITS: Mapping[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_EXACT_DIGITS: Mapping[type[DataType], int] = {**_INTEGER_DIGITS, FloatType: 5, DoubleType: 10}


def sql_type(kind: DataType) -> str:
    """Write a type as SQL, with every nested name quoted."""
    if isinstance(kind, StructType):
        inner = ", ".join(f"{quote(field.name)}: {sql_type(field.dataType)}" for field in kind.fields)
        return f"struct<{inner}>"
    if isinstance(kind, ArrayType):
        return f"array<{sql_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
    return kind.simpleString()


def create_table_sql(target: Target, columns: StructType) -> str:
    """Write the CREATE TABLE IF NOT EXISTS of a target.

    A column of type NULL is left out; `evolve_schema` adds it when it has a type. NOT NULL is kept only if
    the target has a schema file: the nullability of a DataFrame depends on its plan. A name that Delta can
    store only with column mapping enables that, unless the properties set it. `row_filter` and `cluster_auto`
    aren't written, because open-source Delta has neither.
    """
    has_schema_file = target.schema_file is not None
    fields = [field for field in columns.fields if not isinstance(field.dataType, NullType)]
    lines = []
    for field in fields:
        comment = (field.metadata or {}).get("comment")
        lines.append(
            f"{quote(field.name)} {sql_type(field.dataType)}"
            + (" NOT NULL" if has_schema_file and not field.nullable else "")
            + (f" COMMENT {literal(str(comment))}" if comment else "")
        )
    properties = dict(target.properties)
    nested = [name for field in fields for name, _ in _walk_types(field.name, field.dataType)]
    if _NEEDS_MAPPING & set("".join(nested)):
        properties.setdefault(COLUMN_MAPPING, "name")
    parts = [f"CREATE TABLE IF NOT EXISTS {target.name.sql} ({', '.join(lines)}) USING DELTA"]
    if target.partition_columns:
        parts.append(f"PARTITIONED BY ({', '.join(quote(name) for name in target.partition_columns)})")
    if target.cluster_columns:
        parts.append(f"CLUSTER BY ({', '.join(quote(name) for name in target.cluster_columns)})")
    if target.path is not None:
        parts.append(f"LOCATION {literal(target.path)}")
    if target.comment is not None:
        parts.append(f"COMMENT {literal(target.comment)}")
    if properties:
        parts.append(f"TBLPROPERTIES {pairs(properties)}")
    return " ".join(parts)


def _walk_types(name: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    """Yield a column and all that is nested in it, as name and type; elements have no name."""
    yield name, kind
    match kind:
        case StructType():
            for field in kind.fields:
                yield from _walk_types(field.name, field.dataType)
        case ArrayType():
            yield from _walk_types("", kind.elementType)
        case MapType():
            yield from _walk_types("", kind.keyType)
            yield from _walk_types("", kind.valueType)


def can_store(column: DataType, values: DataType) -> bool:
    """Return whether a column can store every value of another type without a loss.

    Fields of structs are compared by name, regardless of case. A field that the column lacks fits, because
    `evolve_schema` adds it.
    """
    match values, column:
        case _ if isinstance(values, NullType) or sql_type(values) == sql_type(column):
            return True
        case StructType(), StructType():
            types = {field.name.lower(): field.dataType for field in column.fields}
            return all(
                can_store(types.get(field.name.lower(), field.dataType), field.dataType) for field in values
            )
        case ArrayType(), ArrayType():
            return can_store(column.elementType, values.elementType)
        case MapType(), MapType():
            return can_store(column.keyType, values.keyType) and can_store(column.valueType, values.valueType)
        case StringType(), StringType():
            return True
        case ByteType() | ShortType() | IntegerType() | LongType(), DecimalType():
            return bool(column.precision - column.scale >= _INTEGER_DIGITS[type(values)])
        case ByteType() | ShortType() | IntegerType() | LongType(), _:
            return _INTEGER_DIGITS[type(values)] <= _EXACT_DIGITS.get(type(column), 0)
        case DecimalType(), DecimalType():
            digits = values.precision - values.scale
            return bool(column.scale >= values.scale and column.precision - column.scale >= digits)
        case FloatType(), DoubleType():
            return True
        case DateType(), TimestampType() | TimestampNTZType():
            return True
    return False


def evolve_schema(session: SparkSession, name: TableName, columns: Sequence[StructField]) -> StructType:
    """Add the columns and struct fields that a table lacks, and return the table's schema.

    Raises:
        TableError: A column of the table can't store the values.
    """
    schema = session.table(name.sql).schema
    existing = {column.name.lower(): column for column in schema.fields}
    for column in columns:
        stored = existing.get(column.name.lower())
        if stored is not None and not can_store(stored.dataType, column.dataType):
            raise TableError(
                "COLUMN_TYPE_DOES_NOT_FIT",
                table=name,
                column=column.name,
                table_type=sql_type(stored.dataType),
                new_type=sql_type(column.dataType),
            )
    added = ", ".join(_list_new_fields("", schema, StructType([*columns])))
    if not added:
        return schema
    session.sql(f"ALTER TABLE {name.sql} ADD COLUMNS ({added})")
    return session.table(name.sql).schema


def _list_new_fields(prefix: str, column: DataType, values: DataType) -> Iterator[str]:
    """Yield path and type of each field that structs lack, as ADD COLUMNS expects them."""
    match values, column:
        case StructType(), StructType():
            existing = {field.name.lower(): field for field in column.fields}
            for field in values.fields:
                if stored := existing.get(field.name.lower()):
                    inner = f"{prefix}{quote(stored.name)}."
                    yield from _list_new_fields(inner, stored.dataType, field.dataType)
                elif not isinstance(field.dataType, NullType):
                    yield f"{prefix}{quote(field.name)} {sql_type(field.dataType)}"
        case ArrayType(), ArrayType():
            yield from _list_new_fields(f"{prefix}element.", column.elementType, values.elementType)
        case MapType(), MapType():
            yield from _list_new_fields(f"{prefix}key.", column.keyType, values.keyType)
            yield from _list_new_fields(f"{prefix}value.", column.valueType, values.valueType)


def conform_columns(frame: DataFrame, columns: Iterable[StructField]) -> list[str]:
    """Write a DataFrame's columns in a table's order and types; missing columns and fields are NULL."""
    return _convert_fields("", frame.schema, columns)


def _convert_fields(
    prefix: str, fields: StructType, wanted: Iterable[StructField], depth: int = 0
) -> list[str]:
    """Write the conversion of a struct's fields, whose SQL has the prefix, to the wanted ones."""
    present = {field.name.lower(): field for field in fields}
    values = []
    for field in wanted:
        if found := present.get(field.name.lower()):
            value = prefix + quote(found.name)
            values.append(_conversion_sql(value, found.dataType, field.dataType, depth))
        else:
            values.append(f"CAST(NULL AS {sql_type(field.dataType)})")
    return values


def _conversion_sql(value: str, kind: DataType, wanted: DataType, depth: int) -> str:
    """Write the conversion of a value to another type; a cast needs the same fields in the same order."""
    if kind == wanted:
        return value
    has_struct = any(isinstance(nested, StructType) for _, nested in _walk_types("", kind))
    if has_struct and sql_type(kind) != sql_type(wanted):
        element = f"__{depth}"
        match kind, wanted:
            case StructType(), StructType():
                values = _convert_fields(f"{value}.", kind, wanted, depth)
                named = zip(map(literal, wanted.names), values, strict=True)
                fields = ", ".join(f"{name}, {converted}" for name, converted in named)
                return f"IF({value} IS NULL, NULL, named_struct({fields}))"
            case ArrayType(), ArrayType():
                converted = _conversion_sql(element, kind.elementType, wanted.elementType, depth + 1)
                return f"transform({value}, {element} -> {converted})"
            case MapType(), MapType():
                key = _conversion_sql(f"{element}.key", kind.keyType, wanted.keyType, depth + 1)
                converted = _conversion_sql(f"{element}.value", kind.valueType, wanted.valueType, depth + 1)
                entry = f"named_struct('key', {key}, 'value', {converted})"
                return f"map_from_entries(transform(map_entries({value}), {element} -> {entry}))"
    return f"CAST({value} AS {sql_type(wanted)})"


def comparable_sql(value: str, kind: DataType) -> str:
    """Write a value so that `<=>` and xxhash64 accept it: maps and variants become arrays or JSON.

    The result doesn't depend on the order of a map's entries, except for maps inside other types.
    """
    if isinstance(kind, MapType) and _is_comparable(kind.keyType) and _is_comparable(kind.valueType):
        return f"array_sort(map_entries({value}))"
    if not _is_comparable(kind):
        return f"IF({value} IS NOT NULL, to_json(named_struct('c', {value}), map('timeZone', 'UTC')), NULL)"
    return value


def _is_comparable(kind: DataType) -> bool:
    return not any(
        isinstance(nested, MapType) or nested.typeName() in ("variant", "geometry", "geography")
        for _, nested in _walk_types("", kind)
    )
