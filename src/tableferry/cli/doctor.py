"""``tableferry doctor``: check the environment before a migration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from tableferry import doctor as checking
from tableferry.cli.command import App, CommandResult, as_json
from tableferry.cli.options import Warehouse, split_names
from tableferry.doctor.check import Route
from tableferry.doctor.environment import DoctorOptions

doctor_app = App()


@doctor_app.command("doctor")
def doctor(
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME", help="Make only this check (repeatable)."),
    ] = None,
    route: Annotated[
        list[Route] | None,
        typer.Option("--route", help="Make only the checks of this route (repeatable)."),
    ] = None,
    state: Annotated[
        str,
        typer.Option("--state", metavar="PATH", help="The folder, volume or URI of the state of migrations."),
    ] = "",
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog", metavar="NAME", help="The catalog of scratch tables; default: the current one."
        ),
    ] = "",
    schema: Annotated[
        str,
        typer.Option(
            "--schema",
            metavar="NAME",
            help="An existing schema for scratch tables; default: a scratch schema is created.",
        ),
    ] = "",
    store: Annotated[str, typer.Option("--store", metavar="URL", help="The queue of a fleet.")] = "",
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings", metavar="FILE", help="The fleet's settings file; default fleet.yml, if it exists."
        ),
    ] = None,
    env: Annotated[
        str, typer.Option("--env", metavar="NAME", help="Apply this section of the settings file.")
    ] = "",
    pipeline_id: Annotated[
        str,
        typer.Option("--pipeline-id", metavar="ID", help="A pipeline that has run, whose event log is read."),
    ] = "",
    iceberg_catalog: Annotated[
        str, typer.Option("--iceberg-catalog", metavar="NAME", help="The Spark catalog of Iceberg tables.")
    ] = "ice",
    warehouse: Warehouse = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Markdown for a bug report, without hosts, users and home folders."),
    ] = False,
) -> CommandResult:
    """Check this machine and the workspace before a migration."""
    if json and markdown:
        raise typer.BadParameter("--json and --markdown exclude each other")
    options = DoctorOptions(
        warehouse=warehouse,
        state=state,
        catalog=catalog,
        schema=schema,
        store=store,
        fleet_settings=settings,
        fleet_env=env,
        iceberg_catalog=iceberg_catalog,
        pipeline_id=pipeline_id,
    )
    report = checking.examine(options, names=split_names(check), routes=route or tuple(Route))
    lines: Iterable[str] = checking.as_text(report)
    if json:
        lines = [as_json(report.to_dict())]
    elif markdown:
        lines = [checking.as_markdown(report)]
    return CommandResult(report.to_dict(), lines, ok=report.ok)
