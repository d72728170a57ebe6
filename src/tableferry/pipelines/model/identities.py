"""Identities of tables and flows: the table id, checkpoint and settings that produced the rows of a target.

A table can be recreated under its name, and a checkpoint can be lost or restored from a backup. So each
flow's identity is recorded before its first batch, in the properties of its target and in the state volume.
If one of the two is lost, the other one remains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter, ValidationError

from tableferry.errors import TableError
from tableferry.spark.tables import TableFacts, TableName

PROPERTY = "tableferry.flows"
"""The table property that contains a `TableIdentity` as JSON."""

REVIEWED = "tableferry.reviewedVersion"
"""The table property with the version up to which a user has reviewed foreign commits."""


@dataclass(frozen=True)
class FlowSettings:
    """The settings and sources that a flow must keep after its first rows.

    Attributes:
        settings: ``keys``, ``scd_type`` and ``sequence_by`` of AUTO CDC, as text; empty for an append flow.
        sources: Ids of the Delta tables that it streams, by `TableName.key`. The id of a table that wasn't
            created yet is empty.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def changes(self, now: FlowSettings) -> Iterator[tuple[str, str]]:
        """Yield each difference as the old and the new text."""
        for name in {**self.settings, **now.settings}:
            before, after = self.settings.get(name), now.settings.get(name)
            if before != after:
                yield _setting(name, before), _setting(name, after)
        if self._has_other_sources(now) or now._has_other_sources(self):
            yield f"sources {', '.join(sorted(self.sources))}", f"sources {', '.join(sorted(now.sources))}"

    def _has_other_sources(self, known: FlowSettings) -> bool:
        """Return whether a source matches no source of ``known``, neither by name nor by id."""
        return any(
            key not in known.sources and table_id not in {*known.sources.values()} - {""}
            for key, table_id in self.sources.items()
        )


@dataclass(frozen=True)
class FlowIdentity(FlowSettings):
    """The checkpoint, settings and sources that produced a flow's rows.

    Attributes:
        checkpoint: The id in the checkpoint's ``metadata``. The target's log counts batches under it.
    """

    checkpoint: str = ""


@dataclass(frozen=True)
class TableIdentity:
    """The flows, settings and copied history that produced the rows of a table.

    Attributes:
        table_id: The id of its Delta log. A clone has a different id, but the properties of its original.
        generation: The number of full refreshes of its target.
        flows: The flows that have started in this generation, by name.
        history: The copied table and version, or empty.
        settings: The `cdc_settings` at creation and copy; None if they weren't recorded.
    """

    table_id: str
    generation: int
    flows: Mapping[str, FlowIdentity]
    history: str = ""
    settings: Mapping[str, str] | None = None

    def to_json(self) -> str:
        """Return the identity as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TableIdentity:
        """Parse the JSON that `to_json` returned.

        Raises:
            ValueError: The text is different JSON, or none.
        """
        return _JSON.validate_json(text)


_JSON = TypeAdapter(TableIdentity)


@dataclass(frozen=True)
class TableRollback:
    """A table with an older version than after the last run of its flows.

    Attributes:
        table: The table.
        left_at: Its version after the last run.
        version: The version that it was set back to, -1 if it is unknown; None if the table is missing.
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
        table: The table that the commits changed, the target or the event log.
        counterpart: The event log of that target, or the target of that event log.
        before: The version before the first commit.
        last: The version of the last commit.
        operations: The distinct operations of the commits.
        remaining: The number of removed keys and rows that the counterpart still has; None if version
            ``before`` can't be read.
        statements: The statements that remove these rows from the counterpart.
        unreadable: Why ``before`` can't be read.
        only_deletes: The commits changed no value and added no row.
        restorable: No later commit changed rows, so ``before`` can be restored.
    """

    table: TableName
    counterpart: TableName
    before: int
    last: int
    operations: tuple[str, ...]
    remaining: int | None
    statements: tuple[str, ...] = ()
    unreadable: str = ""
    only_deletes: bool = True
    restorable: bool = False

    def __str__(self) -> str:
        first = self.before + 1
        versions = f"version {first}" if first == self.last else f"versions {first} to {self.last}"
        return f"{versions} of {self.table} ({', '.join(self.operations)})"


@dataclass(frozen=True)
class TableEvidence:
    """Evidence of the flows that filled a table, from its log and properties and from the state.

    Attributes:
        table_id: The id of its Delta log; empty if the platform doesn't report it, None if the table is
            missing.
        property_identity: The identity in its property. None without the property, or in a clone.
        state_identity: The identity in the state.
        batches: The newest batch in the table's log, by checkpoint id; -1 if the log has no batch. A
            checkpoint has no entry if the log can't answer.
        rollback: Set if the table, or its event log, was set back after the last run of its flows.
        foreign_writes: Commits of other processes since then, to the table or its event log.
        versions: The versions of the table and its event log at that check, by table key.
        queries: The known ids of the streaming queries that append to it.
    """

    table_id: str | None
    property_identity: TableIdentity | None = None
    state_identity: TableIdentity | None = None
    batches: Mapping[str, int] = field(default_factory=dict)
    rollback: TableRollback | None = None
    foreign_writes: tuple[ForeignWrites, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    queries: frozenset[str] = frozenset()

    @property
    def has_checkpoints(self) -> bool:
        """Whether its flows have checkpoints in the state, not in a pipeline."""
        identities = filter(None, (self.property_identity, self.state_identity))
        return any(flow.checkpoint for identity in identities for flow in identity.flows.values())


def parse_identity_property(table: TableFacts) -> TableIdentity | None:
    """Return the identity in a table's property; None without one, or if the table is a clone.

    Raises:
        TableError: The property isn't an identity.
    """
    if (text := table.properties.get(PROPERTY)) is None:
        return None
    try:
        identity = TableIdentity.from_json(text)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise TableError(
            "IDENTITY_PROPERTY_INVALID", table=table.name, property=PROPERTY, reason=reason
        ) from error
    return identity if identity.table_id == table.table_id else None


def _setting(name: str, value: str | None) -> str:
    return f"no {name}" if value is None else f"{name} {value}"
