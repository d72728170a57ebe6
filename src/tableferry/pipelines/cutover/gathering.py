"""Gather the facts of a cutover or its undo, and check that the migration allows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tableferry.access.foreign_catalogs import list_foreign_tables
from tableferry.errors import Refused, TableError
from tableferry.formats.delta.commits import Commit, commits_since
from tableferry.pipelines.cutover import readers
from tableferry.pipelines.cutover.facts import (
    READING_DAYS,
    AccessFacts,
    CutoverFacts,
    CutoverNames,
    Entry,
    LastWrite,
)
from tableferry.pipelines.cutover.performer import CutoverCatalog
from tableferry.pipelines.handover.stream_checkpoints import COMMIT_LIMIT, classify_commits
from tableferry.pipelines.model.cutover_blockers import find_cutover_blockers
from tableferry.pipelines.model.facts import LegacyWrites
from tableferry.pipelines.model.plan import TargetPlan
from tableferry.pipelines.model.target_state import MigrationStart
from tableferry.pipelines.planning.project import OpenedProject
from tableferry.spark.catalog import facts as table_facts
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.access.unity_catalog import UnityAccess


def gather_cutover(
    opened: OpenedProject, catalog: CutoverCatalog, access: UnityAccess | None
) -> CutoverFacts:
    """Gather the facts of the cutover of the only chosen target.

    Raises:
        Refused: The migration's state doesn't allow a cutover.
        TableError: A table or its readers can't be read.
    """
    planned, facts = opened.decide_plan(for_report=True)
    (target,) = planned.targets
    if blockers := find_cutover_blockers(target):
        raise Refused.of(blockers)
    base = _gather_names(target, catalog)
    legacy, names = base.legacy, base.names
    known = target.state.tables.get(target.target.key)
    base = replace(
        base,
        recorded_target_id=known.table_id if known else "",
        access=read_access(access, legacy, target.target, planned.pipeline_id),
    )
    if legacy is None or legacy.name.key == names.renamed.key:
        # The readers of the old name have been cut over already.
        return base
    commits = _read_commits(opened.spark, legacy.name, base.pinned_version)
    return replace(
        base,
        flow_readers=readers.list_flow_readers(
            opened.project, facts, opened.store, names.name, in_pipeline=planned.in_pipeline
        ),
        view_readers=readers.list_view_readers(
            opened.spark, names.name, (names.name, names.staged), is_unity=access is not None
        ),
        foreign_tables=list_foreign_tables(names.name),
        last_write=find_last_write(commits),
        writes=_classify(commits, target.migration_start),
    )


def gather_undo(opened: OpenedProject, catalog: CutoverCatalog) -> CutoverFacts:
    """Gather the facts of the undo of a cutover. It needs no plan, so that a refused target can be undone.

    Raises:
        Refused: No cutover is recorded.
        TableError: A table can't be described.
    """
    (dataflow,) = opened.project.select_dataflows(opened.request.only)
    target = dataflow.target.name
    recorded = opened.store.read(target).cutover
    if recorded is None:
        raise Refused("NOT_CUT_OVER", target=target)
    names = CutoverNames.of(recorded.name)
    entries = _read_entries(catalog, (names.name, names.renamed, names.staged))
    return CutoverFacts(
        target, names, recorded.table_id, datetime.now(UTC), recorded=recorded, entries=entries
    )


def find_last_write(commits: Sequence[Commit]) -> LastWrite | None:
    """Return the newest commit that changed rows; the commits are the newest first."""
    for commit in commits:
        if commit.operation and commit.may_change_rows:
            query = commit.parameters.get("queryId")
            writer = f"{commit.operation} of stream {query}" if query else commit.operation
            at = datetime.fromtimestamp(commit.timestamp / 1000, UTC) if commit.timestamp else None
            return LastWrite(commit.version, writer, at)
    return None


def _gather_names(target: TargetPlan, catalog: CutoverCatalog) -> CutoverFacts:
    recorded, start = target.state.cutover, target.migration_start
    migration = target.dataflow.migration
    if recorded:
        name, table_id = recorded.name, recorded.table_id
    else:
        assert migration is not None
        assert start is not None
        name, table_id = migration.table, start.copy.table_id
    names = CutoverNames.of(name)
    return CutoverFacts(
        target.target,
        names,
        table_id,
        datetime.now(UTC),
        pinned_version=start.copy.version if start else None,
        recorded=recorded,
        entries=_read_entries(catalog, (names.name, names.renamed, names.staged, target.target)),
    )


def _read_entries(catalog: CutoverCatalog, names: Sequence[TableName]) -> dict[str, Entry]:
    return {name.key: catalog.read(name) for name in names}


def read_access(
    access: UnityAccess | None, legacy: Entry | None, target: TableName, pipeline_id: str
) -> AccessFacts:
    """Return the owners, protections and readers of the legacy table; empty in a metastore.

    The migration's own pipeline isn't a reader: it has read the table to copy it.
    """
    if access is None or legacy is None:
        return AccessFacts()
    entities: tuple[str, ...] = ()
    why_unknown = ""
    try:
        entities = access.list_reading_entities(legacy.name, READING_DAYS)
    except Refused as error:
        why_unknown = error.message
    return AccessFacts(
        True,
        access.read_owner(legacy.name),
        access.current_user,
        access.list_protections(legacy.name),
        access.list_protections(target),
        tuple(entity for entity in entities if entity != f"pipeline {pipeline_id}"),
        why_unknown,
    )


def _read_commits(spark: SparkSession, legacy: TableName, pinned: int | None) -> tuple[Commit, ...]:
    table = table_facts(spark, legacy)
    if table is None:
        raise TableError("TABLE_NOT_DESCRIBABLE", table=legacy, reason="it was dropped a moment ago")
    oldest = max(pinned if pinned is not None else -1, table.version - COMMIT_LIMIT)
    return commits_since(spark, table, oldest)


def _classify(commits: Sequence[Commit], start: MigrationStart | None) -> LegacyWrites | None:
    return classify_commits(commits, start.batches, more=False) if start else None
