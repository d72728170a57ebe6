"""Recognize the table that the preprocessor checked."""

from __future__ import annotations

import pytest

from tableferry.fleet.warehouse.job_tables import is_same_origin

BEFORE = {"location": "file:/lake/t", "created": "Sat Nov 28 22:15:16 UTC 2026"}


@pytest.mark.parametrize(
    ("location", "created", "same"),
    [
        ("file:/lake/t", "Sat Nov 28 22:15:16 UTC 2026", True),
        # The same time, in other workers' time zones.
        ("file:/lake/t", "Sat Nov 28 23:15:16 CET 2026", True),
        ("file:/lake/t", "Sun Nov 29 03:45:16 IST 2026", True),
        ("file:/lake/t", "Sat Nov 28 22:15:17 UTC 2026", False),
        ("file:/lake/t", "Mon Nov 30 22:15:16 UTC 2026", False),
        ("file:/lake/other", "Sat Nov 28 22:15:16 UTC 2026", False),
        ("file:/lake/t", "1795904116000", False),
    ],
)
def test_same_table_has_same_directory_and_creation_time(location: str, created: str, same: bool) -> None:
    assert is_same_origin(BEFORE, {"location": location, "created": created}) is same


def test_creation_time_in_other_format_is_compared_as_text() -> None:
    epoch = {"location": "file:/lake/t", "created": "1795904116000"}
    assert is_same_origin(epoch, dict(epoch))
    assert not is_same_origin(epoch, {**epoch, "created": "1795904117000"})
