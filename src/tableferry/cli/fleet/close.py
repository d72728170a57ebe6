"""``tableferry fleet close``: list and remove the remains of archived Hive tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tableferry import fleet, report
from tableferry.amounts import counted
from tableferry.cli.command import App, CommandResult
from tableferry.cli.fleet.modes import (
    BatchSize,
    BooleanText,
    DryRun,
    DryRunValue,
    ModeOptions,
    WorkerShare,
    run_mode,
)
from tableferry.cli.fleet.options import (
    EnvOption,
    FleetOptions,
    MoreTables,
    Patterns,
    SetOption,
    SettingsOption,
    StoreOption,
    current_user,
    table_patterns,
)
from tableferry.cli.options import Warehouse
from tableferry.errors import TableError
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import LONGEST_GAP

if TYPE_CHECKING:
    from tableferry.fleet.modes.close import Leftover, MarkResult

close_app = App()

_DAYS = 7


@close_app.command("close")
def fleet_close(
    tables: Patterns = None,
    more_tables: MoreTables = None,
    after_days: Annotated[
        int | None,
        typer.Option(
            "--after-days",
            min=0,
            max=LONGEST_GAP,
            metavar="N",
            help=f"Days until the tables may be closed; --undo cancels it until then. Default {_DAYS}.",
        ),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Cancel the closing of these tables.")] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="List the remains of archived Hive tables, and change nothing.")
    ] = False,
    batch_size: BatchSize = 5000,
    worker: WorkerShare = "1/1",
    dry_run: DryRun = False,
    dryrun: DryRunValue = BooleanText.FALSE,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    setting: SetOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Remove the remains of archived Hive tables.

    With a TABLE, mark it to be closed after a delay; until then, --undo cancels it. Without one, close the
    tables that are due. A closed table can't be reverted.
    """
    mode_options = ModeOptions(batch_size, worker, dry_run, dryrun)
    patterns = table_patterns(tables, more_tables)
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    if undo and listed:
        raise typer.BadParameter("--undo and --list exclude each other")
    if after_days is not None and (undo or listed or not patterns):
        raise typer.BadParameter("--after-days needs the tables to close")
    if mode_options.is_dry_run and undo:
        raise typer.BadParameter("--undo has no dry run: --list shows the marked tables")
    if listed:
        return _list(patterns, fleet_options)
    if undo:
        return _undo(patterns, fleet_options)
    if patterns:
        after = timedelta(days=_DAYS if after_days is None else after_days)
        return _mark(patterns, after, mode_options, fleet_options)
    return run_mode("close", mode_options, fleet_options, lambda worker: fleet.close(worker))


def _mark(
    patterns: Sequence[str], after: timedelta, mode_options: ModeOptions, fleet_options: FleetOptions
) -> CommandResult:
    with fleet_options.open() as opened:
        now, by = opened.store.now(), current_user()
        queued, archived = fleet.select_archived(opened.store, patterns)
        markings = fleet.mark_to_close(
            opened.store, queued, archived, now + after, now, by, dry_run=mode_options.is_dry_run
        )
    return _marking_result(markings, "would be marked" if mode_options.is_dry_run else "is marked")


def _undo(patterns: Sequence[str], fleet_options: FleetOptions) -> CommandResult:
    if not patterns:
        raise TableError("NO_TABLE_NAMED")
    with fleet_options.open() as opened:
        # A job that is marked is never in the archive.
        queued, archived = fleet.select_archived(opened.store, patterns)
        jobs = [*queued, *archived]
        now, by = opened.store.now(), current_user()
        markings = fleet.unmark_to_close(opened.store, jobs, now, by, opened.warehouse_opener())
    return _marking_result(markings, "")


def _marking_result(markings: Sequence[MarkResult], done: str) -> CommandResult:
    rows = [
        {
            "table": marking.job.name,
            "ok": not marking.error,
            "said": marking.error or _marking_text(marking, done),
            "close_at": marking.job.close_at,
        }
        for marking in markings
    ]
    return CommandResult(rows, list(_marking_lines(markings, done)), ok=all(row["ok"] for row in rows))


def _marking_lines(markings: Sequence[MarkResult], done: str) -> Iterator[str]:
    for marking in markings:
        yield marking.error or f"{marking.job.name} {_marking_text(marking, done)}"
    times = [marking.job.close_at for marking in markings if marking.job.close_at and not marking.error]
    if times and done == "is marked":
        yield "To list the files and tables that it will remove: tableferry fleet close --list"
        first = _minute_text(min(times))
        yield f"Next: tableferry fleet close ({counted(len(times), 'table')}, from {first} on)"


def _marking_text(marking: MarkResult, done: str) -> str:
    at = marking.job.close_at
    if not done or at is None:
        return "isn't marked to be closed"
    undo = command("close --undo", marking.job.name)
    return f"{done} to be closed, from {_minute_text(at)} on; to cancel: {undo}"


def _list(patterns: Sequence[str], fleet_options: FleetOptions) -> CommandResult:
    with fleet_options.open() as opened:
        queued, archived = fleet.select_archived(opened.store, patterns)
        jobs = sorted([*queued, *archived], key=lambda job: job.task_id)
        found = fleet.list_leftovers(opened.warehouse(), jobs) if jobs else []

    def show(console: Console) -> None:
        if not found:
            console.print("No job is archived; tableferry fleet list shows the next step of each job.")
            return
        headings = ("table", "Hive table", "its directory", "only for Hive", "gc.enabled", "closed")
        rows = [
            (
                leftover.job.name,
                leftover.left.hive if leftover.left else None,
                leftover.left.directory if leftover.left else None,
                ", ".join(leftover.left.folders) if leftover.left else None,
                _boolean_text(leftover.left.gc_enabled if leftover.left else None),
                _close_time_text(leftover),
            )
            for leftover in found
        ]
        report.table(console, headings, rows)
        for leftover in found:
            if blocker := leftover.error or (leftover.left.blocker if leftover.left else ""):
                console.print(f"{leftover.job.name} can't be closed now: {blocker}")
        if any(leftover.job.close_at is None and leftover.left for leftover in found):
            console.print("Next: tableferry fleet close TABLE…")

    return CommandResult([_leftover_row(leftover) for leftover in found], show)


def _leftover_row(leftover: Leftover) -> dict[str, Any]:
    job, left = leftover.job, leftover.left
    return {
        "table": job.name,
        "target_format": job.target_format,
        "hive": left.hive if left else None,
        "directory": left.directory if left else None,
        "folders": left.folders if left else (),
        "gc_enabled": left.gc_enabled if left else None,
        "close_at": job.close_at,
        "closed": job.record.closed["at"] if job.record.closed else None,
        "hinders": leftover.error or (left.blocker if left else ""),
    }


def _close_time_text(leftover: Leftover) -> str | None:
    if closed := leftover.job.record.closed:
        return f"closed on {closed['at'][:10]}"
    return f"from {_minute_text(leftover.job.close_at)} on" if leftover.job.close_at else None


def _boolean_text(value: bool | None) -> str | None:
    return None if value is None else str(value).lower()


def _minute_text(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"
