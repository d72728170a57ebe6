"""What the commands share: their options, and how they tell an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tableferry import session
from tableferry.errors import TableferryError, first_line, is_sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


class Output(StrEnum):
    """For whom a command prints."""

    TEXT = "text"
    JSON = "json"


class Engine(StrEnum):
    """What runs a project's flows."""

    STREAMING = "streaming"
    DATABRICKS = "databricks"
    DECLARATIVE = "declarative"


Project = Annotated[
    Path,
    typer.Argument(
        metavar="PROJECT", help="A folder with dataflows/ and pipeline_configs/, or one spec file."
    ),
]
PipelineProject = Annotated[
    Path | None,
    typer.Argument(
        metavar="[PROJECT]",
        help="As for run; with --engine databricks, what the pipeline's own configuration names.",
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
Tokens = Annotated[
    list[str] | None,
    typer.Option(
        "--token",
        metavar="NAME=VALUE",
        help="A token of the substitutions, such as pipeline_schema (may be repeated).",
    ),
]
EngineAs = Annotated[
    Engine,
    typer.Option(
        "--engine", help="What runs the flows: tableferry itself, or a declarative pipeline of either kind."
    ),
]
Storage = Annotated[
    Path | None,
    typer.Option(
        "--storage", metavar="DIR", help="The storage of spark-pipeline.yml, for --engine declarative."
    ),
]
Adopt = Annotated[bool, typer.Option("--adopt", help="Go on from state that another pipelineId recorded.")]
DropHistory = Annotated[
    bool,
    typer.Option(
        "--drop-history",
        help="With --full-refresh: drop the copied history of a finished migration too, for good.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]


def pairs(option: str, written: Iterable[str]) -> dict[str, str]:
    """Read the values of an option that is written NAME=VALUE.

    Raises:
        TableferryError: One isn't.
    """
    found = {}
    for each in written:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise TableferryError(f"{option} {each}: write it as NAME=VALUE")
        found[name] = value
    return found


def resolved(warehouse: Path | None = None, *, iceberg: bool = False) -> SparkSession:
    """Give the Spark session; which one it is goes to the log, as all that a command says on the way."""
    return session.resolve(warehouse, iceberg=iceberg, say=_log.info)


def guarded(work: Callable[[], None], debug: bool) -> None:
    """Turn an error that is the user's to mend into its sentence and exit code 1."""
    try:
        work()
    except TableferryError as error:
        if debug:
            raise
        _log.error("%s", error)
        raise typer.Exit(1) from None
    except Exception as error:
        # Spark may fail anywhere, and its Python classes aren't loaded before it's needed.
        if debug or not is_sparks(error):
            raise
        _log.error("Spark failed (%s): --debug shows where", first_line(error))
        raise typer.Exit(1) from None


def written(file: Path, text: str) -> None:
    """Write a file that the user named.

    Raises:
        TableferryError: It can't be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise TableferryError(f"{file} can't be written ({reason}): name another file") from error
