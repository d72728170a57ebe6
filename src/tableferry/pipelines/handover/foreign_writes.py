"""Find rows that other processes removed from a CDC target or only from its event log.

The rows of a key are computed from its events. So a row that is deleted only from the target returns with the
next event of its key, and a row whose events are deleted is never closed or replaced. The statements that
`find_foreign_writes` returns remove the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from tableferry.errors import first_line
from tableferry.formats.delta.commits import SETTING_BACK, WITHOUT_ROWS, Commit, lasting
from tableferry.pipelines.cdc.event_columns import (
    ALIVE,
    DELETE,
    END,
    EVENT_COLUMNS,
    EXACT,
    OPERATION,
    RANK,
    SEQUENCE,
    START,
    TRUNCATE,
    UPSERT,
)
from tableferry.pipelines.cdc.merges import TRUNCATES
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.pipelines.model.identities import REVIEWED, ForeignWrites
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.quoting import identifier
from tableferry.spark.tables import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No event of a feed has a higher rank at the same sequence.
_HIGHEST_RANK = 2**63 - 1
_APPENDS = ("WRITE", "COPY INTO", "STREAMING UPDATE")
_REPLACING = ("overwrite", "complete")


def list_foreign_commits(newest_first: Sequence[Commit]) -> tuple[Commit, ...]:
    """Return the commits by which another process may have removed rows, the oldest first.

    Commits that a RESTORE undid don't count, nor do commits that the log no longer describes.
    """
    return tuple(reversed([commit for commit in _skip_undone(newest_first) if _may_remove(commit)]))


def _skip_undone(newest_first: Sequence[Commit]) -> Iterator[Commit]:
    return (commit for commit in lasting(newest_first) if commit.operation not in SETTING_BACK)


def _may_remove(commit: Commit) -> bool:
    operation = commit.operation
    if not operation or operation in WITHOUT_ROWS or operation.startswith("CREATE TABLE"):
        return False
    if operation in _APPENDS:
        return commit.mode in _REPLACING
    if operation == "MERGE":
        return not _is_own_merge(commit) and not _only_inserts(commit)
    return True


def _is_own_merge(commit: Commit) -> bool:
    """Return whether a MERGE, also of an earlier release, has the columns that only our statements have."""
    return ALIVE in commit.parameter("notMatchedPredicates") or TRUNCATES in commit.parameter("predicate")


def _only_inserts(commit: Commit) -> bool:
    kinds = [commit.parameter(name) for name in ("matchedPredicates", "notMatchedBySourcePredicates")]
    return any(kinds) and all(kind in ("", "[]") for kind in kinds)


def _only_deletes(commit: Commit) -> bool:
    clauses = "".join(value for name, value in commit.parameters.items() if name.endswith("Predicates"))
    actions = {action for action in ("insert", "update", "delete") if f'"{action}"' in clauses}
    return commit.operation in ("DELETE", "TRUNCATE") or (
        commit.operation == "MERGE" and actions == {"delete"}
    )


def _group_foreign_commits(newest_first: Sequence[Commit]) -> Iterator[Sequence[Commit]]:
    """Group consecutive foreign commits; a commit of ours between two groups may have removed rows itself."""
    in_order = [commit for commit in reversed([*_skip_undone(newest_first)]) if commit.may_change_rows]
    return (list(commits) for foreign, commits in groupby(in_order, _may_remove) if foreign)


def find_foreign_writes(
    spark: SparkSession,
    cdc: CdcSettings,
    target: TableFacts,
    log: TableFacts,
    target_commits: Sequence[Commit],
    log_commits: Sequence[Commit],
) -> tuple[ForeignWrites, ...]:
    """Return the foreign writes to a target and its event log, with what remains in the other table.

    The commits are those since the flows last ran, the newest first. The versions before and after each group
    of foreign commits are compared, if they can be read.
    """
    found = []
    for table, other, commits in ((target, log, target_commits), (log, target, log_commits)):
        reviewed = table.properties.get(REVIEWED, "")
        with_rows = (commit.version for commit in commits if commit.may_change_rows)
        newest = max(with_rows, default=0)
        for group in _group_foreign_commits(commits):
            writes = ForeignWrites(
                table.name,
                other.name,
                before=group[0].version - 1,
                last=group[-1].version,
                operations=tuple(dict.fromkeys(commit.operation for commit in group)),
                remaining=0,
                only_deletes=all(map(_only_deletes, group)),
                restorable=newest == group[-1].version,
            )
            if not reviewed.isdigit() or writes.last > int(reviewed):
                check = _check_log if table is target else _check_target
                try:
                    remaining, statements = check(spark, _Queries(cdc, target, log, writes))
                    writes = replace(writes, remaining=remaining, statements=statements)
                except SPARK_ERRORS as error:
                    # VACUUM removed files of that version, or its columns were different.
                    writes = replace(writes, remaining=None, unreadable=first_line(error))
            found.append(writes)
    return tuple(found)


def _check_log(spark: SparkSession, queries: _Queries) -> tuple[int, tuple[str, ...]]:
    """Count the keys and rows that only the target lost; return statements that remove their events."""
    keys = _count_rows(spark, queries.erased_keys_with_events())
    rows = _count_rows(spark, queries.erased_rows_with_events()) if queries.has_intervals else 0
    statements = []
    if keys:
        statements.append(queries.remove_keys_from_log())
    if rows:
        statements.append(queries.close_rows_in_log(spark.table(queries.log.name.sql).columns))
    return keys + rows, tuple(statements)


def _check_target(spark: SparkSession, queries: _Queries) -> tuple[int, tuple[str, ...]]:
    rows = _count_rows(spark, queries.rows_without_events())
    return rows, (queries.remove_rows_from_target(),) if rows else ()


def _count_rows(spark: SparkSession, query: str) -> int:
    [(count,)] = spark.sql(f"SELECT count(*) FROM ({query})").collect()
    return int(count)


@dataclass(frozen=True)
class _Queries:
    """SQL on a target and its log, and on the versions before and after foreign writes to one of them."""

    cdc: CdcSettings
    target: TableFacts
    log: TableFacts
    writes: ForeignWrites

    @property
    def has_intervals(self) -> bool:
        """Whether a key has several rows, each with the sequence of the event that opened it."""
        return self.cdc.scd_type == 2

    @property
    def _keys(self) -> list[str]:
        return [identifier(key) for key in self.cdc.key_columns]

    def _columns_of(self, alias: str, *more: str) -> str:
        return ", ".join(f"{alias}.{column}" for column in (*self._keys, *more))

    def _before(self, table: TableFacts) -> str:
        return f"{table.name.plain_sql} VERSION AS OF {self.writes.before}"

    def _after(self, table: TableFacts) -> str:
        return f"{table.name.plain_sql} VERSION AS OF {self.writes.last}"

    def _same_keys(self, left: str, right: str) -> str:
        return " AND ".join(f"{left}.{key} <=> {right}.{key}" for key in self._keys)

    def _erased_keys(self) -> str:
        """Select the keys that the writes removed from the target.

        A key of SCD type 1 that has a row again got it from an event after the writes.
        """
        parts = [self._before(self.target), self._after(self.target)]
        if not self.has_intervals and self.target.version > self.writes.last:
            parts.append(self.target.name.plain_sql)
        return " EXCEPT ".join(f"SELECT {self._columns_of('t')} FROM {part} t" for part in parts)

    def _erased_rows(self, columns: str) -> str:
        """Select rows that the writes removed from the target, of keys that kept others."""
        after = self._after(self.target)
        return (
            f"SELECT {columns} FROM {self._before(self.target)} b "
            f"LEFT ANTI JOIN {after} a ON {self._same_keys('a', 'b')} AND a.{START} <=> b.{START} "
            f"LEFT SEMI JOIN {after} k ON {self._same_keys('k', 'b')}"
        )

    def _event_opened(self, row: str) -> str:
        """Return the condition that an event opened a row."""
        return (
            f"{self._same_keys('e', row)} AND e.{SEQUENCE} <=> {row}.{START} AND e.{OPERATION} = '{UPSERT}'"
        )

    def erased_keys_with_events(self) -> str:
        """Select the keys that the writes removed from the target and that the log still has.

        For SCD type 2, the log must have an event that opened a removed row: other events may be newer than
        the writes.
        """
        log = self.log.name.sql
        if not self.has_intervals:
            return (
                f"SELECT g.* FROM ({self._erased_keys()}) g LEFT SEMI JOIN {log} e "
                f"ON {self._same_keys('e', 'g')} AND {self._is_of_key('e')}"
            )
        return (
            f"SELECT {self._columns_of('b')} FROM {self._before(self.target)} b LEFT SEMI JOIN {log} e "
            f"ON {self._event_opened('b')} INTERSECT ({self._erased_keys()})"
        )

    def erased_rows_with_events(self) -> str:
        """Select the removed rows of keys that kept other rows, whose event the log still has."""
        return (
            f"SELECT g.* FROM ({self._erased_rows('b.*')}) g LEFT SEMI JOIN {self.log.name.sql} e "
            f"ON {self._event_opened('g')}"
        )

    def _is_of_key(self, alias: str) -> str:
        """Return the condition that an event isn't a truncate, whose keys are NULL."""
        return f"{alias}.{OPERATION} <> '{TRUNCATE}'"

    def remove_keys_from_log(self) -> str:
        """Return the statement that removes every event of the erased keys."""
        return (
            f"MERGE INTO {self.log.name.plain_sql} e USING ({self._erased_keys()}) g "
            f"ON {self._same_keys('e', 'g')} AND {self._is_of_key('e')} WHEN MATCHED THEN DELETE"
        )

    def close_rows_in_log(self, columns: Sequence[str]) -> str:
        """Return the statement that turns the events of erased rows into deletes of their keys.

        If these events were removed instead, the key's previous row would last until its next row, or open
        again.
        """
        keys = {key.lower() for key in self.cdc.key_columns}
        kept = keys | {name.lower() for name in (*EVENT_COLUMNS, RANK)}
        sets = [f"{OPERATION} = '{DELETE}'", f"{EXACT} = false", f"{RANK} = {_HIGHEST_RANK}"]
        sets += [f"e.{identifier(name)} = NULL" for name in columns if name.lower() not in kept]
        rows = self._erased_rows(self._columns_of("b", START, END))
        return (
            f"MERGE INTO {self.log.name.plain_sql} e USING ({rows}) g "
            f"ON {self._same_keys('e', 'g')} AND e.{SEQUENCE} >= g.{START} "
            f"AND (g.{END} IS NULL OR e.{SEQUENCE} < g.{END}) AND e.{OPERATION} = '{UPSERT}' "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(sets)}"
        )

    def _lost_events(self) -> str:
        """Select the keys, for SCD type 2 with their sequence, that lost all their upserts."""
        parts = [self._before(self.log), self._after(self.log)]
        if self.log.version > self.writes.last:
            parts.append(self.log.name.plain_sql)
        columns = self._columns_of("e", *([SEQUENCE] if self.has_intervals else []))
        return " EXCEPT ".join(
            f"SELECT {columns} FROM {part} e WHERE e.{OPERATION} = '{UPSERT}'" for part in parts
        )

    def _is_of_event(self) -> str:
        return self._same_keys("t", "g") + (f" AND t.{START} <=> g.{SEQUENCE}" if self.has_intervals else "")

    def rows_without_events(self) -> str:
        """Select the rows of the target whose events the writes removed from the log."""
        return (
            f"SELECT t.* FROM {self.target.name.sql} t LEFT SEMI JOIN ({self._lost_events()}) g "
            f"ON {self._is_of_event()}"
        )

    def remove_rows_from_target(self) -> str:
        """Return the statement that removes the rows of `rows_without_events`."""
        return (
            f"MERGE INTO {self.target.name.plain_sql} t USING ({self._lost_events()}) g "
            f"ON {self._is_of_event()} WHEN MATCHED THEN DELETE"
        )
