"""The tables that flows fill: how they are created, how they gain columns, and how rows take their types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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

_UNMAPPED = frozenset(" ,;{}()\n\t=")
_WHOLE: Mapping[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_EXACT: Mapping[type[DataType], int] = {**_WHOLE, FloatType: 5, DoubleType: 10}


def sql_type(kind: DataType) -> str:
    """Write a type as SQL reads it, with every nested name quoted."""
    if isinstance(kind, StructType):
        inner = ", ".join(f"{quote(field.name)}: {sql_type(field.dataType)}" for field in kind.fields)
        return f"struct<{inner}>"
    if isinstance(kind, ArrayType):
        return f"array<{sql_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
    return kind.simpleString()


def create_sql(target: Target, columns: StructType) -> str:
    """Write the CREATE TABLE IF NOT EXISTS of a target.

    Columns of no type (a NULL that nobody cast) are left out: they come when they have one. NOT NULL is kept
    only where the target has a schema file, for what a frame says of it is an accident of its plan. Names
    that Delta can store only with column mapping turn that on, unless the properties speak of it.
    `row_filter` and `cluster_auto` aren't written: open-source Delta has neither.
    """
    strict = target.schema_file is not None
    fields = [field for field in columns.fields if not isinstance(field.dataType, NullType)]
    lines = []
    for field in fields:
        comment = (field.metadata or {}).get("comment")
        lines.append(
            f"{quote(field.name)} {sql_type(field.dataType)}"
            + (" NOT NULL" if strict and not field.nullable else "")
            + (f" COMMENT {literal(str(comment))}" if comment else "")
        )
    properties = dict(target.properties)
    if any(_needs_mapping(field.name, field.dataType) for field in fields):
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


def _needs_mapping(name: str, kind: DataType) -> bool:
    if _UNMAPPED & set(name):
        return True
    if isinstance(kind, StructType):
        return any(_needs_mapping(field.name, field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _needs_mapping("", kind.elementType)
    return isinstance(kind, MapType) and (
        _needs_mapping("", kind.keyType) or _needs_mapping("", kind.valueType)
    )


def fits(brings: DataType, has: DataType) -> bool:
    """Return whether a column of one type can store every value of the other without a loss.

    A struct's fields are compared by name; `evolve` adds those that the column lacks.
    """
    if isinstance(brings, NullType) or sql_type(brings) == sql_type(has):
        return True
    if isinstance(brings, StructType) and isinstance(has, StructType):
        known = {field.name.lower(): field.dataType for field in has.fields}
        return all(fits(field.dataType, known.get(field.name.lower(), field.dataType)) for field in brings)
    if isinstance(brings, ArrayType) and isinstance(has, ArrayType):
        return fits(brings.elementType, has.elementType)
    if isinstance(brings, MapType) and isinstance(has, MapType):
        return fits(brings.keyType, has.keyType) and fits(brings.valueType, has.valueType)
    if isinstance(brings, StringType) and isinstance(has, StringType):
        return True
    digits = _WHOLE.get(type(brings))
    if digits is not None:
        if isinstance(has, DecimalType):
            return bool(has.precision - has.scale >= digits)
        return digits <= _EXACT.get(type(has), 0)
    if isinstance(brings, DecimalType) and isinstance(has, DecimalType):
        whole = brings.precision - brings.scale
        return bool(has.scale >= brings.scale and has.precision - has.scale >= whole)
    if isinstance(brings, FloatType):
        return isinstance(has, DoubleType)
    return isinstance(brings, DateType) and isinstance(has, TimestampType | TimestampNTZType)


def evolve(session: SparkSession, name: TableName, columns: Iterable[StructField]) -> StructType:
    """Add the columns, and the fields of structs, that a table lacks, and return its schema.

    Raises:
        TableError: A column has a type there that can't hold what comes.
    """
    schema = session.table(name.sql).schema
    known = {column.name.lower(): column for column in schema.fields}
    added: list[str] = []
    for column in columns:
        there = known.get(column.name.lower())
        if there is None:
            if not isinstance(column.dataType, NullType):
                added.append(f"{quote(column.name)} {sql_type(column.dataType)}")
                known[column.name.lower()] = column
        elif fits(column.dataType, there.dataType):
            added += _new_fields(quote(there.name), column.dataType, there.dataType)
        else:
            raise TableError(
                "COLUMN_TYPE_DOES_NOT_FIT",
                table=name,
                column=column.name,
                table_type=sql_type(there.dataType),
                new_type=sql_type(column.dataType),
            )
    if not added:
        return schema
    session.sql(f"ALTER TABLE {name.sql} ADD COLUMNS ({', '.join(added)})")
    return session.table(name.sql).schema


def _new_fields(path: str, brings: DataType, has: DataType) -> Iterator[str]:
    """Yield the fields that a column's structs lack: path and type, as ADD COLUMNS takes them."""
    if isinstance(brings, StructType) and isinstance(has, StructType):
        known = {field.name.lower(): field for field in has.fields}
        for field in brings.fields:
            if there := known.get(field.name.lower()):
                yield from _new_fields(f"{path}.{quote(there.name)}", field.dataType, there.dataType)
            elif not isinstance(field.dataType, NullType):
                yield f"{path}.{quote(field.name)} {sql_type(field.dataType)}"
    elif isinstance(brings, ArrayType) and isinstance(has, ArrayType):
        yield from _new_fields(f"{path}.element", brings.elementType, has.elementType)
    elif isinstance(brings, MapType) and isinstance(has, MapType):
        yield from _new_fields(f"{path}.key", brings.keyType, has.keyType)
        yield from _new_fields(f"{path}.value", brings.valueType, has.valueType)


def conform(frame: DataFrame, columns: Iterable[StructField]) -> list[str]:
    """Return a frame's columns in a table's order and types, as SQL; columns and fields it lacks are NULL."""
    present = {field.name.lower(): field for field in frame.schema.fields}
    values = []
    for field in columns:
        mine = present.get(field.name.lower())
        if mine is None:
            values.append(f"CAST(NULL AS {sql_type(field.dataType)})")
        else:
            values.append(_converted(quote(mine.name), mine.dataType, field.dataType))
    return values


def _converted(value: str, mine: DataType, wanted: DataType, depth: int = 0) -> str:
    """Return a value as another type, as SQL; a cast alone needs the same fields in the same order."""
    if mine == wanted:
        return value
    if _has_fields(mine) and sql_type(mine) != sql_type(wanted):
        inner = f"__{depth}"
        match mine, wanted:
            case StructType(), StructType():
                known = {field.name.lower(): field for field in mine.fields}
                fields = []
                for field in wanted.fields:
                    there = known.get(field.name.lower())
                    got = (
                        _converted(f"{value}.{quote(there.name)}", there.dataType, field.dataType, depth)
                        if there
                        else f"CAST(NULL AS {sql_type(field.dataType)})"
                    )
                    fields.append(f"{literal(field.name)}, {got}")
                return f"IF({value} IS NULL, NULL, named_struct({', '.join(fields)}))"
            case ArrayType(), ArrayType():
                got = _converted(inner, mine.elementType, wanted.elementType, depth + 1)
                return f"transform({value}, {inner} -> {got})"
            case MapType(), MapType():
                key = _converted(f"{inner}.key", mine.keyType, wanted.keyType, depth + 1)
                got = _converted(f"{inner}.value", mine.valueType, wanted.valueType, depth + 1)
                entry = f"named_struct('key', {key}, 'value', {got})"
                return f"map_from_entries(transform(map_entries({value}), {inner} -> {entry}))"
    return f"CAST({value} AS {sql_type(wanted)})"


def _has_fields(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_fields(kind.elementType)
        case MapType():
            return _has_fields(kind.keyType) or _has_fields(kind.valueType)
    return isinstance(kind, StructType)


def comparable(value: str, kind: DataType) -> str:
    """Write what `<=>` and a hash can take of a value: itself, or a stand-in for maps, which neither takes.

    The stand-in doesn't hang on the order of a map's entries, but for maps inside other types.
    """
    if isinstance(kind, MapType) and _plain(kind.keyType) and _plain(kind.valueType):
        return f"array_sort(map_entries({value}))"
    if not _plain(kind):
        return f"IF({value} IS NOT NULL, to_json(named_struct('c', {value}), map('timeZone', 'UTC')), NULL)"
    return value


def _plain(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_plain(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _plain(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() not in ("variant", "geometry", "geography")
