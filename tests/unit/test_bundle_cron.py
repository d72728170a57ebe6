"""Quartz cron expressions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.bundle import cron


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 2 * * ?",
        "0 0 2 ? * *",
        "0 30 2 ? * MON-FRI",
        "0 0/15 8-18 ? * 2-6 2026",
        "*/10 * * * * ?",
        "/5 * * * * ?",
        "0 0 12 L * ?",
        "0 0 12 LW * ?",
        "0 0 12 L-3 * ?",
        "0 0 12 L-3W * ?",
        "0 0 12 15W * ?",
        "0 0 12 ? * 6L",
        "0 0 12 ? * FRI#3",
        "0 0 12 ? JAN,JUN-aug mon",
        "0 0 22-2 ? * FRI-MON",
        "0 0 0 29 2 ?",
        "0 0 0 31 2,3 ?",
        "0 0 0 1 1 ? 2026-2030/2",
    ],
)
def test_what_quartz_takes(expression: str) -> None:
    cron.check(expression)


@pytest.mark.parametrize(
    ("expression", "what", "remedy"),
    [
        ("0 0 2 * * *", "day of month is '*' and day of week is '*'", "write '?' for one of them"),
        ("0 0 2 ? * ?", "day of month is '?' and day of week is '?'", "write '?' for one of them only"),
        ("60 0 2 * * ?", "seconds '60' is no value of that field", "write 0 to 59"),
        ("0 0-60 2 * * ?", "minutes '0-60' has '60'", "write 0 to 59"),
        ("0 0 24 * * ?", "hours '24' is no value of that field", "write 0 to 23"),
        ("0 0 2 0 * ?", "day of month '0' is no value of that field", "write 1 to 31"),
        ("0 0 2 32W * ?", "day of month '32W' is no value of that field", "write 1 to 31"),
        ("0 0 2 * 13 ?", "month '13' is no value of that field", "write 1 to 12 or JAN to DEC"),
        ("0 0 2 ? * 0", "day of week '0' is no value of that field", "write 1 to 7 or SUN to SAT"),
        ("0 0 2 ? * MON#6", "day of week 'MON#6' is no value of that field", "write 1 to 7 or SUN to SAT"),
        ("0 0 2 ? * MONDAY", "day of week 'MONDAY' is no value of that field", "write 1 to 7 or SUN to SAT"),
        ("0 0 2 ? * MON,FRY", "day of week 'MON,FRY' has 'FRY'", "write 1 to 7 or SUN to SAT"),
        ("0 0 2 ? * MON,L", "day of week 'MON,L' has 'L'", "write 1 to 7 or SUN to SAT"),
        ("0 0 2 1 1 ? 1969", "year '1969' is no value of that field", "write 1970 to 2099"),
        ("0 0 2 1 1 ? 2030-2026", "year '2030-2026' goes backwards", "write the earlier year first"),
        ("0 0/60 2 * * ?", "minutes '0/60' steps by '60'", "step by 1 to 59"),
        ("0 0/0 2 * * ?", "minutes '0/0' steps by '0'", "step by 1 to 59"),
        ("0 0/ 2 * * ?", "minutes '0/' steps by ''", "step by 1 to 59"),
        ("0 1,,2 2 * * ?", "minutes '1,,2' has nothing between two commas", "remove a comma"),
        ("? 0 2 * * ?", "seconds '?' is no value of that field", "write 0 to 59"),
        ("0 0 0 31 2,4 ?", "day of month '31' is in none of the months '2,4'", "correct one of them"),
        ("0 0 0 30-31 FEB ?", "day of month '30-31' is in none of the months 'FEB'", "correct one of them"),
    ],
)
def test_what_quartz_refuses(expression: str, what: str, remedy: str) -> None:
    with pytest.raises(cron.CronError) as caught:
        cron.check(expression)
    assert (caught.value.what, caught.value.remedy) == (what, remedy)


@pytest.mark.parametrize(("expression", "fields"), [("", 0), ("* * * * *", 5), ("0 0 2 * * ? 2026 x", 8)])
def test_the_number_of_fields(expression: str, fields: int) -> None:
    with pytest.raises(cron.CronError, match=f"there are {fields} fields"):
        cron.check(expression)


@given(st.lists(st.text("0123456789*?/-,LW#MON ", max_size=5), min_size=5, max_size=8).map(" ".join))
def test_any_text_is_taken_or_refused(expression: str) -> None:
    with contextlib.suppress(cron.CronError):
        cron.check(expression)


@given(
    low=st.integers(0, 59),
    high=st.integers(0, 59),
    step=st.integers(1, 59),
)
def test_any_range_of_minutes_is_taken(low: int, high: int, step: int) -> None:
    cron.check(f"0 {low}-{high}/{step} * * * ?")
