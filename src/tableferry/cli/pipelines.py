"""The commands of pipeline migration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tableferry import pipelines, report, session
from tableferry.cli.logs import App
from tableferry.cli.options import (
    Adopt,
    Debug,
    DropHistory,
    Engine,
    EngineAs,
    Environment,
    Output,
    OutputAs,
    PipelineId,
    PipelineProject,
    Project,
    Storage,
    Target,
    Tokens,
    Warehouse,
    guarded,
    pairs,
    resolved,
)
from tableferry.errors import TableferryError
from tableferry.pipelines import show, spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from tableferry.pipelines.flows import Project as LoadedProject

pipelines_app = App(
    help="Copy a Delta table's history into a streaming table, and go on with live flows right behind it.",
    no_args_is_help=True,
)


@dataclass(frozen=True)
class _Place:
    """What a command works on: a project, the session where its tables are, and what runs its flows."""

    project: LoadedProject
    spark: SparkSession
    pipeline: pipelines.Pipeline | None


@pipelines_app.command("plan")
def pipelines_plan(
    project: PipelineProject = None,
    target: Target = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TARGET", help="Plan a rebuild of this target."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Also look for rows that AUTO CDC can't express.")
    ] = False,
    drop_history: DropHistory = False,
    adopt: Adopt = False,
    engine: EngineAs = Engine.STREAMING,
    storage: Storage = None,
    environment: Environment = None,
    token: Tokens = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Say what a run would do; writes nothing."""

    def plan() -> None:
        at = _place(project, environment, token, warehouse, engine, storage, pipeline_id)
        planned = pipelines.plan(
            at.project, at.spark, targets=target or (), full_refresh=full_refresh or (), adopt=adopt,
            drop_history=drop_history, pipeline_id=pipeline_id, pipeline=at.pipeline,
        )  # fmt: skip
        found = pipelines.check(planned, at.spark) if check else None
        if output is Output.JSON:
            typer.echo(report.as_json(show.plan_data(planned, found)))
        else:
            show.print_plan(report.console(), planned, found)
        if planned.refusals or any(not one.left_out for one in found or ()):
            raise typer.Exit(1)

    guarded(plan, debug)


@pipelines_app.command("run")
def pipelines_run(
    project: Project,
    target: Target = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option(
            "--full-refresh", metavar="TARGET", help="Drop this target's data and rebuild the same history."
        ),
    ] = None,
    drop_history: DropHistory = False,
    adopt: Adopt = False,
    environment: Environment = None,
    token: Tokens = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Make one update: copy what isn't copied, take every commit that is there, and stop."""

    def run() -> None:
        at = _place(project, environment, token, warehouse)
        done = pipelines.run(
            at.project, at.spark, targets=target or (), full_refresh=full_refresh or (), adopt=adopt,
            drop_history=drop_history, pipeline_id=pipeline_id,
        )  # fmt: skip
        _told(done, output, show.print_run)

    guarded(run, debug)


@pipelines_app.command("prepare")
def pipelines_prepare(
    project: PipelineProject = None,
    engine: EngineAs = Engine.DATABRICKS,
    target: Target = None,
    adopt: Adopt = False,
    storage: Storage = None,
    environment: Environment = None,
    token: Tokens = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Do what an update of a declarative pipeline can't do itself; run it before each update.

    It records where migrations begin, and compares the copies that the pipeline has made.
    """

    def prepare() -> None:
        at = _place(project, environment, token, warehouse, engine, storage, pipeline_id)
        if at.pipeline is None:
            raise TableferryError(
                "--engine streaming needs nothing prepared: use `tableferry pipelines run`, or name the "
                "kind of pipeline"
            )
        done = pipelines.prepare(
            at.project, at.spark, pipeline=at.pipeline, targets=target or (), adopt=adopt,
            pipeline_id=pipeline_id,
        )  # fmt: skip
        _told(done, output, show.print_prepared)

    guarded(prepare, debug)


@pipelines_app.command("status")
def pipelines_status(
    project: PipelineProject = None,
    target: Target = None,
    engine: EngineAs = Engine.STREAMING,
    storage: Storage = None,
    environment: Environment = None,
    token: Tokens = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Say for each target whether it's copying, waiting for which sources, or complete."""

    def status() -> None:
        at = _place(project, environment, token, warehouse, engine, storage, pipeline_id)
        found = pipelines.status(
            at.project, at.spark, targets=target or (), pipeline_id=pipeline_id, pipeline=at.pipeline
        )
        if output is Output.JSON:
            typer.echo(report.as_json(show.status_data(found)))
        else:
            show.print_status(report.console(), found)

    guarded(status, debug)


@pipelines_app.command("finish")
def pipelines_finish(
    project: PipelineProject = None,
    target: Target = None,
    engine: EngineAs = Engine.STREAMING,
    storage: Storage = None,
    environment: Environment = None,
    token: Tokens = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Take complete migrations out: state files go, data and live flows stay."""

    def finish() -> None:
        at = _place(project, environment, token, warehouse, engine, storage, pipeline_id)
        done = pipelines.finish(
            at.project, at.spark, targets=target or (), pipeline_id=pipeline_id, pipeline=at.pipeline
        )
        if output is Output.JSON:
            typer.echo(report.as_json(show.finish_data(done)))
        else:
            show.print_finish(report.console(), done)

    guarded(finish, debug)


def _place(
    project: Path | None,
    environment: str | None,
    token: list[str] | None,
    warehouse: Path | None,
    engine: Engine = Engine.STREAMING,
    storage: Path | None = None,
    pipeline_id: str | None = None,
) -> _Place:
    """Read the project before a session is asked for, as what is wrong with its files is told at once."""
    tokens = pairs("--token", token or ())
    pipeline = _pipeline(engine, storage, pipeline_id)
    if isinstance(pipeline, pipelines.DatabricksPipeline):
        configured = pipeline.configuration()
        project = project or Path(configured.project)
        environment = environment or configured.environment
        tokens = {**configured.tokens, **tokens}
    if project is None:
        raise TableferryError("which project? give its folder, or with --engine databricks the pipeline's id")
    loaded = spec.load(project, environment=environment, reserved=tokens)
    spark = resolved(warehouse)
    session.use(spark, tokens.get("pipeline_catalog"), tokens.get("pipeline_schema"))
    return _Place(loaded, spark, pipeline)


def _pipeline(engine: Engine, storage: Path | None, pipeline_id: str | None) -> pipelines.Pipeline | None:
    match engine:
        case Engine.STREAMING:
            return None
        case Engine.DATABRICKS:
            if pipeline_id is None:
                raise TableferryError("--engine databricks needs to know which pipeline: give --pipeline-id")
            return pipelines.DatabricksPipeline(pipeline_id)
        case Engine.DECLARATIVE:
            if storage is None:
                raise TableferryError(
                    "--engine declarative needs the storage of spark-pipeline.yml: give --storage"
                )
            return pipelines.SparkPipeline(storage)


def _told(
    done: pipelines.RunReport, output: Output, print_: Callable[[Console, pipelines.RunReport], None]
) -> None:
    if output is Output.JSON:
        typer.echo(report.as_json(show.run_data(done)))
    else:
        print_(report.console(), done)
    if not done.ok:
        raise typer.Exit(1)
