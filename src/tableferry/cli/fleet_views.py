"""``tableferry fleet views``: views over tables that went to another schema or catalog come along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import typer

from tableferry import fleet
from tableferry.amounts import joined
from tableferry.cli.command import App, CommandResult
from tableferry.cli.fleet_options import EnvOption, FleetOptions, SetOption, SettingsOption, StoreOption
from tableferry.cli.options import Warehouse
from tableferry.fleet.view_moves.reports import ViewsReport

views_app = App()

Views = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SCHEMA|VIEW]...",
        help="Schemas, views, or patterns such as 'sales.v_*'; by itself all.",
        show_default=False,
    ),
]


@views_app.command("views")
def fleet_views(
    views: Views = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Also views that read what isn't migrated; they go on to read it where it is."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the statements that would be run, and run none.")
    ] = False,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    setting: SetOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Make the views over tables that went to another schema or catalog there too; the old ones stay.

    The exit code is 1 if one can't come along.
    """
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    view_options = fleet.ViewOptions(views or (), partial, dry_run)
    with fleet_options.open() as opened:
        report = fleet.move_views(opened.store, opened.warehouse(), view_options)
    return CommandResult(report, _view_lines(report), ok=report.ok)


def _view_lines(report: ViewsReport) -> Iterator[str]:
    for view in report.views:
        if view.error:
            yield f"{view.view} {view.outcome}: {view.error}"
            continue
        yield f"{view.view} → {view.new}"
        if view.outcome == "planned":
            yield f"  {view.statement}"
        if view.stays:
            yield f"  goes on to read {joined([str(name) for name in view.stays])}"
        if view.loses:
            yield f"  was made with {view.loses}, which its new catalog doesn't keep: let readers set it"
    yield from report.remedies
    counts = Counter(view.outcome for view in report.views)
    if not counts:
        yield "No view reads a table that has gone to another schema or catalog."
        return
    yield ", ".join(f"{count:,} {_OUTCOME_TEXTS.get(outcome, outcome)}" for outcome, count in counts.items())
    if counts["waiting"]:
        yield "Those that wait come along when what they read has moved: run it again, or with --partial"


_OUTCOME_TEXTS = {"there": "there already"}
