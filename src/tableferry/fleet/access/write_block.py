"""Block and unblock writes: the write privileges that a job revoked, and the tables that they apply to.

If both tables are in Unity Catalog, privileges that were revoked on one are granted on the other. If only one
table's catalog has privileges, they don't apply to the other table. A revert grants those of the Hive table
again; those of the new table end with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from tableferry.fleet.access import fence
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.warehouse.context import Access, Warehouse
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

TABLE = "taken_from"
"""The key of the table in the JSON; a worker of an earlier version ignores it."""


@dataclass(frozen=True)
class RevokedPrivileges:
    """Write privileges that were revoked, or are about to be.

    Attributes:
        rights: The privileges as JSON, from `Access.rights_to_write`.
        table: The table, by its name at that time; None if an earlier version recorded them.
    """

    rights: Mapping[str, Any]
    table: TableName | None

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Self:
        """Return the privileges that a job's record contains."""
        table = note.get(TABLE)
        rights = {key: value for key, value in note.items() if key != TABLE}
        return cls(rights, TableName.parse(table) if table else None)

    def note(self) -> dict[str, Any]:
        """Return the privileges as JSON for a job's record."""
        return {**self.rights, **({TABLE: str(self.table)} if self.table else {})}

    def apply_to(self, table: TableName, access: Access, names: Names) -> bool:
        """Return whether the privileges can be revoked and granted on one of a job's tables.

        They can't if only the other table's catalog has privileges. If neither catalog has any, the session
        doesn't see the catalog in which they were revoked, and the access raises an error.
        """
        former = (self.table,) if self.table else (names.main, names.target)
        others = [other for other in former if other.parts[:-2] != table.parts[:-2]]
        return not any(access.keeps_rights(other) for other in others) or access.keeps_rights(table)


def block_writes(step: steps.BlockWrites, run: StepRun) -> Job:
    """Revoke the write privileges on a table, and mark its contents for `fence.check_fence`."""
    job, table, warehouse = run.job, step.table, run.warehouse
    # Each run records the rights before it takes them; an earlier run may have taken only some.
    if rights := warehouse.access.rights_to_write(table):
        note = RevokedPrivileges(rights, table).note()
        job = run.save(job.with_record(rights=(*job.record.rights, note)))
    if noted := job.record.rights:
        warehouse.effect(partial(_take, warehouse, table, noted, Names.of(job)), of=())
    return job.with_record(fence=dict(fence.mark(warehouse, table)))


def unblock_writes(step: steps.UnblockWrites, run: StepRun) -> Job:
    """Grant exactly the revoked privileges that apply to a table."""
    job, table, warehouse = run.job, step.table, run.warehouse
    taken = [RevokedPrivileges.of(note) for note in (*job.record.withheld_rights, *job.record.rights)]
    applicable, others = _divide_rights(warehouse, table, taken, Names.of(job))
    for rights in reversed(applicable):
        warehouse.effect(partial(warehouse.access.give_back, table, rights), of=())
    if taken:
        # A suspended worker may take the rights again. If it does so before their record is deleted here,
        # they are given back below; otherwise that worker gives them back.
        job = run.save(job.with_record(rights=(), withheld_rights=_withheld(job, table, others)))
    for rights in reversed(applicable):
        warehouse.effect(partial(warehouse.access.give_back, table, rights), of=())
    return job.with_record(fence={})


def _take(warehouse: Warehouse, table: TableName, noted: Iterable[Mapping[str, Any]], names: Names) -> None:
    for rights in _divide_rights(warehouse, table, map(RevokedPrivileges.of, noted), names)[0]:
        warehouse.access.take(table, rights)


def _divide_rights(
    warehouse: Warehouse, table: TableName, taken: Iterable[RevokedPrivileges], names: Names
) -> tuple[list[Mapping[str, Any]], list[RevokedPrivileges]]:
    """Divide rights into those that apply to a table, and those of a table in another catalog."""
    applicable, others = list[Mapping[str, Any]](), list[RevokedPrivileges]()
    for rights in taken:
        if rights.apply_to(table, warehouse.access, names):
            applicable.append(rights.rights)
        else:
            others.append(rights)
    return applicable, others


def _withheld(job: Job, table: TableName, others: Sequence[RevokedPrivileges]) -> tuple[dict[str, Any], ...]:
    """Return the records of rights that aren't given back, because they don't apply to the unblocked table.

    They aren't given back on their original table either. After the switch, that's the Hive copy, where new
    rows would bypass the new table; so they stay recorded until a revert unblocks the Hive table. After a
    revert, it's the copy, which is dropped next; so the record isn't needed any more.
    """
    if not others:
        return ()
    names = Names.of(job)
    sentence = "%s: rights to write that were taken from %s aren't given back on %s, whose catalog keeps none"
    if table == names.main:
        _log.info(sentence, job.name, names.target, table)
        return ()
    _log.warning(
        f"{sentence}: grant them there to its writers; a revert gives them back", job.name, names.main, table
    )
    return tuple(rights.note() for rights in others)
