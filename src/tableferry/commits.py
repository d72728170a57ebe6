"""What was committed to a Delta table lately: from its log where this process sees it, else from Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.catalog import facts
from tableferry.tables import TRANSACTION_RETENTION, TableFacts, TableName

try:
    import deltalake
except ImportError:  # Only the `local` extra brings it; everywhere else Spark is asked.
    deltalake = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTING_BACK = ("RESTORE", "CLONE")
"""The operations after which a table may lack rows of commits before."""

WITHOUT_ROWS = frozenset(
    {
        "ADD COLUMNS", "ADD CONSTRAINT", "CHANGE COLUMN", "CHANGE COLUMNS", "CLUSTER BY", "COMPUTE STATS",
        "DROP CONSTRAINT", "DROP FEATURE", "OPTIMIZE", "RENAME COLUMN", "REORG", "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES", "UPDATE COLUMN METADATA", "UPDATE SCHEMA", "UPGRADE PROTOCOL", "VACUUM END",
        "VACUUM START",
    }
)  # fmt: skip
"""The operations after which a table holds the same rows; what a later release of Delta adds isn't one."""


@dataclass(frozen=True)
class Commit:
    """One commit of a Delta table.

    Attributes:
        operation: What it calls itself: ``WRITE``, ``MERGE``, ``STREAMING UPDATE``, …; empty where the log
            no longer says.
        parameters: What it says of how it was made; a stream's commit has its ``queryId`` and ``epochId``.
        metrics: What it counted, such as ``numOutputRows``; empty where metrics are switched off, too.
        timestamp: When it was made, in milliseconds since 1970; 0 where the log no longer says.
        user_metadata: The text that its writer gave with it; mostly empty.
    """

    version: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    timestamp: int = 0
    user_metadata: str = ""

    def parameter(self, name: str) -> str:
        """Return one of the parameters, without the quotes of JSON; empty where there is none."""
        return (self.parameters.get(name) or "").strip('"')

    @property
    def mode(self) -> str:
        """How a write treats earlier rows: ``append``, ``overwrite``, ``complete``, in lower case."""
        return (self.parameter("mode") or self.parameter("outputMode")).lower()

    @property
    def only_appends(self) -> bool:
        """Whether it is an append, by its log: it deletes and changes no row."""
        return self.operation in ("WRITE", "STREAMING UPDATE") and self.mode == "append"

    @property
    def adds_rows(self) -> bool:
        """Whether it may have added new rows, by its log."""
        match self.operation:
            case "MERGE":
                return self.metrics.get("numTargetRowsInserted") != "0"
            case "WRITE" | "STREAMING UPDATE" | "COPY INTO":
                return self.metrics.get("numOutputRows") != "0"
            case _:
                return False


def newest_version(spark: SparkSession, name: TableName) -> int:
    """Return a Delta table's newest version; -1 if there is no such table.

    Raises:
        TableError: It isn't a Delta table, or may not be read.
    """
    table = facts(spark, name)
    return -1 if table is None else table.version


def commits_after(spark: SparkSession, name: TableName, version: int) -> tuple[Commit, ...]:
    """Return the commits that are newer than a version, the newest first.

    Raises:
        TableError: It isn't a Delta table, or may not be read.
    """
    table = facts(spark, name)
    if table is None or table.version <= version:
        return ()
    if table.folder is not None:
        return tuple(_from_log(Path(table.folder, "_delta_log"), range(table.version, version, -1)))
    limit = table.version - version
    while True:
        rows = spark.sql(f"DESCRIBE HISTORY {name.sql} LIMIT {limit}").collect()
        newer = [row for row in rows if row["version"] > version]
        # What was committed meanwhile pushes the oldest out.
        if len(newer) < len(rows) or rows[0]["version"] - version <= limit:
            break
        limit = rows[0]["version"] - version
    return tuple(
        Commit(
            row["version"],
            row["operation"],
            row["operationParameters"] or {},
            row["operationMetrics"] or {},
            round(row["timestamp"].timestamp() * 1000),
            row["userMetadata"] or "",
        )
        for row in newer
    )


def set_back(commits: Sequence[Commit], version: int) -> int | None:
    """Return the version behind ``version`` that RESTORE or CLONE set a Delta table back to.

    That is -1 where the log doesn't say which it was, and None if the table still holds ``version``. The
    commits are those that are newer, the newest first.
    """
    at = commits[0].version if commits else version
    restores = [commit for commit in commits if commit.operation in SETTING_BACK]
    while restored := next((commit for commit in restores if commit.version <= at), None):
        # Spark shows no version, not an empty one, of a RESTORE to a time; a CLONE has none of this table's.
        target = restored.parameter("version")
        if not target.isdigit() or int(target) < version:
            return int(target) if target.isdigit() else -1
        # It may have been set forward again, or back to a version that had been set back itself.
        at = int(target)
    return None


def lasting(commits: Iterable[Commit], *, with_unknown: bool = False) -> Iterator[Commit]:
    """Yield, of a table's commits with the newest first, those that no RESTORE has undone.

    Where the log doesn't report the version that a table was set back to, older commits may be undone: they
    are yielded only ``with_unknown``.
    """
    below: int | None = None
    for commit in commits:
        if below is not None and commit.version > below:
            continue
        if commit.operation in SETTING_BACK:
            version = commit.parameter("version")
            if commit.operation == "RESTORE" and version.isdigit():
                below = int(version)
            elif not with_unknown:
                return
        yield commit


def counted(commits: Iterable[Commit], metric: str) -> int | None:
    """Add up what commits counted; None where one of them didn't count it."""
    numbers = [commit.metrics.get(metric) for commit in commits]
    return None if None in numbers else sum(int(number) for number in numbers if number is not None)


def _from_log(log: Path, versions: Iterable[int]) -> Iterator[Commit]:
    for version in versions:
        try:
            text = (log / f"{version:020}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            # Cleaned up already: nobody knows any more what it did.
            yield Commit(version, "", {}, {})
            continue
        # Not splitlines(): in JSON's texts other characters may stand that end a line for Python.
        for line in filter(None, text.split("\n")):
            if info := json.loads(line).get("commitInfo"):
                # Delta writes the values of parameters as JSON in text, and Spark shows them so too.
                parameters = {name: str(value) for name, value in info.get("operationParameters", {}).items()}
                metrics = info.get("operationMetrics", {})
                timestamp = info.get("inCommitTimestamp") or info.get("timestamp", 0)
                note = info.get("userMetadata") or ""
                yield Commit(version, info.get("operation", ""), parameters, metrics, timestamp, note)
                break


def newest_batches(spark: SparkSession, table: TableFacts, queries: Iterable[str]) -> Mapping[str, int]:
    """Return the newest batch that a Delta table holds of each streaming query that fills it.

    The queries' ids are those of their checkpoints' ``metadata``. Where this process sees the table's log,
    its ``txn`` actions say it, which stay unless the table has `TRANSACTION_RETENTION`. Elsewhere, and of
    those that are gone, ``DESCRIBE HISTORY`` says it, as far as it reaches. The number is -1 where the table
    surely holds none, and an unknown one has no entry.
    """
    queries = list(queries)
    newest: dict[str, int] = {}
    if queries and table.folder is not None and deltalake is not None:
        log = deltalake.DeltaTable(table.folder)
        versions = {query: log.transaction_version(query) for query in queries}
        newest = {query: version for query, version in versions.items() if version is not None}
        queries = [query for query in queries if query not in newest]
        if TRANSACTION_RETENTION not in table.properties:
            return {**newest, **dict.fromkeys(queries, -1)}
    if not queries:
        return newest
    oldest = table.version
    for row in spark.sql(f"DESCRIBE HISTORY {table.name.sql}").collect():
        oldest = min(oldest, row["version"])
        parameters = row["operationParameters"] or {}
        if (query := parameters.get("queryId", "")) in queries:
            newest[query] = max(newest.get(query, -1), int(parameters["epochId"]))
    return {**(dict.fromkeys(queries, -1) if oldest == 0 else {}), **newest}
