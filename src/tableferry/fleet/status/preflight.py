"""What was found out of tables before their migration, as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tableferry.amounts import counted, duration, first_of, size
from tableferry.fleet.reports import Preflight
from tableferry.fleet.status.page import templates

templates.filters["size"] = size
templates.filters["duration"] = duration


def headline(preflights: Sequence[Preflight]) -> str:
    """Say in a line how it stands."""
    tables = counted(len(preflights), "table")
    stopped = sum(bool(preflight.findings) for preflight in preflights)
    if stopped:
        return f"{stopped:,} of {tables} can't be migrated as {'it is' if stopped == 1 else 'they are'}"
    return "The table can be migrated" if len(preflights) == 1 else f"{tables} can be migrated"


def preflight_lines(preflights: Sequence[Preflight]) -> Iterator[str]:
    """Say it for a terminal: each table with what would stop it, then what to know, then how it stands."""
    for preflight in preflights:
        yield f"{preflight.table}: {_described(preflight)}"
        yield from (f"  {finding.reason.value}: {finding.text}" for finding in preflight.findings)
    yield from (f"Note: {text} ({names})" for text, names in remarks(preflights))
    yield f"{headline(preflights)}."


def remarks(preflights: Sequence[Preflight]) -> list[tuple[str, str]]:
    """Return each remark with the tables that it's about."""
    about: dict[str, list[str]] = {}
    for preflight in preflights:
        for text in preflight.remarks:
            about.setdefault(text, []).append(str(preflight.table))
    return [(text, first_of(names)) for text, names in about.items()]


def preflight_page(preflights: Sequence[Preflight]) -> str:
    """Return it as one HTML page that asks nothing of any other."""
    return templates.get_template("preflight.html").render(
        headline=headline(preflights),
        stopped=[preflight for preflight in preflights if preflight.findings],
        tables=preflights,
        remarks=remarks(preflights),
    )


def _described(preflight: Preflight) -> str:
    form = preflight.format.value.capitalize()
    if preflight.files is None or preflight.bytes is None:
        return f"{preflight.stored_as} to {form}".strip()
    sizes = [counted(preflight.files, "file"), size(preflight.bytes)]
    if preflight.partitions:
        sizes.append(counted(preflight.partitions, "partition"))
    wait = (
        f"; writers wait about {duration(preflight.blocked_seconds)}"
        if preflight.blocked_seconds is not None
        else ""
    )
    return f"{preflight.stored_as} to {form}, {', '.join(sizes)}{wait}"
