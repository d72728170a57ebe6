"""``tableferry fleet preprocess|communicate|migrate|shadow|revert``: the five modes, which schedulers run."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import uuid4

import typer

from tableferry import fleet
from tableferry.cli.command import App, CommandResult
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
from tableferry.cli.fleet.reports import job_data, notification_lines, report_lines
from tableferry.cli.options import Warehouse
from tableferry.errors import ServiceError
from tableferry.fleet.modes.results import ModeReport
from tableferry.spark import session

if TYPE_CHECKING:
    from tableferry.fleet.modes.due import Mode
    from tableferry.fleet.modes.worker import Worker

modes_app = App()

# The exit code of a run without failures in which tables paused.
_TABLES_PAUSED = 3

# Databases store integers of up to nine digits, and no fleet has that many workers.
_MAX_DIGITS = 9


class BooleanText(StrEnum):
    """A Boolean value as text, for parameters of a scheduler."""

    TRUE = "true"
    FALSE = "false"


BatchSize = Annotated[
    int,
    typer.Option("--batch-size", min=1, max=1_000_000, metavar="N", help="At most N jobs in this run."),
]
WorkerShare = Annotated[
    str, typer.Option("--worker", metavar="I/N", help="The I-th of N workers that share the queue.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the steps of each table, and run none.")]
DryRunValue = Annotated[
    BooleanText, typer.Option("--dryrun", help="The same as --dry-run, for schedulers that pass only values.")
]


@dataclass(frozen=True)
class ModeOptions:
    """The values of the options that all modes have."""

    batch_size: int
    worker: str
    dry_run: bool
    dryrun: BooleanText

    @property
    def is_dry_run(self) -> bool:
        """Whether the run only prints its steps."""
        return self.dry_run or self.dryrun is BooleanText.TRUE

    @property
    def share(self) -> tuple[int, int]:
        """The number of this worker, from zero, and the number of workers.

        Raises:
            typer.BadParameter: The option doesn't have the form ``I/N``.
        """
        number, slash, workers = self.worker.partition("/")
        written = slash and number.isdecimal() and workers.isdecimal() and len(workers) <= _MAX_DIGITS
        if not (written and 1 <= int(number) <= int(workers)):
            raise typer.BadParameter(
                f"--worker {self.worker}: write it as I/N, the I-th of N workers, such as 1/4"
            )
        return int(number) - 1, int(workers)


@modes_app.command("preprocess")
def fleet_preprocess(
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
    """Check the tables of new jobs, end expired probations, and mark completed jobs."""
    mode_options = ModeOptions(batch_size, worker, dry_run, dryrun)
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    return run_mode("preprocess", mode_options, fleet_options, lambda worker: fleet.preprocess(worker))


@modes_app.command("migrate")
def fleet_migrate(
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
    """Migrate tables after their first gap, and archive the Hive tables after probation."""
    mode_options = ModeOptions(batch_size, worker, dry_run, dryrun)
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    return run_mode("migrate", mode_options, fleet_options, lambda worker: fleet.migrate(worker))


@modes_app.command("shadow")
def fleet_shadow(
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
    """Update the Hive copies of tables on probation with changes since the last run."""
    mode_options = ModeOptions(batch_size, worker, dry_run, dryrun)
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    return run_mode("shadow", mode_options, fleet_options, lambda worker: fleet.shadow(worker))


@modes_app.command("communicate")
def fleet_communicate(
    dry_run_folder: Annotated[
        Path,
        typer.Option(
            "--folder", metavar="DIR", help="Folder in which a dry run writes notifications as .eml files."
        ),
    ] = Path(session.DEFAULT_WAREHOUSE, "notifications"),
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
    """Send due notifications to owners and readers; a dry run writes them to a folder."""
    mode_options = ModeOptions(batch_size, worker, dry_run, dryrun)
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    share = mode_options.share
    folder = dry_run_folder if mode_options.is_dry_run else None
    try:
        with fleet_options.open() as opened:
            communicated = fleet.communicate(
                opened.store,
                opened.settings,
                worker=worker_name(),
                clock=opened.store.now,
                batch_size=mode_options.batch_size,
                share=share,
                dry_run_to=folder,
            )
    except ServiceError as error:
        return report_missing_queue(error, "communicate", mode_options)
    return CommandResult(communicated, notification_lines(communicated, folder), ok=communicated.ok)


@modes_app.command("revert")
def fleet_revert(
    tables: Patterns = None,
    more_tables: MoreTables = None,
    from_archive: Annotated[
        bool, typer.Option("--from-archive", help="Include tables that are completed or in the archive.")
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
    """Give Hive tables their names back, with all rows; without a TABLE, continue started reverts."""
    mode_options = ModeOptions(batch_size, worker, dry_run, dryrun)
    patterns = table_patterns(tables, more_tables)
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)

    def revert(worker: Worker) -> ModeReport:
        jobs = fleet.select_jobs(worker.store, patterns, archive=from_archive)
        names = [job.name for job in jobs]
        return fleet.revert(worker, names, from_archive=from_archive, by=current_user())

    return run_mode("revert", mode_options, fleet_options, revert, only_due=not patterns)


def run_mode(
    mode: Mode,
    mode_options: ModeOptions,
    fleet_options: FleetOptions,
    run: Callable[[Worker], ModeReport],
    *,
    only_due: bool = True,
) -> CommandResult:
    """Run a mode, and return its report.

    With `only_due`, return immediately if no job is due, or if there is no queue yet.
    """
    try:
        return _run_mode(mode, mode_options, fleet_options, run, only_due=only_due)
    except ServiceError as error:
        if not only_due:
            raise
        return report_missing_queue(error, mode, mode_options)


def report_missing_queue(
    error: ServiceError, mode: Mode | Literal["communicate"], mode_options: ModeOptions
) -> CommandResult:
    """Return the result of a mode without a queue: a scheduler may start it before the first job is added.

    Raises:
        ServiceError: The error has another reason.
    """
    if error.condition != "QUEUE_NOT_FOUND":
        raise error
    return CommandResult(
        {
            "mode": mode,
            "dryRun": mode_options.is_dry_run,
            "jobs": [],
            "missingQueue": error.finding.to_dict(),
        },
        (f"{error.message} Nothing to do. {error.remedy}",),
    )


def _run_mode(
    mode: Mode,
    mode_options: ModeOptions,
    fleet_options: FleetOptions,
    run: Callable[[Worker], ModeReport],
    *,
    only_due: bool,
) -> CommandResult:
    share = mode_options.share
    with fleet_options.open() as opened:
        open_warehouse, name = opened.warehouse_opener(), worker_name()
        report = None
        if only_due:
            # The import of a mode takes a second.
            report = fleet.report_nothing_due(mode, opened.store, name, dry_run=mode_options.is_dry_run)
        if report is None:
            report = run(
                fleet.Worker(
                    store=opened.store,
                    open_warehouse=open_warehouse,
                    settings=opened.settings,
                    name=name,
                    clock=opened.store.now,
                    batch_size=mode_options.batch_size,
                    share=share,
                    dry_run=mode_options.is_dry_run,
                )
            )
        waves = fleet.waves_by_name(opened.store)
    return CommandResult(
        {"mode": mode, "dryRun": mode_options.is_dry_run, "jobs": [job_data(job) for job in report.jobs]},
        report_lines(report, mode_options.is_dry_run, waves),
        ok=report.ok,
        exit_code=_TABLES_PAUSED if report.paused and not mode_options.is_dry_run else 0,
    )


def worker_name() -> str:
    """Return a unique name for this process, which identifies the worker that has a job."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
