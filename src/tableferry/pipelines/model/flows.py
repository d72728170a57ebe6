"""The one shape that every data flow spec becomes: what reads what, and what it fills.

Nothing here knows files, pydantic or Spark. `spec` makes these, `plan` decides over them, `views` reads them
with Spark and the engines run them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tableferry.errors import Problem
from tableferry.spark.tables import TableName

HandOverBy = Literal["checkpoint", "content", "version", "explicit"]
"""The old streams' checkpoints, comparing rows, the sources' versions of the moment, or the spec itself."""

BY_VERSION = "set handOver to version, which loses the rows that the old job hasn't processed yet"
"""The last resort, for messages: the new flows start after the sources' current versions."""

Mode = Literal["stream", "batch"]
ScdType = Literal[1, 2]

Deduplicate = Literal["off", "full_row", "keys_only"]
RefreshPolicy = Literal["auto", "incremental", "incremental_strict", "full"]

AUTO_LOADER = "cloudFiles"
"""The reader of Auto Loader, which only Databricks has."""

QUARANTINED = "is_quarantined"
"""The column that says of a row whether it breaks a data quality rule."""

_LOG = "__tableferry_events_"


@dataclass(frozen=True)
class PythonCode:
    """A Python function from the project: a file or a module, and the tokens it's called with.

    Attributes:
        file: The absolute path of a ``.py`` file, or None where ``module`` is given.
        module: ``package.module.function`` (the function included), or None where ``file`` is given.
        tokens: Passed to the function as they stand.
        folders: The project's own folders in which a module is looked for too.
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
        change_types: Which ``_change_type`` values pass, where ``change_feed``.
        from_setup: Its changes count from the version at which its own pipeline last set it up.
        options: The user's reader options, values as text.
        where: SQL conditions, all of which must hold.
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
    """One input of a join: its alias in the conditions, and whether it's followed or looked up."""

    alias: str
    mode: Literal["stream", "static"]
    source: DeltaSource


@dataclass(frozen=True)
class Join:
    """How the n-th side (from the second on) joins what stands left of it."""

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
    """A SELECT; what it reads as ``STREAM(name)`` is followed, everything else is looked up."""

    statement: str


@dataclass(frozen=True)
class PythonSource:
    """A function ``get_df(spark, tokens) -> DataFrame``."""

    code: PythonCode


@dataclass(frozen=True)
class OtherSource:
    """Files or a broker (cloudFiles, kafka, batchFiles): read by Spark's own reader, never tracked.

    ``format`` is Spark's name of the reader, ``path`` what ``load`` is given; the others are `DeltaSource`'s.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    where: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    schema_file: str | None = None


@dataclass(frozen=True)
class HistorySource:
    """The legacy table as it stood when the migration started, mapped by the migration's own expressions.

    Attributes:
        migration: What is copied, and how it's mapped.
        version: The version that the copy is pinned to.
        cdc: The target's settings, or None if it's plain appends.
        clone: A clone of that version which nobody writes to, to be streamed; None reads the version whole.
    """

    migration: Migration
    version: int
    cdc: CdcSettings | None
    clone: TableName | None = None


Source = DeltaSource | JoinSource | SqlSource | PythonSource | OtherSource | HistorySource


@dataclass(frozen=True)
class View:
    """A named input of a flow.

    Attributes:
        mode: ``stream``: followed commit by commit; ``batch``: read whole.
        location: Where the spec defines it, for messages: ``orders_main.json: sourceDetails``.
    """

    name: str
    mode: Mode
    source: Source
    location: str


@dataclass(frozen=True)
class CdcSettings:
    """AUTO CDC's settings, in its own words.

    Attributes:
        keys: Columns that identify a row.
        sequence_by: SQL expression that orders the events of a key.
        scd_type: 1 keeps the newest row; 2 keeps every validity interval.
        where: SQL condition on the events, or None.
        apply_as_deletes: SQL condition that makes an event a delete, or None.
        apply_as_truncates: SQL condition that makes an event a truncate (SCD type 1 only), or None.
        ignore_null_updates: A NULL in an update keeps the older value.
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


def log_name(target: TableName) -> TableName:
    """Name the table beside a target of AUTO CDC that holds its events; it goes where the target goes."""
    if target.path is not None:
        folder, name = posixpath.split(target.path)
        return TableName.at(posixpath.join(folder, _LOG + name))
    return TableName((*target.parts[:-1], _LOG + target.table))


@dataclass(frozen=True)
class SnapshotFiles:
    """Snapshots of a table in files, each file with its snapshot's version in its path.

    Attributes:
        format: Spark's name of the reader.
        path: A pattern: ``{version}`` and ``{fragment}``, or a regular expression with the named groups
            ``version_…`` and ``fragment``, from the first path segment that has one.
        options: The user's reader options, values as text.
        version_type: What a version is read as.
        starting_version: The first version that counts, as it's written; None for all.
        datetime_format: Python's format of a ``timestamp`` version.
        where: SQL condition on the rows, in which ``{version}`` is the version as it's written; or None.
        select: SQL expressions; empty means every column.
        schema_file: Absolute path of a .json or .ddl schema, or None.
        recursive: Files below subfolders count too.
        deduplicate: Which rows of a snapshot are left out as repeated ones.
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
    """Snapshots of a table in another one, whose ``version_column`` says which row is of which snapshot.

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
    """AUTO CDC from snapshots, in its own words.

    Attributes:
        source: The name of the view that is a snapshot at each run, or where the snapshots of all times are.
        location: Where the spec asks for it, for messages.

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
    """A data quality rule: what happens to a row whose ``constraint`` doesn't hold.

    Attributes:
        action: ``flag`` lets the column `QUARANTINED` say whether it holds; ``quarantine`` lets only rows
            pass for which it doesn't.
    """

    name: str
    constraint: str
    action: Literal["warn", "drop", "fail", "flag", "quarantine"]


@dataclass(frozen=True)
class MetadataColumn:
    """A column that says how a row came: from SQL, from a detail of the run, or a struct of such columns.

    Attributes:
        type: Its type as JSON, as Spark writes it in a schema.
        sql: The SQL expression that gives its value, or None.
        detail: The detail of the run or the pipeline that is its value, or None.
        value: That detail where it's known before the run, or None.
        fields: The columns of a struct; empty where it has a value itself.
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
        cdc: How events become rows, or None for plain appends.
        schema_file: Absolute path of a .json or .ddl schema, or None.
        cluster_auto: Databricks chooses the clustering; elsewhere it says nothing.
        properties: Table properties, the mandatory ones of global.json included.
        path: Where its data lies, for an external table, or None.
        spark_conf: Settings that its flows want.
        expectations: Data quality rules on what flows in; the copied history isn't judged by them.
        location: Where the spec defines it, for messages.
        metadata: Columns that what flows in gets; the copied history has its own.
        snapshots: The snapshots that it's filled from, or None; then no flow fills it.
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


@dataclass(frozen=True)
class Flow:
    """One flow: a view's rows or events into a target.

    Attributes:
        name: ``f_…``, unique for its target.
        kind: ``append`` or ``cdc`` (the spec's ``merge``; it uses the target's `CdcSettings`).
        view: The name of the view it reads, in the same `DataFlow`.
        column_prefix: Put before every column's name, but for those in ``column_prefix_exceptions``.
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
    """The table whose history is copied into the target before its streaming flows go on.

    Attributes:
        catalog_type: ``hms`` or ``uc``: where the legacy table is registered.
        auto_starting_versions: Record the sources' versions and start the streaming flows right behind them.
        select: SQL expressions over the legacy table; empty means every column.
        where: SQL conditions on it, all of which must hold.
        except_columns: Columns that are left out after ``select``.
        leave_out_not_representable: Leave out validity rows that AUTO CDC can't represent, and say how many.
        take_over: The legacy table is the target itself, and isn't copied.
        pinned_clone: Where a pipeline fills an SCD target, its copy streams a clone of the pinned version.
        hand_over: What says where the streaming flows go on.
        or_content: For ``checkpoint``: compare rows where the stream didn't write by a sink of its own.
        content_first: For ``version``: use the versions that rows prove, and the newest ones where none fits.
        checkpoints: Those of the old streams that fill the legacy table, for ``checkpoint``.
        compare_except: Columns that no comparison with the legacy table compares.
    """

    table: TableName
    catalog_type: Literal["hms", "uc"]
    auto_starting_versions: bool = True
    select: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    except_columns: tuple[str, ...] = ()
    leave_out_not_representable: bool = False
    pinned_clone: bool = True
    take_over: bool = False
    hand_over: HandOverBy = "version"
    or_content: bool = False
    content_first: bool = False
    checkpoints: tuple[str, ...] = ()
    compare_except: tuple[str, ...] = ()
    location: str = ""


@dataclass(frozen=True)
class DataFlow:
    """Everything that one data flow spec says: its target (and staging tables), views, flows and migration.

    Attributes:
        file: The spec's main file, as messages name it.
        staging: Staging tables of its flow groups.
        views: By name.
        flows: Enabled flows in the spec's order, those into staging tables included.
        migration: The enabled migration, or None.
        disabled: Names of the flows that are switched off, whose checkpoints wait for them.
        quarantine: The table of the rows that break a rule of the target, or None.
    """

    id: str
    group: str
    file: str
    target: Target
    staging: tuple[Target, ...]
    views: Mapping[str, View]
    flows: tuple[Flow, ...]
    migration: Migration | None = None
    features: Mapping[str, bool] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    quarantine: Target | None = None

    @property
    def key(self) -> str:
        """The `TableName.key` of its target, by which its state and facts go."""
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
    """A table that is the result of a query: it holds what its view does, as of the last update.

    Attributes:
        id: The ``dataFlowId`` of its spec, which may define several.
        target: The table; its expectations are on what the view holds.
        views: By name: the one that it holds, and those behind it.
        view: The name of the one that it holds.
        refresh_policy: How Databricks brings it up to date, or None.
        private: It's known inside the pipeline only.
        quarantine: The materialized view of the rows that break a rule of this one, or None.
    """

    id: str
    group: str
    file: str
    target: Target
    views: Mapping[str, View]
    view: str
    refresh_policy: RefreshPolicy | None = None
    private: bool = False
    quarantine: Target | None = None


@dataclass(frozen=True)
class Skipped:
    """A spec that Tableferry, or the engine of the run, can't run."""

    file: str
    target: TableName | None
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        """Say in one line what is skipped and why."""
        what = f"{self.file} ({self.target})" if self.target else self.file
        return f"{what} is skipped: " + "; ".join(problem.text for problem in self.problems)


@dataclass(frozen=True)
class Project:
    """All data flows of a project, and the settings that they share.

    Attributes:
        root: The project's folder (or the one spec file's folder), absolute.
        name: The folder's name.
        dataflows: Ordered by target.
        state_volume: ``table_migration_state_volume_path``; relative paths are taken from ``root``. None if
            unset.
        spark_config: Spark settings of global.json.
        state_shared: Several machines may run the project on its state; None where its place says so.
        materialized: Ordered by target.
    """

    root: str
    name: str
    dataflows: tuple[DataFlow, ...]
    state_volume: str | None = None
    spark_config: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    state_shared: bool | None = None
    materialized: tuple[MaterializedView, ...] = ()

    def chosen(self, only: Collection[str]) -> tuple[DataFlow, ...]:
        """Return the data flows with these keys; no keys mean all."""
        return tuple(dataflow for dataflow in self.dataflows if not only or dataflow.key in only)

    @property
    def reads_kafka(self) -> bool:
        """Whether a view reads Kafka."""
        views = (view for dataflow in self.dataflows for view in dataflow.views.values())
        return any(isinstance(view.source, OtherSource) and view.source.format == "kafka" for view in views)

    def checkpoints(self, migration: Migration) -> tuple[Path, ...]:
        """Return where the checkpoints of a migration's old streams are."""
        return tuple(Path(self.root, folder) for folder in migration.checkpoints)


def explicit_start(options: Mapping[str, str]) -> int | str | None:
    """Return the start that reader options give; their names are read in any case, as Spark does."""
    lowered = {name.lower(): value for name, value in options.items()}
    if version := lowered.get("startingversion"):
        return int(version) if version.isdigit() else version
    if timestamp := lowered.get("startingtimestamp"):
        return f"timestamp:{timestamp}"
    return None
