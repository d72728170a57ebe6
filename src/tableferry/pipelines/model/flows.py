"""The compiled form of every data flow spec: views, flows, targets and migrations.

The module depends neither on the files of a spec nor on Spark. `specs` builds these classes, `planning`
decides on them, and the engines run them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tableferry.errors import Problem
from tableferry.spark.quoting import unquote
from tableferry.spark.tables import TableName

HandOverMethod = Literal["checkpoint", "content", "version", "explicit"]
"""Old streams' checkpoints, a comparison of rows, the current source versions, or the spec's own starts."""

BY_VERSION = "set handOver to version, which loses the rows that the old job hasn't processed yet"
"""The advice to start the flows after the current source versions."""

Start = int | str
"""A starting version, ``latest``, or ``timestamp:…`` with a starting timestamp."""

Mode = Literal["stream", "batch"]
ScdType = Literal[1, 2]

Deduplicate = Literal["off", "full_row", "keys_only"]
RefreshPolicy = Literal["auto", "incremental", "incremental_strict", "full"]

AUTO_LOADER = "cloudFiles"
"""The reader format of Auto Loader, which only Databricks has."""

QUARANTINED_COLUMN = "is_quarantined"
"""The column that contains whether a row breaks a data quality rule."""

RESET_ALLOWED = "pipelines.reset.allowed"
"""The table property that allows a pipeline to refresh the table in full; its default is true."""

HISTORY_VIEW = "v_tableferry_history"
HISTORY_FLOW = "f_tableferry_history"
"""The view and the flow of the initial copy."""

_LOG = "__tableferry_events_"


@dataclass(frozen=True)
class PythonCode:
    """A Python function in a file or a module of the project.

    Attributes:
        file: The absolute path of a ``.py`` file; None if ``module`` is set.
        module: ``package.module.function``; None if ``file`` is set.
        tokens: The argument of the function.
        folders: Folders of the project that are also searched for the module.
    """

    file: str | None
    module: str | None
    tokens: Mapping[str, Any] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeltaSource:
    """Rows or changes of a Delta table.

    Read order: load, ``transform``, ``where``, ``select``, then the change-feed columns are dropped.

    Attributes:
        table: The table, by name or by path.
        change_feed: Read the change data feed, not the rows.
        change_types: The ``_change_type`` values to keep of a change data feed.
        from_setup: Read changes from the version at which the table's own pipeline last set it up.
        options: The user's reader options, values as text.
        where: SQL conditions, joined with AND.
        select: SQL expressions; empty means every column.
        schema_file: Absolute path of a .json or .ddl schema, or None.
        transform: A function ``apply_transform(df, tokens) -> DataFrame``, or None.
    """

    table: TableName
    change_feed: bool = False
    change_types: tuple[str, ...] = ("insert", "update_postimage")
    options: Mapping[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    schema_file: str | None = None
    transform: PythonCode | None = None
    from_setup: bool = False


@dataclass(frozen=True)
class JoinSide:
    """An input of a join, which is streamed or read whole (static)."""

    alias: str
    mode: Literal["stream", "static"]
    source: DeltaSource


@dataclass(frozen=True)
class Join:
    """The join of a side with all sides to its left."""

    kind: Literal["left", "inner"]
    condition: str


@dataclass(frozen=True)
class JoinSource:
    """A join of Delta tables: ``sides[0] joins[0] sides[1] joins[1] sides[2] …``, then where, then select."""

    sides: tuple[JoinSide, ...]
    joins: tuple[Join, ...]
    where: tuple[str, ...] = ()
    select: tuple[str, ...] = ()


@dataclass(frozen=True)
class SqlSource:
    """A SELECT. It streams each ``STREAM(name)``, and reads other tables whole."""

    statement: str


@dataclass(frozen=True)
class PythonSource:
    """A function ``get_df(spark, tokens) -> DataFrame``."""

    code: PythonCode


@dataclass(frozen=True)
class ReaderSource:
    """Files or a broker (cloudFiles, kafka, batchFiles) that Spark reads by format.

    The other attributes are those of `DeltaSource`.

    Attributes:
        format: Spark's name of the reader.
        path: The argument of ``load``, or None.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    where: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    schema_file: str | None = None


@dataclass(frozen=True)
class HistorySource:
    """The legacy table at its pinned version, mapped by the migration's expressions.

    Attributes:
        migration: The migration.
        version: The pinned version.
        cdc: The target's AUTO CDC settings; None for an append target.
        clone: A clone of the pinned version to stream; None reads the version whole.
    """

    migration: Migration
    version: int
    cdc: CdcSettings | None
    clone: TableName | None = None


Source = DeltaSource | JoinSource | SqlSource | PythonSource | ReaderSource | HistorySource


@dataclass(frozen=True)
class View:
    """A named input of a flow.

    Attributes:
        mode: ``stream`` reads commit by commit, ``batch`` reads the whole source.
        location: Its place in the spec, for messages: ``orders_main.json: sourceDetails``.
    """

    name: str
    mode: Mode
    source: Source
    location: str


@dataclass(frozen=True)
class CdcSettings:
    """The settings of AUTO CDC.

    Attributes:
        keys: Columns that identify a row.
        sequence_by: SQL expression that orders the events of a key.
        scd_type: 1 keeps the newest row, 2 keeps every validity interval.
        where: SQL condition on the events, or None.
        apply_as_deletes: SQL condition that makes an event a delete, or None.
        apply_as_truncates: SQL condition that makes an event a truncate (SCD type 1 only), or None.
        ignore_null_updates: A NULL in an update keeps the current value.
        column_list: The columns that the target keeps; empty means all.
        except_column_list: The columns that the target leaves out.
        track_history_column_list: Only these columns' changes open a new interval; empty means all.
        track_history_except_column_list: All but these columns' changes open a new interval.
    """

    keys: tuple[str, ...]
    sequence_by: str
    scd_type: ScdType
    where: str | None = None
    apply_as_deletes: str | None = None
    apply_as_truncates: str | None = None
    ignore_null_updates: bool = False
    column_list: tuple[str, ...] = ()
    except_column_list: tuple[str, ...] = ()
    track_history_column_list: tuple[str, ...] = ()
    track_history_except_column_list: tuple[str, ...] = ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the key columns, without the backticks that a spec may have around them."""
        return tuple(map(unquote, self.keys))


def cdc_settings(cdc: CdcSettings | None) -> Mapping[str, str]:
    """Return the settings of AUTO CDC that determine the rows, as text; empty for an append target."""
    if cdc is None:
        return {}
    return {"keys": ", ".join(cdc.keys), "scd_type": str(cdc.scd_type), "sequence_by": cdc.sequence_by}


def event_log_name(target: TableName) -> TableName:
    """Return the name of a target's event log: a table in the target's schema or folder."""
    if target.path is not None:
        folder, name = posixpath.split(target.path)
        return TableName.at(posixpath.join(folder, _LOG + name))
    return TableName((*target.parts[:-1], _LOG + target.table))


@dataclass(frozen=True)
class SnapshotFiles:
    """Snapshots of a table in files, with the snapshot's version in the path.

    Attributes:
        format: Spark's name of the reader.
        path: A pattern: ``{version}`` and ``{fragment}``, or a regular expression with the named groups
            ``version_…`` and ``fragment``, from the first path segment that has one.
        options: The user's reader options, values as text.
        version_type: The type of the versions.
        starting_version: The first version to read, as in the path; None for all.
        datetime_format: Python's format of a ``timestamp`` version.
        where: SQL condition on the rows, or None. ``{version}`` is the version as in the path.
        select: SQL expressions; empty means every column.
        schema_file: Absolute path of a .json or .ddl schema, or None.
        recursive: Read files in subfolders too.
        deduplicate: The rows of a snapshot that count as duplicates and are left out.
    """

    format: str
    path: str
    version_type: Literal["integer", "timestamp"]
    options: Mapping[str, str] = field(default_factory=dict)
    starting_version: str | int | None = None
    datetime_format: str | None = None
    where: str | None = None
    select: tuple[str, ...] = ()
    schema_file: str | None = None
    recursive: bool = False
    deduplicate: Deduplicate = "off"


@dataclass(frozen=True)
class SnapshotTable:
    """Snapshots of a table in another table. Its ``version_column`` contains the version of a row's snapshot.

    The other attributes are those of `SnapshotFiles`.
    """

    table: TableName
    version_column: str
    version_type: Literal["date", "timestamp", "integer", "long"]
    starting_version: str | int | None = None
    select: tuple[str, ...] = ()
    deduplicate: Deduplicate = "off"


@dataclass(frozen=True)
class SnapshotCdc:
    """The settings of AUTO CDC from snapshots.

    Attributes:
        source: The name of a view that each run reads as a snapshot, or the historical snapshots.
        location: Its place in the spec, for messages.

    The other attributes are those of `CdcSettings`.
    """

    keys: tuple[str, ...]
    scd_type: ScdType
    source: str | SnapshotFiles | SnapshotTable
    track_history_column_list: tuple[str, ...] = ()
    track_history_except_column_list: tuple[str, ...] = ()
    location: str = ""


@dataclass(frozen=True)
class Expectation:
    """A data quality rule.

    Attributes:
        constraint: An SQL condition that rows must meet.
        action: The treatment of rows that break it. ``flag`` sets the column `QUARANTINED_COLUMN`.
            ``quarantine`` keeps only rows that break the rule.
    """

    name: str
    constraint: str
    action: Literal["warn", "drop", "fail", "flag", "quarantine"]


@dataclass(frozen=True)
class MetadataColumn:
    """A column about the origin of a row: an SQL expression, a detail of the run, or a struct of both.

    Attributes:
        type: Its type as JSON, as in Spark's schemas.
        sql: The SQL expression of its value, or None.
        detail: The name of the detail of the run or the pipeline, or None.
        value: The value of that detail if it is known before the run, or None.
        fields: The columns of a struct; empty for other columns.
    """

    name: str
    type: str
    sql: str | None = None
    detail: str | None = None
    value: str | None = None
    fields: tuple[MetadataColumn, ...] = ()


@dataclass(frozen=True)
class Target:
    """A streaming table that flows fill.

    Attributes:
        cdc: The AUTO CDC settings; None for appends.
        schema_file: Absolute path of a .json or .ddl schema, or None.
        cluster_auto: Databricks chooses the clustering; ignored elsewhere.
        properties: Table properties, including the mandatory ones of global.json.
        path: The folder of an external table, or None.
        spark_conf: Spark settings for its flows.
        expectations: Data quality rules for the rows of flows, but not for the copied history.
        location: Its place in the spec, for messages.
        metadata: Columns that are added to the rows of flows. The copied history contains its own values.
        snapshots: The snapshots that fill it in place of flows, or None.
    """

    name: TableName
    cdc: CdcSettings | None = None
    schema_file: str | None = None
    partition_columns: tuple[str, ...] = ()
    cluster_columns: tuple[str, ...] = ()
    cluster_auto: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    comment: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    row_filter: str | None = None
    expectations: tuple[Expectation, ...] = ()
    location: str = ""
    metadata: tuple[MetadataColumn, ...] = ()
    snapshots: SnapshotCdc | None = None

    @property
    def is_reset_allowed(self) -> bool | None:
        """Whether the spec allows a pipeline to refresh it in full; None if the spec sets nothing."""
        value = self.properties.get(RESET_ALLOWED)
        return None if value is None else value.lower() == "true"


@dataclass(frozen=True)
class Flow:
    """A flow that appends or applies a view to a target.

    Attributes:
        name: ``f_…``, unique for its target.
        kind: ``append`` or ``cdc`` (the spec's ``merge``; it uses the target's `CdcSettings`).
        view: The name of the view it reads, in the same `DataFlow`.
        column_prefix: Prefix of all column names except ``column_prefix_exceptions``.
    """

    name: str
    kind: Literal["append", "cdc"]
    target: TableName
    view: str
    once: bool = False
    column_prefix: str | None = None
    column_prefix_exceptions: tuple[str, ...] = ()
    location: str = ""


@dataclass(frozen=True)
class Migration:
    """The migration of a legacy table's history into a target.

    Attributes:
        catalog_type: The catalog of the legacy table: Hive metastore or Unity Catalog.
        auto_starting_versions: Record baselines and start the streaming flows after them.
        select: SQL expressions over the legacy table; empty means every column.
        where: SQL conditions on it, joined with AND.
        except_columns: Columns that are left out after ``select``.
        leave_out_unrepresentable: Leave out and count the validity rows that AUTO CDC can't represent.
        take_over: The legacy table is the target, and isn't copied.
        pinned_clone: If a pipeline fills an SCD target, the copy streams a clone of the pinned version.
        hand_over: The source of the hand-over point.
        content_fallback: For ``checkpoint``: compare rows if a stream didn't write with Delta's sink.
        content_first: For ``version``: prefer versions that a comparison proves to the current ones.
        checkpoints: The checkpoint folders of the old streams, for ``checkpoint``.
        uncompared_columns: Columns that comparisons with the legacy table leave out.
    """

    table: TableName
    catalog_type: Literal["hms", "uc"]
    auto_starting_versions: bool = True
    select: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    except_columns: tuple[str, ...] = ()
    leave_out_unrepresentable: bool = False
    pinned_clone: bool = True
    take_over: bool = False
    hand_over: HandOverMethod = "version"
    content_fallback: bool = False
    content_first: bool = False
    checkpoints: tuple[str, ...] = ()
    uncompared_columns: tuple[str, ...] = ()
    location: str = ""


@dataclass(frozen=True)
class DataFlow:
    """A compiled data flow spec.

    Attributes:
        file: The name of the spec's main file, for messages.
        staging: Staging tables of its flow groups.
        views: By name.
        flows: Enabled flows in the spec's order, including those into staging tables.
        migration: The enabled migration, or None.
        disabled: Names of the disabled flows. Their checkpoints are kept.
        quarantine: The table of the rows that break a rule of the target, or None.
    """

    id: str
    file: str
    target: Target
    staging: tuple[Target, ...]
    views: Mapping[str, View]
    flows: tuple[Flow, ...]
    migration: Migration | None = None
    disabled: frozenset[str] = frozenset()
    quarantine: Target | None = None

    @property
    def key(self) -> str:
        """The `TableName.key` of its target."""
        return self.target.name.key

    @property
    def tables(self) -> tuple[Target, ...]:
        """The tables that its flows fill: its target, its staging tables and its quarantine."""
        return (self.target, *self.staging, *([self.quarantine] if self.quarantine else []))

    @property
    def streaming_flows(self) -> tuple[Flow, ...]:
        """The flows that run for as long as commits arrive."""
        return tuple(flow for flow in self.flows if not flow.once)


@dataclass(frozen=True)
class MaterializedView:
    """A table that contains the result of a view at the last update.

    Attributes:
        id: The ``dataFlowId`` of its spec, which may define several.
        target: The table, with the expectations on the view's rows.
        views: The view and the views that it reads, by name.
        view: The name of the view.
        refresh_policy: The way in which Databricks updates it, or None.
        private: It is visible only inside the pipeline.
        quarantine: The materialized view of the rows that break a rule of this one, or None.
    """

    id: str
    file: str
    target: Target
    views: Mapping[str, View]
    view: str
    refresh_policy: RefreshPolicy | None = None
    private: bool = False
    quarantine: Target | None = None


@dataclass(frozen=True)
class SkippedSpec:
    """A spec that Tableferry, or the engine of the run, can't run."""

    file: str
    target: TableName | None
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        """Name the spec and the reasons in one line."""
        spec = f"{self.file} ({self.target})" if self.target else self.file
        return f"{spec} is skipped: " + "; ".join(problem.text for problem in self.problems)


@dataclass(frozen=True)
class Project:
    """All data flows of a project, and their common settings.

    Attributes:
        root: The project's folder (or the one spec file's folder), absolute.
        name: The folder's name.
        dataflows: Ordered by target.
        state_volume: ``table_migration_state_volume_path``, relative to ``root`` if it is a relative path;
            None if unset.
        spark_config: Spark settings of global.json.
        state_shared: Several machines may run the project on its state; None if the volume's path decides.
        materialized: Ordered by target.
    """

    root: str
    name: str
    dataflows: tuple[DataFlow, ...]
    state_volume: str | None = None
    spark_config: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[SkippedSpec, ...] = ()
    state_shared: bool | None = None
    materialized: tuple[MaterializedView, ...] = ()

    def select_dataflows(self, only: Collection[str]) -> tuple[DataFlow, ...]:
        """Return the data flows with these keys; no keys mean all."""
        return tuple(dataflow for dataflow in self.dataflows if not only or dataflow.key in only)

    @property
    def reads_kafka(self) -> bool:
        """Whether a view reads Kafka."""
        views = (view for dataflow in self.dataflows for view in dataflow.views.values())
        return any(isinstance(view.source, ReaderSource) and view.source.format == "kafka" for view in views)

    def list_checkpoint_folders(self, migration: Migration) -> tuple[Path, ...]:
        """Return the checkpoint folders of a migration's old streams."""
        return tuple(Path(self.root, folder) for folder in migration.checkpoints)


def explicit_start(options: Mapping[str, str]) -> int | str | None:
    """Return the start in reader options, or None. The names of options are case-insensitive."""
    lowered = {name.lower(): value for name, value in options.items()}
    if version := lowered.get("startingversion"):
        return int(version) if version.isdigit() else version
    if timestamp := lowered.get("startingtimestamp"):
        return f"timestamp:{timestamp}"
    return None
