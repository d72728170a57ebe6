"""The report of a preflight: as text, as a page, and as rows for a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import NamedTuple

from tableferry.amounts import counted, duration, first_of, size
from tableferry.errors.catalogue import conditions, fill
from tableferry.fleet.jobs.findings import PauseFinding, Preflight
from tableferry.fleet.jobs.job import PauseReason
from tableferry.fleet.jobs.pauses import remedy_of
from tableferry.fleet.reports.page import templates
from tableferry.spark.tables import TableName

templates.filters["duration"] = duration

# A longer page isn't read; the rows for a spreadsheet have all tables.
_SHOWN = 500
_SHOWN_OF_A_CAUSE = 50
# More tables of one cause would hide the next cause.
_UNFOLDED = 5


class Cause(NamedTuple):
    """A reason that stops migrations, with its tables and the finding of each."""

    reason: PauseReason
    what: str
    remedy: str
    stopped: Sequence[tuple[TableName, PauseFinding]]


def causes(preflights: Sequence[Preflight]) -> list[Cause]:
    """Return the reasons that stop migrations, the reason of most tables first."""
    stopped: dict[PauseReason, list[tuple[TableName, PauseFinding]]] = {}
    for preflight in preflights:
        for finding in preflight.findings:
            stopped.setdefault(finding.reason, []).append((preflight.table, finding))
    found = [Cause(reason, _problem(reason), remedy_of(reason), tables) for reason, tables in stopped.items()]
    return sorted(found, key=lambda cause: -len(cause.stopped))


def _problem(reason: PauseReason) -> str:
    return fill(conditions()[reason].message, {"table": "The table"}).removesuffix(".")


class Kinds(NamedTuple):
    """The tables of one old and one new format.

    Attributes:
        ready: The number of tables that can be migrated as they are.
        measured: The number of tables whose files were read: the sizes are of these.
        seconds: The time for which their writers wait in total; None if it isn't known.
    """

    stored_as: str
    becomes: str
    tables: int
    ready: int
    measured: int
    files: int
    bytes: int
    seconds: float | None


class Rewriting(NamedTuple):
    """The tables whose rows are rewritten.

    Attributes:
        tables: The number of tables.
        bytes: Their total size.
        seconds: The time that it takes, one table after the other; None if it isn't known.
    """

    tables: int
    bytes: int
    seconds: float | None


def headline(preflights: Sequence[Preflight]) -> str:
    """Return how many tables can be migrated, in one line."""
    tables = counted(len(preflights), "table")
    stopped = sum(bool(preflight.findings) for preflight in preflights)
    if stopped:
        return f"{stopped:,} of {tables} can't be migrated as {'it is' if stopped == 1 else 'they are'}"
    return "The table can be migrated" if len(preflights) == 1 else f"{tables} can be migrated"


def preflight_lines(preflights: Sequence[Preflight]) -> Iterator[str]:
    """Yield the lines for a terminal: tables with their findings, then remarks, causes and the headline."""
    for preflight in preflights:
        yield f"{preflight.table}: {_described(preflight)}"
        yield from (f"  {finding.reason.value}: {finding.text}" for finding in preflight.findings)
    yield from (f"Note: {text} ({names})" for text, names in remarks(preflights))
    found = causes(preflights)
    if len(preflights) > 1 and found:
        yield from (
            f"{cause.reason.value} stops {counted(len(cause.stopped), 'table')}: {cause.remedy}"
            for cause in found
        )
    if rewritten := rewriting(preflights):
        are = "is" if rewritten.tables == 1 else "are"
        how_long = (
            "; the duration is known after the first"
            if rewritten.seconds is None
            else f", which takes about {duration(rewritten.seconds)}"
        )
        yield f"{counted(rewritten.tables, 'table')} of {size(rewritten.bytes)} {are} rewritten{how_long}."
    yield f"{headline(preflights)}."


def rewriting(preflights: Sequence[Preflight]) -> Rewriting | None:
    """Return the tables that can be migrated and are rewritten; None without such tables."""
    tables = [each for each in preflights if each.rewritten and not each.findings]
    took = [each.rewrite_seconds for each in tables if each.rewrite_seconds is not None]
    size = sum(each.bytes or 0 for each in tables)
    return Rewriting(len(tables), size, sum(took) if took else None) if tables else None


def remarks(preflights: Sequence[Preflight]) -> list[tuple[str, str]]:
    """Return each remark with its tables."""
    about: dict[str, list[str]] = {}
    for preflight in preflights:
        for text in preflight.remarks:
            about.setdefault(text, []).append(str(preflight.table))
    return [(text, first_of(names)) for text, names in about.items()]


def kinds(preflights: Sequence[Preflight]) -> list[Kinds]:
    """Return the tables by their old and new format, the largest first."""
    groups: dict[tuple[str, str], list[Preflight]] = {}
    for preflight in preflights:
        key = (preflight.stored_as or "not known", preflight.format.value.capitalize())
        groups.setdefault(key, []).append(preflight)
    return sorted((_kind(*key, group) for key, group in groups.items()), key=lambda kind: -kind.bytes)


def _kind(stored_as: str, becomes: str, group: Sequence[Preflight]) -> Kinds:
    measured = [preflight for preflight in group if preflight.files is not None]
    waits = [each.blocked_seconds for each in measured if each.blocked_seconds is not None]
    return Kinds(
        stored_as,
        becomes,
        len(group),
        sum(not preflight.findings for preflight in group),
        len(measured),
        sum(preflight.files or 0 for preflight in group),
        sum(preflight.bytes or 0 for preflight in group),
        sum(waits) if waits else None,
    )


def preflight_page(preflights: Sequence[Preflight]) -> str:
    """Return the report as one HTML page that loads nothing; of many tables it shows the largest."""
    formats = kinds(preflights)
    waits = [each.seconds for each in formats if each.seconds is not None]
    return templates.get_template("preflight.html").render(
        headline=headline(preflights),
        rewriting=rewriting(preflights),
        causes=causes(preflights),
        kinds=formats,
        count=len(preflights),
        files=sum(each.files for each in formats),
        bytes=sum(each.bytes for each in formats),
        ready=sum(each.ready for each in formats),
        seconds=sum(waits) if waits else None,
        tables=sorted(preflights, key=lambda each: -(each.bytes or 0))[:_SHOWN],
        shown_of_a_cause=_SHOWN_OF_A_CAUSE,
        unfolded=_UNFOLDED,
        remarks=remarks(preflights),
    )


_COLUMNS = (
    "table", "becomes", "stored_as", "files", "bytes", "partitions", "blocked_seconds", "rewritten",
    "rewrite_seconds", "reasons", "details", "remarks",
)  # fmt: skip


def preflight_csv(preflights: Sequence[Preflight]) -> str:
    """Return the report as CSV with a header and a row for each table; unknown values are empty."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for each in preflights:
        writer.writerow(
            (
                each.table,
                each.format.value,
                each.stored_as,
                each.files,
                each.bytes,
                each.partitions,
                each.blocked_seconds,
                str(each.rewritten).lower(),
                each.rewrite_seconds,
                " ".join(finding.reason.value for finding in each.findings),
                "; ".join(finding.text for finding in each.findings),
                "; ".join(each.remarks),
            )
        )
    return text.getvalue()


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
    rewrite = "; rewritten" if preflight.rewritten else ""
    if preflight.rewrite_seconds is not None:
        rewrite += f" in about {duration(preflight.rewrite_seconds)}"
    return f"{preflight.stored_as} to {form}, {', '.join(sizes)}{rewrite}{wait}"
