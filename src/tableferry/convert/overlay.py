"""A Delta log over the files of a Hive table, whose entry in the catalog stays as it is.

This is all that another route may know of a conversion; `tableferry.convert` itself is for people.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry import files
from tableferry.convert import through_spark
from tableferry.convert.entry import Entry
from tableferry.convert.facts import Partitions
from tableferry.convert.gather import ResolvedSource, gather
from tableferry.convert.log import commit, contents, mapping
from tableferry.convert.merging import merge
from tableferry.convert.perform import perform
from tableferry.convert.plan import Facts, Options, Plan, all_schemas, decide
from tableferry.convert.spark_provider import SparkProvider
from tableferry.convert.steps import ConvertNatively, PutFirstCommit, Step, SwitchEntry
from tableferry.errors import Refused
from tableferry.hive.settings import optional_settings
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "tableferry fleet"
"""What the history says beside the first commit of a log that was written here."""

# By it Spark's own command marks its commits.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class LogIdentity(NamedTuple):
    """What tells a log from any other."""

    first_commit: Mapping[str, Any]
    names: tuple[str, ...]


def check(spark: SparkSession, table: TableName, *, empty: bool, column_mapping: bool) -> None:
    """Make sure that a log can be written over a Hive table, which may be empty, as it is.

    Raises:
        Refused: Delta can't take the table as it is.
        TableError: Something about it can't be read.
    """
    if empty:
        _root_of_empty(through_spark.entries.entry(spark, table))
    else:
        _plan(spark, table, column_mapping)


def write(spark: SparkSession, table: TableName, *, empty: bool, column_mapping: bool) -> None:
    """Write the log's first commit, by the catalog's columns and partitions; arguments as of `check`.

    Raises:
        Refused: Delta can't take the table as it is.
        TableError: Something about it can't be read, or a step failed.
    """
    if empty:
        write_empty(through_spark.entries.entry(spark, table), column_mapping=column_mapping)
    else:
        plan = _plan(spark, table, column_mapping)
        # By name, Spark's own command would switch the entry; by its path it converts the directory alone.
        steps = (_over_table(step) for step in plan.steps if not isinstance(step, SwitchEntry))
        with optional_settings(spark, {_USER_METADATA: MARK}):
            perform(replace(plan, steps=tuple(steps)), SparkProvider(spark, lambda: spark))


def write_empty(entry: Entry, *, column_mapping: bool = False) -> None:
    """Write the log of a table that has no file yet.

    Raises:
        Refused: Only Spark reaches its storage, and Spark's own command converts no empty directory.
    """
    root = _root_of_empty(entry)
    facts = Facts(
        str(entry.name),
        str(root),
        local=True,
        delta=False,
        table_id=str(uuid.uuid4()),
        partitions=Partitions(entry.partition_columns, ()),
        merged=merge(all_schemas((), entry)),
        entry=entry,
    )
    for step in decide(facts, Options(column_mapping=column_mapping)).steps:
        if isinstance(step, PutFirstCommit):
            planned = replace(step.contents, user_metadata=MARK)
            commit.put(root, planned.table_id, contents.lines(planned, commit.now()))


def has_log(spark: SparkSession, location: str) -> bool:
    """Say whether there is a Delta table at a location.

    Raises:
        TableError: Nobody lets us look.
    """
    return through_spark.native.has_log(spark, location)


def log_folder(root: Path) -> Path:
    """Return the folder of a table's log."""
    return root / commit.LOG


def log_identity(root: Path) -> LogIdentity:
    """Return what tells a table's log from any other."""
    return LogIdentity(commit.info(root), tuple(sorted(files.names(commit.log(root)))))


def is_plain_name(name: str) -> bool:
    """Say whether Delta takes a column's name without column mapping."""
    return mapping.fits(name)


def _over_table(step: Step) -> Step:
    match step:
        case ConvertNatively():
            return replace(step, table=None)
        case PutFirstCommit():
            return replace(step, contents=replace(step.contents, user_metadata=MARK))
        case _:
            return step


def _root_of_empty(entry: Entry) -> Path:
    if entry.folder is None:
        raise Refused(
            f"{entry.name} is empty and in storage that only Spark reaches from here: make it anew with "
            "CREATE TABLE … USING delta, or write a first row to it"
        )
    return entry.folder


def _plan(spark: SparkSession, table: TableName, column_mapping: bool) -> Plan:
    # Whether a log that is there is the right one, the route decides that asked.
    options = Options(column_mapping=column_mapping, keep_log=True)
    found = ResolvedSource(str(table), table=table)
    return decide(
        gather(found, options, SparkProvider(spark, lambda: spark), lambda done, total: None), options
    )
