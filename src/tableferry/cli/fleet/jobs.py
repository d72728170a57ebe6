"""``tableferry fleet list|show|pause|resume|archive``: list and edit jobs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from tableferry import fleet, report
from tableferry.amounts import counted
from tableferry.cli.command import App, CommandResult, Output, common_options
from tableferry.cli.fleet.options import (
    EnvOption,
    FleetOptions,
    MoreTables,
    OpenFleet,
    Patterns,
    SettingsOption,
    StoreOption,
    current_user,
    table_patterns,
)
from tableferry.cli.options import Warehouse
from tableferry.errors import Busy, Refused, TableError
from tableferry.fleet.jobs.job import REWRITABLE, Job, PauseReason, State
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.next_action import next_action
from tableferry.fleet.jobs.pauses import describe_tables, reason, remedy, resumed
from tableferry.fleet.jobs.waves import Wave

jobs_app = App()


@jobs_app.command("list")
def fleet_list(
    tables: Patterns = None,
    states: Annotated[
        list[State] | None,
        typer.Option("--state", case_sensitive=False, help="Only jobs in this state (repeatable)."),
    ] = None,
    paused: Annotated[
        bool | None,
        typer.Option("--paused/--running", help="Only jobs that are paused, or only the other jobs."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="ADDRESS", help="Only tables of this owner.")
    ] = None,
    wave: Annotated[
        str | None, typer.Option("--wave", metavar="WAVE", help="Only tables of this wave.")
    ] = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="List the archive instead of the queue.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="List at most N jobs.")
    ] = None,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """List jobs with their states and next steps."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    filter_ = fleet.Filter(tables or (), states or (), paused, owner, wave)
    with fleet_options.open() as opened:
        if wave is not None:
            fleet.find_wave(opened.store, wave)
        jobs = fleet.list_jobs(opened.store, filter_, archived=archived)
        waves = fleet.waves_by_name(opened.store)
    shown = jobs[:limit]

    def show(console: Console) -> None:
        if not shown:
            console.print("No job matches." if filter_ != fleet.Filter() else "The queue is empty.")
            return
        if paused:
            _show_paused(console, shown)
        else:
            _show_jobs(console, shown, waves)
        total = counted(len(jobs), "job")
        console.print(total if len(shown) == len(jobs) else f"{len(shown):,} of {total}")

    return CommandResult([job_row(job, waves) for job in shown], show)


def _show_jobs(console: Console, jobs: Sequence[Job], waves: Mapping[str, Wave]) -> None:
    rows = [
        (
            job.name,
            _state_text(job),
            _target_text(job),
            ", ".join(job.tbl_owners) or None,
            _next_step_text(job, waves),
        )
        for job in jobs
    ]
    report.table(console, ("table", "state", "to", "owners", "next"), rows)


def _show_paused(console: Console, jobs: Sequence[Job]) -> None:
    """Print paused jobs by cause, each cause with its remedy."""
    groups: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        code, _, _ = job.pause_reason.partition(":")
        groups[code, remedy(job)].append(job)
    for (code, advice), group in sorted(groups.items(), key=lambda item: -len(item[1])):
        option = " --rewrite" if reason(group[0]) in REWRITABLE else ""
        console.print(f"{code}: {counted(len(group), 'job')}")
        console.print(f"  {advice} Then: tableferry fleet resume{option} TABLE…")
        rows = [
            (
                job.name,
                job.state,
                ", ".join(job.tbl_owners) or None,
                job.pause_reason.partition(": ")[2] or None,
            )
            for job in group
        ]
        report.table(console, ("table", "state", "owners", "details"), rows)


def _target_text(job: Job) -> str:
    """Return the format of the new table, and its name if it is in another schema or catalog."""
    names = Names.of(job)
    return f"{job.target_format.value}, {names.target}" if names.elsewhere else job.target_format.value


@jobs_app.command("show")
def fleet_show(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table, as schema.table or in full.")],
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Show a table's job: its columns, events, notifications and next step."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        jobs = fleet.select_jobs(opened.store, [table], archive=True)
        if len(jobs) > 1:
            names = [str(job.name) for job in jobs]
            raise TableError("JOB_AMBIGUOUS", text=table, count=len(jobs), jobs=names)
        (job,) = jobs
        waves = fleet.waves_by_name(opened.store)
        events = fleet.events_of(opened.store, job)
        notifications = fleet.notifications_of(opened.store, job)

    def show(console: Console) -> None:
        console.print(f"{job.name}: {_state_text(job)}")
        console.print(f"Next: {_next_step_text(job, waves)}\n")
        for name, value in _column_texts(job).items():
            console.print(f"  {name:<18}  {value}")
        if events:
            rows = [
                (
                    _minute_text(event.at),
                    event.state,
                    event.desired_state,
                    _pause_text(event),
                    event.worker or None,
                )
                for event in events
            ]
            report.table(console, ("when", "state", "desired", "paused", "by"), rows)
        if notifications:
            sent = [
                (
                    notification.level,
                    _minute_text(notification.recorded_at),
                    notification.sent_at and _minute_text(notification.sent_at),
                    ", ".join(notification.recipients),
                )
                for notification in notifications
            ]
            report.table(console, ("notification", "recorded", "sent", "to"), sent)

    return CommandResult({**job_row(job, waves), "events": events, "letters": notifications}, show)


@jobs_app.command("pause")
def fleet_pause(
    ctx: typer.Context,
    tables: Patterns = None,
    more_tables: MoreTables = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, for other users.")] = "",
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Pause jobs until they are resumed."""
    patterns = table_patterns(tables, more_tables)
    fleet_options = FleetOptions(store, settings, env, None, warehouse)

    def pause(job: Job, waves: Mapping[str, Wave]) -> tuple[Job, str]:
        if job.migration_paused:
            return job, f"is paused already: {job.pause_reason}"
        left = describe_tables(job)
        return job.paused(PauseReason.PAUSED_BY_USER, reason), f"is paused{f'; {left}' if left else ''}"

    return _edit_jobs(fleet_options, patterns, pause, common_options(ctx).output)


@jobs_app.command("resume")
def fleet_resume(
    ctx: typer.Context,
    tables: Patterns = None,
    more_tables: MoreTables = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="Accept the change that paused the job: late files, removed partitions, a table that was "
            "changed by hand, or rows of a copy that a revert drops.",
        ),
    ] = False,
    rewrite: Annotated[
        bool,
        typer.Option(
            "--rewrite",
            help="Allow the rows to be rewritten, because the new table can't use the old table's files.",
        ),
    ] = False,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Resume paused jobs; a reverted job starts from the beginning."""
    patterns = table_patterns(tables, more_tables)
    fleet_options = FleetOptions(store, settings, env, None, warehouse)

    def resume(job: Job, waves: Mapping[str, Wave]) -> tuple[Job, str]:
        if not job.migration_paused:
            return job, "isn't paused"
        job = resumed(job, accept=accept, rewrite=rewrite)
        return job, f"is resumed: {_next_step_text(job, waves)}"

    return _edit_jobs(fleet_options, patterns, resume, common_options(ctx).output)


@jobs_app.command("archive")
def fleet_archive(
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Move completed jobs, whose last notification was sent, to the archive, unless marked to close."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        moved = opened.store.archive(fleet.selections.finished(), opened.store.now())
    text = f"{counted(moved, 'job')} moved to the archive; tableferry fleet list --archived shows them."
    return CommandResult({"archived": moved}, [text])


def job_row(job: Job, waves: Mapping[str, Wave]) -> dict[str, Any]:
    """Return a job for JSON: its columns and its next step."""
    action = next_action(job, waves)
    return {
        "table": job.name,
        "target": Names.of(job).target,
        **_job_columns(job),
        "next": {"mode": action.mode, "what": action.what, "when": action.when},
    }


def _job_columns(job: Job) -> dict[str, Any]:
    columns = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    return {**columns, "record": job.record.to_json()}


# The columns that the first line of `fleet show` contains.
_IN_HEADING = frozenset(
    ("catalog_name", "db_name", "tbl_name", "state", "desired_state", "migration_paused", "revision")
)


def _column_texts(job: Job) -> dict[str, str]:
    """Return the columns as text, without empty columns and those of the heading."""
    columns = {}
    for name, value in _job_columns(job).items():
        if name in _IN_HEADING or value in (None, "", (), {}) or (name == "pause_reason" and value == "None"):
            continue
        match value:
            case datetime():
                columns[name] = _minute_text(value)
            case bool():
                columns[name] = "yes" if value else "no"
            case tuple():
                columns[name] = ", ".join(value)
            case dict():
                columns[name] = json.dumps(value)
            case _:
                columns[name] = str(value)
    return columns


_Edit = Callable[[Job, Mapping[str, Wave]], tuple[Job, str]]


def _edit_jobs(
    fleet_options: FleetOptions, patterns: list[str], edit: _Edit, output: Output
) -> CommandResult:
    """Edit jobs one by one, and print each result immediately; a job that can't be edited stays unchanged."""
    if not patterns:
        raise TableError("NO_TABLE_NAMED")
    results: list[dict[str, Any]] = []
    with fleet_options.open() as opened:
        waves = fleet.waves_by_name(opened.store)
        for job in fleet.select_jobs(opened.store, patterns):
            ok, text = _edit_job(opened, job, lambda job: edit(job, waves))
            results.append({"table": job.name, "ok": ok, "said": text})
            if output is Output.TEXT:
                typer.echo(f"{job.name} {text}", err=not ok)
    return CommandResult(results, (), ok=all(result["ok"] for result in results))


def _edit_job(opened: OpenFleet, job: Job, edit: Callable[[Job], tuple[Job, str]]) -> tuple[bool, str]:
    try:
        edited, text = edit(job)
        if edited != job:
            opened.store.edit(edited, opened.store.now(), by=current_user())
    except (Refused, Busy) as error:
        return False, f"is unchanged: {error.one_line}"
    return True, text


def _state_text(job: Job) -> str:
    state = job.state.value if job.state is job.desired_state else f"{job.state} → {job.desired_state}"
    return f"{state}, paused: {job.pause_reason}" if job.migration_paused else state


def _next_step_text(job: Job, waves: Mapping[str, Wave]) -> str:
    action = next_action(job, waves)
    when = f", from {_minute_text(action.when)} on" if action.when else ""
    return f"{action.mode}: {action.what}{when}" if action.mode else action.what


def _pause_text(event: Any) -> str | None:
    return event.pause_reason if event.paused else None


def _minute_text(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"
