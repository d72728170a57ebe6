"""Handlers of fleet steps outside of a queue: a run of one step, and short calls of some handlers."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.fleet_jobs import job

from tableferry.fleet.copies import copy_removal
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.warehouse import definitions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.step_run import Save, StepRun
from tableferry.progress import Task
from tableferry.spark.tables import TableName


def step_run(warehouse: Warehouse, of: Job | None = None, save: Save = lambda job: job) -> StepRun:
    """Return a run of a step, of any job for a handler that reads none of its fields."""
    return StepRun(of or job(), warehouse, save, Task("a step"))


def copy_definition(warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat) -> None:
    run = step_run(warehouse, replace(job(), target_format=form))
    definitions.copy_definition(steps.CopyDefinition(source, target), run)


def drop_copy(
    warehouse: Warehouse, hive: TableName, copy: TableName, form: TargetFormat, watermark: str | None = None
) -> None:
    run = step_run(warehouse, replace(job(), target_format=form, shadow_watermark=watermark))
    copy_removal.drop_copy(steps.DropCopy(copy, hive, form), run)
