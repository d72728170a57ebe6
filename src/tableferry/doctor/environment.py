"""The environment that the checks share: options, the Spark session, and scratch objects that are removed."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, assert_never

from tableferry import storage
from tableferry.errors import SessionError, TableferryError, first_line, is_sparks
from tableferry.spark import session, warehouse_lock
from tableferry.spark.session import Choice
from tableferry.spark.tables import TableName
from tableferry.storage import AnyPath
from tableferry.storage.paths import volume_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

T = TypeVar("T")

SCRATCH = "tableferry_doctor_scratch"
"""The start of the names of all scratch objects; a killed run leaves objects with such names."""


@dataclass(frozen=True)
class DoctorOptions:
    """The parts of the environment to check.

    Attributes:
        warehouse: The folder of local Spark; None: ``TABLEFERRY_WAREHOUSE``, or ``.tableferry``.
        state: The folder, volume path or URI of the migration's state; empty: it isn't checked.
        catalog: The catalog of the scratch schema; empty: the current one.
        schema: An existing schema for the scratch tables; empty: a scratch schema is created.
        store: The URL of a fleet's queue; empty: the one of the fleet's settings, if they name one.
        fleet_settings: The fleet's settings file; None: ``fleet.yml``, if it exists.
        fleet_env: The section of the settings file's environments; empty: none.
        pipeline_id: The id of a pipeline whose event log is read; empty: none is read.
        iceberg_catalog: The Spark catalog of Iceberg tables.
    """

    warehouse: Path | None = None
    state: str = ""
    catalog: str = ""
    schema: str = ""
    store: str = ""
    fleet_settings: Path | None = None
    fleet_env: str = ""
    pipeline_id: str = ""
    iceberg_catalog: str = "ice"


@dataclass(frozen=True)
class InPipeline:
    """The pipeline that runs the checks while it loads its source file.

    Attributes:
        functions: The module ``pyspark.pipelines`` or ``dlt``.
        table: A Delta table that the pipeline only describes and streams.
    """

    functions: Any
    table: str


class NoSession(Exception):
    """The session that a check needs can't be created, for this reason; another check reports it in full."""


class Environment:
    """Options, a session that starts at its first use, and scratch objects.

    Use it as a context manager: its end removes every scratch object, and stops a session that it started in
    a warehouse that it created. `left_over` then lists what couldn't be removed.
    """

    def __init__(
        self,
        options: DoctorOptions,
        *,
        spark: SparkSession | None = None,
        pipeline: InPipeline | None = None,
    ) -> None:
        self.options = options
        self.pipeline = pipeline
        self.left_over: list[str] = []
        self.choice: Choice = session.choose(os.environ, databricks_connect=session.has_databricks_connect())
        self.scratch_name = f"{SCRATCH}_{secrets.token_hex(4)}"
        self._spark = spark
        self._session_error: Exception | None = None
        self._removals = ExitStack()
        self._made: dict[str, Any] = {}
        self._errors: dict[str, Exception] = {}
        self._had_warehouse = self.warehouse.exists()
        self._owns_warehouse = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._removals.close()

    @property
    def is_local(self) -> bool:
        """Whether the session is local Spark of this machine."""
        return self.choice.kind == "local"

    @property
    def on_databricks(self) -> bool:
        """Whether the session is one of Databricks."""
        return self.choice.kind in ("runtime", "databricks-connect")

    @property
    def session_kind(self) -> str:
        """The kind of the session, for people."""
        match self.choice.kind:
            case "local":
                return "local Spark"
            case "runtime":
                return f"Databricks runtime {self.choice.detail}"
            case "databricks-connect":
                return f"Databricks Connect, {self.choice.detail}"
            case "remote":
                return "Spark Connect"
            case _:
                assert_never(self.choice.kind)

    @property
    def warehouse(self) -> Path:
        """The folder of local Spark."""
        named = self.options.warehouse or os.environ.get(session.WAREHOUSE_VARIABLE)
        return Path(named or session.DEFAULT_WAREHOUSE).expanduser().absolute()

    @property
    def running_session(self) -> SparkSession | None:
        """The session, if it has started."""
        return self._spark

    def start_session(self) -> SparkSession:
        """Return the session, and start it if it hasn't started.

        Raises:
            SessionError: It can't be created.
        """
        if self._session_error is not None:
            raise self._session_error
        if self._spark is None:
            try:
                warehouse = self.create_warehouse() if self.is_local else None
                # The line about the session's kind is only logged, because the report states it.
                self._spark = session.resolve(warehouse, iceberg=True, say=_log.debug)
            except Exception as error:
                self._session_error = error
                raise
            if self.is_local and not self._had_warehouse:
                # The session's files are in a folder that will be removed.
                self._remove_later("the Spark session", partial(self._stop_own_session, self._spark))
        return self._spark

    def lose_session(self, error: SessionError) -> None:
        """Raise this error for each later check that needs the session."""
        self._session_error = error

    def session(self) -> SparkSession:
        """Return the session for a check of something else.

        Raises:
            NoSession: It can't be created.
        """
        try:
            return self.start_session()
        except Exception as error:
            if isinstance(error, TableferryError | ModuleNotFoundError) or is_sparks(error):
                reason = error.condition if isinstance(error, TableferryError) else first_line(error)
                raise NoSession(reason) from error
            raise

    def create_warehouse(self) -> Path:
        """Create the folder of local Spark, and remove it at the end unless it existed before."""
        if not self.warehouse.exists():
            self._remove_missing_later(self.warehouse.parent)
            self._remove_later(str(self.warehouse), self._remove_warehouse)
        return warehouse_lock.create_folder(self.warehouse)

    def _stop_own_session(self, spark: SparkSession) -> None:
        try:
            # A schema or table of another process was created before this session locked the metastore.
            schemas = {row[0] for row in spark.sql("SHOW SCHEMAS").collect()}
            tables = spark.sql("SHOW TABLES IN default").collect()
            self._owns_warehouse = schemas == {"default"} and not tables
        finally:
            session.stop(spark)

    def _remove_warehouse(self) -> None:
        """Remove the folder that this run created, unless another process uses it or wrote to it."""
        try:
            lock = warehouse_lock.acquire(self.warehouse)
        except SessionError as error:
            if error.condition == "WAREHOUSE_IN_USE":
                return
            raise
        try:
            names = {path.name for path in self.warehouse.iterdir()}
            if self._owns_warehouse or names == {"metastore.lock"}:
                storage.remove(self.warehouse)
        finally:
            os.close(lock)

    def _remove_missing_later(self, folder: Path) -> None:
        """Remove a folder and its parents at the end: those that don't exist yet and are empty then."""
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            self._remove_later(str(path), partial(_remove_empty, path))

    @cached_property
    def scratch_schema(self) -> TableName:
        """The schema of scratch tables, which is created unless the options name an existing one."""
        spark, options = self.session(), self.options
        catalog = (options.catalog,) if options.catalog else ()
        if options.schema:
            return TableName((*catalog, options.schema))
        return self.create_schema(spark, catalog)

    def create_schema(self, spark: SparkSession, catalog: tuple[str, ...]) -> TableName:
        """Create a scratch schema in a catalog, and remove it at the end."""
        schema = TableName((*catalog, self.scratch_name))
        spark.sql(f"CREATE SCHEMA {schema.sql} COMMENT 'Scratch objects of tableferry doctor'")
        self._remove_later(str(schema), lambda: spark.sql(f"DROP SCHEMA IF EXISTS {schema.sql} CASCADE"))
        return schema

    def scratch_table(self, name: str, *, is_view: bool = False) -> TableName:
        """Return the name of a scratch table, which is dropped at the end if it exists."""
        schema = self.scratch_schema
        own = self.options.schema != ""
        table = TableName((*schema.parts, f"{self.scratch_name}_{name}" if own else name))
        if own:
            kind, spark = "VIEW" if is_view else "TABLE", self.session()
            self._remove_later(str(table), lambda: spark.sql(f"DROP {kind} IF EXISTS {table.sql}"))
        return table

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Return the value of the first call with this key, or raise its error: several checks share it."""
        if key in self._errors:
            raise self._errors[key]
        if key not in self._made:
            try:
                self._made[key] = make()
            except Exception as error:
                self._errors[key] = error
                raise
        value: T = self._made[key]
        return value

    def drop_later(self, spark: SparkSession, quoted: str) -> None:
        """Drop a table at the end if it exists; its name is quoted for SQL."""
        self._remove_later(quoted, lambda: spark.sql(f"DROP TABLE IF EXISTS {quoted}"))

    @cached_property
    def state_folder(self) -> AnyPath | None:
        """A scratch folder in the state's folder; None if the options name none."""
        if not self.options.state:
            return None
        root = storage.path_of(self.options.state)
        if isinstance(root, Path) and storage.is_mounted(root):
            self._remove_missing_later(root.absolute())
        folder = root / self.scratch_name
        self._remove_later(str(folder), lambda: storage.remove(folder))
        return folder

    @cached_property
    def spark_folder(self) -> str | None:
        """A scratch folder that Spark can write; None if the options name none that Spark shares."""
        if self.is_local:
            local = self.warehouse / self.scratch_name
            self._remove_later(str(local), lambda: storage.remove(local))
            return str(local)
        folder = self.state_folder
        # Another machine's Spark doesn't share this machine's disks.
        if folder is None or (isinstance(folder, Path) and volume_of(folder) is None):
            return None
        return f"{folder}/spark"

    def _remove_later(self, name: str, remove: Callable[[], object]) -> None:
        def removal() -> None:
            try:
                remove()
            except Exception as error:
                # The other objects must be removed too, and the class of this error depends on the object.
                reason = error.sentence if isinstance(error, TableferryError) else first_line(error)
                self.left_over.append(f"{name} ({reason})")

        self._removals.callback(removal)


def nearest_folder(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _remove_empty(path: Path) -> None:
    """Remove a folder unless another process wrote to it."""
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()
