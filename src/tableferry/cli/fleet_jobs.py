"""``tableferry fleet list|show|pause|resume|archive``: what people do with jobs."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from tableferry import fleet, report
from tableferry.cli.fleet_options import (
    Env,
    Fleet,
    MoreTables,
    Patterns,
    SettingsFile,
    StoreUrl,
    Where,
    many,
    separated,
)
from tableferry.cli.options import Debug, Output, OutputAs, Warehouse, guarded
from tableferry.errors import Busy, TableferryError
from tableferry.fleet.job import Job, PauseReason, State
from tableferry.fleet.next_action import next_action
from tableferry.fleet.pausing import left_as, resumed


def fleet_list(
    tables: Patterns = None,
    states: Annotated[
        list[State] | None,
        typer.Option("--state", case_sensitive=False, help="Only jobs there (may be repeated)."),
    ] = None,
    paused: Annotated[
        bool | None, typer.Option("--paused/--running", help="Only jobs that are paused, or that aren't.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="ADDRESS", help="Only tables of this owner.")
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Those in the archive.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = None,
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """List jobs: where each is, and what comes next."""

    def work() -> None:
        wanted = fleet.Filter(tables or (), states or (), paused, owner)
        with Where(store, settings, env, warehouse).opened() as found:
            jobs = fleet.list_jobs(found.store, wanted, archived=archived)
        shown = jobs[:limit]
        if output is Output.JSON:
            typer.echo(report.as_json([row(job) for job in shown]))
            return
        if not shown:
            typer.echo("No job is like that." if wanted != fleet.Filter() else "The queue is empty.")
            return
        headings = ("table", "state", "to", "owners", "next")
        lines = [
            (job.name, _state(job), job.target_format.value, ", ".join(job.tbl_owners) or None, _next(job))
            for job in shown
        ]
        report.table(report.console(), headings, lines)
        of = f" of {len(jobs):,}" if len(shown) < len(jobs) else ""
        typer.echo(f"{len(shown):,}{of} {'job' if len(jobs) == 1 else 'jobs'}")

    guarded(work, debug)


def fleet_show(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table, as schema.table or in full.")],
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Show a table's job: its row, what happened, its letters, and what comes next."""

    def work() -> None:
        with Where(store, settings, env, warehouse).opened() as found:
            jobs = fleet.select_jobs(found.store, [table], archive=True)
            if len(jobs) > 1:
                names = ", ".join(str(job.name) for job in jobs)
                raise TableferryError(f"'{table}' means {len(jobs)} jobs ({names}): write one in full")
            (job,) = jobs
            events = fleet.events_of(found.store, job)
            letters = fleet.notifications_of(found.store, job)
        if output is Output.JSON:
            typer.echo(report.as_json({**row(job), "events": events, "letters": letters}))
            return
        typer.echo(f"{job.name}: {_state(job)}")
        typer.echo(f"Next: {_next(job)}\n")
        for name, value in _columns(job).items():
            typer.echo(f"  {name:<18}  {value}")
        if events:
            happened = [
                (_minute(event.at), event.state, event.desired_state, _paused(event), event.worker or None)
                for event in events
            ]
            report.table(report.console(), ("when", "state", "desired", "paused", "by"), happened)
        if letters:
            sent = [
                (
                    each.level,
                    _minute(each.recorded_at),
                    each.sent_at and _minute(each.sent_at),
                    ", ".join(each.recipients),
                )
                for each in letters
            ]
            report.table(report.console(), ("letter", "recorded", "sent", "to"), sent)

    guarded(work, debug)


def fleet_pause(
    tables: Patterns = None,
    more_tables: MoreTables = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for whoever asks.")] = "",
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Let jobs wait until they are resumed."""

    def pause(job: Job) -> tuple[Job, str]:
        if job.migration_paused:
            return job, f"is paused already: {job.pause_reason}"
        left = left_as(job)
        return job.paused(PauseReason.PAUSED_BY_USER, reason), f"is paused{f'; {left}' if left else ''}"

    where = Where(store, settings, env, warehouse)
    guarded(lambda: _edit(where, [*(tables or ()), *separated(more_tables)], pause, output), debug)


def fleet_resume(
    tables: Patterns = None,
    more_tables: MoreTables = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="What was found is as it should be: files that came late, removed partitions, or rows of a "
            "copy that a revert is to drop.",
        ),
    ] = False,
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Let paused jobs go on; one that was reverted begins from the start."""

    def resume(job: Job) -> tuple[Job, str]:
        if not job.migration_paused:
            return job, "isn't paused"
        job = resumed(job, accept=accept)
        return job, f"goes on: {_next(job)}"

    where = Where(store, settings, env, warehouse)
    guarded(lambda: _edit(where, [*(tables or ()), *separated(more_tables)], resume, output), debug)


def fleet_archive(
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Move jobs that are completed, with their last letter sent, out of the queue."""

    def work() -> None:
        with Where(store, settings, env, warehouse).opened() as found:
            moved = found.store.archive(fleet.selections.finished(), found.store.now())
        if output is Output.JSON:
            typer.echo(report.as_json({"archived": moved}))
            return
        typer.echo(f"{many(moved, 'job')} moved to the archive; tableferry fleet list --archived shows them.")

    guarded(work, debug)


def register_jobs(app: typer.Typer) -> None:
    """Add these commands to the fleet's."""
    app.command("list")(fleet_list)
    app.command("show")(fleet_show)
    app.command("pause")(fleet_pause)
    app.command("resume")(fleet_resume)
    app.command("archive")(fleet_archive)


def row(job: Job) -> dict[str, Any]:
    """Return a job for programs: the columns of its row, and what comes next."""
    comes = next_action(job)
    return {
        "table": job.name,
        **_row(job),
        "next": {"mode": comes.mode, "what": comes.what, "when": comes.when},
    }


def _row(job: Job) -> Mapping[str, Any]:
    return {name: getattr(job, name) for name in Job.__dataclass_fields__}


def _columns(job: Job) -> dict[str, str]:
    """Return the row for people: what is empty, or is in the heading, isn't shown."""
    heading = {
        "catalog_name",
        "db_name",
        "tbl_name",
        "state",
        "desired_state",
        "migration_paused",
        "revision",
    }
    found = {}
    for name, value in _row(job).items():
        if name in heading or value in (None, "", (), {}) or (name == "pause_reason" and value == "None"):
            continue
        match value:
            case datetime():
                found[name] = _minute(value)
            case bool():
                found[name] = "yes" if value else "no"
            case tuple():
                found[name] = ", ".join(value)
            case _:
                found[name] = str(value)
    return found


def _edit(where: Where, tables: list[str], change: Callable[[Job], tuple[Job, str]], output: Output) -> None:
    """Change jobs one by one, and say of each what became of it; one that a worker has stays as it is."""
    if not tables:
        raise TableferryError("no table is named: give names, or patterns such as sales.*")
    told: list[dict[str, Any]] = []
    with where.opened() as found:
        for job in fleet.select_jobs(found.store, tables):
            told.append(_edited(found, job, change))
            if output is Output.TEXT:
                typer.echo(f"{job.name} {told[-1]['said']}", err=not told[-1]["ok"])
    if output is Output.JSON:
        typer.echo(report.as_json(told))
    if not all(each["ok"] for each in told):
        raise typer.Exit(1)


def _edited(found: Fleet, job: Job, change: Callable[[Job], tuple[Job, str]]) -> dict[str, Any]:
    changed, said = change(job)
    if changed == job:
        return {"table": job.name, "ok": True, "said": said}
    try:
        found.store.edit(changed, found.store.now(), by=getpass.getuser())
    except Busy as error:
        return {
            "table": job.name,
            "ok": False,
            "said": f"stays as it is ({error}): try again when its run is over",
        }
    return {"table": job.name, "ok": True, "said": said}


def _state(job: Job) -> str:
    where = job.state.value if job.state is job.desired_state else f"{job.state} → {job.desired_state}"
    return f"{where}, paused: {job.pause_reason}" if job.migration_paused else where


def _next(job: Job) -> str:
    comes = next_action(job)
    when = f", from {_minute(comes.when)} on" if comes.when else ""
    return f"{comes.mode}: {comes.what}{when}" if comes.mode else comes.what


def _paused(event: Any) -> str | None:
    return event.pause_reason if event.paused else None


def _minute(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"
