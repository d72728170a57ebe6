"""Quartz cron expressions."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.bundle import cron

TODAY = date(2026, 11, 23)


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 2 * * ?",
        "0 0 2 ? * *",
        "0 30 2 ? * MON-FRI",
        "0 0/15 8-18 ? * 2-6 2027",
        "*/10 * * * * ?",
        "0 0 12 L * ?",
        "0 0 12 LW * ?",
        "0 0 12 L-3W * ?",
        "0 0 12 15W * ?",
        "0 0 12 ? * 6L",
        "0 0 12 ? * FRI#3",
        "0 0 12 ? JAN,JUN-aug monday",
        "0 0 22-2 ? * FRI-MON",
        "0 0 0 29 2 ?",
        "0 0 0 31 2,3 ?",
        "0 0 0 23 11 ? 2026",
        "0 0 0 1 1 ? 2024-2030/2",
        "0 0/0 2 1,,2 * ?",
        "0 0 2 * * ? 2027 and more",
    ],
)
def test_what_fires(expression: str) -> None:
    assert cron.fault(expression, TODAY) == ""


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "has 0 fields"),
        ("30 2 * * *", "has 5 fields, and Quartz takes 6 or 7, seconds first"),
        ("0 0 2 * * *", "says both or neither of day of month and day of week"),
        ("0 0 2 ? * ?", "says both or neither of day of month and day of week"),
        ("60 0 2 * * ?", "has '60' where Quartz takes 0 to 59"),
        ("0 0-60 2 * * ?", "has '0-60' where Quartz takes 0 to 59"),
        ("0 */90 2 * * ?", "has '*/90' where Quartz takes 0 to 59"),
        ("0 0 24 * * ?", "has '24' where Quartz takes 0 to 23"),
        ("0 0 2 0 * ?", "has '0' where Quartz takes 1 to 31"),
        ("0 0 2 * 13 ?", "has '13' where Quartz takes 1 to 12"),
        ("0 0 2 ? * 0", "has '0' where Quartz takes 1 to 7"),
        ("0 0 2 ? * MON,FRY", "has 'FRY', which Quartz doesn't know"),
        ("0 0 0 31 2,4 ?", "fires on no day"),
        ("0 0 0 30-31 FEB ?", "fires on no day"),
        ("0 0 0 29 2 ? 2027", "fires on no day"),
        ("0 0 0 22 11 ? 2026", "fires on no day"),
        ("0 0 0 ? * MON 2025", "fires on no day"),
    ],
)
def test_what_never_fires(expression: str, why: str) -> None:
    assert cron.fault(expression, TODAY).startswith(why)


@pytest.mark.parametrize(("weekday", "year"), [("SUN", 2028), ("1", 2028)])
def test_weekdays_are_counted_from_sunday(weekday: str, year: int) -> None:
    # 31 December 2028 is a Sunday, so that nothing is left of that year for any other day.
    assert cron.fault(f"0 0 0 ? 12 {weekday} {year}", date(2028, 12, 31)) == ""
    assert cron.fault(f"0 0 0 ? 12 MON {year}", date(2028, 12, 31)).startswith("fires on no day")


@given(st.lists(st.text("0123456789*?/-,LW#MON ", max_size=5), min_size=5, max_size=8).map(" ".join))
def test_any_text_is_taken_or_refused(expression: str) -> None:
    assert isinstance(cron.fault(expression, TODAY), str)


@given(low=st.integers(0, 59), high=st.integers(0, 59), step=st.integers(1, 59))
def test_any_range_of_minutes_is_taken(low: int, high: int, step: int) -> None:
    assert cron.fault(f"0 {low}-{high}/{step} * * * ?", TODAY) == ""
