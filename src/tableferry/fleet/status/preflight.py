"""What was found out of tables before their migration, as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tableferry.amounts import duration, size
from tableferry.fleet.reports import Preflight
from tableferry.fleet.status.page import templates

templates.filters["size"] = size
templates.filters["duration"] = duration

_NAMED = 5


def headline(found: Sequence[Preflight]) -> str:
    """Say in a line how it stands."""
    stopped = sum(bool(each.findings) for each in found)
    if not stopped:
        return f"{_tables(len(found))} can be migrated" if len(found) != 1 else "The table can be migrated"
    return (
        f"{stopped:,} of {_tables(len(found))} can't be migrated as {'it is' if stopped == 1 else 'they are'}"
    )


def lines(found: Sequence[Preflight]) -> Iterator[str]:
    """Say it for a terminal: each table with what would stop it, then what to know, then how it stands."""
    for each in found:
        yield f"{each.table}: {_described(each)}"
        yield from (f"  {finding.reason.value}: {finding.text}" for finding in each.findings)
    yield from (f"Note: {text} ({names})" for text, names in remarks(found))
    yield f"{headline(found)}."


def remarks(found: Sequence[Preflight]) -> list[tuple[str, str]]:
    """Return each remark with the tables that it's about."""
    about: dict[str, list[str]] = {}
    for each in found:
        for text in each.remarks:
            about.setdefault(text, []).append(str(each.table))
    return [(text, _some(names)) for text, names in about.items()]


def page(found: Sequence[Preflight]) -> str:
    """Return it as one HTML page that asks nothing of any other."""
    return templates.get_template("preflight.html").render(
        headline=headline(found),
        stopped=[each for each in found if each.findings],
        tables=found,
        remarks=remarks(found),
    )


def _described(found: Preflight) -> str:
    if not found.stored_as:
        return f"to {found.format.value.capitalize()}"
    wait = "" if found.blocked_seconds is None else f"; writers wait about {duration(found.blocked_seconds)}"
    partitions = f", {found.partitions:,} partitions" if found.partitions else ""
    return (
        f"{found.stored_as} to {found.format.value.capitalize()}, {found.files:,} "
        f"{'file' if found.files == 1 else 'files'}, {size(found.bytes)}{partitions}{wait}"
    )


def _tables(count: int) -> str:
    return f"{count:,} {'table' if count == 1 else 'tables'}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
