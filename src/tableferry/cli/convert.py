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
from tableferry.cli.command import Answer, App
from tableferry.cli.options import Warehouse
from tableferry.cli.spark import resolved
from tableferry.convert.sync import report

# A source between backticks may hold a comma.
_SEPARATED = re.compile(r"(?:`[^`]*`|[^,\n`])+")

_RUN = "run"

MoreSources: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--sources", metavar="A,B", help="More of them, separated by commas or line ends."),
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and write nothing.")
]
StatisticsFrom: TypeAlias = Annotated[
    convert.Statistics,
    typer.Option(
        "--statistics",
        help="Where what lets readers skip files comes from: footers, a scan of all data, or nowhere.",
    ),
]
ReadBy: TypeAlias = Annotated[
    convert.Reader, typer.Option("--reader", help="Where files are read: here, or in Spark's tasks.")
]
Recursive: TypeAlias = Annotated[
    bool, typer.Option("--recursive", "-r", help="A folder stands for all tables below it.")
]
IncludeSubfolders: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--include-subfolders",
        help="Take files in plain folders below a folder that has files itself, which Spark leaves out.",
    ),
]
AllowUnsafeCommit: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-commit",
        help="Write the log also to a store where two writers at once could replace one another's commits.",
    ),
]


class _SourcesFirst(TyperGroup):
    """Takes what isn't a command's name for the first source: ``tableferry convert ./events``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in (["undo"], ["sync"]) else [_RUN, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        # What nobody types isn't shown either.
        return "" if name == _RUN else name, command, rest


convert_app = App(
    cls=_SourcesFirst, help="Turn Parquet into Delta in place, and back.", add_help_option=False
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
            help="The partition columns; by default the directories' names and values tell.",
        ),
    ] = None,
    dry_run: DryRun = False,
    statistics: StatisticsFrom = convert.Statistics.FOOTERS,
    engine: Annotated[
        convert.Engine,
        typer.Option("--engine", help="Who writes the log; native is Spark's own CONVERT TO DELTA."),
    ] = convert.Engine.AUTO,
    reader: ReadBy = convert.Reader.AUTO,
    recursive: Recursive = False,
    msck: Annotated[
        bool, typer.Option("--msck", help="Convert what is on disk where the catalog knows other partitions.")
    ] = False,
    column_mapping: Annotated[
        bool, typer.Option("--column-mapping", help="Map names with spaces or any of ,;{}()= in them.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare the rows as Parquet and as Delta afterwards, with Spark."),
    ] = False,
    include_subfolders: IncludeSubfolders = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
    cluster_by: Annotated[
        str | None,
        typer.Option("--cluster-by", metavar="A,B", help="Columns to cluster by; OPTIMIZE does the work."),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A property of the table (may be repeated)."),
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
) -> Answer:
    """Turn Parquet into Delta in place: one file is written, the first commit of the log.

    To undo it while nothing was written after it: tableferry convert undo SOURCE
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
        resolve=partial(resolved, warehouse),
    )
    return Answer(
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
            help="A folder or a table of the catalog that was converted, or a schema ('db.*').",
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
            help="Take in files that were written again under their names; streams get all their rows.",
        ),
    ] = False,
    include_subfolders: IncludeSubfolders = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
    warehouse: Warehouse = None,
) -> Answer:
    """Bring converted tables up to their folders, to which others still write Parquet.

    Files that came since are added, files that went are removed, in one commit. Run it as often as you like.
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
        resolve=partial(resolved, warehouse),
    )
    return Answer(
        report.data(synced),
        lambda console: report.print_report(console, synced),
        ok=synced.ok,
    )


@convert_app.command("undo")
def convert_undo(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What was converted.")],
    warehouse: Warehouse = None,
) -> Answer:
    """Undo a conversion while nothing was written after it."""
    notes = convert.undo(source, resolve=partial(resolved, warehouse))
    return Answer(
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
