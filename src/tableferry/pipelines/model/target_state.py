"""The recorded state of a target: its baselines, its pinned version, its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer

from tableferry.pipelines.model.identities import TableIdentity
from tableferry.pipelines.model.topics import is_kafka_source
from tableferry.spark.tables import TableName

Certainty = Literal["recorded", "proved", "assumed"]
"""The evidence for a hand-over point: the old streams' checkpoints, a comparison of all rows, or none."""


def _parse(value: object) -> object:
    if not isinstance(value, str):
        return value
    return TableName.at(value) if "/" in value else TableName.parse(value)


Name = Annotated[TableName, BeforeValidator(_parse), PlainSerializer(str)]
"""A table's name, which JSON contains as text."""


@dataclass(frozen=True, order=True)
class Baseline:
    """The last version of a source that the legacy table contains. Streaming flows start at the next one.

    For Kafka topics, ``version`` is the sum of the start offsets, and ``within`` contains the start offsets.

    Attributes:
        table: The source's name in the spec.
        table_id: The id of its Delta log.
        views: The views that read it.
        within: The offset within the next version at which the flows start, as Spark writes it; empty for its
            start.
    """

    table: Name
    table_id: str
    version: int
    views: tuple[str, ...] = ()
    within: str = ""

    @property
    def is_kafka(self) -> bool:
        """Whether the source is Kafka, not a Delta table."""
        return is_kafka_source(self.table_id)


@dataclass(frozen=True)
class PinnedCopy:
    """The legacy table at the pinned version, which each initial copy reads."""

    table: Name
    table_id: str
    version: int


@dataclass(frozen=True)
class MigrationStart:
    """A target's baselines and pinned version, recorded together before the first row is copied.

    Attributes:
        pipeline_id: The pipeline that recorded it.
        baselines: By `TableName.key` of the source.
        recorded_at: The time in UTC.
        batches: The newest batch of each old stream that the copy contains, by the query's id. Empty if the
            hand-over isn't from checkpoints.
        certainty: The evidence that the copy contains the sources' rows up to the baselines, and no others.
    """

    pipeline_id: str
    target: Name
    copy: PinnedCopy
    baselines: Mapping[str, Baseline]
    recorded_at: datetime
    batches: Mapping[str, int] = field(default_factory=dict)
    certainty: Certainty = "assumed"

    @property
    def is_take_over(self) -> bool:
        """Whether the legacy table is the target, so that no copy is made."""
        return self.copy.table.key == self.target.key


@dataclass(frozen=True)
class Tracking:
    """The progress of a target's migration.

    Attributes:
        current: The newest version read of each source, by `TableName.key`.
        copied: The generation of the target that contains the complete copy; None before the copy.
        copied_rows: The number of copied rows.
        verified: ``match`` or ``differ`` after the copy was compared with the legacy table, else empty.
        updated_at: The time of this record in UTC.
        started: Names of the streaming flows that a declarative pipeline has run.
        engine: The engine of its flows: ``streaming``, ``databricks`` or ``declarative``; empty in state of
            early releases.
    """

    current: Mapping[str, int]
    copied: int | None = None
    copied_rows: int | None = None
    verified: str = ""
    updated_at: datetime | None = None
    started: tuple[str, ...] = ()
    engine: str = ""


CutoverPhase = Literal["switching", "done", "reverting"]
"""A cutover has begun, is complete, or is being undone."""


@dataclass(frozen=True)
class Cutover:
    """The cutover of a legacy table's readers: its old name is, or becomes, a view of the target.

    Attributes:
        name: The old name.
        renamed: The legacy table's name after the rename.
        table_id: The id of the legacy table's Delta log.
        phase: How far it is. A cutover that isn't done is resumed, or undone.
        started_at: The time in UTC at which it began.
    """

    name: Name
    renamed: Name
    table_id: str
    phase: CutoverPhase
    started_at: datetime

    @property
    def is_done(self) -> bool:
        """Whether the old name is the view."""
        return self.phase == "done"

    @property
    def legacy_name(self) -> TableName:
        """The name under which plans find the legacy table."""
        return self.renamed if self.is_done else self.name


@dataclass(frozen=True)
class TargetState:
    """The recorded state of one target.

    Attributes:
        migration_start: Where the migration started; None before it starts and after it is finished.
        tracking: The progress; None until the first run has recorded it.
        elsewhere: The ids of other pipelines that recorded a start of its migration.
        generation: The number of full refreshes.
        resetting: A full refresh has started, and hasn't dropped everything yet.
        finished: The migration was finished.
        finished_by: The engine that ran its flows then; empty if it wasn't recorded.
        undoing: The table was taken over, and is being returned to its old streams.
        taken_over: The migration took the legacy table over and is finished, so the target isn't a streaming
            table.
        tables: The identities of the tables that its flows fill, by the table's key. During a reset, they are
            those of the generation that is dropped.
        versions: The versions of these tables after the last run of the flows, by the table's key.
        cutover: The cutover of the legacy table's readers; None before it and after its undo.
    """

    migration_start: MigrationStart | None = None
    tracking: Tracking | None = None
    elsewhere: tuple[str, ...] = ()
    generation: int = 0
    resetting: bool = False
    finished: bool = False
    finished_by: str = ""
    undoing: bool = False
    taken_over: bool = False
    tables: Mapping[str, TableIdentity] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    cutover: Cutover | None = None

    @property
    def is_new(self) -> bool:
        """Whether no pipeline has recorded a start or the end of its migration."""
        return not (self.migration_start or self.elsewhere or self.finished)

    @property
    def is_copy_verified(self) -> bool:
        """Whether the copy was compared with the legacy table, and equals it."""
        return self.tracking is not None and self.tracking.verified == "match"

    @property
    def pending_cutover(self) -> Cutover | None:
        """The cutover that began and is neither done nor undone; until then, the old name may be a view."""
        return self.cutover if self.cutover and not self.cutover.is_done else None

    @property
    def engine(self) -> str:
        """The engine that runs the target's flows; empty if none was recorded."""
        if self.generation and not self.copied and not self.finished:
            # Only this engine refreshes in full here: pipelines refresh their tables themselves.
            return "streaming"
        return self.tracking.engine if self.tracking else self.finished_by

    @property
    def copied(self) -> bool:
        """Whether this generation contains the complete initial copy."""
        return self.tracking is not None and self.tracking.copied == self.generation

    @property
    def copied_generation(self) -> int:
        """The generation that contains the complete copy; 0 before the copy."""
        return (self.tracking.copied or 0) if self.tracking else 0

    def identities_of(self, generation: int) -> Mapping[str, TableIdentity]:
        """Return the identities of the tables of a generation, by the table's key."""
        return self.tables if generation == self._recorded_generation else {}

    def versions_of(self, generation: int) -> Mapping[str, int]:
        """Return the versions of the tables of a generation after the last run, by the table's key."""
        return self.versions if generation == self._recorded_generation else {}

    @property
    def _recorded_generation(self) -> int:
        return self.generation - 1 if self.resetting else self.generation
