"""Values of every Spark type, brought to a form in which equal means equal.

What counts as equal:

- null equals null and nothing else: not '', not an empty array, not a struct of nulls;
- NaN equals NaN, and -0.0 equals 0.0, as Spark SQL's ``=`` has it;
- numbers of different types by their value, if one type holds both exactly: int and bigint, decimals of any
  scale (1.0 equals 1.00), float and double (the float's exact value), a decimal of up to 15 digits and double
  (its nearest double);
- text byte by byte, whatever its collation, and char with its padding;
- timestamps by their instant, so the session's time zone plays no part. A TIMESTAMP_NTZ has no instant: it
  compares with its own kind and with dates, never with TIMESTAMP;
- struct fields by their name without case, whatever their order; arrays in order; maps whatever the order of
  their entries, at any depth;
- a VARIANT by its JSON text and the types of its values: a date and a string of the same letters differ, also
  in arrays that mix types. A comparison fails where such arrays are more than eight levels deep in one
  another, because their types aren't read there.
"""

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

_TEXT = (T.StringType, T.CharType, T.VarcharType)
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
# The digits that a double holds exactly: of an integer its bits count, of a decimal its round trip.
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
# The number of levels of arrays that mix types, and of arrays and objects around them, that are compared.
MIXED_LEVELS = 8
TOO_DEEP = f"arrays of mixed types at more than {MIXED_LEVELS} levels of a VARIANT"
"""The message with which a comparison stops at a value that it can't compare."""
_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
}


def orderable(kind: T.DataType) -> bool:
    """Return whether values of the type can be grouped and sorted, as keys are."""
    return not isinstance(kind, (*_NESTED, T.VariantType, T.CalendarIntervalType))


def spelling(kind: T.DataType, *, ordered: bool = False) -> str:
    """Spell a type without nullability, so that equal spellings mean equal types.

    The order and the case of struct fields count only if ``ordered``.
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
    """Find the type that holds the values of both exactly, or None if there is none."""
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
    # Fields whose names differ by case alone can't be distinguished in SQL, so they aren't compared.
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
        # A decimal's nearest double and its nearest float aren't the same number.
        mixed = {type(left), type(right)} == {T.FloatType, T.DecimalType}
        return T.DoubleType() if all(fits) and not mixed else None
    if digits[0] is None or digits[1] is None:
        return None
    if not isinstance(left, T.DecimalType) and not isinstance(right, T.DecimalType):
        return left if digits[0] >= digits[1] else right
    whole, scale = (max(pair) for pair in zip(*digits, strict=True))
    return T.DecimalType(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None


def _digits(kind: T.DataType) -> tuple[int, int] | None:
    """Count the digits before and after the decimal point that a type holds."""
    if isinstance(kind, T.DecimalType):
        return kind.precision - kind.scale, kind.scale
    size = _DIGITS.get(type(kind))
    return None if size is None else (size, 0)


def aligned(column: Column, kind: T.DataType, common: T.DataType) -> Column:
    """Cast a column to the common type, and its struct fields by their names rather than their places."""
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
    """Give the arguments that stand for a value in ``xxhash64``: equal for equal values, and for no others.

    ``xxhash64`` skips nulls, so that (null, 'a') and ('a', null) would collide; it doesn't count an array's
    elements, and it refuses maps. So each value at each depth comes after a flag that says whether it's null,
    each array after its size, and a map as the sorted array of its entries.
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
            # It has no order, which a map's entries need.
            return [null, column.cast(T.StringType())]
    return [null, column]


def _mixed_types(variant: Column, levels: int = MIXED_LEVELS) -> Column:
    """Hash the types of the values in a variant's arrays that mix types; null without such an array.

    Their schema says VARIANT for these values, and JSON shows a date as it shows a string.
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
    # A field of that name is taken for a type, which costs time alone.
    return F.when(F.schema_of_variant(variant).contains("VARIANT"), below)


def text(column: Column, kind: T.DataType) -> Column:
    """Show a value to a person, with timestamps in UTC; null stays null."""
    match kind:
        case T.StructType() | T.ArrayType() | T.MapType():
            return F.to_json(column, _JSON)
        case T.VariantType():
            return F.to_json(column)
        case T.TimestampType():
            # Casting it would show it in the session's time zone, where two instants can share a text.
            return F.when(column.isNotNull(), F.btrim(F.to_json(F.array(column), _JSON), F.lit('[]"')))
        case T.BinaryType():
            return F.concat(F.lit("0x"), F.hex(column))
    return column.cast(T.StringType())
