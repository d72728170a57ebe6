"""What is recorded of a target: its baselines, its pinned copy, its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tableferry.pipelines.model.source_offsets import is_kafka
from tableferry.spark.tables import TableName

Certainty = Literal["recorded", "proved", "assumed"]
"""How sure a hand-over point is: the old streams' checkpoints say it, all rows were compared, or neither."""


@dataclass(frozen=True, order=True)
class Baseline:
    """Where a source stood when the migration started: streaming flows start at the next version.

    Attributes:
        table: The source's name, as the spec gives it; `TableName.key` of it is its identity.
        table_id: The id of its Delta log.
        views: The views that read it.
        within: Where the flows start within the next version, as Spark writes it; empty at its begin.

    Of Kafka's topics ``version`` is how many offsets lie before the start, and ``within`` is the start.
    """

    table: TableName
    table_id: str
    version: int
    views: tuple[str, ...] = ()
    within: str = ""

    @property
    def of_kafka(self) -> bool:
        """Whether it's of Kafka's topics, not of a table."""
        return is_kafka(self.table_id)


@dataclass(frozen=True)
class PinnedCopy:
    """The legacy table at the version that the copy reads, however often it's made."""

    table: TableName
    table_id: str
    version: int


@dataclass(frozen=True)
class MigrationStart:
    """A target's baselines and its pinned copy, recorded together before the first row is copied.

    Attributes:
        pipeline_id: The pipeline that recorded it.
        baselines: By `TableName.key` of the source.
        recorded_at: When, in UTC.
        batches: The newest batch of each old stream that the copy holds, by the query's id, where their
            checkpoints said where the migration starts.
        certainty: What says that the copy holds the sources up to their baselines, and no more.
    """

    pipeline_id: str
    target: TableName
    copy: PinnedCopy
    baselines: Mapping[str, Baseline]
    recorded_at: datetime
    batches: Mapping[str, int] = field(default_factory=dict)
    certainty: Certainty = "assumed"

    @property
    def take_over(self) -> bool:
        """Whether the flows go on in the legacy table itself."""
        return self.copy.table.key == self.target.key


@dataclass(frozen=True)
class Tracking:
    """How far a target's migration is.

    Attributes:
        current: The newest version seen of each source, by `TableName.key`.
        copied: The generation of the target that holds the whole copy, or None before that.
        copied_rows: How many rows the copy brought.
        verified: ``match`` or ``differ`` once the copy was compared with the legacy table, else empty.
        updated_at: When this was written, in UTC.
        started: Names of the streaming flows that a declarative pipeline has run.
        engine: What runs its flows: ``streaming``, ``databricks`` or ``declarative``; empty where a release
            that didn't record it wrote this.
    """

    current: Mapping[str, int]
    copied: int | None = None
    copied_rows: int | None = None
    verified: str = ""
    updated_at: datetime | None = None
    started: tuple[str, ...] = ()
    engine: str = ""


@dataclass(frozen=True)
class Stored:
    """Everything found of one target.

    Attributes:
        migration_start: Absent before the migration started.
        tracking: Absent until the first run wrote it.
        elsewhere: Other pipelines' ids under which a start of its migration is recorded.
        generation: How often the target was refreshed in full.
        resetting: A full refresh was started and hasn't dropped everything yet.
        finished: The migration was taken out.
        finished_by: The engine that ran its flows then; empty where nobody recorded it.
        undoing: It was taken over, and is being given back.
        taken_over: Its migration took the legacy table over and is finished, so that it's no streaming table.
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

    @property
    def engine(self) -> str:
        """What runs the target's flows, and knows how far they are; empty where nobody recorded it."""
        if self.generation and not self.copied and not self.finished:
            # A full refresh has dropped what another engine had filled: pipelines make those themselves.
            return "streaming"
        return self.tracking.engine if self.tracking else self.finished_by

    @property
    def copied(self) -> bool:
        """Whether this generation holds the whole copied history."""
        return self.tracking is not None and self.tracking.copied == self.generation
