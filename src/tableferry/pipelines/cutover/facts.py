"""The facts from which a cutover is planned: the catalog entry of each name, and its readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tableferry.pipelines.model.facts import LegacyWrites
from tableferry.pipelines.model.target_state import Cutover
from tableferry.spark.tables import TableName

MARKER = "tableferry.cutover"
"""The property of a view that `cutover` created; its value is the id of the legacy table."""

READING_DAYS = 30
"""The period in which a cutover looks for jobs that read the legacy table."""

EntryKind = Literal["missing", "table", "view"]


@dataclass(frozen=True)
class Column:
    """A column as readers see it.

    Attributes:
        type: The type in Spark's spelling, such as ``decimal(10,2)``.
        generated: The expression that computes it, or empty.
    """

    name: str
    type: str
    is_nullable: bool = True
    comment: str = ""
    generated: str = ""


@dataclass(frozen=True)
class Entry:
    """The catalog entry of one name.

    Attributes:
        kind: A table, a view, or nothing.
        table_id: The id of a Delta table's log; empty for other tables and views.
        marker: The value of a view's property `MARKER`; empty without it.
        definition: The fingerprint of a view that `cutover` created (`views.ViewDefinition.fingerprint`).
        columns: The columns of a table; empty for a view.
        comment: The comment of a table.
        partition_columns: The partition columns, or the clustering columns, of a table.
        constraints: The constraints of a table in words.
        moves_with_name: A rename moves the table's files, because a Hive metastore manages them.
        location: The table's folder.
    """

    name: TableName
    kind: EntryKind = "missing"
    table_id: str = ""
    marker: str = ""
    definition: str = ""
    columns: tuple[Column, ...] = ()
    comment: str = ""
    partition_columns: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    moves_with_name: bool = False
    location: str = ""

    def is_legacy(self, table_id: str) -> bool:
        """Return whether it is the table with this id."""
        return self.kind == "table" and self.table_id == table_id

    def is_cutover_view(self, table_id: str) -> bool:
        """Return whether `cutover` created it, for the legacy table with this id."""
        return self.kind == "view" and self.marker == table_id


@dataclass(frozen=True)
class FlowReader:
    """A flow of the project that streams the old name.

    Attributes:
        checkpoint: The folder of its checkpoint; empty if a pipeline keeps it.
    """

    target: TableName
    flow: str
    checkpoint: str


@dataclass(frozen=True)
class LastWrite:
    """The newest commit of the legacy table that changed rows.

    Attributes:
        writer: The operation, with the id of a stream's query.
        at: The time in UTC; None if the log no longer has it.
    """

    version: int
    writer: str
    at: datetime | None


@dataclass(frozen=True)
class AccessFacts:
    """Owners and protections in Unity Catalog; empty in a metastore, which has neither.

    Attributes:
        is_unity: Grants and tags exist, and are carried over.
        owner: The owner of the legacy table.
        me: The user that runs the cutover.
        legacy_protections: The functions of the row filter and the column masks of the legacy table, by a
            description of each.
        target_protections: The same of the target.
        reading_entities: The jobs, pipelines, notebooks and dashboards that read the legacy table lately.
        why_no_entities: Why these can't be listed; empty if they can.
    """

    is_unity: bool = False
    owner: str = ""
    me: str = ""
    legacy_protections: Mapping[str, str] = field(default_factory=dict)
    target_protections: Mapping[str, str] = field(default_factory=dict)
    reading_entities: tuple[str, ...] = ()
    why_no_entities: str = ""


@dataclass(frozen=True)
class CutoverNames:
    """The names that a cutover uses.

    Attributes:
        name: The old name, which readers use.
        renamed: The legacy table's name afterwards.
        staged: The view's name until the legacy table is renamed.
    """

    name: TableName
    renamed: TableName
    staged: TableName

    @classmethod
    def of(cls, name: TableName) -> CutoverNames:
        """Return the names for a legacy table."""
        *schema, table = name.parts
        return cls(
            name, TableName((*schema, f"{table}__legacy")), TableName((*schema, f"{table}__cutover_view"))
        )


@dataclass(frozen=True)
class CutoverFacts:
    """Everything from which a cutover of one target, or its undo, is planned.

    Attributes:
        target: The target's name.
        names: The names of the legacy table and of the view.
        table_id: The id of the legacy table, from the state.
        pinned_version: The version that was copied; None after `finish`.
        recorded: The recorded cutover, or None.
        entries: The catalog entry of each of `names`, and of the target, by `TableName.key`.
        recorded_target_id: The id of the target in the state; empty if it isn't recorded.
        access: Owners and protections.
        flow_readers: The flows of the project that stream the old name.
        view_readers: The views that read the old name.
        foreign_tables: The tables of foreign catalogs that mirror the old name.
        last_write: The newest commit of the legacy table that changed rows after the copied version.
        writes: The commits to the legacy table after the copied version; None if they can't be read.
        now: The time of the plan.
    """

    target: TableName
    names: CutoverNames
    table_id: str
    now: datetime
    pinned_version: int | None = None
    recorded: Cutover | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict)
    recorded_target_id: str = ""
    access: AccessFacts = field(default_factory=AccessFacts)
    flow_readers: tuple[FlowReader, ...] = ()
    view_readers: tuple[TableName, ...] = ()
    foreign_tables: tuple[str, ...] = ()
    last_write: LastWrite | None = None
    writes: LegacyWrites | None = None

    def entry(self, name: TableName) -> Entry:
        """Return the catalog entry of a name."""
        return self.entries.get(name.key, Entry(name))

    @property
    def legacy(self) -> Entry | None:
        """The legacy table, under the name that it has now; None if neither name is the table."""
        found = (self.entry(name) for name in (self.names.name, self.names.renamed))
        return next((entry for entry in found if entry.is_legacy(self.table_id)), None)
