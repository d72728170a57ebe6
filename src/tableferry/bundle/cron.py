"""Quartz cron expressions: which ones Quartz refuses or never fires; nothing is said where it's lenient."""

from __future__ import annotations

import calendar
import re
from datetime import date

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NAMES = {name: str(number) for names in (_MONTHS, _DAYS) for number, name in enumerate(names, 1)}
_LOWEST = (0, 0, 0, 1, 1, 1, 0)
_HIGHEST = (59, 59, 23, 31, 12, 7, 9999)
_LAST_YEAR = 2099
_PART = re.compile(r"(?=.)(\*|[0-9]{1,4})?(?:-([0-9]{1,4}))?(?:/([0-9]{1,4}))?")


def fault(expression: str, today: date) -> str:
    """Return why an expression never fires, with the remedy; empty if it fires, or nobody can say."""
    words = expression.upper().split()
    if len(words) < 6:
        return (
            f"has {len(words)} fields, and Quartz takes 6 or 7, seconds first: write '0 30 2 * * ?' for 2:30"
        )
    if (words[3] == "?") == (words[5] == "?"):
        return "says both or neither of day of month and day of week: write '?' for one of them"
    try:
        allowed = list(map(_values, words, _LOWEST, _HIGHEST))
    except ValueError as error:
        return str(error)
    days, months, weekdays, years = (*allowed, set(range(_LAST_YEAR + 1)))[3:7]
    fires = any(
        day in days and (calendar.weekday(year, month, day) + 1) % 7 + 1 in weekdays  # from Sunday on
        for year in range(today.year, _LAST_YEAR + 1)
        for month in months
        for day in range(1, calendar.monthrange(year, month)[1] + 1)
        if year in years and (year, month, day) >= (today.year, today.month, today.day)
    )
    return "" if fires else "fires on no day from now on: correct its day, month or year"


def _values(field: str, low: int, high: int) -> set[int]:
    """Return the values that a field allows, all where nobody can say; fails with what Quartz refuses."""
    values: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(re.sub("[A-Z]+", lambda word: _NAMES.get(word[0], word[0]), part))
        if match is None:
            if re.match("[A-Z]", part) and not part.startswith((*_NAMES, "L")):
                raise ValueError(f"has '{part}', which Quartz doesn't know: correct it")
            return set(range(low, high + 1))
        every = match[1] in (None, "*")
        first = low if every else int(match[1])
        last = int(match[2] or (high if every or match[3] else first))
        step = int(match[3] or 1)
        if not low <= min(first, last) <= max(first, last) <= high or (every and step > high):
            raise ValueError(f"has '{part}' where Quartz takes {low} to {high}: correct it")
        size = high - low + 1  # Quartz goes round: FRI-MON, 22-2
        around = range(first, last + 1 + (size if last < first else 0), step or size)
        values.update((value - low) % size + low for value in around)
    return values
