"""Makes a Delta table over the directory of a Hive table, whose entry and files stay as they are.

The log goes into the Hive table's directory, as ``_delta_log``, a name that Hive doesn't read; a second,
external entry shows the directory as Delta.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from tableferry.catalog import SPARK_ERRORS
from tableferry.convert.entry import Entry
from tableferry.convert.facts import Partitions
from tableferry.convert.gather import Found, gather
from tableferry.convert.locations import below, split
from tableferry.convert.log import commit, contents
from tableferry.convert.merging import merge
from tableferry.convert.perform import perform
from tableferry.convert.plan import Facts, Options, Plan, all_schemas, decide
from tableferry.convert.spark_provider import SparkProvider
from tableferry.convert.steps import (
    ConvertNatively,
    PutFirstCommit,
    RegisterPartitions,
    Step,
    SwitchEntry,
    Verify,
)
from tableferry.convert.through_spark import entry, has_log
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import dropping, hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import HiveTable, ineligibility, quoted, text
from tableferry.fleet.warehouse.existing import kinds
from tableferry.fleet.warehouse.files import listing
from tableferry.tables import TableName

# What carrying a definition over does to a log, besides its first commit.
_DEFINING = frozenset({"SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CHANGE COLUMN", "CHANGE COLUMNS"})


def make(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Make a Delta table that holds each file of a Hive table once; done already, or half, is fine.

    Returns:
        How many files it holds.

    Raises:
        TableError: A statement failed; run again when its cause is mended.
        Refused: The table can't be Delta as it is, or the target's name is somebody else's.
    """
    table = hive.demand(warehouse, source)
    if reason := ineligibility(table, TargetFormat.DELTA):
        raise Refused(reason[1])
    try:
        return _make(warehouse, table, target)
    except SPARK_ERRORS as error:
        raise TableError(
            f"{target} can't be made over the files of {source} ({first_line(error)}): mend the cause, and "
            "run again"
        ) from error


def _make(warehouse: Warehouse, table: HiveTable, target: TableName) -> int:
    spark = warehouse.spark
    partitions = hive.partitions(warehouse, table)
    wanted = [file.path for file in listing(warehouse, table, partitions).read]
    named = _is_ours(warehouse, table, target)
    logged = has_log(spark, table.location)
    if (logged and not _is_current(warehouse, table, wanted)) or (named and not logged):
        dropping.forget(warehouse, target if named else None, table.location)
        named = logged = False
    if not logged:
        if outside := [each for each in partitions if below(each.location, table.location) is None]:
            raise Refused(
                f"{table.name} has partitions outside its directory {table.location}, which no Delta log "
                f"names: {', '.join(map(str, outside[:5]))}; move them below it, or choose Iceberg"
            )
        if wanted:
            warehouse.effect(lambda: _convert(warehouse, table))
        else:
            warehouse.effect(
                lambda: begin_empty(entry(spark, table.name), column_mapping=warehouse.column_mapping)
            )
    if not named:
        warehouse.run(f"CREATE TABLE {target.sql} USING delta LOCATION {text(table.location)}")
    return len(wanted)


def _is_ours(warehouse: Warehouse, table: HiveTable, target: TableName) -> bool:
    kind = kinds(warehouse, (target,)).get(target)
    if kind is None:
        return False
    if kind is Kind.DELTA:
        place = dropping.location(warehouse, target)
        if split(place) == split(table.location):
            return True
    raise Refused(
        f"{target} is {kind.words} that isn't over the files of {table.name}: rename or drop it, and resume "
        "the job"
    )


def _is_current(warehouse: Warehouse, table: HiveTable, wanted: Sequence[str]) -> bool:
    """Say whether the log names the files that there are.

    Raises:
        Refused: It isn't a conversion's log that nobody wrote to.
    """
    spark, path = warehouse.spark, f"delta.{quoted(table.location)}"
    *later, first = (row[0] for row in spark.sql(f"DESCRIBE HISTORY {path}").select("operation").collect())
    if first != "CONVERT" or not _DEFINING.issuperset(later):
        raise Refused(
            f"{table.location} is a Delta table that was written to, and {table.name} shows its files too: "
            f"drop {table.name} and keep the Delta table, or move its _delta_log away, and resume the job"
        )
    held = spark.sql(f"SELECT * FROM {path}").inputFiles()
    return sorted(map(split, held)) == sorted(map(split, wanted))


def begin_empty(known: Entry, *, column_mapping: bool = False) -> None:
    """Write the log of a table that has no file yet, with the catalog's columns.

    Raises:
        Refused: Only Spark reaches its storage, and Spark's own command converts no empty directory.
    """
    _demand_reachable(known)
    facts = Facts(
        str(known.name),
        str(known.folder),
        local=True,
        delta=False,
        table_id=str(uuid.uuid4()),
        partitions=Partitions(known.partition_columns, ()),
        merged=merge(all_schemas((), known)),
        entry=known,
    )
    for step in decide(facts, Options(column_mapping=column_mapping)).steps:
        if isinstance(step, PutFirstCommit):
            commit.put(Path(step.root), contents.lines(step.contents, commit.now()))


def _demand_reachable(known: Entry) -> None:
    if known.folder is None:
        raise Refused(
            f"{known.name} is empty and in storage that only Spark reaches from here: make it anew with "
            "CREATE TABLE … USING delta, or write a first row to it"
        )


def check(warehouse: Warehouse, table: HiveTable, *, empty: bool) -> None:
    """Make sure that `make` can take a Hive table over as it is.

    Args:
        warehouse: Where it is.
        table: The table.
        empty: Whether it has no file.

    Raises:
        Refused: It can't.
        TableError: Something about it can't be read.
    """
    if empty:
        _demand_reachable(entry(warehouse.spark, table.name))
    else:
        planned(warehouse, table)


def _convert(warehouse: Warehouse, table: HiveTable) -> None:
    """Write the log's first commit, by the catalog's columns and partitions; the entry isn't switched."""
    plan = planned(warehouse, table)
    steps = (_unnamed(step) for step in plan.steps if not isinstance(step, SwitchEntry))
    perform(replace(plan, steps=tuple(steps)), SparkProvider(warehouse.spark, lambda: warehouse.spark))


def planned(warehouse: Warehouse, table: HiveTable) -> Plan:
    """Plan the first commit of a log over a Hive table's files.

    Raises:
        Refused: Delta can't take the table as it is.
        TableError: Something about it can't be read.
    """
    options = Options(column_mapping=warehouse.column_mapping)
    found = Found(str(table.name), table=table.name)
    spark_provider = SparkProvider(warehouse.spark, lambda: warehouse.spark)
    return decide(gather(found, options, spark_provider, lambda done, total: None), options)


def _unnamed(step: Step) -> Step:
    """Let Spark's own command convert the directory alone, for by name it would switch the entry."""
    match step:
        case ConvertNatively():
            return replace(step, table=None)
        case PutFirstCommit() | RegisterPartitions() | SwitchEntry() | Verify():
            return step
        case _:
            assert_never(step)
