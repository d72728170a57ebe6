"""The properties in which a shadow run stores its progress."""

from __future__ import annotations

import pytest

from tableferry.fleet.hive_tables.progress_properties import fingerprint, has_same_partitions

SPECS, PLACES = ("day=a", "day=b"), ("file:/w/t/day=a", "file:/w/t/day=b")


@pytest.mark.parametrize(
    ("specs", "places", "same"),
    [
        (SPECS, PLACES, True),
        (SPECS[::-1], PLACES[::-1], True),
        (SPECS, ("file:///w/t/day=a/", "file:/w/t/day=b"), True),
        (SPECS, ("file:/w/t/day=a", "file:/w/moved"), False),
        (SPECS[:1], PLACES[:1], False),
        ((*SPECS, "day=c"), (*PLACES, "file:/w/t/day=c"), False),
        # Only some sessions can read all partitions' locations with one query.
        (SPECS, None, True),
        (SPECS[:1], None, False),
    ],
)
def test_fingerprint_differs_after_partition_was_dropped_moved_or_added(
    specs: tuple[str, ...], places: tuple[str, ...] | None, same: bool
) -> None:
    noted, now = fingerprint(SPECS, PLACES), fingerprint(specs, places)
    assert has_same_partitions(noted, now) is same
