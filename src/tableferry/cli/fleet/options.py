"""Options, settings and the queue, which the commands of a fleet share."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tableferry import fleet
from tableferry.cli.options import parse_pairs, split_names
from tableferry.cli.spark import resolve_session
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.fleet.queue.store import Store
    from tableferry.fleet.settings import FleetSettings

Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="Tables, or patterns such as 'sales.*'", show_default=False),
]
Catalog = Annotated[
    str, typer.Option("--catalog", metavar="NAME", help="The catalog of names without a catalog.")
]
Target = Annotated[TargetFormat | None, typer.Option("--target-format", help="The format of the new tables.")]


MoreTables = Annotated[
    list[str] | None, typer.Option("--tables", metavar="A,B", help="More tables, separated by commas.")
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", metavar="FILE", help="A file with one name per line, or a CSV file with a column 'table'."
    ),
]
Query = Annotated[
    str, typer.Option("--query", metavar="SQL", help="A query that returns catalog, schema and table.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The queue: sqlite:///FILE, postgresql+psycopg://…, mysql+pymysql://… or delta:CATALOG.SCHEMA.",
    ),
]
SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="The settings file; default fleet.yml, if it exists."),
]
EnvOption = Annotated[
    str | None,
    typer.Option("--env", metavar="NAME", help="Apply this section of the file's environments."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, such as mail.host=… (repeatable)."),
]


def table_patterns(tables: Sequence[str] | None, more_tables: Sequence[str] | None) -> list[str]:
    """Return the names and patterns of tables of both options."""
    return [*(tables or ()), *split_names(more_tables)]


@dataclass(frozen=True)
class TableOptions:
    """The options that select tables, which may have no job yet."""

    tables: Sequence[str] | None
    more_tables: Sequence[str] | None
    files: Sequence[Path] | None
    query: str

    def named(
        self, catalog: str, owners: Sequence[str] = (), users: Sequence[str] = (), wave: str = ""
    ) -> fleet.TableSelection:
        """Return the selected tables as an argument of `fleet.register`."""
        if not catalog.strip() or set(catalog) & set("*?./`"):
            raise typer.BadParameter(f"'{catalog}' isn't the name of a catalog", param_hint="--catalog")
        return fleet.TableSelection(
            table_patterns(self.tables, self.more_tables),
            self.files or (),
            self.query,
            catalog.strip().lower(),
            # A script may pass an empty variable.
            tuple(filter(None, map(str.strip, owners))),
            tuple(filter(None, map(str.strip, users))),
            wave or None,
        )


@dataclass(frozen=True)
class OpenFleet:
    """An open fleet; the first call of `spark` starts its session."""

    settings: FleetSettings
    store: Store
    spark: Callable[[], SparkSession]

    def warehouse(self) -> fleet.Warehouse:
        """Start a session, and return the fleet's warehouse."""
        return self.warehouse_opener()()

    def warehouse_opener(self) -> Callable[[], fleet.Warehouse]:
        """Return a function that starts a session at its first call, and returns the same warehouse at each.

        Raises:
            TableError: The users file, which is read immediately, is invalid.
        """
        settings = self.settings
        users = fleet.read_users(settings.users_file) if settings.users_file else {}

        @cache
        def opened() -> fleet.Warehouse:
            spark = self.spark()
            access = fleet.open_access(spark, users=users, require_lineage=settings.require_lineage)
            return fleet.Warehouse.of(spark, access, settings, serverless=session.on_serverless())

        return opened


@dataclass(frozen=True)
class FleetOptions:
    """The options that select a queue and its settings.

    Attributes:
        store: The URL of the queue; None: as in the settings.
        settings_file: The file with the settings; None: the default.
        env: The section of the file's environments.
        setting: Settings as ``NAME=VALUE``; None for a command that has only the queue's options.
        local_warehouse: The folder of local Spark; None: the default.
    """

    store: str | None
    settings_file: Path | None
    env: str | None
    setting: Sequence[str] | None
    local_warehouse: Path | None

    @contextmanager
    def open(self, **flags: str | int | None) -> Iterator[OpenFleet]:
        """Open the queue, and close it afterwards; flags are settings that have separate options."""
        flags = {"store": self.store, **flags}
        given = {name: str(value) for name, value in flags.items() if value is not None}
        settings = fleet.settings_file.load(
            {**parse_pairs("--set", self.setting), **given},
            file=self.settings_file,
            env=self.env,
            environ=os.environ,
        )
        spark = partial(resolve_session, self.local_warehouse, iceberg=True)
        secret = settings.store_password_secret
        store = fleet.open_store(settings.store, resolve=spark, password_secret=secret)
        try:
            yield OpenFleet(settings, store, spark)
        finally:
            store.close()


def redact_password(url: str) -> str:
    """Return a queue's URL without its password."""
    url = re.sub(r"^([a-z0-9+]+://[^:@/]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&](?:password|passwd)=)[^&]*", r"\1***", url)


def current_user() -> str:
    """Return the name of the user who runs the command, for the events of jobs."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container, the user id may have no name.
        return f"uid {os.getuid()}"
