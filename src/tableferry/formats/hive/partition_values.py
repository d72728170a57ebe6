"""Parse the value in a partition directory's name, and write it as Delta's log stores it.

See https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Context
from decimal import Decimal as Number

from tableferry.spark import types
from tableferry.spark.types import Atomic, Decimal, Primitive

_BITS: dict[Primitive, int] = {types.BYTE: 8, types.SHORT: 16, types.INTEGER: 32, types.LONG: 64}
_WORDS = dict.fromkeys(("true", "t", "yes", "y", "1"), "true") | dict.fromkeys(
    ("false", "f", "no", "n", "0"), "false"
)
_LONGEST = 60
_EXACT = Context(prec=_LONGEST)
_LARGEST_FLOAT = 3.4028234663852886e38

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]{1,6})0*)?)? ?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_PLAIN_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_PLAIN_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")


def recognise(text: str) -> Atomic:
    """Return the type that a value's spelling shows: integer, long, date, timestamp or string.

    A number in another spelling, such as ``007``, is a string, because the number would lose the spelling.
    """
    if is_number(text) and str(number := int(text)) == text:
        whole = (types.INTEGER, types.LONG)
        return next((type_ for type_ in whole if _fits(number, type_)), types.STRING)
    for type_, form in ((types.DATE, _PLAIN_DATE), (types.TIMESTAMP, _PLAIN_TIME)):
        if form.fullmatch(text):
            try:
                cast(text, type_)
            except ValueError:
                return types.STRING
            return type_
    return types.STRING


def is_number(text: str) -> bool:
    """Return whether a text is a whole number in any spelling of at most 60 characters."""
    return len(text) <= _LONGEST and _INTEGER.fullmatch(text) is not None


def is_numeric(type_: Primitive) -> bool:
    """Return whether a type's values are numbers."""
    return isinstance(type_, Decimal) or type_ in (*_BITS, types.FLOAT, types.DOUBLE)


def cast(text: str, type_: Primitive) -> str:
    """Return a value of a type as the log writes it.

    Whole numbers keep their spelling, as in Spark's own conversion: every reader reads ``007`` as 7.

    Raises:
        ValueError: The text isn't a value of the type.
    """
    if type_ in (types.STRING, types.BINARY):
        return text
    text = text.strip()
    if isinstance(type_, Decimal):
        return _decimal(text, type_)
    if type_ in _BITS:
        if not is_number(text) or not _fits(int(text), type_):
            raise ValueError(text)
        return text
    if type_ == types.BOOLEAN:
        if text.lower() not in _WORDS:
            raise ValueError(text)
        return _WORDS[text.lower()]
    if type_ in (types.FLOAT, types.DOUBLE):
        return _float(text, type_)
    if type_ == types.DATE:
        match = _matched(_DATE, text)
        return date(int(match[1]), int(match[2]), int(match[3])).isoformat()
    if type_ in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        return _timestamp(text, type_)
    raise ValueError(f"no partition column is a {type_}")


def _fits(number: int, type_: Primitive) -> bool:
    half = 1 << (_BITS[type_] - 1)
    return -half <= number < half


def _float(text: str, type_: Primitive) -> str:
    if text in ("NaN", "Infinity", "-Infinity"):
        return text
    _matched(_NUMBER, text)
    number = abs(float(text))
    if math.isinf(number) or (type_ == types.FLOAT and number > _LARGEST_FLOAT):
        raise ValueError(text)
    return text


def _decimal(text: str, type_: Decimal) -> str:
    _matched(_NUMBER, text)
    number = _EXACT.normalize(Number(text)) if len(text) <= _LONGEST else Number("NaN")
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > type_.scale:
        raise ValueError(text)
    if number and number.adjusted() >= type_.precision - type_.scale:
        raise ValueError(text)
    # All digits of the scale are written, because otherwise delta-rs doesn't open the table.
    return f"{Number(text):.{type_.scale}f}"


def _timestamp(text: str, type_: Primitive) -> str:
    """Return a timestamp as the log writes it.

    Delta's protocol has two forms. Readers interpret ``2024-01-01 10:00:00`` in their own time zone: Spark in
    its session's zone, delta-rs in UTC. ``2024-01-01T10:00:00.000000Z`` is the same instant for both. Spark
    writes this form for TIMESTAMP, and so does this function. A text without a zone counts as UTC.
    """
    match = _matched(_TIME, text)
    fraction = (match[4] or "").ljust(6, "0")
    moment = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}{match[3] or ':00'}.{fraction}")
    if type_ == types.TIMESTAMP_NTZ:
        if match[5]:
            raise ValueError(text)
        return moment.isoformat(sep=" ")
    if match[5] and match[5] != "Z":
        zone = datetime.fromisoformat(f"2000-01-01T00:00:00{match[5]}").tzinfo
        try:
            moment = moment.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None)
        except OverflowError as error:
            raise ValueError(text) from error
    return f"{moment.isoformat(timespec='microseconds')}Z"


def _matched(form: re.Pattern[str], text: str) -> re.Match[str]:
    if (match := form.fullmatch(text)) is None:
        raise ValueError(text)
    return match
