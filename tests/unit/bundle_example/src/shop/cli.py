"""What the nightly job calls."""

from __future__ import annotations


def main() -> None:
    """Check the numbers."""
