"""Read a Delta table's recent commits: from its log if this process can read it, otherwise from Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.formats.delta.row_changes import RowChanges
from tableferry.spark.catalog import facts
from tableferry.spark.tables import TRANSACTION_RETENTION, TableFacts, TableName

try:
    import deltalake
except ImportError:  # Only the `local` extra installs it; without it Spark is queried.
    deltalake = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTING_BACK = ("RESTORE", "CLONE")
"""The operations that may remove the rows of earlier commits."""

WITHOUT_ROWS = frozenset(
    {
        "ADD COLUMNS", "ADD CONSTRAINT", "CHANGE COLUMN", "CHANGE COLUMNS", "CLUSTER BY", "COMPUTE STATS",
        "DROP CONSTRAINT", "DROP FEATURE", "OPTIMIZE", "RENAME COLUMN", "REORG", "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES", "UPDATE COLUMN METADATA", "UPDATE SCHEMA", "UPGRADE PROTOCOL", "VACUUM END",
        "VACUUM START",
    }
)  # fmt: skip
"""The operations that change no rows; operations of newer Delta releases aren't in this list."""


_REMOVED_FILES = ("numRemovedFiles", "numTargetFilesRemoved", "numDeletionVectorsAdded")
_REWRITTEN_FILES = ("numAddedFiles", "numDeletionVectorsAdded")
_CHANGED_ROWS = ("numDeletedRows", "numUpdatedRows", "numTargetRowsDeleted", "numTargetRowsUpdated")


@dataclass(frozen=True)
class Commit:
    """One commit of a Delta table.

    Attributes:
        operation: The operation's name: ``WRITE``, ``MERGE``, ``STREAMING UPDATE``, …; empty if the commit's
            log file was cleaned up.
        parameters: The operation's parameters; a stream's commit has its ``queryId`` and ``epochId``.
        metrics: The operation's metrics, such as ``numOutputRows``; empty if metrics are switched off.
        timestamp: The time of the commit, in milliseconds since 1970; 0 if its log file was cleaned up.
        user_metadata: The text that the writer set as ``userMetadata``; usually empty.
    """

    version: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    timestamp: int = 0
    user_metadata: str = ""

    def parameter(self, name: str) -> str:
        """Return a parameter without its JSON quotes, or an empty string if it is missing."""
        return (self.parameters.get(name) or "").strip('"')

    @property
    def mode(self) -> str:
        """The save mode or output mode in lower case: ``append``, ``overwrite``, ``complete``, …."""
        return (self.parameter("mode") or self.parameter("outputMode")).lower()

    @property
    def may_change_rows(self) -> bool:
        """Whether the operation isn't one that changes no rows; an unknown operation may change them."""
        return self.operation not in WITHOUT_ROWS

    @property
    def only_appends(self) -> bool:
        """Whether the operation is an append, which deletes and changes no rows."""
        return self.operation in ("WRITE", "STREAMING UPDATE") and self.mode == "append"

    @property
    def row_changes(self) -> RowChanges | None:
        """The rows that the commit deleted or changed, by its metrics; None if it did neither or has none.

        A stream of the table's rows stops at such a commit.
        """
        metrics = {name: int(text) for name, text in self.metrics.items() if text.isdigit()}
        removed = max(metrics.get(name, 0) for name in _REMOVED_FILES)
        if not removed or not self.may_change_rows:
            return None
        rows = [metrics[name] for name in _CHANGED_ROWS if name in metrics]
        only_deletes = self.operation in ("DELETE", "TRUNCATE") and not any(
            metrics.get(name) for name in _REWRITTEN_FILES
        )
        return RowChanges(self.version, self.operation, sum(rows) if rows else None, only_deletes)

    @property
    def adds_rows(self) -> bool:
        """Whether the operation may have inserted rows, by its metrics."""
        match self.operation:
            case "MERGE":
                return self.metrics.get("numTargetRowsInserted") != "0"
            case "WRITE" | "STREAMING UPDATE" | "COPY INTO":
                return self.metrics.get("numOutputRows") != "0"
            case _:
                return False


def newest_version(spark: SparkSession, name: TableName) -> int:
    """Return a Delta table's newest version; -1 if the table doesn't exist.

    Raises:
        TableError: The table isn't a Delta table, or can't be described.
    """
    table = facts(spark, name)
    return -1 if table is None else table.version


def commits_after(spark: SparkSession, name: TableName, version: int) -> tuple[Commit, ...]:
    """Return the commits after a version, the newest first.

    Raises:
        TableError: The table isn't a Delta table, or can't be described.
    """
    table = facts(spark, name)
    return () if table is None else commits_since(spark, table, version)


def commits_since(spark: SparkSession, table: TableFacts, version: int) -> tuple[Commit, ...]:
    """Return the commits after a version up to the table's known version or a later one, the newest first."""
    name = table.name
    if table.version <= version:
        return ()
    if table.folder is not None:
        return tuple(_from_log(Path(table.folder, "_delta_log"), range(table.version, version, -1)))
    limit = table.version - version
    while True:
        rows = spark.sql(f"DESCRIBE HISTORY {name.sql} LIMIT {limit}").collect()
        newer = [row for row in rows if row["version"] > version]
        # Each commit since `facts` pushes one of the oldest out of the limit.
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
    """Return the version before ``version`` to which RESTORE or CLONE set a Delta table back.

    Args:
        commits: The commits after ``version``, the newest first.
        version: The version that the table may no longer contain.

    Returns:
        That earlier version; -1 if the log doesn't record it; None if the table still contains ``version``.
    """
    at = commits[0].version if commits else version
    restores = [commit for commit in commits if commit.operation in SETTING_BACK]
    while restored := next((commit for commit in restores if commit.version <= at), None):
        # A RESTORE to a timestamp has no parameter `version`, and a CLONE has no version of this table.
        target = restored.parameter("version")
        if not target.isdigit() or int(target) < version:
            return int(target) if target.isdigit() else -1
        # The restored version may itself come after an earlier RESTORE.
        at = int(target)
    return None


def lasting(commits: Iterable[Commit], *, with_unknown: bool = False) -> Iterator[Commit]:
    """Yield the commits that no later RESTORE or CLONE undid; the newest come first in input and output.

    If the log doesn't record the version to which the table was set back, any older commit may be undone.
    Those are yielded only ``with_unknown``.
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
    """Return the sum of a metric over all commits; None if one of them lacks it."""
    numbers = [commit.metrics.get(metric) for commit in commits]
    return None if None in numbers else sum(int(number) for number in numbers if number is not None)


def _from_log(log: Path, versions: Iterable[int]) -> Iterator[Commit]:
    for version in versions:
        try:
            text = (log / f"{version:020}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            # Log cleanup removed the file, so the operation is unknown.
            yield Commit(version, "", {}, {})
            continue
        # Not splitlines(), which also splits at other characters that JSON strings may contain.
        for line in filter(None, text.split("\n")):
            if info := json.loads(line).get("commitInfo"):
                # Delta stores parameter values as JSON strings, and DESCRIBE HISTORY shows those strings.
                parameters = {name: str(value) for name, value in info.get("operationParameters", {}).items()}
                # delta-rs writes numbers and other names.
                metrics = {
                    re.sub(r"_(\w)", lambda match: match[1].upper(), name): str(value)
                    for name, value in info.get("operationMetrics", {}).items()
                }
                timestamp = info.get("inCommitTimestamp") or info.get("timestamp", 0)
                note = info.get("userMetadata") or ""
                yield Commit(version, info.get("operation", ""), parameters, metrics, timestamp, note)
                break


def newest_batches(spark: SparkSession, table: TableFacts, queries: Iterable[str]) -> Mapping[str, int]:
    """Return the newest batch id that each streaming query committed to a Delta table.

    If this process can read the table's log, the ids come from its ``txn`` actions. Delta keeps those unless
    the table has `TRANSACTION_RETENTION`. Otherwise, and for missing actions, the ids come from
    ``DESCRIBE HISTORY``, which may lack old commits.

    Args:
        spark: The session.
        table: The table.
        queries: The queries' ids, as in the ``metadata`` file of their checkpoints.

    Returns:
        The batch id by query: -1 if the query committed no batch; no entry if that can't be determined.
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
