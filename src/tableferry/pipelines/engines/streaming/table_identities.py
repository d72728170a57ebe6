"""Record in the state which tables the flows fill, by which flows, and the versions at which a run ends.

The next run compares these records with the tables, and so detects a table that was recreated or set back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tableferry.errors import TableError
from tableferry.formats.delta.commits import commits_after, newest_version
from tableferry.pipelines.engines.port import EffectHook
from tableferry.pipelines.handover.foreign_writes import list_foreign_commits
from tableferry.pipelines.model.flows import cdc_settings, event_log_name
from tableferry.pipelines.model.identities import (
    PROPERTY,
    FlowIdentity,
    FlowSettings,
    TableIdentity,
    parse_identity_property,
)
from tableferry.pipelines.model.steps import DefineTable, PlannedFlow
from tableferry.pipelines.state import checkpoints
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.catalog import facts
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableFacts, TableName


@dataclass(frozen=True)
class TableIdentities:
    """The records of one run."""

    spark: SparkSession
    store: StateStore
    before_effect: EffectHook

    def record_table(self, table: DefineTable, flow: PlannedFlow, *, was_created: bool) -> None:
        """Record the identity of a table that a flow fills, if it was created or has no record."""
        name, owner, generation = table.target.name, flow.owner, flow.generation
        if not was_created and name.key in self.store.read_identities(owner, generation):
            return
        self.before_effect(f"recording in the state the identity of {name}")
        identity = _build_identity(table, self._require_facts(name), generation, {})
        self.store.record_table_identity(owner, generation, name, identity)

    def record_flow(
        self, table: DefineTable, flow: PlannedFlow, checkpoint: Path, settings: FlowSettings
    ) -> None:
        """Record a flow's settings and checkpoint before its first batch, in the state and on its table."""
        flow_name, name = flow.name, table.target.name
        owner, generation = flow.owner, flow.generation
        self.before_effect(f"creating the id of the checkpoint of {flow_name}")
        checkpoint_id = checkpoints.create_query_id(checkpoint)
        table_facts = self._require_facts(name)
        flows: dict[str, FlowIdentity] = {}
        in_state = self.store.read_identities(owner, generation).get(name.key)
        for recorded in (parse_identity_property(table_facts), in_state):
            if recorded and recorded.generation == generation:
                flows |= recorded.flows
        flows[flow_name] = FlowIdentity(settings.settings, settings.sources, checkpoint_id)
        identity = _build_identity(table, table_facts, generation, flows)
        text = identity.to_json()
        if table_facts.properties.get(PROPERTY) != text:
            self.before_effect(f"recording on {name} that {flow_name} fills it")
            self.spark.sql(f"ALTER TABLE {name.sql} SET TBLPROPERTIES ('{PROPERTY}' = {literal(text)})")
        self.before_effect(f"recording in the state that {flow_name} fills {name}")
        self.store.record_table_identity(owner, generation, name, identity)

    def record_versions(self, flows: Sequence[PlannedFlow]) -> None:
        """Record the versions of all tables after the flows have run."""
        tables_by_owner: dict[tuple[TableName, int], dict[TableName, bool]] = {}
        for flow in flows:
            tables = tables_by_owner.setdefault((flow.owner, flow.generation), {})
            is_cdc, log = flow.cdc is not None, event_log_name(flow.target)
            tables |= dict.fromkeys([flow.target, log] if is_cdc else [flow.target], is_cdc)
        for (owner, generation), tables in tables_by_owner.items():
            self.before_effect(f"recording in the state the versions of the tables of {owner}")
            recorded = self.store.read_versions(owner, generation)
            versions = {
                table.key: self._last_own_version(table, recorded.get(table.key) if is_cdc else None)
                for table, is_cdc in tables.items()
            }
            self.store.record_versions(owner, generation, versions)

    def _last_own_version(self, table: TableName, recorded: int | None) -> int:
        """Return a table's newest version, or for AUTO CDC the one before the first foreign commit.

        The next run then examines what another process removed during this one. ``recorded`` is the version
        after the last run, from which foreign commits are searched; None skips the search.
        """
        if recorded is None:
            return newest_version(self.spark, table)
        commits = commits_after(self.spark, table, recorded)
        foreign = list_foreign_commits(commits)
        newest = commits[0].version if commits else recorded
        return foreign[0].version - 1 if foreign else newest

    def _require_facts(self, table: TableName) -> TableFacts:
        """Return the facts of a table that the run has created or found.

        Raises:
            TableError: The table is missing.
        """
        table_facts = facts(self.spark, table)
        if table_facts is None:
            raise TableError("TABLE_DROPPED_DURING_RUN", table=table)
        return table_facts


def _build_identity(
    table: DefineTable, known: TableFacts, generation: int, flows: Mapping[str, FlowIdentity]
) -> TableIdentity:
    return TableIdentity(known.table_id, generation, flows, table.history, cdc_settings(table.target.cdc))
