"""A Delta log over the files of a Hive table, whose entry in the catalog stays as it is.

This is all that another route may know of a conversion; `tableferry.convert` itself is for people.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry import files, types
from tableferry.convert import through_spark
from tableferry.convert.completing import with_statistics
from tableferry.convert.entry import Entry
from tableferry.convert.facts import DataFile, Partitions
from tableferry.convert.folder.formats import already_delta
from tableferry.convert.gather import ResolvedSource, gather
from tableferry.convert.log import commit, contents, mapping
from tableferry.convert.merging import merge
from tableferry.convert.perform import perform
from tableferry.convert.plan import Facts, Options, Plan, all_schemas, decide
from tableferry.convert.spark_provider import SparkProvider
from tableferry.convert.steps import ConvertNatively, PutFirstCommit, Step, SwitchEntry
from tableferry.driver import in_process
from tableferry.errors import Refused
from tableferry.files import path_of
from tableferry.hive.locations import reachable
from tableferry.hive.settings import optional_settings
from tableferry.tables import TableName
from tableferry.types import Array, DataType, Map, Struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "tableferry fleet"
"""What the history says beside the first commit of a log that was written here."""

LOG = commit.LOG
"""The name of a log's folder."""

# By it Spark's own command marks its commits.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class LogIdentity(NamedTuple):
    """What tells a log from any other."""

    first_commit: Mapping[str, Any]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Draft:
    """What the first commit of a log over a Hive table says of its files, which this process reaches.

    Attributes:
        root: The table's folder.
        says: What the commit says.
    """

    root: Path
    says: contents.Contents

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that it names, sorted by path."""
        return self.says.files

    @property
    def reading(self) -> str:
        """All but a file itself that decides which rows it has, in the Hive table and in the Delta one."""
        entry = self.says.catalog_entry
        described = contents.metadata(self.says, 0)
        del described["id"], described["createdTime"]
        # Others mean nothing to a reader, and writers may note there what they wrote.
        properties = self.says.configuration.items()
        settings = {key: value for key, value in properties if key.lower().startswith("delta.")}
        hive = [types.to_json(entry.columns), dict(entry.options), entry.serde] if entry else []
        return json.dumps(
            [{**described, "configuration": settings}, contents.protocol(self.says), hive], sort_keys=True
        )


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


def draft(spark: SparkSession, table: TableName, *, column_mapping: bool) -> Draft | None:
    """Draft the log's first commit of the files that there are now; None if only Spark can write it.

    Raises:
        Refused: Delta can't take the table as it is, or it has a log, or no file.
        TableError: Something about it can't be read.
    """
    return _drafted(_over_table(_plan(spark, table, column_mapping), spark))


def write(spark: SparkSession, table: TableName, *, empty: bool, column_mapping: bool) -> Draft | None:
    """Write the log's first commit, by the catalog's columns and partitions; arguments as of `check`.

    Returns:
        What was written; None if the table is empty, or only Spark could write it.

    Raises:
        Refused: Delta can't take the table as it is.
        TableError: Something about it can't be read, or a step failed.
    """
    if empty:
        write_empty(through_spark.entries.entry(spark, table), column_mapping=column_mapping)
        return None
    plan = _over_table(_plan(spark, table, column_mapping), spark)
    with optional_settings(spark, {_USER_METADATA: MARK}):
        perform(plan, SparkProvider(spark, lambda: spark))
    return _drafted(plan)


def write_elsewhere(draft: Draft, location: str, folder: Path, paths: Collection[str]) -> None:
    """Write a log into another folder that says of some files what a draft says of them.

    Args:
        draft: The draft.
        location: The table's folder as Spark names it.
        folder: Where the log is written; nobody else may have this folder.
        paths: The files' paths below the table's folder.
    """
    says, chosen = draft.says, [number for number, file in enumerate(draft.files) if file.path in paths]
    says = replace(
        says,
        files=tuple(says.files[number] for number in chosen),
        values=tuple(says.values[number] for number in chosen),
        footers=tuple(says.footers[number] for number in chosen),
    )
    lines = contents.lines(says, commit.now(), contents.folder_uri(location))
    commit.put(folder, says.table_id, lines)


def stands(spark: SparkSession, draft: Draft) -> bool:
    """Say whether the log of a draft is as it was written: no more, and its checkpoint says the same."""
    if not commit.is_only_commit(draft.root):
        return False
    log, written = commit.log(draft.root), commit.info(draft.root).get("timestamp", 0)
    lines = list(contents.lines(draft.says, written))
    if files.read_text(log / commit.FIRST) != "".join(lines):
        return False
    checkpoints = [str(log / name) for name in files.names(log) if ".checkpoint." in name]
    return not checkpoints or through_spark.logs.checkpoints_say(spark, checkpoints, lines)


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
    folder = reachable(location, same_machine=in_process(spark))
    return through_spark.native.has_log(spark, location) if folder is None else already_delta(folder)


def closing_commit() -> tuple[str, ...]:
    """Write the lines of a commit after which nobody commits, without their ends."""
    return tuple(line.rstrip("\n") for line in commit.closing(str(uuid.uuid4())))


def is_closing(text: str) -> bool:
    """Say whether a commit's text is that of `closing_commit`."""
    return commit.is_closing(text)


def newest_version(names: Iterable[str]) -> int:
    """Return the newest version that a log's files name; -1 if they name none."""
    return max(commit.versions(names), default=-1)


def log_folder(root: Path) -> Path:
    """Return the folder of a table's log."""
    return root / commit.LOG


def log_identity(root: Path) -> LogIdentity:
    """Return what tells a table's log from any other."""
    return LogIdentity(commit.info(root), tuple(sorted(files.names(commit.log(root)))))


def is_plain_name(name: str) -> bool:
    """Say whether Delta takes a column's name without column mapping."""
    return mapping.fits(name)


def _over_table(plan: Plan, spark: SparkSession) -> Plan:
    """Leave the table's entry as it is, mark the commit, and complete its statistics."""

    def over_table(step: Step) -> Step:
        match step:
            case ConvertNatively():
                # By name, Spark's own command would switch the entry; by its path it converts the directory.
                return replace(step, table=None)
            case PutFirstCommit():
                provider = SparkProvider(spark, lambda: spark)
                says = with_statistics(path_of(step.root), step.contents, provider, None, _unseen)
                return replace(step, contents=replace(says, user_metadata=MARK))
            case _:
                return step

    steps = (over_table(step) for step in plan.steps if not isinstance(step, SwitchEntry))
    return replace(plan, steps=tuple(steps))


def _drafted(plan: Plan) -> Draft | None:
    for step in plan.steps:
        if isinstance(step, PutFirstCommit):
            return Draft(Path(plan.location), step.contents)
    return None


def _unseen(done: int, total: int) -> None:
    """Show nobody how far reading is."""


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
    found, provider = ResolvedSource(str(table), table=table), SparkProvider(spark, lambda: spark)
    facts = gather(found, options, provider, _unseen)
    if facts.merged is not None and facts.entry is not None and not facts.entry.is_delta:
        # Files may have more than the Hive table shows, such as columns that were replaced in the catalog.
        columns = _common(facts.merged.columns, facts.entry.columns)
        facts = replace(facts, merged=replace(facts.merged, columns=columns))
    return decide(facts, options)


def _common(files: DataType, entry: DataType) -> Any:
    """Leave the columns and fields of a type that the catalog has too, at any depth."""
    match files, entry:
        case Struct(), Struct():
            known = {field.name.lower(): field.type for field in entry.fields}
            return Struct(
                tuple(
                    replace(field, type=_common(field.type, known[field.name.lower()]))
                    for field in files.fields
                    if field.name.lower() in known
                )
            )
        case Array(), Array():
            return replace(files, element=_common(files.element, entry.element))
        case Map(), Map():
            key, value = _common(files.key, entry.key), _common(files.value, entry.value)
            return replace(files, key=key, value=value)
        case _:
            return files
