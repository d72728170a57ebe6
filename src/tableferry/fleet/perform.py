"""Does the steps of a job's transition on real tables; what a later step needs is noted before the effect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from tableferry.activity import Activity, activity
from tableferry.driver import following
from tableferry.errors import Refused
from tableferry.fleet.job import ACCEPT, Job, PauseReason, TargetFormat
from tableferry.fleet.naming import Names
from tableferry.fleet.steps import (
    BlockWrites,
    CheckFence,
    CheckLate,
    CheckSuspended,
    CheckViews,
    CopyAccess,
    CopyDefinition,
    DropCopy,
    MakeExternal,
    MakeManaged,
    MakeTarget,
    RecordFiles,
    Rename,
    Shadow,
    Step,
    TryShadow,
    UnblockWrites,
    Verify,
    VerifyShadow,
)
from tableferry.fleet.warehouse import (
    comparing,
    definitions,
    delta,
    dropping,
    external,
    fence,
    iceberg,
    renaming,
    versions,
    views,
)
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shadow.late import suspended
from tableferry.fleet.warehouse.shadow.late.record import Record
from tableferry.fleet.warehouse.shadow.late.settling import WrittenLate, check
from tableferry.fleet.warehouse.shadow.shadowing import PartitionsRemoved, shadow
from tableferry.fleet.warehouse.shadow.trying import try_shadow
from tableferry.tables import TableName

_log = logging.getLogger(__name__)

Save = Callable[[Job], Job]
"""Writes a job back and holds its claim; returns it with its new revision."""

# What a job notes for later steps, in its record.
RIGHTS = "rights"
FENCE = "fence"
WAS_MANAGED = "was_managed"
BROKEN_VIEWS = "broken_views"
REMOVED = "removed_partitions"
NOT_LOOKED = "late_files_not_looked_for"


class Stopped(Refused):
    """A step found what a person must decide; the job waits with this reason."""

    def __init__(self, reason: PauseReason, details: str, found: str = "") -> None:
        self.reason, self.found = reason, found
        super().__init__(details)


class WrittenSince(Refused):
    """Somebody wrote to the table since writes were blocked."""


def perform(step: Step, job: Job, warehouse: Warehouse, save: Save) -> Job:
    """Do one step, and return the job with what it noted, which the caller saves.

    Args:
        step: What to do; done twice, it's as if done once.
        job: The claimed job.
        warehouse: Where its tables are.
        save: Saves a note that must be there before the effect is.

    Raises:
        Stopped: A person must decide.
        WrittenSince: The table changed behind the block.
        TableferryError: Something else that the user can fix.
    """
    with (
        activity(_log, str(step), table=job.name, worker=job.claimed_by or "") as running,
        following(warehouse.spark, running),
    ):
        return _perform(step, job, warehouse, save, running)


def _perform(step: Step, job: Job, warehouse: Warehouse, save: Save, running: Activity) -> Job:
    match step:
        case TryShadow(table):
            try_shadow(warehouse, table)
            return job
        case BlockWrites(table):
            # Each run notes what it finds to take; what an earlier one noted it may have taken by half.
            if rights := warehouse.access.rights_to_write(table):
                job = save(job.noted(**{RIGHTS: [*job.record.get(RIGHTS, ()), dict(rights)]}))
            if noted := job.record.get(RIGHTS, ()):
                warehouse.effect(lambda: _take(warehouse, table, noted))
            return job.noted(**{FENCE: dict(fence.mark(warehouse, table))})
        case UnblockWrites(table):
            taken = list(reversed(job.record.get(RIGHTS, ())))
            for rights in taken:
                warehouse.effect(partial(warehouse.access.give_back, table, rights))
            if taken:
                # A worker that slept may take them once more. If that is before they are forgotten, they are
                # given back below; if after, that worker finds them forgotten and gives them back.
                job = save(job.noted(**{RIGHTS: None}))
            for rights in taken:
                warehouse.effect(partial(warehouse.access.give_back, table, rights))
            return job.noted(**{FENCE: None})
        case CheckFence(table):
            if differences := fence.differences(warehouse, table, job.record.get(FENCE, {})):
                raise WrittenSince(f"{table} was written to after writes were blocked: {differences}")
            return job
        case RecordFiles(table):
            Record.create(warehouse, table)
            return job
        case CheckLate(target, hive, form, decide):
            with _stopping(PauseReason.WRITTEN_LATE, WrittenLate):
                accept, watermark = job.record.get(ACCEPT, ""), job.shadow_watermark
                looked = check(warehouse, target, hive, form, watermark, decide=decide, accept=accept)
            return _looked(job, hive, looked)
        case MakeExternal(table):
            if external.is_managed(warehouse, table):
                job = save(job.noted(**{WAS_MANAGED: True}))
                with _stopping(PauseReason.MANAGED_TABLE):
                    external.make_external(warehouse, table)
            return job
        case MakeManaged(table):
            if job.record.get(WAS_MANAGED):
                external.make_managed(warehouse, table)
            return job.noted(**{WAS_MANAGED: None})
        case MakeTarget(source, target, form):
            make = iceberg.make if form is TargetFormat.ICEBERG else delta.make
            running.count("files", make(warehouse, source, target))
            return job
        case CopyDefinition(source, target):
            definitions.carry(warehouse, source, target)
            # A comment is a version of a Delta table.
            return replace(job, shadow_watermark=versions.current(warehouse, target, job.target_format))
        case CopyAccess(source, target):
            warehouse.effect(lambda: warehouse.access.carry(source, target))
            return job
        case Verify(source, target):
            with _stopping(PauseReason.ROWS_DIFFER):
                running.count("rows", comparing.demand_same(warehouse, source, target))
            return job
        case VerifyShadow(target, hive):
            with _stopping(PauseReason.ROWS_DIFFER):
                version = job.shadow_watermark
                running.count("rows", comparing.demand_same(warehouse, hive, target, right_version=version))
            return job
        case Rename(table, to):
            renaming.rename(warehouse, table, to, beside=Names.of(job).all)
            return job
        case CheckViews(table):
            return job.noted(**{BROKEN_VIEWS: list(views.check(warehouse, table)) or None})
        case Shadow(target, hive, form):
            accept = job.record.get(ACCEPT, "")
            with (
                _stopping(PauseReason.WRITTEN_LATE, WrittenLate),
                _stopping(PauseReason.PARTITIONS_REMOVED, PartitionsRemoved),
            ):
                shadowed = shadow(warehouse, target, hive, form, job.shadow_watermark, accept=accept)
            running.count("partitions", len(shadowed.done))
            running.count("rows", sum(part.rows or 0 for part in shadowed.done))
            if shadowed.removed:
                _log.warning("%s: %s", job.name, shadowed.removed)
                job = job.noted(**{REMOVED: shadowed.removed})
            job = _looked(job, hive, shadowed.looked)
            return replace(job, shadow_watermark=shadowed.watermark).noted(**{ACCEPT: None})
        case CheckSuspended(hive):
            suspended.demand_none(warehouse, hive)
            return job
        case DropCopy(table, form):
            accept = job.record.get(ACCEPT, "")
            with _stopping(PauseReason.WRITTEN_WHILE_BLOCKED, dropping.WrittenBehind):
                dropping.drop_copy(warehouse, table, form, job.shadow_watermark, accept=accept)
            return job.noted(**{ACCEPT: None})
        case _:
            assert_never(step)


def _take(warehouse: Warehouse, table: TableName, noted: Iterable[Mapping[str, Any]]) -> None:
    for rights in noted:
        warehouse.access.take(table, rights)


def _looked(job: Job, hive: TableName, looked: bool) -> Job:
    """Note on a job that late files couldn't be looked for; a look that could takes the note out."""
    if looked:
        return job.noted(**{NOT_LOOKED: None}) if NOT_LOOKED in job.record else job
    sentence = (
        f"files that came late aren't looked for: {hive} has no record of the files that were there at the "
        "switch, which an earlier version made, or its property tableferry.known_files was removed; compare "
        "its directories with the new table's files before you drop it"
    )
    if job.record.get(NOT_LOOKED) != sentence:
        _log.warning("%s: %s", job.name, sentence)
    return job.noted(**{NOT_LOOKED: sentence})


class _stopping:
    """Turn a refusal of a kind inside a ``with`` into one that pauses the job for this reason."""

    def __init__(self, reason: PauseReason, kind: type[Refused] = Refused) -> None:
        self.reason, self.kind = reason, kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self.kind) and not isinstance(error, Stopped):
            raise Stopped(self.reason, str(error), getattr(error, "found", "")) from error
