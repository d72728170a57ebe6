"""Copy the new table's changes to the Hive copy.

    facts ──> changes since the watermark ──> plan (pure) ──> perform ──> watermark

Before its first change, a run records in the Hive table's properties the version that it copies. After the
last change, it sets the watermark. After an interrupted run, the next run rewrites the touched partitions
instead of inserting into them, so that no row is lost or duplicated.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from pyspark.sql.functions import expr

from tableferry.amounts import first_of
from tableferry.fleet.hive_copy.column_limits import unfit_condition
from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_copy.target import Target, read_target
from tableferry.fleet.hive_copy.update_plan import (
    Action,
    Changes,
    Columns,
    PartitionUpdate,
    Plan,
    ShadowResult,
    check_partition_values,
    plan_columns,
    plan_updates,
)
from tableferry.fleet.hive_tables.partition_conditions import chunks, texts, where
from tableferry.fleet.hive_tables.partitions import WHOLE, Partition, nulls_first, parsed
from tableferry.fleet.hive_tables.progress_properties import (
    PARTITIONS,
    SWEEP,
    TARGET,
    ShadowProgress,
    has_same_partitions,
    run_properties,
)
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, PauseReason, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.late_files.classification import basename, directory_name
from tableferry.fleet.late_files.settlement import (
    LateFilesError,
    Settlement,
    read_marks,
    record_late_file_check,
    settle_late_files,
)
from tableferry.fleet.settings import RemovedPartitions
from tableferry.fleet.shadow_runs.unused_directories import find_unused_directories
from tableferry.fleet.warehouse import job_tables, target_versions
from tableferry.fleet.warehouse.context import DecisionRequired, Warehouse
from tableferry.fleet.warehouse.hive_files import list_files
from tableferry.fleet.warehouse.step_run import StepRun, pausing, record_left_directories
from tableferry.formats.hive.locations import below, split
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName
from tableferry.spark.types import declared
from tableferry.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)


def copy_changes(step: steps.Shadow, run: StepRun) -> Job:
    """Copy a table's changes to its Hive copy, and record the version that the copy has now.

    Raises:
        StepPaused: A person must decide about late files, or about changed or removed partitions.
        Refused: Another table replaced the new one, or Hive doesn't support a change of it.
        TableError: A table can't be read.
    """
    job = run.job
    job_tables.require_own_table(run.warehouse, Names.of(job), step.target)
    with (
        pausing(PauseReason.WRITTEN_LATE, LateFilesError),
        pausing(PauseReason.PARTITIONS_REMOVED, PartitionsRemoved),
        pausing(PauseReason.HIVE_COPY_CHANGED, HiveCopyChanged),
    ):
        result = shadow(
            run.warehouse,
            step.target,
            step.hive,
            step.format,
            job.shadow_watermark,
            accept=job.record.accept,
            compare_all=bool(job.record.compare_all),
        )
    run.progress.update("partitions", len(result.updates))
    run.progress.update("rows", sum(part.rows or 0 for part in result.updates))
    if result.removed:
        _log.warning("%s: %s", job.name, result.removed)
        job = job.with_record(removed_partitions=result.removed)
    if result.left_directories:
        job = record_left_directories(job, result.left_directories)
    job = record_late_file_check(job, step.hive, result.late_files_checked)
    return replace(job, shadow_watermark=result.watermark).with_record(accept="", compare_all=False)


def copy_changes_if_written(step: steps.ShadowWritten, run: StepRun) -> Job:
    """Copy a table's changes to its Hive copy, unless the table still has the copied version."""
    current = target_versions.current_version(run.warehouse, step.target, step.format)
    if current == run.job.shadow_watermark:
        return run.job
    return copy_changes(steps.Shadow(step.target, step.hive, step.format), run)


def shadow(
    warehouse: Warehouse,
    target: TableName,
    hive: TableName,
    format: TargetFormat,
    watermark: str | None,
    *,
    accept: str = "",
    compare_all: bool = False,
    dry_run: bool = False,
) -> ShadowResult:
    """Copy a table's changes since the watermark to its Hive copy.

    Args:
        warehouse: The warehouse.
        target: The table.
        hive: The Hive copy, an external table.
        format: The target's format.
        watermark: The version whose rows the copy contains, if its properties lack one: the snapshot id or
            version with which the target was created. None compares all rows.
        accept: The decision that a person accepted: `DecisionRequired.found` of the refusal.
        compare_all: Whether to compare all rows instead of reading the target's history.
        dry_run: Whether to change nothing; rows aren't counted then.

    Raises:
        LateFilesError: Another process left files in the copy's directories.
        HiveCopyChanged: Partitions of the copy were dropped, moved or added, or lost their files.
        PartitionsRemoved: A version removed partitions, and the settings pause the job then.
        Refused: A Hive table doesn't support a change of the target.
        TableError: A table can't be read.
    """
    copy = HiveCopy.read(warehouse, hive)
    source = read_target(warehouse, target, format)
    marks = read_marks(copy, source, format, watermark)
    settled = settle_late_files(copy, source, target, format, marks, accept=accept, dry_run=dry_run)
    if settled.taken and not dry_run:
        source = read_target(warehouse, target, format)
        # The next run reads only commits after its watermark, so newer files of the log are recorded now.
        settled.record_new_files(source, marks)
    # Files of partitions may have been removed together with the record.
    compare_all = compare_all or settled.lost is not None
    result = _Run.of(copy, source, marks, settled, accept, compare_all=compare_all).run(dry_run=dry_run)
    if settled.lost and not dry_run:
        settled.lost.remove_from_properties(hive)
    return result


class HiveCopyChanged(DecisionRequired):
    """Partitions of the Hive copy were changed by hand, and a person must decide."""


class PartitionsRemoved(DecisionRequired):
    """An overwrite of the whole table removed partitions, and a person must decide."""


@dataclass(frozen=True)
class _Run:
    """One run.

    Attributes:
        copy: The Hive copy, with its columns after the run.
        columns: The changes of its columns.
        name: The run's name, which is part of the names of the files that it writes.
        compare_all: Whether to compare all rows, even with a watermark.
        locations: The locations of the copy's partitions before the run; None if each needs a query.
    """

    copy: HiveCopy
    columns: Columns
    target: Target
    marks: ShadowProgress
    settled: Settlement
    accept: str
    name: str
    compare_all: bool
    locations: Mapping[str, str] | None

    @classmethod
    def of(
        cls,
        copy: HiveCopy,
        target: Target,
        marks: ShadowProgress,
        settled: Settlement,
        accept: str,
        *,
        compare_all: bool,
    ) -> _Run:
        keys = copy.partition_columns
        columns = plan_columns(copy.columns, target.columns(), keys, target.type_substitutes, str(copy.name))
        copy.check_columns(columns)
        every = {**columns.every, **{key: copy.columns[key] for key in keys}}
        copy, name = replace(copy, columns=every), uuid.uuid4().hex[:8]
        locations = copy.known_locations()
        return cls(copy, columns, target, marks, settled, accept, name, compare_all, locations)

    def run(self, *, dry_run: bool) -> ShadowResult:
        changes, plan = self._make_plan()
        return self._with_widened_columns(changes, plan)._apply(changes, plan, dry_run=dry_run)

    def _apply(self, changes: Changes, plan: Plan, *, dry_run: bool) -> ShadowResult:
        copy, target = self.copy, self.target
        live = self._count_target_rows(plan.rewrite)
        removed = self._find_removed_partitions(plan, live)
        pauses = copy.warehouse.removed_partitions is RemovedPartitions.PAUSE
        # Earlier versions recorded a longer text that starts with this one.
        if removed and pauses and not self.accept.startswith(removed.found):
            raise removed
        check_partition_values((*plan.append, *plan.share, *live), copy.keys, str(copy.name))
        left: tuple[str, ...] = ()
        appended: Mapping[Partition, int] = {}
        if not dry_run and (plan or self.columns or not self._is_recorded()):
            if plan or self.columns:
                self._note(self.marks.watermark or "", target.version)
            appended, replaced = self._change_copy(plan, changes, live)
            if plan.append or plan.rewrite:
                ended = replace(self, marks=replace(self.marks, runs=(*self.marks.runs, self.name)))
            else:
                ended = self
            pending = SWEEP if replaced or self.marks.pending else ""
            ended._note(target.version, pending, partitions=ended._fingerprint(plan))
            left = ended._remove_unused_directories(replaced)
        if not dry_run:
            self.settled.finish()
        updates, added = self._list_updates(plan, live, appended), tuple(self.columns.added)
        late_files_checked = self.settled.record is not None
        removed_sentence = removed.one_line if removed else ""
        return ShadowResult(
            target.version, updates, added, removed_sentence, changes.compare_all, left, late_files_checked
        )

    def _with_widened_columns(self, changes: Changes, plan: Plan) -> _Run:
        """Return the run with wider types for columns that are too narrow for the rows that it copies."""
        copy, columns = self.copy, self.columns
        now = {field.name.lower(): field for field in self.target.rows().schema}
        narrow = {
            field.name: condition
            for field in copy.schema
            if field.name in columns.every and field.name not in columns.replaced
            if declared(field) != declared(now[field.name.lower()]) and (condition := unfit_condition(field))
        }
        if not narrow:
            return self
        conditions = [expr(f"coalesce(bool_or({condition}), false)") for condition in narrow.values()]
        found = [frame.agg(*conditions).collect()[0] for frame in self._rows_to_copy(changes, plan)]
        if outgrown := [name for name, *rows in zip(narrow, *found, strict=True) if any(rows)]:
            columns = columns.widening(outgrown, self.target.columns())
            copy.check_columns(columns)
            every = {**copy.columns, **columns.widened}
            return replace(self, copy=replace(copy, columns=every), columns=columns)
        return self

    def _rows_to_copy(self, changes: Changes, plan: Plan) -> Iterator[DataFrame]:
        """Yield the rows that a plan copies."""
        for chunk in chunks((*plan.rewrite, *plan.share, *plan.in_place)):
            yield self._rows_of(self.target.rows(), chunk)
        for chunk in chunks(plan.append):
            yield self._rows_to_append(changes, chunk)

    def _rows_to_append(self, changes: Changes, partitions: Sequence[Partition]) -> DataFrame:
        """Return the rows that were added to partitions that lost none."""
        watermark, columns = self.marks.watermark or "", self.copy.partition_columns
        return self._rows_of(self.target.added_rows(changes, watermark, partitions, columns), partitions)

    def _find_removed_partitions(self, plan: Plan, live: Mapping[Partition, int]) -> PartitionsRemoved | None:
        """Return the partitions that lost all rows by an overwrite of the whole table; None if none did.

        The overwrite may be a mistake: in Hive, INSERT OVERWRITE keeps partitions for which it has no rows;
        in Spark, it keeps them only with dynamic partition overwrite.
        """
        dropped = self._partitions_without_rows(plan, live)
        version = self.target.replaced_all_since(self.marks.watermark) if dropped else ""
        if not version:
            return None
        partitions = [self.copy.spelled(partition) for partition in dropped]
        return PartitionsRemoved(
            "PARTITIONS_WITHOUT_ROWS",
            f"version {version} replaced all rows, and {first_of(partitions)} have none since",
            table=self.target.name,
            version=version,
            partitions=partitions,
        )

    def _partitions_without_rows(self, plan: Plan, live: Mapping[Partition, int]) -> list[Partition]:
        """Return the copy's partitions that have no rows in the target."""
        gone = self.copy.partitions.difference(live, (WHOLE,))
        return [partition for partition in plan.rewrite if partition in gone]

    def _make_plan(self) -> tuple[Changes, Plan]:
        copy = self.copy
        if replaced := self.columns.replaced:
            why = f"{', '.join(replaced)} of the Hive copy were renamed, dropped or retyped"
            return Changes(compare_all=why), Plan(rewrite=self._all_partitions())
        marks = replace(self.marks, watermark=None) if self.compare_all else self.marks
        changes = self.target.changes(marks, copy.columns, copy.partition_columns)
        if changes.compare_all:
            return changes, Plan(rewrite=self._differing_partitions(self.target.rows()))
        touched = self.settled.partitions | self._partitions_changed_by_hand(changes)
        return changes, self._plan(changes.touching(touched))

    def _partitions_changed_by_hand(self, changes: Changes) -> frozenset[Partition]:
        """Return the partitions whose catalog entries changed since the last run.

        Partitions that this run rewrites anyway are omitted. After an interrupted run the result is empty,
        because that run's own changes can't be distinguished.

        Raises:
            HiveCopyChanged: Partitions changed, and no person has confirmed that they are rewritten.
        """
        copy, marks = self.copy, self.marks
        noted, now = copy.properties.get(PARTITIONS), copy.fingerprint(self.locations)
        if noted is None or marks.watermark is None or marks.pending:
            return frozenset()
        rewritten = {*changes.touched, *self.settled.partitions}
        if self.target.shared is not None:
            # The copy already reads the new files of these partitions.
            rewritten |= {*changes.added, *changes.moved}
        empty = sorted(self._partitions_without_files(marks.watermark), key=nulls_first)
        altered = set(empty)
        if not has_same_partitions(noted, now):
            altered.update(self._differing_partitions(self.target.rows_at(marks.watermark)))
        altered -= rewritten
        if not altered:
            return frozenset()
        spelled = sorted(copy.spelled(partition) or "its files" for partition in altered)
        # The new table's version isn't included: it may change before a person accepts this.
        found = sha256(f"{now} {empty}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
        if self.accept != found:
            name = self.target.name.table
            raise HiveCopyChanged(
                "HIVE_COPY_CHANGED_BY_HAND", found, table=copy.name, partitions=spelled, target=name
            )
        return frozenset(altered)

    def _partitions_without_files(self, watermark: str) -> Iterator[Partition]:
        """Yield the partitions in the folder of shadow runs that lost all their files."""
        copy, folder = self.copy, self.marks.folder
        inside = {
            spec: split(location)
            for spec, location in (self.locations or {}).items()
            if below(location, folder) is not None
        }
        if not inside:
            return
        directories = {file.directory for file in list_files(copy.warehouse, [folder])}
        kinds = [copy.columns[key] for key in copy.partition_columns]
        empty = [
            parsed(copy.name, spec, kinds) if spec else WHOLE
            for spec, directory in inside.items()
            if directory not in directories
        ]
        for chunk in chunks(empty):
            # Without partition columns, an empty table is one group with a count of 0.
            yield from +self._count_rows(self._rows_of(self.target.rows_at(watermark), chunk))

    def _is_recorded(self) -> bool:
        """Return whether the copy's properties already contain this version, with no pending run."""
        marks, target, copy = self.marks, self.target, self.copy
        noted = copy.properties.get(TARGET), marks.watermark, marks.pending, copy.properties.get(PARTITIONS)
        return noted == (target.id, target.version, "", copy.fingerprint(self.locations))

    def _fingerprint(self, plan: Plan) -> str:
        """Return the fingerprint of the copy's partitions after a plan was performed."""
        if not plan.share and not plan.rewrite:
            return self.copy.fingerprint(self.locations)
        now = HiveCopy.read(self.copy.warehouse, self.copy.name)
        return now.fingerprint(now.known_locations())

    def _note(self, watermark: str, pending: str, **more: str) -> None:
        marks, target = self.marks, self.target
        notes = {**run_properties(marks.runs), **more}
        self.copy.note(watermark=watermark, target=target.id, folder=marks.folder, pending=pending, **notes)

    def _plan(self, changes: Changes) -> Plan:
        copy, shared = self.copy, self.target.shared
        if shared is None:
            # The plan doesn't depend on the locations then.
            locations = dict.fromkeys(copy.partitions.intersection(changes.added), copy.location)
        else:
            locations = copy.locations([*changes.added, *changes.moved])
        # The target's files aren't bucketed.
        exact = frozenset() if copy.bucketed else self.target.exact(changes, copy.partition_columns)
        own = None if copy.names_files else self.marks.folder
        plan = plan_updates(
            changes, locations, shared, exact, own, interrupted=bool(self.marks.interrupted_version)
        )
        # Spark would insert into a new partition with its own spelling of the value.
        odd = copy.odd.keys() & set(plan.append)
        append = tuple(partition for partition in plan.append if partition not in odd)
        return replace(plan, append=append, rewrite=(*plan.rewrite, *sorted(odd, key=nulls_first)))

    def _differing_partitions(self, rows: DataFrame) -> tuple[Partition, ...]:
        """Return the partitions whose rows differ from the given rows of the target."""
        copy = self.copy
        try:
            hive_rows = self._comparable(copy.spark.table(copy.name.sql))
            verdict = verify(self._comparable(rows), hive_rows, partition_columns=copy.partition_columns)
        except SPARK_ERRORS:  # Its files are missing or don't fit its columns: all partitions are rewritten.
            return self._all_partitions()
        if verdict.rows_match:
            return ()
        # A verdict may list only some partitions, and lists none without partition columns.
        if 0 < verdict.differing_partitions == len(verdict.partition_differences):
            return tuple(difference.values for difference in verdict.partition_differences)
        return self._all_partitions()

    def _all_partitions(self) -> tuple[Partition, ...]:
        """Return all partitions of the copy and of the target."""
        copy = self.copy
        if not copy.partition_columns:
            return (WHOLE,)
        rows = self.target.rows().selectExpr(*texts(copy.partition_columns)).distinct().collect()
        return tuple({tuple(row) for row in rows} | copy.partitions)

    def _comparable(self, frame: DataFrame) -> DataFrame:
        """Cast rows to the copy's columns, with partition values as strings."""
        keys = self.copy.partition_columns
        return self.copy.rows(frame).selectExpr(
            *(
                f"CAST({quote(name)} AS STRING) AS {quote(name)}" if name in keys else quote(name)
                for name in self.copy.columns
            )
        )

    def _count_target_rows(self, partitions: Sequence[Partition]) -> Counter[Partition]:
        """Count the target's rows in partitions."""
        counts: Counter[Partition] = Counter()
        for chunk in chunks(partitions):
            counts += self._count_rows(self._rows_of(self.target.rows(), chunk))
        return counts

    def _count_rows(self, frame: DataFrame) -> Counter[Partition]:
        keys = texts(self.copy.partition_columns)
        grouped = frame.selectExpr(*keys, "1 AS one").groupBy(*(f"p{number}" for number in range(len(keys))))
        return Counter({tuple(row[:-1]): row[-1] for row in grouped.count().collect()})

    def _rows_of(self, frame: DataFrame, partitions: Sequence[Partition]) -> DataFrame:
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema}
        return frame.where(where(partitions, self.copy.partition_columns, kinds))

    def _change_copy(
        self, plan: Plan, changes: Changes, live: Mapping[Partition, int]
    ) -> tuple[Mapping[Partition, int], tuple[str, ...]]:
        """Change the copy; return the numbers of inserted rows and the directories that are now unused."""
        copy = self.copy
        # Columns are replaced at the end: if this run is interrupted before that, the next run rewrites all
        # rows again.
        if self.columns and not self.columns.replaced:
            copy.set_columns(self.columns)
            for column, kind in self.columns.widened.items():
                _log.warning(
                    "%s: the type of %s is now %s, because the old type was too narrow",
                    copy.name,
                    column,
                    kind,
                )
        old = copy.locations(plan.rewrite)
        own = directory_name(self.target.version, self.name, names_files=copy.names_files)
        folder, files = f"{self.marks.folder}/{own}", basename(self.name)
        present = [partition for partition in plan.rewrite if partition in live or partition == WHOLE]
        for chunk in chunks(present):
            copy.write(self._rows_of(self.target.rows(), chunk), folder, self.columns, files)
        for partition in present:
            copy.set_location(partition, f"{folder}/{copy.spelled(partition)}".rstrip("/"))
        for partition in self._partitions_without_rows(plan, live):
            copy.empty(partition, f"{folder}/{copy.spelled(partition)}", files)
        for partition, directory in plan.share.items():
            copy.set_location(partition, directory)
        appended: Counter[Partition] = Counter()
        for chunk in chunks(plan.append):
            frame = self._rows_to_append(changes, chunk)
            appended += self._count_rows(frame)
            copy.insert(frame, files)
        if self.columns.replaced:
            copy.note(replaced="true")
            copy.set_columns(self.columns)
        copy.refresh()
        return appended, tuple(old.values())

    def _remove_unused_directories(self, replaced: Sequence[str]) -> tuple[str, ...]:
        """Remove unused directories, also those of interrupted runs; return those that can't be removed."""
        copy, folder = self.copy, self.marks.folder
        unread = [directory for directory in replaced if below(directory, folder)]
        if self.marks.pending:
            now = HiveCopy.read(copy.warehouse, copy.name)
            used = [now.location, *now.locations(now.partitions).values()]
            if (directories := copy.directories(folder)) is not None:
                unread = list(find_unused_directories(directories, folder, used))
        others = self.settled.directories_written_by_others(copy, folder, unread)
        left = tuple(
            directory
            for directory in unread
            if directory not in others and not copy.remove(directory, folder)
        )
        if replaced or self.marks.pending:
            self._note(self.target.version, "")
        return left

    def _list_updates(
        self, plan: Plan, live: Mapping[Partition, int], appended: Mapping[Partition, int]
    ) -> tuple[PartitionUpdate, ...]:
        copy = self.copy
        updates = [(partition, Action.APPENDED, appended.get(partition)) for partition in plan.append]
        updates += [(partition, Action.APPENDED, None) for partition in plan.in_place]
        updates += [(partition, Action.ADDED, None) for partition in plan.share]
        for partition in plan.rewrite:
            if partition in live or partition == WHOLE:
                action = Action.REWRITTEN if partition in copy.partitions else Action.ADDED
                updates.append((partition, action, live.get(partition, 0)))
            elif partition in copy.partitions:
                updates.append((partition, Action.EMPTIED, None))
        return tuple(
            PartitionUpdate(copy.spelled(partition), action, rows) for partition, action, rows in updates
        )
