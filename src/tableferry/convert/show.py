"""Shows what a conversion found, will do and did, as text or as plain data."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tableferry import report, types
from tableferry.amounts import size
from tableferry.convert.plan import Plan

if TYPE_CHECKING:
    from rich.console import Console

    from tableferry.convert.converting import Report, TableReport


def data(found: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    return {"ok": found.ok, "tables": [_table_data(one) for one in found.tables]}


def print_report(console: Console, found: Report) -> None:
    """Print a report: what was found, what a person has to know or fix, and what to do next."""
    if len(found.tables) == 1:
        [one] = found.tables
        if one.plan:
            _print_plan(console, one, one.plan)
        _print_remarks(console, found.tables, named=False)
    else:
        if found.tables:
            columns = ["table", "outcome", "files", "size", "rows", "partitioned by"]
            report.table(console, columns, [_row(one) for one in found.tables])
        _print_remarks(console, found.tables, named=True)
        console.print(_summary(found))
    for sentence in _next(found):
        console.print(sentence)


def _row(one: TableReport) -> tuple[object, ...]:
    # Why a view is left alone is no news that needs a line of its own.
    outcome = f"{one.outcome}: {one.error.removeprefix(f'{one.source} ')}" if one.outcome == "skipped" else ""
    plan = one.plan if one.plan and one.plan.files else None
    return (
        one.source,
        outcome or one.outcome,
        plan and plan.files,
        plan and size(plan.bytes),
        plan and plan.rows,
        plan and _columns(plan),
    )


def _print_plan(console: Console, one: TableReport, plan: Plan) -> None:
    if plan.files:
        rows = "" if plan.rows is None else f", {_counted(plan.rows, 'row')}"
        console.print(f"{plan.location}: {_counted(plan.files, 'file')}, {size(plan.bytes)}{rows}")
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
    if one.outcome == "planned":
        console.print("What would be done:")
        for number, step in enumerate(plan.steps, 1):
            console.print(f"  {number}. {step}")
    if plan.files:
        console.print(f"Engine: {plan.engine.value}, {_because(plan)}")


def _print_remarks(console: Console, tables: Sequence[TableReport], *, named: bool) -> None:
    for one in tables:
        for note in one.plan.notes if one.plan else ():
            console.print(f"Note: {one.source}: {note}" if named else f"Note: {note}")
    for one in tables:
        if one.error and (one.outcome != "skipped" or not named):
            console.print(f"{one.outcome.capitalize()}: {one.error}")


def _next(found: Report) -> Iterator[str]:
    """Say what to do now."""
    of: dict[str, list[TableReport]] = {}
    for one in found.tables:
        of.setdefault(one.outcome, []).append(one)
    single = len(found.tables) == 1
    if single and "already" in of:
        yield f"{found.tables[0].source}: The table you are trying to convert is already a delta table"
    if "planned" in of:
        yield "Nothing was written: run it without --dry-run."
    if not found.ok and not single:
        yield "Fix what was refused or failed, and run the same again: what is Delta already is left alone."
    if done := [*of.get("converted", ()), *of.get("switched", ())]:
        said = {"converted": "Converted.", "switched": "The log was there; the catalog says Delta now."}
        same = " Its rows are those of the Parquet files." if done[0].verdict else ""
        what = f"{said[done[0].outcome]}{same} To undo it" if single else "To undo one"
        yield f"{what}: tableferry convert undo {shlex.quote(done[0].source) if single else 'TABLE'}"


def _summary(found: Report) -> str:
    counts: dict[str, int] = {}
    for one in found.tables:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    told = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    tables = _counted(len(found.tables), "table")
    return f"{tables}: {told}" if found.tables else "No Parquet table was found: check the name or the path."


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _because(plan: Plan) -> str:
    return "as asked for" if plan.because == "asked for" else f"for {plan.because}"


def _columns(plan: Plan) -> str:
    return ", ".join(map(str, plan.partition_columns))


def _table_data(one: TableReport) -> dict[str, Any]:
    plan = one.plan
    return {
        "source": one.source,
        "outcome": one.outcome,
        "error": one.error,
        "location": plan and plan.location,
        "engine": plan and plan.engine.value,
        "because": plan and plan.because,
        "schema": types.plain(plan.schema) if plan and plan.schema else None,
        "partitionColumns": [
            {"name": column.name, "type": str(column.type)}
            for column in (plan.partition_columns if plan else ())
        ],
        "files": plan and plan.files,
        "bytes": plan and plan.bytes,
        "rows": plan and plan.rows,
        "steps": [str(step) for step in (plan.steps if plan else ())],
        "notes": list(plan.notes) if plan else [],
        "verdict": one.verdict.to_dict() if one.verdict else None,
    }
