"""``tableferry fleet preprocess|communicate|migrate|shadow|revert``: the five modes, as jobs call them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from tableferry import fleet, report, session
from tableferry.cli.fleet_options import (
    Env,
    MoreTables,
    Patterns,
    Set,
    SettingsFile,
    StoreUrl,
    Where,
    separated,
    share,
)
from tableferry.cli.fleet_reports import data, notification_lines, report_lines
from tableferry.cli.options import Debug, Output, OutputAs, Warehouse, guarded
from tableferry.fleet.reports import ModeReport

if TYPE_CHECKING:
    from tableferry.fleet.modes.worker import Worker


class Dry(StrEnum):
    """Whether nothing is to be done, as a scheduler's parameter says it."""

    TRUE = "true"
    FALSE = "false"


BATCH = 5000

BatchSize = Annotated[
    int, typer.Option("--batch-size", min=1, metavar="N", help="At most so many jobs in this run.")
]
WorkerAs = Annotated[
    str, typer.Option("--worker", metavar="I/N", help="The I-th of N workers that share the queue.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say of each job what would be done, and do nothing.")
]
Dryrun = Annotated[Dry, typer.Option("--dryrun", help="The same, for schedulers that can pass only values.")]


def register_modes(app: typer.Typer) -> None:
    """Add the modes to the fleet's commands."""
    _register(
        app,
        "preprocess",
        "Look at new jobs' tables; end probations that are over, and close what is completed.",
        lambda worker: fleet.preprocess(worker),
    )
    app.command("communicate")(fleet_communicate)
    _register(
        app,
        "migrate",
        "Migrate tables whose first letter is old enough, and archive those whose probation is over.",
        lambda worker: fleet.migrate(worker),
    )
    _register(
        app,
        "shadow",
        "Bring the Hive copies of tables on probation in step with what was written since.",
        lambda worker: fleet.shadow(worker),
    )
    app.command("revert")(fleet_revert)


def _register(app: typer.Typer, mode: str, description: str, work: Callable[[Worker], ModeReport]) -> None:
    """Add a mode that takes what is due."""

    @app.command(mode, help=description)
    def command(
        batch_size: BatchSize = BATCH,
        worker: WorkerAs = "1/1",
        dry_run: DryRun = False,
        dryrun: Dryrun = Dry.FALSE,
        store: StoreUrl = None,
        settings: SettingsFile = None,
        env: Env = None,
        setting: Set = None,
        warehouse: Warehouse = None,
        output: OutputAs = Output.TEXT,
        debug: Debug = False,
    ) -> None:
        where = Where(store, settings, env, warehouse, {}, setting)
        run = Run(mode, batch_size, share(worker), dry_run or dryrun is Dry.TRUE, output)
        guarded(lambda: _run(run, where, work), debug)


def fleet_communicate(
    letters: Annotated[
        Path,
        typer.Option("--letters", metavar="DIR", help="Where a dry run writes the letters, as .eml files."),
    ] = Path(session.DEFAULT_WAREHOUSE, "letters"),
    batch_size: BatchSize = BATCH,
    worker: WorkerAs = "1/1",
    dry_run: DryRun = False,
    dryrun: Dryrun = Dry.FALSE,
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    setting: Set = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Send the letters that are due to owners and users; a dry run writes them into a folder."""
    mine = share(worker)
    only_to = letters if dry_run or dryrun is Dry.TRUE else None

    def work() -> None:
        with Where(store, settings, env, warehouse, {}, setting).opened() as found:
            communicated = fleet.communicate(
                found.store,
                found.settings,
                worker=worker_name(),
                clock=found.store.now,
                batch_size=batch_size,
                share=mine,
                dry_run_to=only_to,
            )
        if output is Output.JSON:
            typer.echo(report.as_json(communicated))
        else:
            for line in notification_lines(communicated, only_to):
                typer.echo(line)
        if not communicated.ok:
            raise typer.Exit(1)

    guarded(work, debug)


def fleet_revert(
    tables: Patterns = None,
    more_tables: MoreTables = None,
    from_archive: Annotated[
        bool, typer.Option("--from-archive", help="Also tables that are completed, or in the archive.")
    ] = False,
    batch_size: BatchSize = BATCH,
    worker: WorkerAs = "1/1",
    dry_run: DryRun = False,
    dryrun: Dryrun = Dry.FALSE,
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    setting: Set = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Give Hive tables their names back, with every row; without a TABLE, go on with those under way."""
    written = [*(tables or ()), *separated(more_tables)]

    def revert(one: Worker) -> ModeReport:
        jobs = fleet.select_jobs(one.store, written, archive=from_archive)
        return fleet.revert(one, [job.name for job in jobs], from_archive=from_archive)

    where = Where(store, settings, env, warehouse, {}, setting)
    run = Run("revert", batch_size, share(worker), dry_run or dryrun is Dry.TRUE, output)
    guarded(lambda: _run(run, where, revert), debug)


@dataclass(frozen=True)
class Run:
    """How a mode runs.

    Attributes:
        mode: Its name.
        batch_size: At most how many jobs it takes.
        share: Which of how many workers it is, from zero.
        dry_run: Whether nothing is done.
        output: For whom it prints.
    """

    mode: str
    batch_size: int
    share: tuple[int, int]
    dry_run: bool
    output: Output


def _run(run: Run, where: Where, work: Callable[[Worker], ModeReport]) -> None:
    """Run a mode, and say what came of it."""
    with where.opened() as found:
        spark = found.spark()
        known = found.settings
        access = fleet.open_access(spark, users=known.users_file, require_lineage=known.require_lineage)
        warehouse = fleet.Warehouse.of(spark, access, known)
        done = work(
            fleet.Worker(
                store=found.store,
                warehouse=warehouse,
                settings=known,
                name=worker_name(),
                clock=found.store.now,
                batch_size=run.batch_size,
                share=run.share,
                dry_run=run.dry_run,
            )
        )
    if run.output is Output.JSON:
        jobs = [data(one) for one in done.jobs]
        typer.echo(report.as_json({"mode": run.mode, "dryRun": run.dry_run, "jobs": jobs}))
    else:
        for line in report_lines(done, run.dry_run):
            typer.echo(line)
    if not done.ok:
        raise typer.Exit(1)


def worker_name() -> str:
    """Name this process as no other is named, for whoever asks who has a job."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
