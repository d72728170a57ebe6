"""``tableferry convert``: Parquet to Delta in place, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperGroup

from tableferry import convert
from tableferry.cli.command import App, CommandResult
from tableferry.cli.options import Warehouse
from tableferry.cli.spark import resolve_session
from tableferry.convert.sync import report

# A source between backticks may contain a comma.
_SEPARATED = re.compile(r"(?:`[^`]*`|[^,\n`])+")

_RUN = "run"

MoreSources: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--sources", metavar="A,B", help="More sources, separated by commas or line ends."),
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Print the plan, and write nothing.")]
StatisticsFrom: TypeAlias = Annotated[
    convert.Statistics,
    typer.Option(
        "--statistics",
        help="Source of the statistics for file skipping: footers, a scan of all data, or none.",
    ),
]
ReadBy: TypeAlias = Annotated[
    convert.Reader,
    typer.Option("--reader", help="Where footers are read: in this process, or in Spark's tasks."),
]
Recursive: TypeAlias = Annotated[
    bool, typer.Option("--recursive", "-r", help="Include all tables below a folder.")
]
IncludeSubfolders: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--include-subfolders",
        help="Include files in plain subfolders of a folder with files; Spark leaves them out.",
    ),
]
AllowUnsafeCommit: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-commit",
        help="Write to a store where concurrent writers may replace one another's commits.",
    ),
]


class _SourcesFirst(TyperGroup):
    """Takes what isn't a command's name for the first source: ``tableferry convert ./events``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in (["undo"], ["sync"]) else [_RUN, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        # Users don't type this name, so the help doesn't show it.
        return "" if name == _RUN else name, command, rest


convert_app = App(
    cls=_SourcesFirst, help="Convert Parquet to Delta in place, and back.", add_help_option=False
)


@convert_app.command(_RUN, hidden=True)
def convert_run(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="A folder of Parquet or Iceberg, a table of the catalog, or a schema's tables ('db.*').",
            show_default=False,
        ),
    ] = None,
    more_sources: MoreSources = None,
    partitioned_by: Annotated[
        str | None,
        typer.Option(
            "--partitioned-by",
            metavar="'YEAR int, …'",
            help="The partition columns; by default inferred from the directories' names and values.",
        ),
    ] = None,
    dry_run: DryRun = False,
    statistics: StatisticsFrom = convert.Statistics.FOOTERS,
    engine: Annotated[
        convert.Engine,
        typer.Option("--engine", help="The writer of the log; native is Spark's CONVERT TO DELTA."),
    ] = convert.Engine.AUTO,
    reader: ReadBy = convert.Reader.AUTO,
    recursive: Recursive = False,
    msck: Annotated[
        bool, typer.Option("--msck", help="Convert the partitions on disk if those of the catalog differ.")
    ] = False,
    column_mapping: Annotated[
        bool, typer.Option("--column-mapping", help="Map column names with spaces or any of ,;{}()=.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare the rows of Parquet and Delta after the conversion, with Spark."
        ),
    ] = False,
    include_subfolders: IncludeSubfolders = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
    cluster_by: Annotated[
        str | None,
        typer.Option(
            "--cluster-by", metavar="A,B", help="Columns to cluster by; OPTIMIZE then clusters the rows."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A property of the table (repeatable)."),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="The columns that the files must fit, as Spark's JSON or as in SQL: id bigint, name string.",
        ),
    ] = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Convert Parquet to Delta in place, by one file: the first commit of the log.

    To undo the conversion before the next commit: tableferry convert undo SOURCE
    """
    conversion = convert.run(
        _named(sources, more_sources),
        partitioned_by=partitioned_by,
        dry_run=dry_run,
        statistics=statistics,
        engine=engine,
        reader=reader,
        recursive=recursive,
        msck=msck,
        column_mapping=column_mapping,
        verify=verify,
        include_subfolders=include_subfolders,
        unsafe_commit=allow_unsafe_commit,
        cluster_by=_separated(cluster_by or ""),
        properties=dict(map(_property, properties or ())),
        schema=schema,
        resolve=partial(resolve_session, warehouse),
    )
    return CommandResult(
        convert.report.data(conversion),
        lambda console: convert.report.print_report(console, conversion),
        ok=conversion.ok,
    )


@convert_app.command("sync")
def convert_sync(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="A converted folder or table of the catalog, or a schema ('db.*').",
            show_default=False,
        ),
    ] = None,
    more_sources: MoreSources = None,
    dry_run: DryRun = False,
    statistics: StatisticsFrom = convert.Statistics.FOOTERS,
    reader: ReadBy = convert.Reader.AUTO,
    recursive: Recursive = False,
    rewritten: Annotated[
        bool,
        typer.Option(
            "--rewritten",
            help="Add rewritten files with unchanged names; streams read all their rows.",
        ),
    ] = False,
    include_subfolders: IncludeSubfolders = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Add new Parquet files to converted tables, and remove deleted ones.

    A sync writes one commit with the difference. You can run it while other jobs write Parquet.
    """
    synced = convert.sync(
        _named(sources, more_sources),
        dry_run=dry_run,
        statistics=statistics,
        reader=reader,
        recursive=recursive,
        rewritten=rewritten,
        include_subfolders=include_subfolders,
        unsafe_commit=allow_unsafe_commit,
        resolve=partial(resolve_session, warehouse),
    )
    return CommandResult(
        report.data(synced),
        lambda console: report.print_report(console, synced),
        ok=synced.ok,
    )


@convert_app.command("undo")
def convert_undo(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A converted folder or table.")],
    warehouse: Warehouse = None,
) -> CommandResult:
    """Undo a conversion that is the table's only commit."""
    notes = convert.undo(source, resolve=partial(resolve_session, warehouse))
    return CommandResult(
        {"source": source, "outcome": "undone", "notes": notes},
        [
            *(f"Note: {note}" for note in notes),
            f"{source} is Parquet again, and no data file was touched",
        ],
    )


def _property(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise typer.BadParameter(f"'{text}' isn't a property: write it as KEY=VALUE")
    return key.strip(), value.strip()


def _named(sources: list[str] | None, more: list[str] | None) -> list[str]:
    names = [*(sources or ()), *(name for text in more or () for name in _separated(text))]
    if not names:
        raise typer.BadParameter("name a SOURCE: a folder, a table or a schema ('db.*')")
    return names


def _separated(text: str) -> Iterator[str]:
    return (match[0].strip() for match in _SEPARATED.finditer(text) if match[0].strip())
