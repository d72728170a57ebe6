"""Print the report of a conversion, or return it as plain data."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tableferry import report, verify
from tableferry.amounts import counted, size
from tableferry.convert.plan import Plan
from tableferry.spark import types

if TYPE_CHECKING:
    from rich.console import Console

    from tableferry.convert.commands import Report, TableReport

_DONE = {"converted": "Converted.", "switched": "The log existed; the catalog entry is switched to Delta."}


def data(result: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    return {"ok": result.ok, "tables": [_table_data(table) for table in result.tables]}


def print_report(console: Console, result: Report) -> None:
    """Print a report: the tables, notes and errors for the user, and the next command."""
    if len(result.tables) == 1:
        [table] = result.tables
        if table.plan:
            _print_plan(console, table.outcome, table.plan)
        _print_remarks(console, result.tables, named=False)
    else:
        if result.tables:
            columns = ["table", "outcome", "files", "size", "rows", "partitioned by"]
            report.table(console, columns, [_row(table) for table in result.tables])
        _print_remarks(console, result.tables, named=True)
        console.print(_summary(result))
    for sentence in _next(result):
        console.print(sentence)


def _row(table: TableReport) -> tuple[object, ...]:
    # The reason for skipping a view doesn't need a separate line.
    why = f": {table.skipped.removeprefix(f'{table.source} ')}" if table.skipped else ""
    plan = table.plan if table.plan and table.plan.files else None
    return (
        table.source,
        f"{table.outcome}{why}",
        plan and plan.files,
        plan and size(plan.bytes),
        plan and plan.rows,
        plan and _columns(plan),
    )


def _print_plan(console: Console, outcome: str, plan: Plan) -> None:
    if plan.files:
        rows = "" if plan.rows is None else f", {counted(plan.rows, 'row')}"
        console.print(f"{plan.location}: {counted(plan.files, 'file')}, {size(plan.bytes)}{rows}")
    if plan.schema is not None:
        partitions = {column.name for column in plan.partition_columns}
        report.table(
            console,
            ["column", "type", ""],
            [
                (column.name, column.type, "partition column" if column.name in partitions else "")
                for column in plan.schema.fields
            ],
        )
    elif plan.partition_columns:
        console.print(f"Partitioned by {_columns(plan)}")
    if outcome == "planned":
        console.print("What would be done:")
        for number, step in enumerate(plan.steps, 1):
            console.print(f"  {number}. {step}")
    if plan.files:
        because = "as asked for" if plan.because == "asked for" else f"for {plan.because}"
        console.print(f"Engine: {plan.engine.value}, {because}")


def _print_remarks(console: Console, tables: Sequence[TableReport], *, named: bool) -> None:
    for table in tables:
        for note in table.plan.notes if table.plan else ():
            console.print(f"Note: {table.source}: {note}" if named else f"Note: {note}")
    for table in tables:
        if table.skipped and not named:
            console.print(f"Skipped: {table.skipped}")
        if table.error:
            console.print(f"{table.outcome.capitalize()}: {table.error.text_about(table.source)}")
        if table.error and table.verdict:
            console.print(verify.render(table.verdict))


def _next(result: Report) -> Iterator[str]:
    """Yield sentences about the outcome and the next command."""
    outcomes = Counter[str](table.outcome for table in result.tables)
    single = len(result.tables) == 1
    same = " Its rows are those of the Parquet files." if single and result.tables[0].verdict else ""
    if single and outcomes["already"]:
        sentence = f"{result.tables[0].source}: The table you are trying to convert is already a delta table"
        yield f"{sentence}.{same}" if same else sentence
    if outcomes["planned"]:
        yield "Nothing was written: run it without --dry-run."
    if not result.ok and not single:
        yield "Fix the refusals and failures, and run the command again: Delta tables are skipped."
    if single and result.tables[0].outcome in _DONE:
        [table] = result.tables
        undo = f"tableferry convert undo {shlex.quote(table.source)}"
        yield f"{_DONE[table.outcome]}{same} To undo it: {undo}"
    elif any(outcomes[outcome] for outcome in _DONE):
        yield "To undo one: tableferry convert undo TABLE"


def _summary(result: Report) -> str:
    outcomes = Counter(table.outcome for table in result.tables)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
    tables = counted(len(result.tables), "table")
    return (
        f"{tables}: {counts}" if result.tables else "No Parquet table was found: check the name or the path."
    )


def _columns(plan: Plan) -> str:
    return ", ".join(map(str, plan.partition_columns))


def _table_data(table: TableReport) -> dict[str, Any]:
    plan = table.plan
    return {
        "source": table.source,
        "outcome": table.outcome,
        "error": table.error and table.error.to_dict(),
        "skipped": table.skipped,
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
        "verdict": table.verdict.to_dict() if table.verdict else None,
    }
