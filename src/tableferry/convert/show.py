"""Shows what a conversion found, will do and did, as text or as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tableferry import report
from tableferry.convert import types
from tableferry.convert.plan import Plan
from tableferry.convert.steps import describe

if TYPE_CHECKING:
    from rich.console import Console

    from tableferry.convert.converting import Report, TableReport


def data(found: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    return {"ok": found.ok, "tables": [_table_data(one) for one in found.tables]}


def print_report(console: Console, found: Report) -> None:
    """Print a report: a table of what was found, and below it what each one needs a person for."""
    if len(found.tables) == 1 and found.tables[0].plan:
        _print_one(console, found.tables[0], found.tables[0].plan)
        return
    if found.tables:
        rows = [
            (
                one.source,
                one.outcome,
                one.plan.files if one.plan and one.plan.files else None,
                size(one.plan.bytes) if one.plan and one.plan.files else None,
                one.plan.rows if one.plan else None,
                _columns(one.plan) if one.plan else None,
            )
            for one in found.tables
        ]
        report.table(console, ["table", "outcome", "files", "size", "rows", "partitioned by"], rows)
    for one in found.tables:
        _print_remarks(console, one, f"{one.source}: ")
    console.print(_summary(found))


def size(count: int) -> str:
    """Write a number of bytes as people do."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def _print_one(console: Console, one: TableReport, plan: Plan) -> None:
    if plan.files:
        rows = "" if plan.rows is None else f", {plan.rows:,} rows"
        console.print(f"{plan.location}: {plan.files:,} files, {size(plan.bytes)}{rows}")
    if plan.schema is not None:
        partitions = {column.name for column in plan.partition_columns}
        report.table(
            console,
            ["column", "type", ""],
            [
                (each.name, each.type, "partition column" if each.name in partitions else "")
                for each in plan.schema.fields
            ],
        )
    elif plan.partition_columns:
        console.print(f"Partitioned by {_columns(plan)}")
    if plan.steps:
        console.print(
            f"Engine: {plan.engine.value}, for {plan.because}"
            if plan.because != "asked for"
            else f"Engine: {plan.engine.value}"
        )
        for number, step in enumerate(plan.steps, 1):
            console.print(f"  {number}. {describe(step)}")
    _print_remarks(console, one, "")
    console.print(_sentence(one))


def _print_remarks(console: Console, one: TableReport, before: str) -> None:
    for note in one.plan.notes if one.plan else ():
        console.print(f"Note: {before}{note}")
    if one.error:
        console.print(f"{one.outcome.capitalize()}: {one.error}")


def _sentence(one: TableReport) -> str:
    match one.outcome:
        case "planned":
            return "Nothing was written: run it without --dry-run."
        case "already":
            return f"{one.source}: The table you are trying to convert is already a delta table"
        case "converted":
            verified = " Its rows are those of the Parquet files." if one.verdict else ""
            return f"Converted.{verified} To take it back: tableferry convert undo {one.source}"
        case "switched":
            return "The log was there already; the catalog's entry is Delta now."
        case _:
            return "Nothing was written."


def _summary(found: Report) -> str:
    counts: dict[str, int] = {}
    for one in found.tables:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    told = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    tables = "1 table" if len(found.tables) == 1 else f"{len(found.tables):,} tables"
    return f"{tables}: {told}" if found.tables else "No Parquet table was found."


def _columns(plan: Plan) -> str:
    return ", ".join(map(str, plan.partition_columns))


def _table_data(one: TableReport) -> dict[str, Any]:
    found: dict[str, Any] = {"source": one.source, "outcome": one.outcome, "error": one.error}
    if plan := one.plan:
        found |= {
            "location": plan.location,
            "engine": plan.engine.value,
            "because": plan.because,
            "schema": types.plain(plan.schema) if plan.schema else None,
            "partitionColumns": [
                {"name": column.name, "type": str(column.type)} for column in plan.partition_columns
            ],
            "files": plan.files,
            "bytes": plan.bytes,
            "rows": plan.rows,
            "steps": [describe(step) for step in plan.steps],
            "notes": list(plan.notes),
        }
    if one.verdict:
        found["verdict"] = one.verdict.to_dict()
    return found
