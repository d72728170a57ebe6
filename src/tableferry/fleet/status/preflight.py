"""What was found out of tables before their migration, as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tableferry.amounts import counted, duration, first_of, size
from tableferry.fleet.reports import Preflight
from tableferry.fleet.status.page import templates

templates.filters["size"] = size
templates.filters["duration"] = duration


def headline(found: Sequence[Preflight]) -> str:
    """Say in a line how it stands."""
    tables = counted(len(found), "table")
    stopped = sum(bool(each.findings) for each in found)
    if stopped:
        return f"{stopped:,} of {tables} can't be migrated as {'it is' if stopped == 1 else 'they are'}"
    return "The table can be migrated" if len(found) == 1 else f"{tables} can be migrated"


def preflight_lines(found: Sequence[Preflight]) -> Iterator[str]:
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
    return [(text, first_of(names)) for text, names in about.items()]


def preflight_page(found: Sequence[Preflight]) -> str:
    """Return it as one HTML page that asks nothing of any other."""
    return templates.get_template("preflight.html").render(
        headline=headline(found),
        stopped=[each for each in found if each.findings],
        tables=found,
        remarks=remarks(found),
    )


def _described(found: Preflight) -> str:
    form = found.format.value.capitalize()
    if found.files is None or found.bytes is None:
        return f"{found.stored_as} to {form}".strip()
    sizes = [counted(found.files, "file"), size(found.bytes)]
    if found.partitions:
        sizes.append(counted(found.partitions, "partition"))
    wait = (
        f"; writers wait about {duration(found.blocked_seconds)}" if found.blocked_seconds is not None else ""
    )
    return f"{found.stored_as} to {form}, {', '.join(sizes)}{wait}"
