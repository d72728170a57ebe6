"""Finds the versions of the sources at which a legacy table holds exactly what the flows make of them.

That is for tables which a batch job fills: nothing records how far it has read. The job is taken to have read
all of its sources at one moment, so only versions that they had together are tried:

- Rows that are only appended grow in number, so the moment is found by their count, in ever larger steps back
  and then by halving. All values are compared at that moment.
- What AUTO CDC makes of events is compared at several moments at once, on a sample of keys: first at the two
  newest, where most jobs stand, then at ten at a time. All keys are compared at a moment that fits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tableferry.amounts import counted, joined
from tableferry.errors import Finding, TableferryError, first_line
from tableferry.formats.delta.commits import WITHOUT_ROWS, Commit, commits_after
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.handover import copies
from tableferry.pipelines.handover.expected_rows import NotKnownError, Whole, together
from tableferry.pipelines.model.facts import HandOver, NoHandOver
from tableferry.pipelines.model.flows import CdcSettings, DataFlow, HistorySource, Migration
from tableferry.pipelines.model.plan import LOOK_BACK, LookBack
from tableferry.pipelines.sources import views
from tableferry.progress import Task, task
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.driver import track_jobs
from tableferry.spark.tables import TableFacts
from tableferry.verify import Verdict, common_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_log = logging.getLogger(__name__)

Moment = Mapping[str, int]
"""The versions that the sources had together, by `TableName.key`."""

_MOMENT = "__tableferry_moment"
_FIRST, _AT_ONCE = 2, 10
_SAMPLE = 1_000


def find(
    spark: SparkSession,
    dataflow: DataFlow,
    migration: Migration,
    legacy: TableFacts,
    sources: Collection[TableFacts],
    look_back: LookBack = LOOK_BACK,
) -> HandOver | NoHandOver:
    """Find the newest moment at which the legacy table holds what the flows make of their sources.

    Args:
        spark: Where the tables are.
        dataflow: The target.
        migration: How the legacy table is mapped.
        legacy: The legacy table, at the version that is to be copied.
        sources: What the flows follow, each at the newest version that is tried.
        look_back: How many moments are tried, or those since which time.
    """
    with (
        task(_log, "look for the hand-over point", table=dataflow.target.name) as running,
        track_jobs(spark, running),
    ):
        try:
            commits = {source.name.key: _newest(spark, source, look_back) for source in sources}
            comparison = of_legacy(spark, dataflow, migration, legacy.version)
            tried = steps(commits)
            if isinstance(look_back, int):
                tried = tried[:look_back]
            search = _Search(comparison, legacy.version, running, _purges(tried, sources))
            return search.among([step.moment for step in tried], sources)
        except TableferryError as error:
            reason, advice = error.sentence, error.remedy
        except SPARK_ERRORS as error:
            reason, advice = first_line(error), "Fix the cause, and run again."
    return NoHandOver(Finding("HAND_OVER_NOT_FOUND_BY_CONTENT", reason=reason, advice=advice))


def _newest(spark: SparkSession, source: TableFacts, look_back: LookBack) -> list[Commit]:
    if isinstance(look_back, int):
        later = commits_after(spark, source.name, max(source.version - look_back, -1))
        return [commit for commit in later if commit.version <= source.version]
    since, back = look_back.timestamp() * 1000, LOOK_BACK
    # The log is read as far as it must be, in ever larger steps.
    while (newest := _newest(spark, source, back)) and newest[-1].timestamp >= since:
        if back > source.version:
            break
        back *= 2
    # The newest one says at which version the source is, however old it is.
    return [*newest[:1], *takewhile(lambda commit: commit.timestamp >= since, newest[1:])]


@dataclass(frozen=True)
class Step:
    """A moment of several tables.

    Attributes:
        moment: The versions that they had.
        table: The key of the table that was written to next; empty after the newest moment.
        commit: The commit that came next; None after the newest moment.
    """

    moment: Moment
    table: str = ""
    commit: Commit | None = None


def steps(commits: Mapping[str, Sequence[Commit]]) -> list[Step]:
    """Return the moments of several tables, the newest first, as far back as their commits tell.

    Args:
        commits: The newest commits of each table, the newest first. Of those that bring no rows only the
            newest version counts.
    """
    moment = {key: newest[0].version for key, newest in commits.items() if newest}
    found = [Step(dict(moment))]
    known = {key: takewhile(lambda commit: commit.operation, newest) for key, newest in commits.items()}
    every = [(commit.timestamp, key, commit) for key, newest in known.items() for commit in newest]
    # The versions of each table stay in order, whatever its clock said.
    for _, key, commit in sorted(every, key=lambda entry: entry[0], reverse=True):
        if commit.version == 0:
            continue
        moment[key] = min(moment[key], commit.version - 1)
        if commit.operation not in WITHOUT_ROWS:
            found.append(Step(dict(moment), key, commit))
    return found


def _purges(tried: Sequence[Step], sources: Collection[TableFacts]) -> Mapping[int, str]:
    """Name the commits that may have deleted or changed rows, by the place of the moment before each."""
    names = {source.name.key: source.name for source in sources}
    return {
        place: f"{names[step.table]}@{step.commit.version} ({step.commit.operation})"
        for place, step in enumerate(tried)
        if step.commit and not step.commit.only_appends
    }


def of_legacy(spark: SparkSession, dataflow: DataFlow, migration: Migration, version: int) -> Comparison:
    """Compare a version of a legacy table with what the flows of its target bring.

    Raises:
        NotKnownError: Nobody can know what they bring of some commits.
        TableError: The version can't be read.
    """
    history = HistorySource(migration, version, dataflow.target.cdc)
    rows, label = copies.history_of(spark, history), f"{migration.table}@{version}"
    whole = Whole.of(spark, dataflow)
    excluded = (*copies.not_compared(spark, history), *copies.unstable_of_flows(spark, dataflow))
    return Comparison(whole, dataflow.target.cdc, rows, label, excluded)


@dataclass(frozen=True)
class Comparison:
    """A table's rows, and what the flows of a target bring.

    Attributes:
        cdc: How the target is made of what they bring.
        held: The table's rows.
        label: What to call them.
        excluded: Columns that aren't compared.
    """

    whole: Whole
    cdc: CdcSettings | None
    held: DataFrame
    label: str
    excluded: tuple[str, ...] = ()

    def at(self, moment: Moment) -> Verdict:
        """Compare all rows, in the columns that the flows bring.

        Raises:
            TableferryError: They can't be read.
        """
        rows = self.whole.rows(moment)
        if self.cdc:
            rows = change_feed.fold_events(change_feed.build_feed_events(rows, self.cdc), self.cdc)
        held, rows = _alike(self.held, rows)
        return copies.matched(held, rows, self.cdc, self.label, self.named(moment), exclude=self.excluded)

    def common(self, moment: Moment) -> int:
        """Count the rows that the flows bring up to a moment and that the table has."""
        return self._common(self.held, self.whole.rows(moment))

    def common_with(self, rows: DataFrame, moment: Moment) -> int:
        """Count the rows that the flows bring up to a moment and that others have, in the table's columns."""
        brought = self.whole.rows(moment)
        return self._common(_alike(self.held, rows)[1], _alike(self.held, brought)[1])

    def _common(self, rows: DataFrame, others: DataFrame) -> int:
        return common_rows(*(frame.drop(*self.excluded) for frame in _alike(rows, others)))

    def fitting(self, among: Sequence[Moment], settings: CdcSettings) -> list[Moment]:
        """Return the moments at which a sample of the keys has the rows that it has in the table."""
        at = replace(settings, keys=(_MOMENT, *settings.keys))
        rows = together(
            [self.whole.rows(moment).withColumn(_MOMENT, F.lit(n)) for n, moment in enumerate(among)]
        )
        held = self.held
        if (sampled := self._sampled(held, rows, settings)) is not None:
            held, rows = held.where(sampled), rows.where(sampled)
        every = F.explode(F.array([F.lit(n) for n in range(len(among))]))
        held, rows = _alike(
            held.withColumn(_MOMENT, every),
            change_feed.fold_events(change_feed.build_feed_events(rows, at), at),
        )
        verdict = copies.matched(
            held, rows, at, "", "", partition_columns=(_MOMENT,), match_rows=False, exclude=self.excluded
        )
        differ = {difference.values[0] for difference in verdict.partition_differences}
        return [moment for n, moment in enumerate(among) if str(n) not in differ]

    def _sampled(self, held: DataFrame, rows: DataFrame, settings: CdcSettings) -> Column | None:
        """Choose about a thousand keys, by a hash that both sides agree on; None for all."""
        parts = held.count() // _SAMPLE
        types = [{name.lower(): kind for name, kind in frame.dtypes} for frame in (held, rows)]
        keys = [key.lower().strip("`") for key in settings.keys]
        if parts < 2 or any(types[0].get(key) != types[1].get(key) for key in keys):
            return None
        return F.pmod(F.xxhash64(*[views.quoted_column(key) for key in keys]), F.lit(parts)) == 0

    def named(self, moment: Moment) -> str:
        """Name the versions of the sources."""
        tables = {key: table for flow, _ in self.whole.flows for key, table in flow.tables.items()}
        return joined([f"{tables[key]}@{version}" for key, version in sorted(moment.items())])


@dataclass(frozen=True)
class _Search:
    """A search for the moment at which a legacy table stands.

    Attributes:
        comparison: Compares the table with moments.
        version: The table's version.
        running: Counts the moments that were tried.
        purges: The commits that may delete or change rows, by the place of the moment before each.
    """

    comparison: Comparison
    version: int
    running: Task
    purges: Mapping[int, str] = field(default_factory=dict)

    def among(self, tried: Sequence[Moment], sources: Collection[TableFacts]) -> HandOver | NoHandOver:
        """Search some moments, the newest first."""
        settings, verdict = self.comparison.cdc, None
        ids = {source.name.key: source.table_id for source in sources}
        held = self.comparison.held.count()
        for moment in self._folded(tried, settings) if settings else [self._counted(tried, held)]:
            verdict = self.comparison.at(moment)
            if verdict.matches:
                rows = counted(verdict.target.rows, "row")
                why = f"{verdict.source_label} holds exactly the {rows} made of {verdict.target_label}"
                if verdict.excluded:
                    why += f", without comparing {joined(verdict.excluded)}"
                return self._found(moment, ids, why)
        if not settings and (found := self._partly(tried, ids)):
            return found
        assert verdict is not None
        none = Finding(
            "NO_MOMENT_MATCHES",
            moments=counted(len(tried), "moment"),
            legacy=verdict.source_label,
            rows=counted(verdict.source.rows, "row"),
            nearest=verdict.target_label,
            nearest_rows=f"{verdict.target.rows:,}",
        )
        return NoHandOver(none, verdict)

    def _found(self, moment: Moment, ids: Mapping[str, str], why: str) -> HandOver:
        positions = {ids[key]: version for key, version in moment.items()}
        return HandOver(self.version, positions, {}, "proved", why)

    def _partly(self, tried: Sequence[Moment], ids: Mapping[str, str]) -> HandOver | NoHandOver | None:
        """Find the newest moment whose rows the table has all, where the table has older rows too.

        The sources have lost those. Of what came after the moment the table may have nothing: neither of the
        next commit, nor of what the sources hold now, nor of what they held before they lost rows again.
        """
        at = self._newest_held(tried)
        if at is None or not (count := (rows := self.comparison.whole.rows(tried[at])).count()):
            return None
        purges = {place: purge for place, purge in self.purges.items() if place < at}
        later = {0, max(at - 1, 0), *purges}
        for place in sorted(later - {at}):
            if self.comparison.common(tried[place]) != self.comparison.common_with(rows, tried[place]):
                came = self.comparison.named(tried[place])
                legacy, moment = self.comparison.label, self.comparison.named(tried[at])
                if purges:
                    # The purged rows stay missing, however long the old job runs.
                    return NoHandOver(
                        Finding(
                            "HAND_OVER_HIDDEN_BY_PURGES",
                            legacy=legacy,
                            moment=moment,
                            later=came,
                            purges=joined(list(purges.values())),
                        )
                    )
                return NoHandOver(
                    Finding("HAND_OVER_WITHIN_LATER_ROWS", legacy=legacy, moment=moment, later=came)
                )
        older = counted(self.comparison.held.count() - count, "row")
        why = (
            f"{self.comparison.label} holds all {counted(count, 'row')} made of "
            f"{self.comparison.named(tried[at])}, none of what came later, and {older} from before"
        )
        return self._found(tried[at], ids, why)

    def _newest_held(self, tried: Sequence[Moment]) -> int | None:
        """Return the place of the newest moment whose rows, if there are any, the table has all."""

        @cache
        def is_held(at: int) -> bool:
            self.running.update("moments", is_held.cache_info().currsize + 1, len(tried))
            return self.comparison.whole.rows(tried[at]).count() == self.comparison.common(tried[at])

        _, at = _boundary(len(tried), lambda at: not is_held(at))
        return at if at < len(tried) else None

    def _counted(self, tried: Sequence[Moment], wanted: int) -> Moment:
        """Return the moment with the count of rows that is nearest to one."""

        @cache
        def more(at: int) -> int:
            self.running.update("moments", more.cache_info().currsize + 1, len(tried))
            return self.comparison.whole.rows(tried[at]).count() - wanted

        # At `newer` there are more rows than wanted, at `older` there aren't.
        newer, older = _boundary(len(tried), lambda at: more(at) > 0)
        near = [at for at in (newer, older) if 0 <= at < len(tried)]
        return tried[min(near, key=lambda at: abs(more(at)))]

    def _folded(self, tried: Sequence[Moment], settings: CdcSettings) -> Iterator[Moment]:
        """Yield the moments that fit, the newest first, or else the newest one of all."""
        # A truncate of one moment would reach the others, which are folded with it.
        first, at_once = (1, 1) if settings.apply_as_truncates else (_FIRST, _AT_ONCE)
        start, end, fits = 0, first, False
        while start < len(tried):
            self.running.update("moments", start, len(tried))
            for moment in self.comparison.fitting(tried[start:end], settings):
                fits = True
                yield moment
            start, end = end, end + at_once
        if not fits:
            yield tried[0]


def _boundary(count: int, holds: Callable[[int], bool]) -> tuple[int, int]:
    """Return the last place where a condition holds and the next one: -1 and `count` stand for neither.

    It holds up to some place only. That is found in ever larger steps, and then by halving.
    """
    last, step = -1, 1
    while (after := last + step) < count and holds(after):
        last, step = after, step * 2
    after = min(after, count)
    while after - last > 1:
        middle = (last + after) // 2
        last, after = (middle, after) if holds(middle) else (last, middle)
    return last, after


def _alike(held: DataFrame, rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Leave out the columns that only one side has: an audit column of the old job says nothing of rows."""
    brought = {name.lower() for name in rows.columns}
    both = [name for name in held.columns if name.lower() in brought]
    if not both:
        raise NotKnownError("NO_COMMON_COLUMNS", columns=held.columns)
    return held.select(*map(views.quoted_column, both)), rows.select(*map(views.quoted_column, both))
