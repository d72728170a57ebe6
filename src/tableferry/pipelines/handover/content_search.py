"""Find the source versions whose rows a legacy table contains, by comparing rows.

A batch job records nowhere how far it has read its sources. The search assumes that the job read all sources
at one moment, so it tries only versions that the sources had together:

- Appends: a binary search over the row counts finds the moment. Then all values are compared.
- AUTO CDC: a sample of keys is compared at the two newest moments, then at ten moments per query.
  Where the sample matches, all keys are compared.
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
from tableferry.formats.delta.commits import Commit, commits_after
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.handover import copies
from tableferry.pipelines.handover.expected_rows import RowsNotDerivableError, TargetOutput
from tableferry.pipelines.model.facts import HandOver, UnknownHandOver
from tableferry.pipelines.model.flows import CdcSettings, DataFlow, HistorySource, Migration
from tableferry.pipelines.model.plan import DEFAULT_LOOK_BACK, LookBack
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.rows import union_by_name
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
_FIRST_MOMENTS, _MOMENTS_PER_QUERY = 2, 10
_SAMPLED_KEYS = 1_000


def find_hand_over(
    spark: SparkSession,
    dataflow: DataFlow,
    migration: Migration,
    legacy: TableFacts,
    sources: Collection[TableFacts],
    look_back: LookBack = DEFAULT_LOOK_BACK,
) -> HandOver | UnknownHandOver:
    """Find the newest moment at which the flows would produce the rows of the legacy table.

    A moment is a combination of versions that the sources had at the same time. The rows are compared in the
    columns that both sides have. With append flows, the legacy table may also have older rows, but no later
    rows of the sources. If no moment fits or a read fails, the `UnknownHandOver` has the reason.

    The legacy table is at the version that is to be copied, and the sources of the flows are at the newest
    versions to try. `look_back` is the number of moments to try, or the time of the oldest one.
    """
    with (
        task(_log, "find the hand-over point", table=dataflow.target.name) as running,
        track_jobs(spark, running),
    ):
        try:
            commits = {source.name.key: _read_commits(spark, source, look_back) for source in sources}
            comparison = build_comparison(spark, dataflow, migration, legacy.version)
            tried = list_moments(commits)
            if isinstance(look_back, int):
                tried = tried[:look_back]
            search = _Search(comparison, legacy.version, running, _list_purges(tried, sources))
            return search.find([past.moment for past in tried], sources)
        except TableferryError as error:
            reason, advice = error.sentence, error.remedy
        except SPARK_ERRORS as error:
            reason, advice = first_line(error), "Fix the cause, and run again."
    return UnknownHandOver(Finding("HAND_OVER_NOT_FOUND_BY_CONTENT", reason=reason, advice=advice))


def _read_commits(spark: SparkSession, source: TableFacts, look_back: LookBack) -> list[Commit]:
    if isinstance(look_back, int):
        later = commits_after(spark, source.name, max(source.version - look_back, -1))
        return [commit for commit in later if commit.version <= source.version]
    since, back = look_back.timestamp() * 1000, DEFAULT_LOOK_BACK
    # Double the number of commits until they reach back to that time.
    while (newest := _read_commits(spark, source, back)) and newest[-1].timestamp >= since:
        if back > source.version:
            break
        back *= 2
    # The newest commit gives the source's version, even if it is older than that time.
    return [*newest[:1], *takewhile(lambda commit: commit.timestamp >= since, newest[1:])]


@dataclass(frozen=True)
class PastMoment:
    """A moment of several tables, and the commit that ended it.

    Attributes:
        moment: The versions of the tables.
        next_table: The key of the table that was written next; empty for the newest moment.
        next_commit: That commit; None for the newest moment.
    """

    moment: Moment
    next_table: str = ""
    next_commit: Commit | None = None


def list_moments(commits: Mapping[str, Sequence[Commit]]) -> list[PastMoment]:
    """Return the moments of several tables, the newest first.

    Versions that differ only by commits without rows, such as OPTIMIZE, count as the newest of them. The
    commits of each table are its newest ones, the newest first.
    """
    moment = {key: newest[0].version for key, newest in commits.items() if newest}
    found = [PastMoment(dict(moment))]
    known = {key: takewhile(lambda commit: commit.operation, newest) for key, newest in commits.items()}
    every = [(commit.timestamp, key, commit) for key, newest in known.items() for commit in newest]
    # A table's versions stay in order even if its commits' timestamps don't.
    for _, key, commit in sorted(every, key=lambda entry: entry[0], reverse=True):
        if commit.version == 0:
            continue
        moment[key] = min(moment[key], commit.version - 1)
        if commit.may_change_rows:
            found.append(PastMoment(dict(moment), key, commit))
    return found


def _list_purges(tried: Sequence[PastMoment], sources: Collection[TableFacts]) -> Mapping[int, str]:
    """Return the commits that may have deleted or changed rows, by the index of the moment before each."""
    names = {source.name.key: source.name for source in sources}
    return {
        index: f"{names[past.next_table]}@{past.next_commit.version} ({past.next_commit.operation})"
        for index, past in enumerate(tried)
        if past.next_commit and not past.next_commit.only_appends
    }


def build_comparison(
    spark: SparkSession, dataflow: DataFlow, migration: Migration, version: int
) -> Comparison:
    """Prepare the comparison of a legacy table's version with the rows that the flows produce.

    Raises:
        RowsNotDerivableError: The rows of a flow can't be derived from commits.
        TableError: The version can't be read.
    """
    history = HistorySource(migration, version, dataflow.target.cdc)
    rows, excluded = copies.read_expected_copy(spark, history), copies.list_excluded_columns(spark, history)
    return Comparison.of_dataflow(spark, dataflow, rows, f"{migration.table}@{version}", excluded)


@dataclass(frozen=True)
class Comparison:
    """Compares a table with the rows that the flows of a target produce.

    Attributes:
        output: The rows that the flows produce.
        cdc: The AUTO CDC settings that turn these rows into the target's; None if they are appended.
        rows: The table's rows.
        label: The table's name in messages.
        excluded: Columns that aren't compared.
    """

    output: TargetOutput
    cdc: CdcSettings | None
    rows: DataFrame
    label: str
    excluded: tuple[str, ...] = ()

    @classmethod
    def of_dataflow(
        cls, spark: SparkSession, dataflow: DataFlow, rows: DataFrame, label: str, excluded: Sequence[str]
    ) -> Comparison:
        """Prepare the comparison of rows with those that a target's flows produce.

        Columns that the flows compute differently each time are excluded, too.

        Raises:
            RowsNotDerivableError: The rows of a flow can't be derived from commits.
        """
        output = TargetOutput.of_dataflow(spark, dataflow)
        excluded = (*excluded, *copies.find_unstable_flow_columns(spark, dataflow))
        return cls(output, dataflow.target.cdc, rows, label, excluded)

    def compare(self, moment: Moment) -> Verdict:
        """Compare all rows in the columns that both sides have.

        Raises:
            TableferryError: The rows can't be read.
        """
        expected = self.output.read_rows(moment)
        if self.cdc:
            expected = change_feed.fold_events(change_feed.build_feed_events(expected, self.cdc), self.cdc)
        rows, expected = _select_common_columns(self.rows, expected)
        label = self.name_moment(moment)
        return copies.compare_rows(rows, expected, self.cdc, self.label, label, exclude=self.excluded)

    def count_common(self, moment: Moment) -> int:
        """Count the rows that the flows produce up to a moment and that the table contains."""
        return self._count_common(self.rows, self.output.read_rows(moment))

    def count_common_with(self, rows: DataFrame, moment: Moment) -> int:
        """Count the rows that the flows produce up to a moment and that ``rows`` contains.

        Only the table's columns are compared.
        """
        others = (rows, self.output.read_rows(moment))
        return self._count_common(*(_select_common_columns(self.rows, other)[1] for other in others))

    def _count_common(self, rows: DataFrame, others: DataFrame) -> int:
        return common_rows(*(frame.drop(*self.excluded) for frame in _select_common_columns(rows, others)))

    def find_matching(self, moments: Sequence[Moment], settings: CdcSettings) -> list[Moment]:
        """Return the moments at which a sample of keys has the same rows in the table and in the output."""
        per_moment = replace(settings, keys=(_MOMENT, *settings.keys))
        outputs = map(self.output.read_rows, moments)
        numbered = [output.withColumn(_MOMENT, F.lit(n)) for n, output in enumerate(outputs)]
        rows, expected = self.rows, union_by_name(numbered)
        if (sampled := self._sample_condition(expected, settings)) is not None:
            rows, expected = rows.where(sampled), expected.where(sampled)
        every = F.explode(F.array([F.lit(n) for n in range(len(moments))]))
        rows, expected = _select_common_columns(
            rows.withColumn(_MOMENT, every),
            change_feed.fold_events(change_feed.build_feed_events(expected, per_moment), per_moment),
        )
        verdict = copies.compare_rows(
            rows,
            expected,
            per_moment,
            "",
            "",
            partition_columns=(_MOMENT,),
            match_rows=False,
            exclude=self.excluded,
        )
        differ = {difference.values[0] for difference in verdict.partition_differences}
        return [moment for n, moment in enumerate(moments) if str(n) not in differ]

    def _sample_condition(self, expected: DataFrame, settings: CdcSettings) -> Column | None:
        """Return a condition that is true for about a thousand keys; None if all keys are compared.

        All keys are compared if the table is small, or if a key's type differs and so would its hash.
        """
        parts = self.rows.count() // _SAMPLED_KEYS
        types = [{name.lower(): kind for name, kind in frame.dtypes} for frame in (self.rows, expected)]
        keys = [key.lower() for key in settings.key_columns]
        if parts < 2 or any(types[0].get(key) != types[1].get(key) for key in keys):
            return None
        return F.pmod(F.xxhash64(*[views.quoted_column(key) for key in keys]), F.lit(parts)) == 0

    def name_moment(self, moment: Moment) -> str:
        """Return the sources' versions as text, such as ``bronze.orders@5``."""
        tables = self.output.tables
        return joined([f"{tables[key]}@{version}" for key, version in sorted(moment.items())])


@dataclass(frozen=True)
class _Search:
    """Search for the newest moment whose rows a legacy table contains.

    Attributes:
        comparison: Compares the table with a moment.
        version: The table's version.
        running: Reports the number of moments that were tried.
        purges: The commits that may delete or change rows, by the index of the moment before each.
    """

    comparison: Comparison
    version: int
    running: Task
    purges: Mapping[int, str] = field(default_factory=dict)

    def find(self, tried: Sequence[Moment], sources: Collection[TableFacts]) -> HandOver | UnknownHandOver:
        """Return the hand-over point among some moments, the newest first."""
        settings, verdict = self.comparison.cdc, None
        ids = {source.name.key: source.table_id for source in sources}
        found = self._find_by_sample(tried, settings) if settings else [self._find_by_count(tried)]
        for moment in found:
            verdict = self.comparison.compare(moment)
            if verdict.matches:
                rows = counted(verdict.target.rows, "row")
                why = f"{verdict.source_label} holds exactly the {rows} made of {verdict.target_label}"
                if verdict.excluded:
                    why += f", without comparing {joined(verdict.excluded)}"
                return self._build_hand_over(moment, ids, why)
        if not settings and (hand_over := self._find_contained(tried, ids)):
            return hand_over
        assert verdict is not None
        finding = Finding(
            "NO_MOMENT_MATCHES",
            moments=counted(len(tried), "moment"),
            legacy=verdict.source_label,
            rows=counted(verdict.source.rows, "row"),
            nearest=verdict.target_label,
            nearest_rows=f"{verdict.target.rows:,}",
        )
        return UnknownHandOver(finding, verdict)

    def _build_hand_over(self, moment: Moment, ids: Mapping[str, str], why: str) -> HandOver:
        positions = {ids[key]: version for key, version in moment.items()}
        return HandOver(self.version, positions, {}, "proved", why)

    def _find_contained(
        self, tried: Sequence[Moment], ids: Mapping[str, str]
    ) -> HandOver | UnknownHandOver | None:
        """Find the newest moment whose rows the table contains, if it also has rows that the sources deleted.

        The table must contain no later rows of the sources. That is checked at the next moment, at the newest
        one, and before each later commit that deleted rows.
        """
        comparison, at = self.comparison, self._find_newest_contained(tried)
        if at is None or not (count := (rows := comparison.output.read_rows(tried[at])).count()):
            return None
        purges = {index: purge for index, purge in self.purges.items() if index < at}
        for index in sorted({0, max(at - 1, 0), *purges} - {at}):
            if comparison.count_common(tried[index]) != comparison.count_common_with(rows, tried[index]):
                later = comparison.name_moment(tried[index])
                legacy, moment = comparison.label, comparison.name_moment(tried[at])
                if purges:
                    # The purged rows stay missing, however long the old job runs.
                    return UnknownHandOver(
                        Finding(
                            "HAND_OVER_HIDDEN_BY_PURGES",
                            legacy=legacy,
                            moment=moment,
                            later=later,
                            purges=joined(list(purges.values())),
                        )
                    )
                return UnknownHandOver(
                    Finding("HAND_OVER_WITHIN_LATER_ROWS", legacy=legacy, moment=moment, later=later)
                )
        older = counted(comparison.rows.count() - count, "older row")
        why = (
            f"{comparison.label} holds all {counted(count, 'row')} made of "
            f"{comparison.name_moment(tried[at])}, no later rows, and {older}"
        )
        return self._build_hand_over(tried[at], ids, why)

    def _find_newest_contained(self, tried: Sequence[Moment]) -> int | None:
        """Return the index of the newest moment whose rows the table contains; None if no moment fits."""

        @cache
        def is_contained(at: int) -> bool:
            self.running.update("moments", is_contained.cache_info().currsize + 1, len(tried))
            rows = self.comparison.output.read_rows(tried[at])
            return rows.count() == self.comparison.count_common(tried[at])

        _, at = _find_boundary(len(tried), lambda at: not is_contained(at))
        return at if at < len(tried) else None

    def _find_by_count(self, tried: Sequence[Moment]) -> Moment:
        """Return the moment whose number of rows is nearest to the table's."""
        wanted = self.comparison.rows.count()

        @cache
        def more(at: int) -> int:
            self.running.update("moments", more.cache_info().currsize + 1, len(tried))
            return self.comparison.output.read_rows(tried[at]).count() - wanted

        # The moment at `newer` has more rows than wanted, the one at `older` hasn't.
        newer, older = _find_boundary(len(tried), lambda at: more(at) > 0)
        near = [at for at in (newer, older) if 0 <= at < len(tried)]
        return tried[min(near, key=lambda at: abs(more(at)))]

    def _find_by_sample(self, tried: Sequence[Moment], settings: CdcSettings) -> Iterator[Moment]:
        """Yield the moments whose sample matches, the newest first; if there are none, the newest moment."""
        # A truncate event in one moment would also delete the rows of the moments that the same query folds.
        first, per_query = (1, 1) if settings.apply_as_truncates else (_FIRST_MOMENTS, _MOMENTS_PER_QUERY)
        start, end, matches = 0, first, False
        while start < len(tried):
            self.running.update("moments", start, len(tried))
            for moment in self.comparison.find_matching(tried[start:end], settings):
                matches = True
                yield moment
            start, end = end, end + per_query
        if not matches:
            yield tried[0]


def _find_boundary(count: int, is_true: Callable[[int], bool]) -> tuple[int, int]:
    """Return the last index at which a condition is true (or -1), and the next index (up to ``count``).

    The condition must be true up to some index and false after it. The steps double; a binary search follows.
    """
    last, step = -1, 1
    while (after := last + step) < count and is_true(after):
        last, step = after, step * 2
    after = min(after, count)
    while after - last > 1:
        middle = (last + after) // 2
        last, after = (middle, after) if is_true(middle) else (last, middle)
    return last, after


def _select_common_columns(rows: DataFrame, expected: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Drop the columns that only one side has, such as audit columns of the old job."""
    produced = {name.lower() for name in expected.columns}
    common = [name for name in rows.columns if name.lower() in produced]
    if not common:
        raise RowsNotDerivableError("NO_COMMON_COLUMNS", columns=rows.columns)
    return rows.select(*map(views.quoted_column, common)), expected.select(*map(views.quoted_column, common))
