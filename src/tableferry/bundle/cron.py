"""Quartz cron expressions, as schedules are written in."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LONGEST = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


@dataclass(frozen=True)
class _Field:
    """One field of an expression.

    Attributes:
        name: What messages call it.
        low: The smallest value.
        high: The largest value.
        names: Words for the values from the smallest on.
        special: What this field allows alone beyond lists, ranges and steps.
    """

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    special: re.Pattern[str] | None = None


_FIELDS = (
    _Field("seconds", 0, 59),
    _Field("minutes", 0, 59),
    _Field("hours", 0, 23),
    _Field(
        "day of month", 1, 31, special=re.compile(r"\?|L(-([1-9]|[12][0-9]|30))?W?|([1-9]|[12][0-9]|3[01])W")
    ),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 1, 7, _DAYS, re.compile(rf"\?|L|([1-7]|{'|'.join(_DAYS)})(L|#[1-5])")),
    _Field("year", 1970, 2099),
)


class CronError(ValueError):
    """An expression that Quartz refuses, or that never starts.

    Attributes:
        what: What is wrong, with the field.
        remedy: How to fix it.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what = what
        self.remedy = remedy


def check(expression: str) -> None:
    """Refuse what Quartz would refuse, or would never start.

    Raises:
        CronError: With the field and the reason.
    """
    texts = expression.upper().split()
    if len(texts) not in (6, 7):
        names = ", ".join(field.name for field in _FIELDS)
        raise CronError(
            f"there are {len(texts)} fields, and Quartz takes 6 or 7 ({names})",
            "begin with the seconds, as in '0 30 2 ? * MON-FRI'",
        )
    values = {field.name: _values(text, field) for field, text in zip(_FIELDS, texts, strict=False)}
    both = f"day of month is '{texts[3]}' and day of week is '{texts[5]}'"
    if (texts[3] == "?") == (texts[5] == "?"):
        raise CronError(both, "write '?' for one of them" + (" only" if texts[3] == "?" else ""))
    days, months = values["day of month"], values["month"]
    if days and min(days) > max(_LONGEST.get(month, 31) for month in months):
        raise CronError(
            f"day of month '{texts[3]}' is in none of the months '{texts[4]}'", "correct one of them"
        )


def _values(text: str, field: _Field) -> frozenset[int]:
    """Return the values that a field means; none if it's one of the special forms."""
    if field.special and field.special.fullmatch(text):
        return frozenset()
    values: set[int] = set()
    for part in text.split(","):
        values.update(_part(part, text, field))
    return frozenset(values)


def _part(part: str, text: str, field: _Field) -> range | list[int]:
    whole, slash, step = part.partition("/")
    first, dash, last = whole.partition("-")
    if not whole and not slash:
        raise CronError(f"{field.name} '{text}' has nothing between two commas", "remove a comma")
    if slash and not (re.fullmatch(r"[0-9]{1,4}", step) and 1 <= int(step) <= field.high):
        raise CronError(f"{field.name} '{text}' steps by '{step}'", f"step by 1 to {field.high}")
    if whole in ("", "*"):
        low, high = field.low, field.high
    elif dash:
        low, high = _number(first, text, field), _number(last, text, field)
    else:
        low = _number(first, text, field)
        high = field.high if slash else low
    by = int(step) if slash else 1
    if low <= high:
        return range(low, high + 1, by)
    if field.name == "year":
        raise CronError(f"{field.name} '{text}' goes backwards", "write the earlier year first")
    # Quartz goes round: FRI-MON, 22-2.
    size = field.high - field.low + 1
    return [(value - field.low) % size + field.low for value in range(low, high + size + 1, by)]


def _number(word: str, text: str, field: _Field) -> int:
    if word in field.names:
        return field.names.index(word) + field.low
    if re.fullmatch(r"[0-9]{1,4}", word) and field.low <= int(word) <= field.high:
        return int(word)
    names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    has = f" has '{word}'" if word != text else ""
    raise CronError(
        f"{field.name} '{text}'{has or ' is no value of that field'}",
        f"write {field.low} to {field.high}{names}",
    )
