"""Write and check a Delta log over the files of a Hive table, without changing its catalog entry.

Other packages of Tableferry use only this module of the conversion; `tableferry.convert` is the user's API.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry import storage
from tableferry.convert import catalog, commit_contents, hive_plans
from tableferry.convert.discovery import owning_tables
from tableferry.convert.discovery.table_formats import already_delta
from tableferry.convert.hive_plans import FarFiles as FarFiles
from tableferry.convert.hive_plans import KnownFooters as KnownFooters
from tableferry.convert.perform import perform, write_first_checkpoint
from tableferry.convert.plan import MANY, Plan
from tableferry.convert.readers import with_statistics
from tableferry.convert.steps import ConvertNatively, PutFirstCommit, Step, SwitchEntry, WriteCheckpoint
from tableferry.errors import Refused
from tableferry.formats.delta import column_mapping, initial_commit
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.formats.hive.locations import reachable
from tableferry.formats.parquet.files import DataFile
from tableferry.spark import types
from tableferry.spark.driver import in_process
from tableferry.spark.provider import SparkProvider
from tableferry.spark.settings import optional_settings
from tableferry.spark.tables import TableName
from tableferry.storage import path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

MARK = "tableferry fleet"
"""The user metadata of a first commit that this module wrote, as the table's history shows them."""

LOG = initial_commit.LOG
"""The name of a log's folder."""

FIRST = initial_commit.FIRST
"""The name of its first commit."""

# Reading a footer from an object store takes some hundredths of a second.
_MAX_FOOTERS_CHECKED = 1000

# The setting with which Spark's own command writes user metadata to its commits.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class LogIdentity(NamedTuple):
    """The data that identify a log: the first commit's ``commitInfo`` and the names of the log's files."""

    first_commit: Mapping[str, Any]
    names: tuple[str, ...]


class Log(NamedTuple):
    """The state of a log: its folder, the visible names in the folder, and the text of its first commit."""

    folder: str
    names: tuple[str, ...]
    first: str


@dataclass(frozen=True)
class Draft:
    """The drafted first commit of a log over a Hive table.

    Attributes:
        contents: The contents of the commit.
    """

    contents: commit_contents.Contents

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files in the commit, sorted by path."""
        return self.contents.files

    def footers(self, paths: Collection[str]) -> KnownFooters:
        """Return the footers of the files with these paths below the root."""
        both = zip(self.files, self.contents.footers, strict=True)
        return {file: footer for file, footer in both if file.path in paths}

    @property
    def reading(self) -> str:
        """The metadata, as JSON, by which the Hive table and the Delta table read rows from a file."""
        entry = self.contents.catalog_entry
        described = commit_contents.metadata(self.contents, 0)
        del described["id"], described["createdTime"]
        # Other properties don't affect readers, and writers may store notes in them.
        properties = self.contents.configuration.items()
        settings = {key: value for key, value in properties if key.lower().startswith("delta.")}
        hive = [types.to_json(entry.columns), dict(entry.options), entry.serde] if entry else []
        return json.dumps(
            [{**described, "configuration": settings}, commit_contents.protocol(self.contents), hive],
            sort_keys=True,
        )


def check(
    spark: SparkSession, table: TableName, *, empty: bool, column_mapping: bool, far: FarFiles | None
) -> None:
    """Check that a log can be written over a Hive table, and write nothing.

    Args:
        spark: The session.
        table: The Hive table.
        empty: Whether the table has no file.
        column_mapping: Whether column names may require column mapping.
        far: The files, as in `draft`; at most 1,000 footers are read.

    Raises:
        Refused: The table can't become Delta as it is.
        TableError: A fact about the table can't be read.
        StateError: A file is temporarily unreadable.
    """
    if not empty and far is None:
        hive_plans.of_table(spark, table, column_mapping, {})
        return
    entry = catalog.entries.entry(spark, table)
    if far is None:
        _root_of_empty(entry)
    if far is None or empty:
        hive_plans.of_empty(entry, column_mapping)
    else:
        hive_plans.of_far_files(spark, entry, column_mapping, {}, far, most=_MAX_FOOTERS_CHECKED)


def draft(
    spark: SparkSession,
    table: TableName,
    *,
    column_mapping: bool,
    known: KnownFooters,
    far: FarFiles | None = None,
) -> Draft | None:
    """Draft the log's first commit for the table's current files; None if only Spark can write it.

    Args:
        spark: The session.
        table: The Hive table.
        column_mapping: Whether column names may require column mapping.
        known: Footers that aren't reread.
        far: The files, possibly none, if the table's folder isn't on a file system of this machine.

    Raises:
        Refused: The table can't become Delta as it is, or its folder has no visible file.
        TableError: A fact about the table can't be read.
        StateError: A file is temporarily unreadable.
    """
    if far is None:
        return _drafted(_over_table(hive_plans.of_table(spark, table, column_mapping, known), spark))
    entry = catalog.entries.entry(spark, table)
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
    """Write the log's first commit with the catalog's columns and partitions.

    The arguments are those of `check` and `draft`.

    Returns:
        The commit; None if the table is empty, or if Spark's own command wrote the commit.

    Raises:
        Refused: The table can't become Delta as it is.
        TableError: A fact about the table can't be read, or a step failed.
    """
    if empty:
        write_empty(catalog.entries.entry(spark, table), column_mapping=column_mapping)
        return None
    plan = _over_table(hive_plans.of_table(spark, table, column_mapping, known), spark)
    with optional_settings(spark, {_USER_METADATA: MARK}):
        perform(plan, SparkProvider(spark, lambda: spark), level=logging.DEBUG)
    return _drafted(plan)


def first_commit(draft: Draft) -> str:
    """Return the text of the drafted commit, with the current time."""
    return "".join(commit_contents.lines(draft.contents, initial_commit.now()))


def first_commit_elsewhere(draft: Draft, location: str, paths: Collection[str]) -> str:
    """Return the text of a commit that contains some files of a draft, for a log in another folder.

    Args:
        draft: The draft.
        location: The table's folder as Spark names it.
        paths: The files' paths below the table's folder.
    """
    chosen = [number for number, file in enumerate(draft.files) if file.path in paths]
    contents = replace(
        draft.contents,
        files=tuple(draft.contents.files[number] for number in chosen),
        values=tuple(draft.contents.values[number] for number in chosen),
        footers=tuple(draft.contents.footers[number] for number in chosen),
    )
    uri = commit_contents.folder_uri(location)
    return "".join(commit_contents.lines(contents, initial_commit.now(), uri))


def log_at(root: Path) -> Log:
    """Read the log in a table's folder."""
    folder = initial_commit.log(root)
    return Log(str(folder), storage.names(folder), storage.read_text(folder / initial_commit.FIRST) or "")


def is_unchanged(spark: SparkSession, draft: Draft, log: Log) -> bool:
    """Return whether a draft's log is unchanged: no later commit, and no checkpoint with other actions."""
    if not initial_commit.has_only_first(log.names):
        return False
    lines = list(commit_contents.lines(draft.contents, initial_commit.info_in(log.first).get("timestamp", 0)))
    if log.first != "".join(lines):
        return False
    checkpoints = [f"{log.folder}/{name}" for name in _checkpoints(log)]
    return not checkpoints or catalog.log_comparison.checkpoints_match(spark, checkpoints, lines)


def write_empty(entry: Entry, *, column_mapping: bool = False) -> None:
    """Write the log of a table without files.

    Raises:
        Refused: Only Spark reaches the table's storage, and Spark's own command can't convert an empty
            directory.
    """
    root = _root_of_empty(entry)
    if planned := _drafted(hive_plans.of_empty(entry, column_mapping)):
        initial_commit.put(
            root, planned.contents.table_id, commit_contents.lines(planned.contents, initial_commit.now())
        )


def write_checkpoint(spark: SparkSession, root: Path) -> None:
    """Write a checkpoint of our first commit, if the commit has many files and the log has no checkpoint.

    A checkpoint that differs from the commit is removed, because a table is complete without it.
    """
    log = log_at(root)
    lines = [line for line in log.first.split("\n") if line]
    ours = bool(lines) and initial_commit.info_in(log.first).get("userMetadata") == MARK
    many = sum(line.startswith('{"add"') for line in lines) > MANY
    if not (ours and many) or _checkpoints(log):
        return
    write_first_checkpoint(root)
    written = log_at(root)
    own = [name for name in _checkpoints(written) if name.startswith(FIRST[:20])]
    paths = [f"{written.folder}/{name}" for name in own]
    if own and not (
        written.first == log.first and catalog.log_comparison.checkpoints_match(spark, paths, lines)
    ):
        _log.warning("%s is removed, because it differs from the commit", ", ".join(paths))
        pointer = initial_commit.log(root) / "_last_checkpoint"
        if json.loads(storage.read_text(pointer) or "{}").get("version") == 0:
            storage.remove(pointer)
        for path in paths:
            storage.remove(Path(path))


def _checkpoints(log: Log) -> list[str]:
    return [name for name in log.names if ".checkpoint." in name]


def has_log(spark: SparkSession, location: str) -> bool:
    """Return whether a location is the root of a Delta table.

    Raises:
        TableError: The location can't be listed.
    """
    folder = reachable(location, same_machine=in_process(spark))
    return catalog.native_engine.has_log(spark, location) if folder is None else already_delta(folder)


def owner_reason(
    spark: SparkSession, location: str, names: Callable[[str], Sequence[str]] | None
) -> str | None:
    """Return why a location belongs to a table above it, as the end of a sentence; None if it doesn't.

    Args:
        spark: The session.
        location: The location.
        names: Lists the names in a folder, given its location; None if only Spark reaches it.
    """
    folder = reachable(location, same_machine=in_process(spark))
    if folder is not None:
        found = owning_tables.owner(folder)
    elif names is not None:
        found = owning_tables.owner_by(names, location)
    else:
        found = catalog.native_engine.owner(spark, location)
    return owning_tables.reason(found) if found else None


def newest_version(names: Iterable[str]) -> int:
    """Return the newest version among the names of a log's files; -1 if they contain no commit."""
    return max(initial_commit.versions(names), default=-1)


def log_folder(root: Path) -> Path:
    """Return the folder of a table's log."""
    return root / initial_commit.LOG


def log_identity(root: Path) -> LogIdentity:
    """Return the data that identify a table's log."""
    return LogIdentity(initial_commit.info(root), tuple(sorted(storage.names(initial_commit.log(root)))))


def is_plain_name(name: str) -> bool:
    """Return whether Delta accepts a column name without column mapping."""
    return column_mapping.fits(name)


def _over_table(plan: Plan, spark: SparkSession) -> Plan:
    """Drop the switch of the catalog entry, mark the commit, and complete its statistics.

    The checkpoint is dropped too, because users may wait for the switch; `write_checkpoint` writes it later.
    """

    def over_table(step: Step) -> Step:
        match step:
            case ConvertNatively():
                # With a table name, Spark's own command would switch the entry; a path avoids that.
                return replace(step, table=None)
            case PutFirstCommit():
                provider = SparkProvider(spark, lambda: spark)
                root, planned = path_of(step.root), step.contents
                contents = with_statistics(root, planned, provider, None, hive_plans.unseen)
                return replace(step, contents=replace(contents, user_metadata=MARK))
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
