"""Bring the Hive copy in step with the table that took its place.

    facts ──> changes since the watermark ──> plan (pure) ──> perform ──> watermark

A run that changes anything notes in the Hive table's properties how far it goes before the first change, and
sets the watermark after the last one. A run that finds such a note writes the touched partitions anew instead
of inserting into them, so whatever an interrupted run had done is neither lost nor there twice.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tableferry.amounts import first_of
from tableferry.catalog import SPARK_ERRORS
from tableferry.driver import in_process
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.settings import RemovedPartitions
from tableferry.fleet.warehouse.context import NeedsPerson, Warehouse
from tableferry.fleet.warehouse.shadow.changes import (
    Changes,
    Columns,
    Done,
    Plan,
    Shadowed,
    What,
    become,
    decide,
    demand_names,
)
from tableferry.fleet.warehouse.shadow.conditions import chunks, texts, where
from tableferry.fleet.warehouse.shadow.hive_copy import HiveCopy
from tableferry.fleet.warehouse.shadow.late.classify import basename
from tableferry.fleet.warehouse.shadow.late.settling import Settled, settle
from tableferry.fleet.warehouse.shadow.marks import SWEEP, TARGET, Marks, runs_noted
from tableferry.fleet.warehouse.shadow.partitions import WHOLE, Partition
from tableferry.fleet.warehouse.shadow.sweeping import unused
from tableferry.fleet.warehouse.shadow.target import Target
from tableferry.fleet.warehouse.shadow.targets import read_target
from tableferry.hive.locations import below, reachable
from tableferry.hive.sql import quoted
from tableferry.tables import TableName
from tableferry.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def shadow(
    w: Warehouse,
    target: TableName,
    hive: TableName,
    format: TargetFormat,
    watermark: str | None,
    *,
    accept: str = "",
    dry_run: bool = False,
) -> Shadowed:
    """Copy what changed in a table since the watermark into its Hive copy.

    Args:
        w: The warehouse.
        target: The table.
        hive: The Hive copy, an external table.
        format: The target's format.
        watermark: What the copy is in step with, where its own properties don't say: the snapshot id or
            version that the target was made with. None compares everything.
        accept: What somebody has said may stay as it is: `NeedsPerson.found` of the refusal that asked.
        dry_run: Whether to change nothing; rows that would be written aren't counted.

    Raises:
        WrittenLate: Somebody left files in the copy's directories.
        PartitionsRemoved: A version removed partitions that it didn't write, and that is to pause the job.
        Refused: The target changed in a way that a Hive table can't follow.
        TableError: A table can't be read.
    """
    copy = HiveCopy.read(w, hive)
    source = read_target(w, target, format)
    marks = Marks.read(copy.properties, copy.location, source.id, watermark)
    settled = settle(copy, source, target, format, marks, accept=accept, dry_run=dry_run)
    if settled.taken and not dry_run:
        source = read_target(w, target, format)
        # What was committed since the first look is behind the watermark after this run.
        settled.look_again(source, marks)
    return _Run.of(copy, source, marks, settled, accept).run(dry_run=dry_run)


class PartitionsRemoved(NeedsPerson):
    """A version removed partitions that it didn't write, and a person must decide."""


@dataclass(frozen=True)
class _Run:
    """One run.

    Attributes:
        copy: The Hive copy, with the columns that it will have.
        columns: What becomes of its columns.
        target: The table.
        marks: What earlier runs left.
        settled: What others left in the copy's directories.
        accept: What somebody has said may stay as it is, as the refusal named it.
        name: This run's, in those of the files that it writes.
    """

    copy: HiveCopy
    columns: Columns
    target: Target
    marks: Marks
    settled: Settled
    accept: str
    name: str

    @classmethod
    def of(cls, copy: HiveCopy, target: Target, marks: Marks, settled: Settled, accept: str) -> _Run:
        keys = copy.partition_columns
        columns = become(copy.columns, target.columns(), keys, target.stands_for, str(copy.name))
        copy.demand_columns(columns)
        every = {**columns.every, **{key: copy.columns[key] for key in keys}}
        return cls(
            replace(copy, columns=every), columns, target, marks, settled, accept, uuid.uuid4().hex[:8]
        )

    def run(self, *, dry_run: bool) -> Shadowed:
        copy, target = self.copy, self.target
        changes, plan = self._planned()
        live = self._live(plan.rewrite)
        removed = self._removed(plan, live)
        pauses = copy.warehouse.removed_partitions is RemovedPartitions.PAUSE
        if removed and pauses and self.accept != removed:
            raise PartitionsRemoved(removed, removed)
        demand_names((*plan.append, *plan.share, *live), copy.partition_columns, str(copy.name))
        left: tuple[str, ...] = ()
        appended: Mapping[Partition, int] = {}
        if not dry_run and (plan or self.columns or not self._is_noted()):
            if plan or self.columns:
                self._note(self.marks.watermark or "", target.version)
            appended, replaced = self._perform(plan, changes, live)
            if plan.append or plan.rewrite:
                ended = replace(self, marks=replace(self.marks, runs=(*self.marks.runs, self.name)))
            else:
                ended = self
            ended._note(target.version, SWEEP if replaced or self.marks.pending else "")
            left = ended._clean(replaced)
        if not dry_run:
            self.settled.finish()
        done, added = self._done(plan, live, appended), tuple(self.columns.added)
        return Shadowed(target.version, done, added, removed, changes.everything, left)

    def _removed(self, plan: Plan, live: Mapping[Partition, int]) -> str:
        """Say which partitions have no row any more since a version that replaced all rows at once.

        It may be what somebody wanted; but in Hive the same statement leaves partitions alone for which it
        has no row, and in Spark it doesn't, unless it's told to.
        """
        copy = self.copy
        gone = [
            each for each in plan.rewrite if each not in live and each != WHOLE and each in copy.partitions
        ]
        version = self.target.replaced_all_since(self.marks.watermark) if gone else ""
        if not version:
            return ""
        partitions = first_of([copy.spelled(each) for each in gone])
        return (
            f"version {version} replaced all rows, and {partitions} have none since: if an INSERT OVERWRITE "
            "was to replace its own partitions alone, bring the others back from the version before, and set "
            "spark.sql.sources.partitionOverwriteMode=dynamic for the job that wrote it"
        )

    def _planned(self) -> tuple[Changes, Plan]:
        copy = self.copy
        if replaced := self.columns.replaced:
            why = f"{', '.join(replaced)} of the Hive copy were renamed, dropped or retyped"
            return Changes(everything=why), Plan(rewrite=self._every())
        changes = self.target.changes(self.marks, copy.columns, copy.partition_columns)
        if changes.everything:
            return changes, Plan(rewrite=self._differing())
        return changes, self._plan(changes.touching(self.settled.partitions))

    def _is_noted(self) -> bool:
        """Say whether the properties are what they would be set to."""
        marks, target = self.marks, self.target
        said = self.copy.properties.get(TARGET), marks.watermark, marks.pending
        return said == (target.id, target.version, "")

    def _note(self, watermark: str, pending: str) -> None:
        marks, target = self.marks, self.target
        self.copy.note(
            watermark=watermark,
            target=target.id,
            folder=marks.folder,
            pending=pending,
            **runs_noted(marks.runs),
        )

    def _plan(self, changes: Changes) -> Plan:
        copy, shared = self.copy, self.target.shared
        if shared is None:
            locations = {each: copy.location for each in changes.added if each in copy.partitions}
        else:
            locations = copy.locations([*changes.added, *changes.moved])
        exact = self.target.exact(changes, copy.partition_columns)
        own = None if copy.names_files else self.marks.folder
        return decide(changes, locations, shared, exact, own, interrupted=bool(self.marks.half_copied))

    def _differing(self) -> tuple[Partition, ...]:
        """Return the partitions whose rows aren't the target's."""
        copy, rows = self.copy, self.target.rows()
        try:
            there = self._comparable(copy.spark.table(copy.name.sql))
            verdict = verify(self._comparable(rows), there, partition_columns=copy.partition_columns)
        except SPARK_ERRORS:  # Its files don't fit its columns, or are gone: then none of them is of use.
            verdict = None
        if verdict is not None and verdict.rows_match:
            return ()
        # A verdict lists some of them, or, without partition columns, none.
        listed = verdict.partition_differences if verdict is not None else ()
        if verdict is not None and 0 < verdict.differing_partitions == len(listed):
            return tuple(each.values for each in listed)
        return self._every()

    def _every(self) -> tuple[Partition, ...]:
        """Return all partitions of both."""
        copy = self.copy
        if not copy.partition_columns:
            return (WHOLE,)
        found = self.target.rows().selectExpr(*texts(copy.partition_columns)).distinct().collect()
        return tuple({tuple(row) for row in found} | copy.partitions)

    def _comparable(self, frame: DataFrame) -> DataFrame:
        """Bring rows into the copy's columns, with partition values as the texts that Hive has for them."""
        keys = self.copy.partition_columns
        return self.copy.rows(frame).selectExpr(
            *(
                f"CAST({quoted(name)} AS STRING) AS {quoted(name)}" if name in keys else quoted(name)
                for name in self.copy.columns
            )
        )

    def _live(self, partitions: Sequence[Partition]) -> Counter[Partition]:
        """Count the target's rows in partitions."""
        found: Counter[Partition] = Counter()
        for some in chunks(partitions):
            found += self._counted(self._only(self.target.rows(), some))
        return found

    def _counted(self, frame: DataFrame) -> Counter[Partition]:
        keys = texts(self.copy.partition_columns)
        grouped = frame.selectExpr(*keys, "1 AS one").groupBy(*(f"p{number}" for number in range(len(keys))))
        return Counter({tuple(row[:-1]): row[-1] for row in grouped.count().collect()})

    def _only(self, frame: DataFrame, partitions: Sequence[Partition]) -> DataFrame:
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema}
        return frame.where(where(partitions, self.copy.partition_columns, kinds))

    def _perform(
        self, plan: Plan, changes: Changes, live: Mapping[Partition, int]
    ) -> tuple[Mapping[Partition, int], tuple[str, ...]]:
        """Change the copy; return the rows that were inserted, and the directories that nobody reads now."""
        copy = self.copy
        # Columns that are replaced are so at the end: a run that ends before it finds them as they were, and
        # writes all rows anew again.
        if self.columns and not self.columns.replaced:
            copy.set_columns(self.columns)
        old = copy.locations(plan.rewrite)
        folder, files = (
            f"{self.marks.folder}/v{self.target.version}-{self.name}",
            basename(self.name),
        )
        present = [each for each in plan.rewrite if each in live or each == WHOLE]
        for some in chunks(present):
            copy.write(self._only(self.target.rows(), some), folder, self.columns, files)
        for each in present:
            copy.point(each, f"{folder}/{copy.spelled(each)}".rstrip("/"))
        for each in plan.rewrite:
            if each not in live and each != WHOLE and each in copy.partitions:
                copy.drop(each)
        for each, directory in plan.share.items():
            copy.point(each, directory)
        appended: Counter[Partition] = Counter()
        for some in chunks(plan.append):
            frame = self._only(self.target.added_rows(changes, self.marks.watermark or "", some), some)
            appended += self._counted(frame)
            copy.insert(frame, files)
        if self.columns.replaced:
            copy.set_columns(self.columns)
        copy.refresh()
        return appended, tuple(old.values())

    def _clean(self, replaced: Sequence[str]) -> tuple[str, ...]:
        """Remove what nobody reads any more, and all that an interrupted run left; return what we can't."""
        copy, folder = self.copy, self.marks.folder
        ours = [each for each in replaced if below(each, folder)]
        if self.marks.pending:
            now = HiveCopy.read(copy.warehouse, copy.name)
            used = [now.location, *now.locations(now.partitions).values()]
            place = reachable(folder, same_machine=in_process(copy.spark))
            if place is not None:
                walked = (os.path.relpath(path, place) for path, _, _ in os.walk(place))
                ours = list(unused((f"{folder}/{path}" for path in walked if path != "."), folder, used))
        left = tuple(each for each in ours if not copy.remove(each, folder))
        if replaced or self.marks.pending:
            self._note(self.target.version, "")
        return left

    def _done(
        self, plan: Plan, live: Mapping[Partition, int], appended: Mapping[Partition, int]
    ) -> tuple[Done, ...]:
        copy = self.copy
        found = [(each, What.APPENDED, appended.get(each)) for each in plan.append]
        found += [(each, What.APPENDED, None) for each in plan.in_place]
        found += [(each, What.ADDED, None) for each in plan.share]
        for each in plan.rewrite:
            if each in live or each == WHOLE:
                what = What.REWRITTEN if each in copy.partitions else What.ADDED
                found.append((each, what, live.get(each, 0)))
            elif each in copy.partitions:
                found.append((each, What.DROPPED, None))
        return tuple(Done(copy.spelled(each), what, rows) for each, what, rows in found)
