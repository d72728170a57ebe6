"""Options that several commands share, and functions that parse their values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from tableferry.errors import InputError, StateError

Project = Annotated[
    Path,
    typer.Argument(
        metavar="PROJECT", help="A folder with dataflows/ and pipeline_configs/, or one spec file."
    ),
]
Environment = Annotated[
    str | None,
    typer.Option("--environment", "-e", metavar="NAME", help="Apply the file NAME_substitutions."),
]
Tokens = Annotated[
    list[str] | None,
    typer.Option(
        "--token",
        metavar="NAME=VALUE",
        help="A token of the substitutions, such as pipeline_schema (repeatable).",
    ),
]
Warehouse = Annotated[
    Path | None,
    typer.Option(
        "--warehouse",
        metavar="DIR",
        help="Folder of local Spark's tables and metastore; default .tableferry/.",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the report as one self-contained HTML page."),
]


def parse_pairs(option: str, values: Iterable[str] | None) -> dict[str, str]:
    """Parse the values of an option, which have the form NAME=VALUE.

    Raises:
        InputError: A value has another form.
    """
    pairs = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InputError("OPTION_NOT_A_PAIR", option=option, text=text)
        pairs[name] = value
    return pairs


def parse_look_back(text: str | None) -> int | datetime | None:
    """Parse the limit of the versions to compare: a number of versions, a time, or an age.

    Raises:
        InputError: The text has another form.
    """
    if text is None:
        return None
    if text.isdigit() and int(text):
        return int(text)
    if ago := re.fullmatch(r"([0-9]{1,5})([hd])", text):
        return datetime.now(UTC) - (timedelta(hours=1) if ago[2] == "h" else timedelta(days=1)) * int(ago[1])
    try:
        since = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError("LOOK_BACK_INVALID", text=text) from error
    return since if since.tzinfo else since.replace(tzinfo=UTC)


def split_names(values: Iterable[str] | None) -> list[str]:
    """Return the names in texts, which are separated by commas or line ends."""
    names = (name.strip() for text in values or () for name in text.replace("\n", ",").split(","))
    return [name for name in names if name]


def write_file(file: Path, text: str, *, to_stderr: bool) -> None:
    """Write a file that an option names, and print its path.

    Raises:
        StateError: The file can't be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise StateError("OUTPUT_FILE_NOT_WRITABLE", file=file, reason=reason) from error
    typer.echo(f"Wrote {file}", err=to_stderr)
