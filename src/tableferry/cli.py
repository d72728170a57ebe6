"""The command line: a command is settings, a session, one library call and a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tableferry import __version__, pipelines, report, session
from tableferry import new as making
from tableferry import verify as verifying
from tableferry.errors import SpecError, TableferryError, first_line
from tableferry.pipelines import show, spec


class Output(StrEnum):
    """For whom a command prints."""

    TEXT = "text"
    JSON = "json"


app = typer.Typer(
    help="Moves tables that people already depend on, without losing a row.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
pipelines_app = typer.Typer(
    help="Copy a Delta table's history into a streaming table, and go on with live flows right behind it.",
    no_args_is_help=True,
)
spec_app = typer.Typer(help="Data flow specs.", no_args_is_help=True)
app.add_typer(pipelines_app, name="pipelines")
app.add_typer(spec_app, name="spec")

Project = Annotated[
    Path,
    typer.Argument(
        metavar="PROJECT", help="A folder with dataflows/ and pipeline_configs/, or one spec file."
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option("--target", metavar="NAME", help="Only this target table (may be repeated)."),
]
Environment = Annotated[
    str | None,
    typer.Option("--environment", "-e", metavar="NAME", help="Which NAME_substitutions file applies."),
]
PipelineId = Annotated[
    str | None, typer.Option("--pipeline-id", metavar="ID", help="Under which id state is recorded.")
]
OutputAs = Annotated[Output, typer.Option("--output", help="Text for people or JSON for programs.")]
Warehouse = Annotated[
    Path | None,
    typer.Option(
        "--warehouse",
        metavar="DIR",
        help="Where local Spark keeps tables and metastore; default .tableferry/.",
    ),
]
Adopt = Annotated[bool, typer.Option("--adopt", help="Go on from state that another pipelineId recorded.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@spec_app.command("schema")
def spec_schema() -> None:
    """Print the JSON Schema of data flow specs, for editors."""
    typer.echo(json.dumps(spec.json_schema(), indent=2))


@spec_app.command("check")
def spec_check(
    project: Project,
    environment: Environment = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Read a project's files and say everything that is wrong with them."""

    def check() -> None:
        try:
            loaded = spec.load(project, environment=environment)
        except SpecError as error:
            if output is Output.JSON:
                typer.echo(report.as_json({"problems": error.problems}))
                raise typer.Exit(1) from None
            raise
        if output is Output.JSON:
            typer.echo(report.as_json({"problems": []}))
            return
        migrating = sum(1 for one in loaded.dataflows if one.migration)
        flows = "1 data flow" if len(loaded.dataflows) == 1 else f"{len(loaded.dataflows)} data flows"
        typer.echo(f"{project}: {flows}, {migrating} with a migration: all right")

    _guarded(check, debug)


@pipelines_app.command("plan")
def pipelines_plan(
    project: Project,
    target: Target = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TARGET", help="Plan a rebuild of this target."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Also look for rows that AUTO CDC can't express.")
    ] = False,
    adopt: Adopt = False,
    environment: Environment = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Say what a run would do; writes nothing."""

    def plan() -> None:
        spark = session.resolve(warehouse)
        planned = pipelines.plan(
            project, spark, targets=target or (), full_refresh=full_refresh or (), adopt=adopt,
            pipeline_id=pipeline_id, environment=environment,
        )  # fmt: skip
        found = pipelines.check(planned, spark) if check else None
        if output is Output.JSON:
            typer.echo(report.as_json(show.plan_data(planned, found)))
        else:
            show.print_plan(report.console(), planned, found)
        if planned.refusals or any(not one.left_out for one in found or ()):
            raise typer.Exit(1)

    _guarded(plan, debug)


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
    adopt: Adopt = False,
    environment: Environment = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Make one update: copy what isn't copied, take every commit that is there, and stop."""

    def run() -> None:
        done = pipelines.run(
            project, session.resolve(warehouse), targets=target or (), full_refresh=full_refresh or (),
            adopt=adopt, pipeline_id=pipeline_id, environment=environment,
        )  # fmt: skip
        if output is Output.JSON:
            typer.echo(report.as_json(show.run_data(done)))
        else:
            show.print_run(report.console(), done)
        if not done.ok:
            raise typer.Exit(1)

    _guarded(run, debug)


@pipelines_app.command("status")
def pipelines_status(
    project: Project,
    target: Target = None,
    environment: Environment = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Say for each target whether it's copying, waiting for which sources, or complete."""

    def status() -> None:
        found = pipelines.status(
            project,
            session.resolve(warehouse),
            targets=target or (),
            pipeline_id=pipeline_id,
            environment=environment,
        )
        if output is Output.JSON:
            typer.echo(report.as_json(show.status_data(found)))
        else:
            show.print_status(report.console(), found)

    _guarded(status, debug)


@pipelines_app.command("finish")
def pipelines_finish(
    project: Project,
    target: Target = None,
    environment: Environment = None,
    pipeline_id: PipelineId = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Take complete migrations out: state files go, data and live flows stay."""

    def finish() -> None:
        done = pipelines.finish(
            project,
            session.resolve(warehouse),
            targets=target or (),
            pipeline_id=pipeline_id,
            environment=environment,
        )
        if output is Output.JSON:
            typer.echo(report.as_json(show.finish_data(done)))
        else:
            show.print_finish(report.console(), done)

    _guarded(finish, debug)


@app.command("verify")
def verify(
    source: Annotated[str, typer.Argument(metavar="SOURCE[@VERSION]", help="A table, or the folder of one.")],
    target: Annotated[str, typer.Argument(metavar="TARGET[@VERSION]", help="What must hold the same rows.")],
    keys: Annotated[
        str,
        typer.Option("--keys", metavar="A,B", help="Columns that identify a row: shows rows that differ."),
    ] = "",
    exclude: Annotated[str, typer.Option("--exclude", metavar="A,B", help="Columns to leave out.")] = "",
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Compare two tables: columns, row counts, an order-free hash, and the rows that differ."""

    def compare() -> None:
        spark = session.resolve(warehouse)
        verdict = verifying.verify_tables(spark, source, target, keys=_names(keys), exclude=_names(exclude))
        typer.echo(report.as_json(verdict.to_dict()) if output is Output.JSON else verifying.render(verdict))
        if not verdict.matches:
            raise typer.Exit(1)

    _guarded(compare, debug)


@app.command("new")
def new(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where the bundle's own folder is made; default here.")
    ] = Path(),
    answer: Annotated[
        list[str] | None,
        typer.Option(
            "--answer", metavar="NAME=VALUE", help="Answer a question of the template (may be repeated)."
        ),
    ] = None,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask nothing: defaults count where no answer is given.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Make a bundle of your own, to deploy to a workspace."""

    def make() -> None:
        made = making.create(folder, _pairs("--answer", answer or []), no_input=no_input)
        typer.echo(f"Made {made}. Next:\n")
        for command in making.next_commands(made):
            typer.echo(f"    {command}")

    _guarded(make, debug)


def _pairs(option: str, written: list[str]) -> dict[str, str]:
    """Read NAME=VALUE."""
    for each in written:
        if "=" not in each:
            raise TableferryError(f"{option} {each}: write it as NAME=VALUE")
    return dict(each.split("=", 1) for each in written)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _guarded(work: Callable[[], None], debug: bool) -> None:
    """Turn an error that is the user's to mend into its sentence and exit code 1."""
    try:
        work()
    except TableferryError as error:
        if debug:
            raise
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    except Exception as error:
        # Spark may fail anywhere, and its Python classes aren't loaded before it's needed.
        if debug or not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        typer.echo(f"Error: Spark failed ({first_line(error)}): --debug shows where", err=True)
        raise typer.Exit(1) from None


def main() -> None:
    """Run the command line; the entry point of the wheel."""
    app()
