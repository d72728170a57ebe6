"""Print the report of a sync, or return it as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tableferry import report
from tableferry.amounts import counted, size

if TYPE_CHECKING:
    from rich.console import Console

    from tableferry.convert.sync.commands import SyncReport, TableSync
    from tableferry.convert.sync.commit import Changes


def data(result: SyncReport) -> dict[str, Any]:
    """Return a report as plain data."""
    return {"ok": result.ok, "tables": [_table_data(table) for table in result.tables]}


def print_report(console: Console, result: SyncReport) -> None:
    """Print a report: added and removed files, and notes and errors for the user."""
    single = len(result.tables) == 1
    if not single and result.tables:
        columns = ["table", "outcome", "version", "added", "size", "rows", "removed"]
        report.table(console, columns, [_row(table) for table in result.tables])
    for table in result.tables:
        for line in _about(table) if single else ():
            console.print(line)
        for column in table.new_columns:
            console.print(f"{table.source}: new column {column.name} {column.type}")
        for note in table.notes:
            console.print(f"Note: {note}" if single else f"Note: {table.source}: {note}")
    for table in result.tables:
        if table.skipped and single:
            console.print(f"Skipped: {table.skipped}")
        if table.error and (single or table.outcome != "skipped"):
            console.print(f"{table.outcome.capitalize()}: {table.error.text_about(table.source)}")
    if not single:
        outcomes = Counter(table.outcome for table in result.tables)
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        console.print(
            f"{counted(len(result.tables), 'table')}: {counts}" if result.tables else "No table was found."
        )
    if any(table.outcome == "planned" for table in result.tables):
        console.print("Nothing was written: run it without --dry-run.")


def _about(table: TableSync) -> Iterator[str]:
    if table.outcome == "current":
        yield f"{table.source} holds what its folder holds: nothing to do"
    if (changes := table.changes) is None:
        return
    parts = []
    if changes.added.files:
        parts.append(
            f"{counted(len(changes.added.files), 'file')} added ({size(_bytes(changes))}, "
            f"{counted(_rows(changes), 'row')})"
        )
    if changes.removed:
        parts.append(f"{counted(len(changes.removed), 'file')} removed")
    would = "would be version" if table.outcome == "planned" else "version"
    yield f"{table.source}: {would} {changes.version}: {', '.join(parts)}"


def _row(table: TableSync) -> tuple[object, ...]:
    changes = table.changes
    return (
        table.source,
        table.outcome,
        changes and changes.version,
        changes and len(changes.added.files),
        changes and size(_bytes(changes)),
        changes and _rows(changes),
        changes and len(changes.removed),
    )


def _bytes(changes: Changes) -> int:
    return sum(file.size for file in changes.added.files)


def _rows(changes: Changes) -> int:
    return sum(footer.rows for footer in changes.added.footers)


def _table_data(table: TableSync) -> dict[str, Any]:
    changes = table.changes
    return {
        "source": table.source,
        "outcome": table.outcome,
        "error": table.error and table.error.to_dict(),
        "skipped": table.skipped,
        "version": changes and changes.version,
        "added": [file.path for file in changes.added.files] if changes else [],
        "removed": [changes.table.files[name].path for name in changes.removed] if changes else [],
        "bytes": changes and _bytes(changes),
        "rows": changes and _rows(changes),
        "newColumns": [{"name": column.name, "type": str(column.type)} for column in table.new_columns],
        "notes": list(table.notes),
    }
