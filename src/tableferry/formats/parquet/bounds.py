"""Convert the raw statistics of a Parquet footer to the JSON text of per-file statistics in Delta's log.

Numbers are exact, dates are ISO 8601, instants are rounded outward to milliseconds, and strings are cut to
32 characters. `kind` lists the bounds that are left out because they can't be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from json import JSONEncoder
from struct import calcsize, unpack
from typing import Any, NamedTuple, TypeAlias

from tableferry.formats.parquet.elements import Element
from tableferry.formats.parquet.trusted_writers import Trust
from tableferry.spark import types
from tableferry.spark.types import Decimal, Primitive

Texts: TypeAlias = tuple[str | None, str | None]

# The number of characters that Delta keeps of a string by default: DataSkippingStringPrefixLength.
_PREFIX = 32
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = 1 - _EPOCH, date.max.toordinal() - _EPOCH
# The first day of the Gregorian calendar, and the day by which the last time zone had an offset in whole
# seconds. From that day on, Spark doesn't shift instants of the hybrid calendar.
_GREGORIAN = date(1582, 10, 15).toordinal() - _EPOCH
_ZONED = date(1900, 1, 1).toordinal() - _EPOCH
_NONE: Texts = (None, None)
_CODES = {"INT32": "i", "INT64": "q", "FLOAT": "f", "DOUBLE": "d"}

_quote = JSONEncoder(ensure_ascii=False).encode


class Kind(NamedTuple):
    """Functions that convert the bounds of one leaf to text.

    Attributes:
        values: Decodes plainly encoded values into comparable values; returns None if one is invalid.
        texts: Converts the lowest and the highest value to JSON.
        signed: Whether the deprecated ``min`` and ``max`` follow this type's order.
        counted: Whether bounds are used only if the footer states that no value is NaN.
    """

    values: Callable[[Sequence[bytes]], Sequence[Any] | None]
    texts: Callable[[Any, Any], Texts]
    signed: bool = False
    counted: bool = False


def kind(element: Element, believed: Trust) -> Kind | None:
    """Return how to read the bounds of a leaf, or None if the leaf gets no bounds.

    A wrong bound makes readers skip a file that has matching rows, so these bounds are left out:

    - Bounds that the writer may get wrong: see `writers`.
    - FLOAT and DOUBLE, unless the writer's bounds show a NaN or the footer states that no value is NaN.
    - The deprecated ``min`` and ``max``, except for signed numbers, dates and instants. Writers used the
      order of signed numbers for all types.
    - ``min_value`` and ``max_value``, unless the footer states that they follow the order of the type.
    - Dates before 1582 and instants before 1900 from writers with the hybrid calendar (Spark 2, Hive). Spark
      shifts these values when it reads them.
    - INT96, because no writer orders it reliably; BOOLEAN and BINARY, because Delta has no bounds for them.
    """
    meaning = element.annotation
    name = meaning.kind if meaning else ""
    if element.physical in ("INT32", "INT64") and not believed.numbers:
        return None
    match element.physical, name:
        case ("INT32" | "INT64", ""):
            return Kind(_numbers(element), _integers, signed=True)
        case ("INT32" | "INT64", "INTEGER") if meaning and meaning.signed:
            half = 1 << meaning.bits - 1
            return Kind(_within(_numbers(element), -half, half - 1), _integers, signed=True)
        case ("INT32" | "INT64", "INTEGER") if meaning:
            return Kind(_within(_numbers(element, signed=False), 0, (1 << meaning.bits) - 1), _integers)
        case ("INT32" | "INT64", "DECIMAL") if meaning:
            digits = 10**meaning.precision - 1
            numbers = _within(_numbers(element), -digits, digits)
            return Kind(numbers, _decimals(meaning.scale), signed=True)
        case ("BINARY" | "FIXED_LEN_BYTE_ARRAY", "DECIMAL") if meaning and believed.decimals:
            digits = 10**meaning.precision - 1
            return Kind(_within(_big_endian, -digits, digits), _decimals(meaning.scale))
        case ("INT32", "DATE"):
            return Kind(_numbers(element), _dates(_first_date(believed.ancient)), signed=True)
        case ("INT64", "TIMESTAMP") if meaning:
            per_milli, first = 1 if meaning.unit == "MILLIS" else 1000, _first_milli(believed.ancient)
            return Kind(_numbers(element), _times(per_milli, first, "Z" if meaning.utc else ""), signed=True)
        case ("FLOAT" | "DOUBLE", _) if believed.numbers:
            return Kind(_numbers(element), _floats, counted=not believed.floats)
        case ("BINARY", "STRING" | "ENUM" | "JSON") if believed.strings:
            return Kind(_same, _strings)
        case _:
            return None


def texts_of(leaf_type: Primitive, *, ancient: bool) -> Callable[[Any, Any], Texts] | None:
    """Return the function that writes bounds computed from data, or None if the type gets no bounds.

    The function takes whole numbers as int, decimals as their unscaled int, and strings as UTF-8 bytes. It
    takes dates as days since 1970, and timestamps as nanoseconds since 1970. ``ancient`` is whether Spark
    reads dates before 1582 and instants before 1900 as they are stored.
    """
    match leaf_type:
        case types.BYTE | types.SHORT | types.INTEGER | types.LONG:
            return _integers
        case Decimal(scale=scale):
            return _decimals(scale)
        case types.FLOAT | types.DOUBLE:
            return _floats
        case types.DATE:
            return _dates(_first_date(ancient))
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return _times(1_000_000, _first_milli(ancient), "Z" if leaf_type == types.TIMESTAMP else "")
        case types.STRING:
            return _strings
        case _:
            return None


def _first_date(ancient: bool) -> int:
    return _FIRST_DAY if ancient else _GREGORIAN


def _first_milli(ancient: bool) -> int:
    return (_FIRST_DAY if ancient else _ZONED) * 86_400_000


def counts_nulls(element: Element, believed: Trust) -> bool:
    """Return whether the writer counts the nulls of a leaf with this physical type correctly."""
    stored_as_bytes = element.physical in ("BINARY", "FIXED_LEN_BYTE_ARRAY")
    return believed.nulls if stored_as_bytes else believed.numbers


def _same(raws: Sequence[bytes]) -> Sequence[bytes]:
    return raws


def _numbers(element: Element, *, signed: bool = True) -> Callable[[Sequence[bytes]], Sequence[Any] | None]:
    """Return a decoder of plainly encoded numbers; it returns None if a value has the wrong length."""
    code = _CODES[element.physical]
    code = code if signed else code.upper()
    sizes = {calcsize(f"<{code}")}

    def values(raws: Sequence[bytes]) -> Sequence[Any] | None:
        if set(map(len, raws)) != sizes:
            return None
        return unpack(f"<{len(raws)}{code}", b"".join(raws))

    return values


def _within(
    read: Callable[[Sequence[bytes]], Sequence[Any] | None], lowest: int, highest: int
) -> Callable[[Sequence[bytes]], Sequence[Any] | None]:
    def values(raws: Sequence[bytes]) -> Sequence[Any] | None:
        numbers = read(raws)
        return numbers if numbers and lowest <= min(numbers) and max(numbers) <= highest else None

    return values


def _big_endian(raws: Sequence[bytes]) -> Sequence[int]:
    return [int.from_bytes(raw, "big", signed=True) for raw in raws]


def _integers(lowest: int, highest: int) -> Texts:
    return (str(lowest), str(highest)) if lowest <= highest else _NONE


def _decimals(scale: int) -> Callable[[int, int], Texts]:
    if scale == 0:
        return _integers

    def text(unscaled: int) -> str:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"

    def texts(lowest: int, highest: int) -> Texts:
        return (text(lowest), text(highest)) if lowest <= highest else _NONE

    return texts


class _Days(dict[int, str]):
    """Cache of ISO dates, by the number of days since 1970."""

    def __missing__(self, number: int) -> str:
        day = self[number] = date.fromordinal(number + _EPOCH).isoformat()
        return day


_DAYS = _Days()


def _dates(first: int) -> Callable[[int, int], Texts]:
    def text(number: int) -> str | None:
        return f'"{_DAYS[number]}"' if first <= number <= _LAST_DAY else None

    def texts(lowest: int, highest: int) -> Texts:
        return (text(lowest), text(highest)) if lowest <= highest else _NONE

    return texts


def _times(per_milli: int, first: int, zone: str) -> Callable[[int, int], Texts]:
    """Return a function that writes instants in milliseconds, the finest unit of Delta's statistics."""

    def text(millis: int) -> str | None:
        day, rest = divmod(millis, 86_400_000)
        if millis < first or day > _LAST_DAY:
            return None
        seconds, rest = divmod(rest, 1000)
        minutes, seconds = divmod(seconds, 60)
        return f'"{_DAYS[day]}T{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{rest:03}{zone}"'

    def texts(lowest: int, highest: int) -> Texts:
        if lowest > highest:
            return _NONE
        return text(lowest // per_milli), text(-(-highest // per_milli))

    return texts


def _floats(lowest: float, highest: float) -> Texts:
    # Any comparison with NaN is false.
    if not lowest <= highest:
        return _NONE
    # SQL treats both zeros as one value, but some readers order -0.0 before 0.0.
    return _float(lowest or -0.0), _float(highest or 0.0)


def _float(value: float) -> str | None:
    return None if value in (float("inf"), float("-inf")) else repr(value)


def _strings(lowest: bytes, highest: bytes) -> Texts:
    if lowest > highest:
        return _NONE
    return _string(lowest, _lowest), _string(highest, _highest)


def _string(raw: bytes, cut: Callable[[str], str | None]) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    # A string never has more UTF-16 units than bytes.
    kept = text if len(raw) <= _PREFIX else cut(text)
    return None if kept is None else _quote(kept)


def _lowest(text: str) -> str:
    return text[:_PREFIX]


def _highest(text: str) -> str | None:
    """Return an upper bound of a string, cut at the same place as by Delta's ``truncateMaxStringAgg``.

    The length counts UTF-16 units, and the cut never splits a surrogate pair. The last character sorts above
    the part that was cut off. No character sorts above U+10FFFF, so the cut moves after it, up to twice the
    length; then the result is None.
    """
    units = at = 0
    while at < len(text) and units < _PREFIX:
        units += 1 if text[at] < "\U00010000" else 2
        at += 1
    while units <= 2 * _PREFIX:
        if at == len(text):
            return text
        if text[at] != "\U0010ffff":
            return text[:at] + ("\x7f" if text[at] < "\x7f" else "\U0010ffff")
        units += 2
        at += 1
    return None
