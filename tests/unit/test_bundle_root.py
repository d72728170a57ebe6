"""The repository's own bundle."""

from __future__ import annotations

from pathlib import Path

from tableferry import bundle

ROOT = Path(__file__).parents[2]


def test_the_root_bundle_is_all_right() -> None:
    examination = bundle.examine(ROOT)
    assert (examination.problems, examination.advice, examination.notes) == ((), (), ())
    assert examination.targets == ("dev", "prod")
