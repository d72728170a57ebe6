"""Which table, which checkpoint and which settings the rows of a flow rest on.

A name or a folder's presence says little: a table may be made anew under its name, a checkpoint may be lost,
or brought back from a backup. So each flow's identity is recorded before its first batch, once in the
properties of the table that it fills and once beside its checkpoint: whichever of the two is lost, the other
tells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from tableferry.errors import TableError
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.tables import TableFacts, TableName

PROPERTY = "tableferry.flows"
"""The table property that holds a `TableIdentity` as JSON."""

REVIEWED = "tableferry.reviewedVersion"
"""The table property that states up to which version a person has checked the commits of others."""


@dataclass(frozen=True)
class FlowSettings:
    """What a flow can't change once it has brought rows.

    Attributes:
        settings: ``keys``, ``scd_type`` and ``sequence_by`` of AUTO CDC, as text; empty for one that appends.
        sources: The Delta tables that it follows: each table's id by its `TableName.key`; the id is empty
            where the table wasn't made yet.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def changes(self, now: FlowSettings) -> Iterator[tuple[str, str]]:
        """Yield what differs, as it was and as it is."""
        for name in {**self.settings, **now.settings}:
            before, after = self.settings.get(name), now.settings.get(name)
            if before != after:
                yield _setting(name, before), _setting(name, after)
        if self._others(now) or now._others(self):
            yield f"sources {', '.join(sorted(self.sources))}", f"sources {', '.join(sorted(now.sources))}"

    def _others(self, known: FlowSettings) -> bool:
        """Say whether it follows a table that ``known`` doesn't, by neither its name nor its id."""
        return any(
            key not in known.sources and table_id not in {*known.sources.values()} - {""}
            for key, table_id in self.sources.items()
        )


def cdc_settings(cdc: CdcSettings | None) -> Mapping[str, str]:
    """Return the settings of AUTO CDC that rows rest on, as text; none where rows are appended."""
    if cdc is None:
        return {}
    return {"keys": ", ".join(cdc.keys), "scd_type": str(cdc.scd_type), "sequence_by": cdc.sequence_by}


@dataclass(frozen=True)
class FlowIdentity(FlowSettings):
    """What a flow's rows rest on.

    Attributes:
        checkpoint: The id in the checkpoint's ``metadata``, under which a Delta table counts its batches.
    """

    checkpoint: str = ""


@dataclass(frozen=True)
class TableIdentity:
    """What the rows of one table rest on.

    Attributes:
        table_id: The id of its Delta log; a clone has another one, and the properties of its original.
        generation: How often its target was refreshed in full.
        flows: By name, those that have started in this generation.
        history: The table and version whose history was copied into it; empty for none.
        settings: The `cdc_settings` that it was made and copied with; None where nobody recorded them.
    """

    table_id: str
    generation: int
    flows: Mapping[str, FlowIdentity]
    history: str = ""
    settings: Mapping[str, str] | None = None

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TableIdentity:
        """Read what `to_json` wrote.

        Raises:
            ValueError: It's something else.
        """
        try:
            recorded = json.loads(text)
            flows = {name: FlowIdentity(**flow) for name, flow in recorded["flows"].items()}
            settings = recorded.get("settings")
            return cls(
                str(recorded["table_id"]),
                int(recorded["generation"]),
                flows,
                str(recorded["history"]),
                None if settings is None else {str(name): str(value) for name, value in settings.items()},
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"it isn't what was recorded of flows: {error}") from error


@dataclass(frozen=True)
class SetBack:
    """A table that somebody has set back since flows last filled it.

    Attributes:
        table: The table.
        left_at: Its version when they had run.
        version: The version that it was set back to, -1 for one that nobody can tell; None if it is gone.
    """

    table: TableName
    left_at: int
    version: int | None

    def __str__(self) -> str:
        match self.version:
            case None:
                return f"{self.table} is missing"
            case version if version < 0:
                return f"{self.table} was set back to an older version"
            case version:
                return f"{self.table} was set back to version {version}"


@dataclass(frozen=True)
class ForeignWrites:
    """Commits of other processes to a CDC target, or to its event log, that may have removed rows.

    Attributes:
        table: The table that they wrote to.
        other: The other one of target and event log.
        before: The version before the first of them.
        last: The version of the last one.
        operations: The operations of their commits, each once.
        left: How many of the removed keys and rows the other table still has; None if ``before`` can't be
            read.
        statements: What removes these there.
        unreadable: Why ``before`` can't be read.
        only_deletes: They changed no value and added no row.
        restorable: No later commit changed rows, so ``before`` can be restored.
    """

    table: TableName
    other: TableName
    before: int
    last: int
    operations: tuple[str, ...]
    left: int | None
    statements: tuple[str, ...] = ()
    unreadable: str = ""
    only_deletes: bool = True
    restorable: bool = False

    def __str__(self) -> str:
        first = self.before + 1
        versions = f"version {first}" if first == self.last else f"versions {first} to {self.last}"
        return f"{versions} of {self.table} ({', '.join(self.operations)})"


@dataclass(frozen=True)
class Recorded:
    """What is recorded of a table, and what it says itself.

    Attributes:
        table_id: The id of its Delta log; empty where its platform doesn't say, None where there is no such
            table.
        on_table: From its property; None where it has none, or one that a clone took over.
        in_state: From beside the checkpoints.
        batches: By the checkpoint's id, the newest batch that the table holds of it, -1 for none; one that
            the table can't say anything about isn't in here.
        set_back: Where somebody has set it, or its log of events, back since its flows last ran.
        foreign_writes: What others may have removed from it, or from its event log, since then.
        versions: Its version and its event log's at which that was determined, by the table's key.
        queries: The ids of the streaming queries that append to it, as far as checkpoints and identities
            tell.
    """

    table_id: str | None
    on_table: TableIdentity | None = None
    in_state: TableIdentity | None = None
    batches: Mapping[str, int] = field(default_factory=dict)
    set_back: SetBack | None = None
    foreign_writes: tuple[ForeignWrites, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    queries: frozenset[str] = frozenset()

    @property
    def has_checkpoints(self) -> bool:
        """Whether its flows have checkpoints that the state holds; those of a pipeline are its own."""
        identities = filter(None, (self.on_table, self.in_state))
        return any(flow.checkpoint for identity in identities for flow in identity.flows.values())


def on_table(table: TableFacts) -> TableIdentity | None:
    """Read a table's property; None where it has none, or one of the table that it is a clone of.

    Raises:
        TableError: It's something else.
    """
    if (text := table.properties.get(PROPERTY)) is None:
        return None
    try:
        identity = TableIdentity.from_json(text)
    except ValueError as error:
        raise TableError(
            "IDENTITY_PROPERTY_INVALID", table=table.name, property=PROPERTY, reason=error
        ) from error
    return identity if identity.table_id == table.table_id else None


def _setting(name: str, value: str | None) -> str:
    return f"no {name}" if value is None else f"{name} {value}"
