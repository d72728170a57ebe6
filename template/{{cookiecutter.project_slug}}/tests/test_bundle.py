"""The bundle has no mistake that can be seen without a workspace."""

from pathlib import Path

from tableferry import bundle

ROOT = Path(__file__).parents[1]


def test_the_bundle_is_right() -> None:
    assert bundle.check(ROOT) == ()
