"""Format numbers, sizes, durations and lists of names for messages."""

from __future__ import annotations

from collections.abc import Sequence


def size(count: int) -> str:
    """Format a number of bytes: ``513 B``, ``1.2 MB``."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def duration(seconds: float) -> str:
    """Format seconds: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 4 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun: ``1 table``, ``1,204 tables``, ``2 entries``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def first_of(names: Sequence[object], more: str = "more", *, most: int = 5) -> str:
    """List the first ``most`` names and the number of omitted ones: ``a, b, c, d, e and 1,204 more``."""
    rest = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {rest:,} {more}" if rest > 0 else "")


def joined(names: Sequence[str], word: str = "and") -> str:
    """List all names as in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
