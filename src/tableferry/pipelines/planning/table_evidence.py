"""Read the evidence of the tables that flows fill: identities, batches, and commits since the last run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tableferry.formats.delta.commits import Commit, commits_after, newest_batches, set_back
from tableferry.pipelines.handover import foreign_writes
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import CdcSettings, DataFlow, Target, event_log_name
from tableferry.pipelines.model.identities import (
    TableEvidence,
    TableIdentity,
    TableRollback,
    parse_identity_property,
)
from tableferry.pipelines.model.target_state import TargetState
from tableferry.spark import catalog
from tableferry.spark.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_pipeline_evidence(
    dataflows: Sequence[DataFlow], stored: Mapping[str, TargetState], tables: Mapping[str, TableFacts | None]
) -> Mapping[str, TableEvidence]:
    """Return the evidence of a pipeline's tables, whose checkpoints belong to the pipeline."""
    found = {}
    for dataflow in dataflows:
        state = stored[dataflow.key]
        identities = state.identities_of(state.generation)
        for key in (table.name.key for table in dataflow.tables):
            facts = tables[key]
            table_id = facts.table_id if facts else None
            identity = parse_identity_property(facts) if facts else None
            found[key] = TableEvidence(table_id, identity, identities.get(key))
    return found


@dataclass(frozen=True)
class EvidenceReader:
    """Reads the evidence of the tables that the streaming engine fills.

    Attributes:
        refreshed: Keys of the targets that the run rebuilds, so that foreign writes don't matter.
    """

    spark: SparkSession
    stored: Mapping[str, TargetState]
    tables: Mapping[str, TableFacts | None]
    checkpoints: Mapping[tuple[str, str], Checkpoint]
    refreshed: Collection[str]

    def read(self, dataflows: Sequence[DataFlow]) -> Mapping[str, TableEvidence]:
        """Return the evidence of each table that exists."""
        return {
            table.name.key: self._read_evidence(dataflow, table, facts)
            for dataflow in dataflows
            for table in dataflow.tables
            if (facts := self.tables.get(table.name.key))
        }

    def _read_evidence(self, dataflow: DataFlow, table: Target, facts: TableFacts) -> TableEvidence:
        state = self.stored[dataflow.key]
        versions = state.versions_of(state.generation)
        in_state = state.identities_of(state.generation).get(facts.name.key)
        identities = (parse_identity_property(facts), in_state)
        queries = self._list_queries(dataflow, facts.name, identities)
        commits = self._commits_since(facts, versions)
        evidence = TableEvidence(
            facts.table_id,
            *identities,
            rollback=_find_rollback(facts, versions, commits),
            versions={facts.name.key: facts.version},
            queries=queries,
        )
        if table.cdc and evidence.rollback is None and event_log_name(table.name).key in versions:
            evidence = self._add_event_log(evidence, dataflow, table.cdc, facts, versions, commits)
        return replace(evidence, batches=newest_batches(self.spark, facts, queries))

    def _list_queries(
        self, dataflow: DataFlow, table: TableName, identities: Sequence[TableIdentity | None]
    ) -> frozenset[str]:
        """List the ids of the streaming queries that append to a table; a merge's commits name no query."""
        current = {
            self.checkpoints[dataflow.key, flow.name].id
            for flow in dataflow.streaming_flows
            if flow.target.key == table.key and flow.kind == "append"
        }
        recorded = {
            flow.checkpoint
            for identity in identities
            for flow in (identity.flows.values() if identity else ())
            if not flow.settings
        }
        return frozenset(current | recorded) - {""}

    def _add_event_log(
        self,
        evidence: TableEvidence,
        dataflow: DataFlow,
        cdc: CdcSettings,
        table: TableFacts,
        versions: Mapping[str, int],
        commits: Sequence[Commit],
    ) -> TableEvidence:
        """Add what happened to a CDC target's event log, because missing events make its rows wrong."""
        log = event_log_name(table.name)
        log_facts = catalog.facts(self.spark, log)
        if log_facts is None:
            return replace(evidence, rollback=TableRollback(log, versions[log.key], None))
        log_commits = self._commits_since(log_facts, versions)
        log_rollback = _find_rollback(log_facts, versions, log_commits)
        writes = evidence.foreign_writes
        if log_rollback is None and dataflow.key not in self.refreshed:
            writes = foreign_writes.find_foreign_writes(
                self.spark, cdc, table, log_facts, commits, log_commits
            )
        return replace(
            evidence,
            rollback=log_rollback,
            foreign_writes=writes,
            versions={**evidence.versions, log.key: log_facts.version},
        )

    def _commits_since(self, table: TableFacts, versions: Mapping[str, int]) -> Sequence[Commit]:
        """Return the commits since the flows last ran, newest first; empty if that version is unknown."""
        recorded = versions.get(table.name.key)
        if recorded is None or table.version <= recorded:
            return ()
        return commits_after(self.spark, table.name, recorded)


def _find_rollback(
    table: TableFacts, versions: Mapping[str, int], commits: Sequence[Commit]
) -> TableRollback | None:
    recorded = versions.get(table.name.key)
    if recorded is None or table.version == recorded:
        return None
    version = set_back(commits, recorded) if table.version > recorded else table.version
    return None if version is None else TableRollback(table.name, recorded, version)
