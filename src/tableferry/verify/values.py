"""Normalize values of every Spark type, so that equal values have equal hashes."""

# The rules of equality:
#
# - null equals only null: not '', not an empty array, not a struct of nulls.
# - NaN equals NaN, and -0.0 equals 0.0, as in Spark SQL's ``=``.
# - Numbers of different types are compared by value if one type can represent both exactly:
#   - int and bigint
#   - decimals of any scale (1.0 equals 1.00)
#   - float and double (the float's exact value)
#   - a decimal of up to 15 digits and double (the decimal's nearest double)
# - Text is compared byte by byte, independent of its collation; char includes its padding.
# - Timestamps are compared by instant, independent of the session's time zone. A TIMESTAMP_NTZ has no
#   instant: it can be compared with TIMESTAMP_NTZ and DATE, but not with TIMESTAMP.
# - Struct fields are compared by name without case, independent of their order; arrays in order; maps
#   independent of the order of their entries. This applies at any depth.
# - A VARIANT is compared by its JSON text and the types of its values: a date and a string of the same text
#   differ, also in arrays that mix types. The comparison fails if such arrays are nested more than eight
#   levels deep, because deeper types aren't compared.

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

_TEXT = (T.StringType, T.CharType, T.VarcharType)
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
# The decimal digits that a double represents: exactly for integers, and in a round trip for decimals.
_DOUBLE_DIGITS = 15
_MOST_DIGITS = 38
_SIMPLE = (
    T.BinaryType,
    T.BooleanType,
    T.CalendarIntervalType,
    T.DateType,
    T.DoubleType,
    T.FloatType,
    T.TimestampNTZType,
    T.TimestampType,
    T.VariantType,
)
_FLOATING = (T.FloatType, T.DoubleType)
_NESTED = (T.ArrayType, T.MapType, T.StructType)
# The maximum nesting depth of arrays that mix types, including the arrays and objects around them.
MIXED_LEVELS = 8
TOO_DEEP = f"arrays of mixed types at more than {MIXED_LEVELS} levels of a VARIANT"
"""The message of the Spark error for a value that can't be compared."""
_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
}


def orderable(kind: T.DataType) -> bool:
    """Return whether values of the type can be grouped and sorted, as keys are."""
    return not isinstance(kind, (*_NESTED, T.VariantType, T.CalendarIntervalType))


def spelling(kind: T.DataType, *, ordered: bool = False) -> str:
    """Return a type as text without nullability; equal types have equal texts.

    The order and the case of struct fields matter only if ``ordered``.
    """
    match kind:
        case T.StructType():
            fields = [
                (field.name if ordered else field.name.lower(), spelling(field.dataType, ordered=ordered))
                for field in kind.fields
            ]
            return f"struct{json.dumps(fields if ordered else sorted(fields))}"
        case T.ArrayType():
            return f"array<{spelling(kind.elementType, ordered=ordered)}>"
        case T.MapType():
            key, value = (spelling(part, ordered=ordered) for part in (kind.keyType, kind.valueType))
            return f"map<{key},{value}>"
    return kind.simpleString()


def common_type(left: T.DataType, right: T.DataType) -> T.DataType | None:
    """Return the type that represents the values of both types exactly, or None if no type does."""
    match left, right:
        case T.NullType(), T.NullType():
            return T.StringType()
        case T.NullType(), _:
            return common_type(right, right)
        case _, T.NullType():
            return common_type(left, left)
        case T.ArrayType(), T.ArrayType():
            element = common_type(left.elementType, right.elementType)
            return None if element is None else T.ArrayType(element)
        case T.MapType(), T.MapType():
            key = common_type(left.keyType, right.keyType)
            value = common_type(left.valueType, right.valueType)
            return None if key is None or value is None else T.MapType(key, value)
        case T.StructType(), T.StructType():
            return _common_struct(left, right)
        case T.DayTimeIntervalType(), T.DayTimeIntervalType():
            return T.DayTimeIntervalType(T.DayTimeIntervalType.DAY, T.DayTimeIntervalType.SECOND)
        case T.YearMonthIntervalType(), T.YearMonthIntervalType():
            return T.YearMonthIntervalType(T.YearMonthIntervalType.YEAR, T.YearMonthIntervalType.MONTH)
        case (T.DateType(), T.TimestampNTZType()) | (T.TimestampNTZType(), T.DateType()):
            return T.TimestampNTZType()
    if isinstance(left, _TEXT) and isinstance(right, _TEXT):
        return T.StringType()
    if isinstance(left, _SIMPLE) and type(left) is type(right):
        return left
    return _common_number(left, right)


def _common_struct(left: T.StructType, right: T.StructType) -> T.StructType | None:
    others = {field.name.lower(): field.dataType for field in right.fields}
    names = {field.name.lower() for field in left.fields}
    # SQL can't distinguish fields whose names differ only by case, so such structs aren't compared.
    if names != others.keys() or len(names) < len(left.fields) or len(others) < len(right.fields):
        return None
    fields = []
    for field in left.fields:
        common = common_type(field.dataType, others[field.name.lower()])
        if common is None:
            return None
        fields.append(T.StructField(field.name, common))
    return T.StructType(fields)


def _common_number(left: T.DataType, right: T.DataType) -> T.DataType | None:
    digits = [_digits(left), _digits(right)]
    if isinstance(left, _FLOATING) or isinstance(right, _FLOATING):
        fits = [
            isinstance(kind, _FLOATING) or (size is not None and sum(size) <= _DOUBLE_DIGITS)
            for kind, size in zip((left, right), digits, strict=True)
        ]
        # A decimal's nearest double differs from its nearest float.
        mixed = {type(left), type(right)} == {T.FloatType, T.DecimalType}
        return T.DoubleType() if all(fits) and not mixed else None
    if digits[0] is None or digits[1] is None:
        return None
    if not isinstance(left, T.DecimalType) and not isinstance(right, T.DecimalType):
        return left if digits[0] >= digits[1] else right
    whole, scale = (max(pair) for pair in zip(*digits, strict=True))
    return T.DecimalType(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None


def _digits(kind: T.DataType) -> tuple[int, int] | None:
    """Return the maximum digits before and after the decimal point; None except for integers and decimals."""
    if isinstance(kind, T.DecimalType):
        return kind.precision - kind.scale, kind.scale
    size = _DIGITS.get(type(kind))
    return None if size is None else (size, 0)


def aligned(column: Column, kind: T.DataType, common: T.DataType) -> Column:
    """Cast a column to the common type; struct fields are matched by name, not by position."""
    if spelling(kind, ordered=True) == spelling(common, ordered=True):
        return column
    match kind, common:
        case T.ArrayType(), T.ArrayType():
            inner, common_element = kind.elementType, common.elementType
            return F.transform(column, lambda element: aligned(element, inner, common_element))
        case T.MapType(), T.MapType():
            keys = F.transform(F.map_keys(column), lambda key: aligned(key, kind.keyType, common.keyType))
            values = F.transform(
                F.map_values(column), lambda value: aligned(value, kind.valueType, common.valueType)
            )
            return F.map_from_arrays(keys, values)
        case T.StructType(), T.StructType():
            own = {field.name.lower(): field for field in kind.fields}
            fields = [(own[field.name.lower()], field) for field in common.fields]
            struct = F.struct(
                *(
                    aligned(column.getField(have.name), have.dataType, want.dataType).alias(want.name)
                    for have, want in fields
                )
            )
            return F.when(column.isNotNull(), struct)
    return column.cast(common)


def hashable(column: Column, kind: T.DataType) -> list[Column]:
    """Return the arguments of ``xxhash64`` for a value; they are equal only for equal values.

    ``xxhash64`` skips nulls, so that (null, 'a') and ('a', null) would collide. It also ignores the size of
    arrays, and doesn't accept maps. So at each depth, a null flag precedes each value, and its size precedes
    each array; a map becomes a sorted array of its entries.
    """
    null = column.isNull()
    match kind:
        case T.StructType():
            parts = [hashable(column.getField(field.name), field.dataType) for field in kind.fields]
            return [null, *(part for columns in parts for part in columns)]
        case T.ArrayType():
            inner = kind.elementType
            return [
                null,
                F.size(column),
                F.transform(column, lambda element: F.struct(*hashable(element, inner))),
            ]
        case T.MapType():
            entries = F.transform(
                F.map_entries(column),
                lambda entry: F.struct(
                    *hashable(entry.getField("key"), kind.keyType),
                    *hashable(entry.getField("value"), kind.valueType),
                ),
            )
            return [null, F.size(column), F.array_sort(entries)]
        case T.VariantType():
            return [null, F.schema_of_variant(column), F.to_json(column), _mixed_types(column)]
        case T.CalendarIntervalType():
            # Cast to text, because intervals have no order, which the entries of a map need.
            return [null, column.cast(T.StringType())]
    return [null, column]


def _mixed_types(variant: Column, levels: int = MIXED_LEVELS) -> Column:
    """Return a hash of the value types in a variant's arrays that mix types; null without such an array.

    In such arrays the schema contains only VARIANT, and a date's JSON is the same as a string's.
    """
    if not levels:
        below: Column = F.raise_error(F.lit(TOO_DEEP))
    else:
        members = F.coalesce(
            F.try_variant_get(variant, "$", "array<variant>"),
            F.map_values(F.try_variant_get(variant, "$", "map<string, variant>")),
        )
        below = F.xxhash64(
            F.transform(
                members,
                lambda member: F.struct(F.schema_of_variant(member), _mixed_types(member, levels - 1)),
            )
        )
    # A field named VARIANT also matches; that only takes more time.
    return F.when(F.schema_of_variant(variant).contains("VARIANT"), below)


def text(column: Column, kind: T.DataType) -> Column:
    """Return a value as readable text, with timestamps in UTC; null remains null."""
    match kind:
        case T.StructType() | T.ArrayType() | T.MapType():
            return F.to_json(column, _JSON)
        case T.VariantType():
            return F.to_json(column)
        case T.TimestampType():
            # A cast would use the session's time zone, in which two instants can have the same text.
            return F.when(column.isNotNull(), F.btrim(F.to_json(F.array(column), _JSON), F.lit('[]"')))
        case T.BinaryType():
            return F.concat(F.lit("0x"), F.hex(column))
    return column.cast(T.StringType())
