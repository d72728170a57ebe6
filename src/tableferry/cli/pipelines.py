"""``tableferry pipelines``: the commands of pipeline migration."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tableferry import pipelines
from tableferry.cli.command import App, CommandResult
from tableferry.cli.options import Environment, Project, Tokens, Warehouse, parse_look_back, parse_pairs
from tableferry.cli.spark import resolve_session
from tableferry.errors import Refused, SessionError
from tableferry.extras import install
from tableferry.spark import session
from tableferry.spark.local_metastore import LocalMetastore, NeedsSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from tableferry.pipelines.model.flows import Project as LoadedProject

pipelines_app = App(
    help="Migrate a Delta table with its history to a streaming table.",
    no_args_is_help=True,
)


class Engine(StrEnum):
    """The engine that runs a project's flows."""

    STREAMING = "streaming"
    DATABRICKS = "databricks"
    DECLARATIVE = "declarative"


DropHistory = Annotated[
    bool,
    typer.Option(
        "--drop-history",
        help="With --full-refresh: also drop the copied history of a finished migration, permanently.",
    ),
]
Adopt = Annotated[
    bool,
    typer.Option("--adopt", help="Use the state of another pipeline id, or of a renamed target."),
]
LookBack = Annotated[
    str | None,
    typer.Option(
        "--look-back",
        metavar="N|TIME",
        help="With handOver content: compare at most N versions of the sources (default 100), or those since "
        "a time in UTC (2026-11-20T06:00) or an age (12h, 7d).",
    ),
]
PipelineProject = Annotated[
    Path | None,
    typer.Argument(
        metavar="[PROJECT]",
        help="As for run; with --engine databricks, the default is in the pipeline's configuration.",
    ),
]
EngineOption = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="The engine of the flows: tableferry itself (streaming), or a declarative pipeline.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class StreamingOptions:
    """The options that select a project, its targets and the place of its tables."""

    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="NAME", help="Only this target table (repeatable)."),
    ] = None
    project: Project
    environment: Environment = None
    token: Tokens = None
    pipeline_id: Annotated[
        str | None,
        typer.Option("--pipeline-id", metavar="ID", help="The id under which state is recorded."),
    ] = None
    warehouse: Warehouse = None

    @property
    def targets(self) -> Sequence[str]:
        """The names of the selected targets; none for all."""
        return self.target or ()

    def open(self) -> tuple[LoadedProject, SparkSession, pipelines.Pipeline | None]:
        """Read the project, then start a session, so that errors in files are reported first."""
        project, pipeline, tokens = self.read()
        return project, self.spark_session(project, pipeline, tokens), pipeline

    def spark_session(
        self, project: LoadedProject, pipeline: pipelines.Pipeline | None, tokens: Mapping[str, str]
    ) -> SparkSession:
        """Return a session that has the project's tables.

        Raises:
            SessionError: No session is available, or only local Spark for tables in a workspace.
        """
        connected = session.has_databricks_connect()
        if (
            isinstance(pipeline, pipelines.DatabricksPipeline)
            and session.choose(os.environ, databricks_connect=connected).kind == "local"
        ):
            raise SessionError(
                "WORKSPACE_NEEDS_DATABRICKS_CONNECT",
                pipeline=pipeline.pipeline_id,
                command=install("connect", "databricks"),
            )
        spark = resolve_session(self.warehouse, kafka=project.reads_kafka)
        session.use(spark, tokens.get("pipeline_catalog"), tokens.get("pipeline_schema"))
        return spark

    def metastore(
        self, pipeline: pipelines.Pipeline | None, tokens: Mapping[str, str]
    ) -> AbstractContextManager[LocalMetastore]:
        """Open the project's metastore without Spark.

        Raises:
            NeedsSpark: A declarative pipeline has the tables, or tokens set the session's catalog or schema.
        """
        if pipeline is not None or tokens.keys() & {"pipeline_catalog", "pipeline_schema"}:
            raise NeedsSpark("the session's schema isn't the default one")
        return session.metastore(self.warehouse)

    def read(self) -> tuple[LoadedProject, pipelines.Pipeline | None, Mapping[str, str]]:
        """Read the project; return it, its declarative pipeline if it has one, and its tokens.

        Raises:
            TableferryError: The project's files are wrong, or the project has no such target.
        """
        project, environment, tokens = self.project, self.environment, parse_pairs("--token", self.token)
        pipeline = self._pipeline()
        if isinstance(pipeline, pipelines.DatabricksPipeline):
            configured = pipeline.read_configuration()
            project = project or Path(configured.project)
            environment = environment or configured.environment
            tokens = {**configured.tokens, **tokens}
        if project is None:
            raise Refused("PROJECT_NOT_NAMED")
        loaded = pipelines.specs.load(project, environment=environment, reserved=tokens)
        pipelines.target_keys(loaded, self.targets)
        return loaded, pipeline, tokens

    def _pipeline(self) -> pipelines.Pipeline | None:
        return None


@dataclass(frozen=True, kw_only=True)
class ProjectOptions(StreamingOptions):
    """The options of `StreamingOptions`, and the engine of the flows."""

    # The configuration of a pipeline on Databricks may name the project.
    project: PipelineProject = None  # type: ignore[assignment]
    engine: EngineOption = Engine.STREAMING
    storage: Annotated[
        Path | None,
        typer.Option(
            "--storage", metavar="DIR", help="The storage of spark-pipeline.yml, for --engine declarative."
        ),
    ] = None

    def _pipeline(self) -> pipelines.Pipeline | None:
        match self.engine:
            case Engine.STREAMING:
                return None
            case Engine.DATABRICKS:
                if self.pipeline_id is None:
                    raise Refused("PIPELINE_ID_MISSING")
                return pipelines.DatabricksPipeline(self.pipeline_id)
            case Engine.DECLARATIVE:
                if self.storage is None:
                    raise Refused("PIPELINE_STORAGE_MISSING")
                return pipelines.SparkPipeline(self.storage)


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(ProjectOptions):
    """The options of `ProjectOptions`; the default engine is Databricks."""

    engine: EngineOption = Engine.DATABRICKS


@dataclass(frozen=True, kw_only=True)
class CutoverOptions(ProjectOptions):
    """The options of `ProjectOptions`, and the only target."""

    target: Annotated[  # type: ignore[assignment]
        str, typer.Argument(metavar="TARGET", help="The target whose legacy table's readers are cut over.")
    ]

    @property
    def targets(self) -> Sequence[str]:
        """The name of the target."""
        return (self.target,)


@pipelines_app.command("plan")
def pipelines_plan(
    options: ProjectOptions,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TARGET", help="Plan a rebuild of this target."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also list rows that AUTO CDC can't represent, and compare legacy tables with their sources "
            "at the hand-over points.",
        ),
    ] = False,
    drop_history: DropHistory = False,
    adopt: Adopt = False,
    look_back: LookBack = None,
) -> CommandResult:
    """Print the plan of a run, and write nothing."""
    loaded, spark, pipeline = options.open()
    plan = pipelines.plan(
        loaded, spark, targets=options.targets, full_refresh=full_refresh or (), adopt=adopt,
        drop_history=drop_history, look_back=parse_look_back(look_back), pipeline_id=options.pipeline_id,
        pipeline=pipeline,
    )  # fmt: skip
    checked = pipelines.check(plan, spark) if check else None
    starts = pipelines.check_start(plan, spark) if check else None
    return CommandResult(
        pipelines.reports.plan_data(plan, checked, starts),
        lambda console: pipelines.reports.print_plan(console, plan, checked, starts or ()),
        ok=not plan.refusals
        and all(rows.left_out for rows in checked or ())
        and all(start.proved or start.why_not or start.only_legacy_has_more for start in starts or ()),
    )


@pipelines_app.command("run")
def pipelines_run(
    options: StreamingOptions,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option(
            "--full-refresh", metavar="TARGET", help="Drop this target's data and rebuild the same history."
        ),
    ] = None,
    drop_history: DropHistory = False,
    adopt: Adopt = False,
    look_back: LookBack = None,
) -> CommandResult:
    """Run one update: copy missing history, process all available commits, and stop."""
    loaded, spark, _ = options.open()
    run = pipelines.run(
        loaded, spark, targets=options.targets, full_refresh=full_refresh or (), adopt=adopt,
        drop_history=drop_history, look_back=parse_look_back(look_back), pipeline_id=options.pipeline_id,
    )  # fmt: skip
    return _run_result(run, pipelines.reports.print_run)


@pipelines_app.command("prepare")
def pipelines_prepare(
    options: PrepareOptions, adopt: Adopt = False, look_back: LookBack = None
) -> CommandResult:
    """Prepare an update of a declarative pipeline; run it before each update.

    It records the baselines of new migrations, and compares finished copies with their legacy tables.
    """
    return _prepare(options, adopt, look_back)


@pipelines_app.command("compare")
def pipelines_compare(options: PrepareOptions) -> CommandResult:
    """Compare copies that a declarative pipeline completed with their legacy tables; record the result.

    Run it after each update. Live rows flow from the next update on.
    """
    return _prepare(options)


@pipelines_app.command("status")
def pipelines_status(options: ProjectOptions) -> CommandResult:
    """Show the state of each target: copying, waiting for sources, or complete."""
    loaded, pipeline, tokens = options.read()

    def status_by(spark: SparkSession | LocalMetastore) -> pipelines.StatusReport:
        return pipelines.status(
            loaded, spark, targets=options.targets, pipeline_id=options.pipeline_id, pipeline=pipeline
        )

    try:
        with options.metastore(pipeline, tokens) as metastore:
            status = status_by(metastore)
    except NeedsSpark:
        status = status_by(options.spark_session(loaded, pipeline, tokens))
    return CommandResult(
        pipelines.reports.status_data(status), lambda console: pipelines.reports.print_status(console, status)
    )


@pipelines_app.command("verify")
def pipelines_verify(options: ProjectOptions) -> CommandResult:
    """Compare each target with its legacy table, up to the positions of old streams and flows.

    No stream has to be paused if the spec names the old streams' checkpoints.
    """
    loaded, spark, pipeline = options.open()
    found = pipelines.verify(
        loaded, spark, targets=options.targets, pipeline_id=options.pipeline_id, pipeline=pipeline
    )
    return CommandResult(
        pipelines.reports.verify_data(found),
        lambda console: pipelines.reports.print_verify(console, found),
        ok=found.ok,
    )


@pipelines_app.command("cutover")
def pipelines_cutover(
    options: CutoverOptions,
    undo: Annotated[
        bool, typer.Option("--undo", help="Drop the view, and give the legacy table its old name again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps and findings, and change nothing.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="FINDING",
            help="Cut over despite this finding, such as READERS_LOSE_COLUMNS (repeatable).",
        ),
    ] = None,
) -> CommandResult:
    """Cut readers over: the legacy table's name becomes a view of its target.

    The legacy table is renamed to NAME__legacy. Run it after the migration is complete and before `finish`;
    after a crash, run it again.
    """
    pipelines.check_accepted(accept or ())
    loaded, spark, pipeline = options.open()
    if dry_run:
        plan = pipelines.plan_cutover(
            loaded, spark, options.target, undo=undo, accept=accept or (), pipeline_id=options.pipeline_id,
            pipeline=pipeline,
        )  # fmt: skip
        return CommandResult(
            pipelines.cutover_plan_data(plan),
            lambda console: pipelines.print_cutover_plan(console, plan, undo=undo),
            ok=not plan.refusals,
        )
    if undo:
        report = pipelines.undo_cutover(
            loaded, spark, options.target, pipeline_id=options.pipeline_id, pipeline=pipeline
        )
        return CommandResult(
            pipelines.cutover_data(report), lambda console: pipelines.print_cutover_undo(console, report)
        )
    report = pipelines.cut_over(
        loaded, spark, options.target, accept=accept or (), pipeline_id=options.pipeline_id, pipeline=pipeline
    )
    return CommandResult(
        pipelines.cutover_data(report), lambda console: pipelines.print_cutover(console, report)
    )


@pipelines_app.command("undo")
def pipelines_undo(options: StreamingOptions) -> CommandResult:
    """Return tables that were taken over (mode takeOver) to their old streams.

    The old streams' checkpoints are moved to the positions at which the flows stopped. Run the project first,
    and start the old streams afterwards.
    """
    loaded, spark, _ = options.open()
    undone = pipelines.undo(loaded, spark, targets=options.targets, pipeline_id=options.pipeline_id)
    return CommandResult(
        pipelines.reports.undo_data(undone), lambda console: pipelines.reports.print_undo(console, undone)
    )


@pipelines_app.command("finish")
def pipelines_finish(
    options: ProjectOptions,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Don't compare rows with those of the old streams.")
    ] = False,
    accept_assumed: Annotated[
        bool,
        typer.Option(
            "--accept-assumed",
            help="Finish migrations even if their hand-over was assumed and no rows prove it.",
        ),
    ] = False,
) -> CommandResult:
    """Remove complete migrations: delete their state files, keep data and streaming flows.

    If no rows have proved the hand-over yet, rows are compared first. Without that proof, an assumed
    hand-over needs --accept-assumed. With --engine databricks, no rows are compared: the command needs no
    Spark, only a login to the workspace.
    """
    loaded, pipeline, tokens = options.read()
    in_workspace = isinstance(pipeline, pipelines.DatabricksPipeline)
    spark = None if in_workspace else options.spark_session(loaded, pipeline, tokens)
    finish = pipelines.finish(
        loaded, spark, targets=options.targets,
        pipeline_id=options.pipeline_id, pipeline=pipeline, verify=not no_verify,
        accept_assumed=accept_assumed,
    )  # fmt: skip
    return CommandResult(
        pipelines.reports.finish_data(finish), lambda console: pipelines.reports.print_finish(console, finish)
    )


def _prepare(options: PrepareOptions, adopt: bool = False, look_back: str | None = None) -> CommandResult:
    loaded, spark, pipeline = options.open()
    if pipeline is None:
        raise Refused("NOTHING_TO_PREPARE")
    run = pipelines.prepare(
        loaded, spark, pipeline=pipeline, targets=options.targets, adopt=adopt,
        look_back=parse_look_back(look_back), pipeline_id=options.pipeline_id,
    )  # fmt: skip
    return _run_result(run, pipelines.reports.print_prepared)


def _run_result(
    run: pipelines.RunReport, print_: Callable[[Console, pipelines.RunReport], None]
) -> CommandResult:
    return CommandResult(pipelines.reports.run_data(run), lambda console: print_(console, run), ok=run.ok)
