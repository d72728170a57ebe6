"""``tableferry fleet views``: create views beside tables that moved to another schema or catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tableferry import fleet
from tableferry.amounts import joined
from tableferry.cli.command import App, CommandResult
from tableferry.cli.fleet.options import EnvOption, FleetOptions, SetOption, SettingsOption, StoreOption
from tableferry.cli.options import Warehouse

if TYPE_CHECKING:
    from tableferry.fleet.views.moving import ViewReport

views_app = App()

Views = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SCHEMA|VIEW]...",
        help="Schemas, views, or patterns such as 'sales.v_*'; default: all.",
        show_default=False,
    ),
]


@views_app.command("views")
def fleet_views(
    views: Views = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Include views that also read tables which don't move; they still read these tables.",
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
    """Create views in the schema or catalog to which their tables moved; the old views stay.

    The exit code is 1 if a view can't be created.
    """
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    view_options = fleet.ViewOptions(views or (), partial, dry_run)
    with fleet_options.open() as opened:
        reports = fleet.move_views(opened.store, opened.warehouse(), view_options)
    ok = all(report.outcome != "refused" for report in reports)
    return CommandResult({"views": [_row(report) for report in reports]}, _lines(reports), ok=ok)


def _row(report: ViewReport) -> dict[str, object]:
    finding = report.finding.to_dict() if report.finding else None
    return {**vars(report), "finding": finding, "error": _error(report)}


def _error(report: ViewReport) -> str:
    return report.finding.one_line if report.finding else ""


def _lines(reports: Sequence[ViewReport]) -> Iterator[str]:
    for report in reports:
        if report.finding:
            yield f"{report.view} {report.outcome}: {_error(report)}"
            continue
        yield f"{report.view} → {report.new}"
        if report.outcome == "planned":
            yield from (f"  {line}" for line in report.statement.splitlines())
        if report.stays:
            yield f"  still reads {joined([str(name) for name in report.stays])}"
        if report.loses:
            yield f"  set in readers, because its new catalog doesn't store it: {report.loses}"
    counts = Counter(report.outcome for report in reports)
    if not counts:
        yield "No view reads a table that has moved to another schema or catalog."
        return
    yield ", ".join(f"{count:,} {_OUTCOME_TEXTS.get(outcome, outcome)}" for outcome, count in counts.items())
    if counts["waiting"]:
        yield "Waiting views need all their tables to move first: run it again later, or use --partial"


_OUTCOME_TEXTS = {"there": "created before"}
