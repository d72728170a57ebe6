"""A Delta log over the files of a Hive table, whose entry in the catalog stays as it is.

This is all that another route may know of a conversion; `tableferry.convert` itself is for people.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry import files, types
from tableferry.convert import hive_plans, through_spark
from tableferry.convert.completing import with_statistics
from tableferry.convert.entry import Entry
from tableferry.convert.facts import DataFile
from tableferry.convert.folder import owners
from tableferry.convert.folder.formats import already_delta
from tableferry.convert.hive_plans import FarFiles as FarFiles
from tableferry.convert.hive_plans import KnownFooters as KnownFooters
from tableferry.convert.log import commit, contents, mapping
from tableferry.convert.perform import perform, write_first_checkpoint
from tableferry.convert.plan import MANY, Plan
from tableferry.convert.spark_provider import SparkProvider
from tableferry.convert.steps import ConvertNatively, PutFirstCommit, Step, SwitchEntry, WriteCheckpoint
from tableferry.driver import in_process
from tableferry.errors import Refused
from tableferry.files import path_of
from tableferry.hive.locations import reachable
from tableferry.hive.settings import optional_settings
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

MARK = "tableferry fleet"
"""What the history says beside the first commit of a log that was written here."""

LOG = commit.LOG
"""The name of a log's folder."""

FIRST = commit.FIRST
"""The name of its first commit."""

# A footer in an object store takes some hundredths of a second.
_MOST_LOOKED_AT = 1000

# By it Spark's own command marks its commits.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class LogIdentity(NamedTuple):
    """What tells a log from any other."""

    first_commit: Mapping[str, Any]
    names: tuple[str, ...]


class Log(NamedTuple):
    """A log as it is: its folder, the names that are visible there, and its first commit's text."""

    folder: str
    names: tuple[str, ...]
    first: str


@dataclass(frozen=True)
class Draft:
    """What the first commit of a log over a Hive table says of its files.

    Attributes:
        says: What the commit says.
    """

    says: contents.Contents

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that it names, sorted by path."""
        return self.says.files

    def footers(self, paths: Collection[str]) -> KnownFooters:
        """Return the footers of some of its files, by their paths below the root."""
        both = zip(self.files, self.says.footers, strict=True)
        return {file: footer for file, footer in both if file.path in paths}

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


def check(
    spark: SparkSession, table: TableName, *, empty: bool, column_mapping: bool, far: FarFiles | None
) -> None:
    """Make sure that a log can be written over a Hive table, which may be empty, as it is.

    Args:
        spark: The session.
        table: The Hive table.
        empty: Whether it has no file.
        column_mapping: Whether columns may have names that Delta takes with column mapping alone.
        far: The files, as of `draft`; of more than 1,000 so many footers are looked at.

    Raises:
        Refused: Delta can't take the table as it is.
        TableError: Something about it can't be read.
        StateError: A file can't be read just now.
    """
    if not empty and far is None:
        hive_plans.of_table(spark, table, column_mapping, {})
        return
    entry = through_spark.entries.entry(spark, table)
    if far is None:
        _root_of_empty(entry)
    if far is None or empty:
        hive_plans.of_empty(entry, column_mapping)
    else:
        hive_plans.of_far_files(spark, entry, column_mapping, {}, far, most=_MOST_LOOKED_AT)


def draft(
    spark: SparkSession,
    table: TableName,
    *,
    column_mapping: bool,
    known: KnownFooters,
    far: FarFiles | None = None,
) -> Draft | None:
    """Draft the log's first commit of the files that there are now; None if only Spark can write it.

    Args:
        spark: The session.
        table: The Hive table.
        column_mapping: Whether columns may have names that Delta takes with column mapping alone.
        known: The footers of files that needn't be read.
        far: The files, where the operating system doesn't show them; there may be none.

    Raises:
        Refused: Delta can't take the table as it is; or the operating system shows no file.
        TableError: Something about it can't be read.
        StateError: A file can't be read just now.
    """
    if far is None:
        return _drafted(_over_table(hive_plans.of_table(spark, table, column_mapping, known), spark))
    entry = through_spark.entries.entry(spark, table)
    plan = hive_plans.of_far_files(spark, entry, column_mapping, known, far) if far.files else None
    return _drafted(plan or hive_plans.of_empty(entry, column_mapping))


def write(
    spark: SparkSession,
    table: TableName,
    *,
    empty: bool,
    column_mapping: bool,
    known: KnownFooters,
) -> Draft | None:
    """Write the log's first commit, by the catalog's columns and partitions; arguments as of `draft`.

    Returns:
        What was written; None if the table is empty, or only Spark could write it.

    Raises:
        Refused: Delta can't take the table as it is.
        TableError: Something about it can't be read, or a step failed.
    """
    if empty:
        write_empty(through_spark.entries.entry(spark, table), column_mapping=column_mapping)
        return None
    plan = _over_table(hive_plans.of_table(spark, table, column_mapping, known), spark)
    with optional_settings(spark, {_USER_METADATA: MARK}):
        perform(plan, SparkProvider(spark, lambda: spark), level=logging.DEBUG)
    return _drafted(plan)


def first_commit(draft: Draft) -> str:
    """Return the text of a log's first commit."""
    return "".join(contents.lines(draft.says, commit.now()))


def first_commit_elsewhere(draft: Draft, location: str, paths: Collection[str]) -> str:
    """Return the text of a commit, of a log in another folder, that says of some files what a draft does.

    Args:
        draft: The draft.
        location: The table's folder as Spark names it.
        paths: The files' paths below it.
    """
    says, chosen = draft.says, [number for number, file in enumerate(draft.files) if file.path in paths]
    says = replace(
        says,
        files=tuple(says.files[number] for number in chosen),
        values=tuple(says.values[number] for number in chosen),
        footers=tuple(says.footers[number] for number in chosen),
    )
    return "".join(contents.lines(says, commit.now(), contents.folder_uri(location)))


def log_at(root: Path) -> Log:
    """Read the log in a table's folder."""
    folder = commit.log(root)
    return Log(str(folder), files.names(folder), files.read_text(folder / commit.FIRST) or "")


def stands(spark: SparkSession, draft: Draft, log: Log) -> bool:
    """Say whether the log of a draft is as it was written: no more, and its checkpoint says the same."""
    if not commit.has_only_first(log.names):
        return False
    lines = list(contents.lines(draft.says, commit.info_in(log.first).get("timestamp", 0)))
    if log.first != "".join(lines):
        return False
    checkpoints = [f"{log.folder}/{name}" for name in _checkpoints(log)]
    return not checkpoints or through_spark.logs.checkpoints_say(spark, checkpoints, lines)


def write_empty(entry: Entry, *, column_mapping: bool = False) -> None:
    """Write the log of a table that has no file yet.

    Raises:
        Refused: Only Spark reaches its storage, and Spark's own command converts no empty directory.
    """
    root = _root_of_empty(entry)
    if planned := _drafted(hive_plans.of_empty(entry, column_mapping)):
        commit.put(root, planned.says.table_id, contents.lines(planned.says, commit.now()))


def write_checkpoint(spark: SparkSession, root: Path) -> None:
    """Write a checkpoint of our first commit, if that names many files and there is no checkpoint yet.

    It goes again unless it says what the commit does: a table is whole without it.
    """
    log = log_at(root)
    lines = [line for line in log.first.split("\n") if line]
    ours = bool(lines) and commit.info_in(log.first).get("userMetadata") == MARK
    many = sum(line.startswith('{"add"') for line in lines) > MANY
    if not (ours and many) or _checkpoints(log):
        return
    write_first_checkpoint(root)
    written = log_at(root)
    own = [name for name in _checkpoints(written) if name.startswith(FIRST[:20])]
    paths = [f"{written.folder}/{name}" for name in own]
    if own and not (written.first == log.first and through_spark.logs.checkpoints_say(spark, paths, lines)):
        _log.warning("%s is removed, as it doesn't say what the commit does", ", ".join(paths))
        pointer = commit.log(root) / "_last_checkpoint"
        if json.loads(files.read_text(pointer) or "{}").get("version") == 0:
            files.remove(pointer)
        for path in paths:
            files.remove(Path(path))


def _checkpoints(log: Log) -> list[str]:
    return [name for name in log.names if ".checkpoint." in name]


def has_log(spark: SparkSession, location: str) -> bool:
    """Say whether there is a Delta table at a location.

    Raises:
        TableError: Nobody lets us look.
    """
    folder = reachable(location, same_machine=in_process(spark))
    return through_spark.native.has_log(spark, location) if folder is None else already_delta(folder)


def owner(spark: SparkSession, location: str, names: Callable[[str], Sequence[str]] | None) -> str:
    """Say why a location belongs to a table above it, as the end of a sentence; empty if it doesn't.

    Args:
        spark: The session.
        location: The location.
        names: Lists the names in a folder, given its location; None where only Spark reaches it.
    """
    folder = reachable(location, same_machine=in_process(spark))
    if folder is not None:
        found = owners.owner(folder)
    elif names is not None:
        found = owners.owner_by(names, location)
    else:
        found = through_spark.native.owner(spark, location)
    return owners.reason(found) if found else ""


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
    """Leave the table's entry as it is, mark the commit, and complete its statistics.

    A checkpoint is for later: somebody may wait until the table is switched.
    """

    def over_table(step: Step) -> Step:
        match step:
            case ConvertNatively():
                # By name, Spark's own command would switch the entry; by its path it converts the directory.
                return replace(step, table=None)
            case PutFirstCommit():
                provider = SparkProvider(spark, lambda: spark)
                says = with_statistics(path_of(step.root), step.contents, provider, None, hive_plans.unseen)
                return replace(step, contents=replace(says, user_metadata=MARK))
            case _:
                return step

    left = (step for step in plan.steps if not isinstance(step, SwitchEntry | WriteCheckpoint))
    steps = map(over_table, left)
    return replace(plan, steps=tuple(steps))


def _drafted(plan: Plan) -> Draft | None:
    for step in plan.steps:
        if isinstance(step, PutFirstCommit):
            return Draft(replace(step.contents, user_metadata=MARK))
    return None


def _root_of_empty(entry: Entry) -> Path:
    if entry.folder is None:
        raise Refused("EMPTY_TABLE_OUT_OF_REACH", table=entry.name)
    return entry.folder
