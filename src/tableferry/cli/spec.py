"""``tableferry spec``: data flow specs, without a session."""

from __future__ import annotations

import json

import typer

from tableferry import pipelines
from tableferry.amounts import counted
from tableferry.cli.command import App, CommandResult, Output, PrintingCommand, common_options
from tableferry.cli.options import Environment, Project, Tokens, parse_pairs
from tableferry.errors import SpecError

spec_app = App(help="Data flow specs.", no_args_is_help=True)


@spec_app.command("schema", cls=PrintingCommand)
def spec_schema() -> None:
    """Print the JSON Schema of data flow specs, for editors."""
    typer.echo(json.dumps(pipelines.specs.json_schema(), indent=2))


@spec_app.command("check")
def spec_check(
    ctx: typer.Context, project: Project, environment: Environment = None, token: Tokens = None
) -> CommandResult:
    """Check a project's files, and list all problems in them."""
    try:
        loaded = pipelines.specs.load(
            project, environment=environment, reserved=parse_pairs("--token", token)
        )
    except SpecError as error:
        if common_options(ctx).output is Output.JSON:
            problems = [problem.to_dict() for problem in error.problems]
            return CommandResult({"problems": problems}, (), ok=False)
        raise
    skipped = [str(file) for file in loaded.skipped]
    flows = counted(len(loaded.dataflows), "data flow")
    if loaded.materialized:
        flows += f" and {counted(len(loaded.materialized), 'materialized view')}"
    migrations = sum(1 for dataflow in loaded.dataflows if dataflow.migration)
    return CommandResult(
        {"problems": [], "skipped": skipped},
        [*skipped, f"{project}: {flows}, {migrations} with a migration: all right"],
    )
