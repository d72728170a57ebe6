"""Options that several commands share, and how their values are read."""

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
    typer.Option("--environment", "-e", metavar="NAME", help="Which NAME_substitutions file applies."),
]
Tokens = Annotated[
    list[str] | None,
    typer.Option(
        "--token",
        metavar="NAME=VALUE",
        help="A token of the substitutions, such as pipeline_schema (may be repeated).",
    ),
]
Warehouse = Annotated[
    Path | None,
    typer.Option(
        "--warehouse",
        metavar="DIR",
        help="Where local Spark keeps tables and metastore; default .tableferry/.",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write it as one self-contained page.")
]


def parse_pairs(option: str, values: Iterable[str] | None) -> dict[str, str]:
    """Read the values of an option that is written NAME=VALUE.

    Raises:
        InputError: One isn't.
    """
    pairs = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InputError("OPTION_NOT_A_PAIR", option=option, text=text)
        pairs[name] = value
    return pairs


def parse_look_back(text: str | None) -> int | datetime | None:
    """Read how far back versions are looked at: how many, a time, or how long ago.

    Raises:
        InputError: It's none of these.
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
    """Return the names in texts that separate them by commas or line ends."""
    names = (name.strip() for text in values or () for name in text.replace("\n", ",").split(","))
    return [name for name in names if name]


def write_file(file: Path, text: str, *, to_stderr: bool) -> None:
    """Write a file that an option names, and say so.

    Raises:
        StateError: It can't be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise StateError("OUTPUT_FILE_NOT_WRITABLE", file=file, reason=reason) from error
    typer.echo(f"Wrote {file}", err=to_stderr)
