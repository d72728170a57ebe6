"""What the commands of a fleet share: their options, its settings and its queue."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tableferry import fleet
from tableferry.cli.options import pairs, resolved
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.loading import load
from tableferry.fleet.settings import FleetSettings
from tableferry.tables import DEFAULT_CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.fleet.queue.store import Store

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The queue: sqlite:///FILE, postgresql+psycopg://…, mysql+pymysql://… or delta:CATALOG.SCHEMA.",
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="The settings' file; default fleet.yml, if it's there."),
]
Env = Annotated[
    str | None,
    typer.Option("--env", metavar="NAME", help="Which section of the file's environments applies."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, such as mail.host=… (may be repeated)."),
]
Catalog = Annotated[
    str, typer.Option("--catalog", metavar="NAME", help="The catalog of names that are written without one.")
]
Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="Tables, or patterns such as sales.*", show_default=False),
]
MoreTables = Annotated[
    list[str] | None, typer.Option("--tables", metavar="A,B", help="More of them, separated by commas.")
]
Files = Annotated[
    list[Path] | None,
    typer.Option("--file", metavar="FILE", help="A name a line, or a CSV file with a column 'table'."),
]
Query = Annotated[
    str, typer.Option("--query", metavar="SQL", help="A query that gives catalog, schema and table.")
]
Target = Annotated[TargetFormat | None, typer.Option("--target-format", help="What the tables become.")]

CATALOG = DEFAULT_CATALOG


@dataclass(frozen=True)
class Fleet:
    """A fleet, opened.

    Attributes:
        settings: What holds for it.
        store: Its queue.
        spark: Gives the session, which is started at the first call.
    """

    settings: FleetSettings
    store: Store
    spark: Callable[[], SparkSession]


@dataclass(frozen=True)
class Where:
    """Which fleet is meant, as the command line says it.

    Attributes:
        store: The queue's URL.
        file: The settings' file.
        env: The section of it.
        warehouse: Where local Spark keeps tables.
        flags: Other settings, by their names.
        written: The same, as NAME=VALUE.
    """

    store: str | None = None
    file: Path | None = None
    env: str | None = None
    warehouse: Path | None = None
    flags: dict[str, str | int | None] = field(default_factory=dict)
    written: list[str] | None = None

    def settings(self) -> FleetSettings:
        """Load the settings."""
        flags = {"store": self.store, **self.flags}
        given = {name: str(value) for name, value in flags.items() if value is not None}
        more = pairs("--set", self.written or ())
        return load({**more, **given}, file=self.file, env=self.env, environ=os.environ)

    @contextmanager
    def opened(self) -> Iterator[Fleet]:
        """Open the queue, and close it."""
        settings = self.settings()
        spark = partial(resolved, self.warehouse, iceberg=True)
        secret = settings.store_password_secret
        store = fleet.open_store(settings.store, resolve=spark, password_secret=secret)
        try:
            yield Fleet(settings, store, spark)
        finally:
            store.close()


def share(written: str) -> tuple[int, int]:
    """Read ``I/N``, the I-th of N workers, counted from one.

    Raises:
        typer.BadParameter: It isn't that.
    """
    number, slash, of = written.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise typer.BadParameter(f"--worker {written}: write it as I/N, the I-th of N workers, such as 1/4")
    return int(number) - 1, int(of)


def separated(written: list[str] | None) -> list[str]:
    """Take names apart that are separated by commas or line ends."""
    return [
        name.strip() for text in written or () for name in text.replace("\n", ",").split(",") if name.strip()
    ]


def many(count: int, what: str) -> str:
    """Count things in words."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def without_password(url: str) -> str:
    """Write a queue's URL as anybody may read it."""
    return re.sub(r"^([a-z0-9+]+://[^:@/]*):.*@", r"\1:***@", url)
