"""Old streams lag, fail within a commit and run next to the flows: every row arrives exactly once."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from tests import soak
from tests.spark.projects import Project

from tableferry.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count(1)
COLUMNS = "id int, v string"


NOT_YET = ("OLD_STREAM_WITHIN_VERSION", "OLD_STREAM_NOT_OF_TABLE", "OLD_STREAMS_APART")


class Crash(BaseException):
    """The process dies."""


class Scenario:
    """A legacy table that one or two old streams fill, each from a source, and its migration.

    Attributes:
        rows: The number of times that each row must be in the target at the end. `check` adds the rows
            written by hand that the pinned version of the legacy table contains.
        by_hand: The rows written by hand into the legacy table, each with the first version that has it.
    """

    def __init__(self, spark: SparkSession, schema: str, root: Path, *, sources: int) -> None:
        self.spark, self.number = spark, next(_numbers)
        self.project = Project(root / f"shop_{self.number}", schema, spark)
        self.target, self.legacy = f"out_{self.number}", f"out_{self.number}_legacy"
        self.sources = [f"src_{self.number}_{source}" for source in range(sources)]
        self.checkpoints = [str(root / f"old_{source}") for source in self.sources]
        self.ids, self.rows = count(1), Counter[int]()
        self.by_hand: list[tuple[int, int]] = []
        self.migrating = False
        for table in (*self.sources, self.legacy):
            self.project.create(table, COLUMNS)
        streams = " UNION ALL ".join(f"SELECT * FROM STREAM({schema}.{source})" for source in self.sources)
        details = {"checkpointLocation": self.checkpoints}
        self.project.standard(self.target, {"sqlStatement": streams}, migration=details, sourceType="sql")

    def commit(self, source: int, files: int) -> None:
        """Commit n files with a row each to a source."""
        table = self.sources[source % len(self.sources)]
        ids = [next(self.ids) for _ in range(files)]
        self.rows.update(ids)
        if files == 1:
            self.project.insert(table, (ids[0], "x"))
            return
        rows = self.spark.createDataFrame([(id_, "x") for id_ in ids], COLUMNS).repartitionByRange(
            files, "id"
        )
        rows.write.format("delta").mode("append").saveAsTable(f"{self.project.schema}.{table}")

    def old(self, source: int, dies_at: int | None = None) -> None:
        """Run an old stream, file by file, over all rows or until it fails at one of the last rows."""
        source %= len(self.sources)
        rows = self.spark.readStream.option("maxFilesPerTrigger", 1).table(
            f"{self.project.schema}.{self.sources[source]}"
        )
        if dies_at is not None:
            rows = rows.where(f"assert_true(id <> {max(self.rows, default=0) - dies_at}) IS NULL")
        writer = rows.writeStream.format("delta").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", self.checkpoints[source])
        try:
            writer.toTable(f"{self.project.schema}.{self.legacy}").awaitTermination()
        except StreamingQueryException as error:
            if "is not true" not in str(error):
                raise

    def write_by_hand(self) -> None:
        """Write a row into the legacy table that no source has."""
        id_ = next(self.ids)
        self.project.insert(self.legacy, (id_, "by hand"))
        self.by_hand.append((self._version(), id_))

    def optimize(self) -> None:
        """Rewrite the legacy table's files."""
        self.spark.sql(f"OPTIMIZE {self.project.schema}.{self.legacy}")

    def run(self, dies_at: int | None = None, *, refresh: bool = False) -> bool:
        """Run the migration, which may crash at an effect; return False if it is refused."""
        effects = count()

        def before(_: str) -> None:
            if next(effects) == dies_at:
                raise Crash

        name = f"{self.project.schema}.{self.target}"
        try:
            self.project.run(before=before, full_refresh=[name] if refresh else [])
        except Crash:
            pass
        except Refused as refused:
            # Before the start, no version may be usable; after it, no run may be refused.
            if self.migrating or refused.condition not in NOT_YET:
                raise
            return False
        self.migrating = self.migrating or self._start() is not None
        return True

    def check(self) -> None:
        """Assert that the target contains each row as often as it must."""
        for source in range(len(self.sources)):
            self.commit(source, 1)
            self.old(source)
        assert self.run()
        for source in range(len(self.sources)):
            self.commit(source, 1)
        assert self.run()
        start = self._start()
        assert start is not None
        self.rows.update(id_ for version, id_ in self.by_hand if version <= start.copy.version)
        assert Counter(row[0] for row in self.project.rows(self.target)) == self.rows
        assert self.project.status().complete
        # The old streams lack the last commits, which are read from the sources.
        (proof,) = self.project.verify().proofs
        assert proof.verdict is not None, proof.why_not
        assert (proof.rows, proof.source_commits) == (sum(self.rows.values()), len(self.sources))
        compared = int(proof.verdict.source_label.rpartition("@")[2])
        assert proof.proved is all(
            not start.copy.version < version <= compared for version, _ in self.by_hand
        )

    def _start(self) -> Any:
        return self.project.plan().targets[0].state.migration_start

    def _version(self) -> int:
        (row,) = self.spark.sql(f"DESCRIBE HISTORY {self.project.schema}.{self.legacy} LIMIT 1").collect()
        return int(row["version"])


SOURCES = st.integers(0, 1)
EVENTS = st.one_of(
    st.tuples(st.just("commit"), SOURCES, st.integers(1, 3)),
    st.tuples(st.just("old"), SOURCES, st.none()),
    st.tuples(st.just("old"), SOURCES, st.integers(0, 3)),
    st.tuples(st.sampled_from(["by hand", "optimize"]), st.none(), st.none()),
    st.tuples(st.just("run"), st.none(), st.none() | st.integers(0, 12)),
    st.tuples(st.just("refresh"), st.none(), st.none() | st.integers(0, 12)),
)


@soak.slow
def test_every_row_arrives_exactly_once(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    @soak.slow_examples(soak.amount(2, 16))
    @given(st.integers(1, 2), st.lists(EVENTS, min_size=soak.amount(4, 5), max_size=soak.amount(6, 12)))
    def scenario(sources: int, events: list[tuple[str, Any, Any]]) -> None:
        made = Scenario(spark, schema, tmp_path, sources=sources)
        for source in range(sources):
            made.commit(source, 1)
            made.old(source)
        for kind, source, value in events:
            match kind:
                case "commit":
                    made.commit(source, value)
                case "old":
                    made.old(source, value)
                case "by hand":
                    made.write_by_hand()
                case "optimize":
                    made.optimize()
                case "refresh":
                    made.run(value, refresh=True)
                case _:
                    made.run(value)
        made.check()

    scenario()
