"""Undoes the conversion of a table of the catalog: its log, and what its entry says.

Spark changes no table's provider, so the entry is dropped and made anew: first the new one is made under a
spare name, then the log is put out of sight, which decides it, then the old entry is dropped and the new one
renamed. DROP removes a managed table's files, so its folder waits meanwhile where no entry points.
Whatever a process that dies leaves, the next one sees in the catalog and on disk, and goes on from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry import files
from tableferry.catalog import explained
from tableferry.convert.entry import Entry
from tableferry.convert.log import commit, definitions
from tableferry.convert.through_spark.entries import delta_tables_in, entry
from tableferry.convert.through_spark.partitions import register_partitions
from tableferry.errors import Refused, StateError, TableError
from tableferry.hive.catalog_tables import list_tables, qualified
from tableferry.hive.sql import in_metastore
from tableferry.tables import CatalogTable, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARE = "__tableferry_undo"
# Readers of a table leave out such a name, and the schema's folder has no table of it.
_WAITING = "_tableferry_undo_"


@dataclass(frozen=True)
class _Table:
    """A table to undo, as it is now.

    Attributes:
        spare: The name of its new entry, until the old one is gone.
        entry: What the catalog has under its name.
        made: What the catalog has under the spare name.
        managed: Whether dropping it removes its files.
    """

    name: TableName
    spare: TableName
    entry: CatalogTable | None
    made: CatalogTable | None
    root: Path
    managed: bool

    @property
    def waiting(self) -> Path:
        """Where a managed table's folder is while its entries change."""
        return self.root.with_name(_WAITING + self.root.name)

    @property
    def files(self) -> Path:
        """Where its files are now."""
        return self.waiting if self.managed and self.waiting.exists() else self.root

    @property
    def lock(self) -> Path:
        """What two undos of the table at once would both hold."""
        if self.managed:
            return self.root.with_name(f"{_WAITING}{self.root.name}.lock")
        return self.root / "_tableferry_undo.lock"


def undo(spark: SparkSession, name: TableName) -> tuple[str, ...]:
    """Undo a table's conversion while nothing was written after it, and return what isn't as it was.

    The entry says again what it said before: provider or Hive's SerDe, columns, comments, partitions,
    properties, options, buckets and location. Statistics of ANALYZE TABLE in the catalog aren't made anew.

    Raises:
        TableError: There is no such table, it isn't Delta, or the catalog may not be changed.
        Refused: Something was written after the conversion, another table shows the same files, only Spark
            reaches them, or the entry can't be made anew as it was, or isn't known.
        Busy: Another process is at it.
    """
    name = qualified(spark, name)
    table = _look(spark, name)
    with _locked(table):
        # What another process did before it let go of the lock counts.
        return _undo(spark, _look(spark, name))


def undo_if_named(spark: SparkSession, name: TableName, root: Path) -> tuple[str, ...] | None:
    """Undo the conversion of a table if the catalog has it in this folder; else do nothing: None."""
    try:
        table = _look(spark, qualified(spark, name))
    except TableError:
        return None
    if table.entry is None or not table.entry.is_delta or not _same_folder(table.root, root):
        return None
    return undo(spark, table.name)


def _look(spark: SparkSession, name: TableName) -> _Table:
    spare = TableName((*name.parts[:-1], name.table + _SPARE))
    tables = list_tables(spark, name.parts[:-1], (name.table, spare.table))
    old, made = tables.get(name.table.lower()), tables.get(spare.table.lower())
    shown = old or made
    if shown is None:
        raise TableError("TABLE_NOT_FOUND", table=name)
    if shown.provider not in ("parquet", "delta"):
        raise TableError("UNDO_OF_OTHER_FORMAT", table=name, format=shown.provider)
    if shown.folder is None:
        raise Refused("UNDO_OF_TABLE_OUT_OF_REACH", table=name, folder=shown.location)
    root, managed = shown.folder, shown.type == "managed"
    if old is None and managed:
        root = root.with_name(root.name.removesuffix(_SPARE))
    return _Table(name, spare, old, made, root, managed)


@contextmanager
def _locked(table: _Table) -> Iterator[None]:
    if not table.lock.parent.is_dir():
        raise TableError("UNDO_FOLDER_MISSING", table=table.name, folder=table.root)
    with files.locked([table.lock], f"the undo of {table.name}"):
        try:
            yield
        finally:
            table.lock.unlink(missing_ok=True)


def _undo(spark: SparkSession, table: _Table) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if table.entry and not table.entry.is_delta:
        return _undo_log(spark, table)
    if table.entry:
        notes = _prepare(spark, table)
        _drop(spark, table)
    _run(spark, f"ALTER TABLE {table.spare.sql} RENAME TO {in_metastore(table.name)}", table.name)
    _finish(spark, table)
    return notes


def _undo_log(spark: SparkSession, table: _Table) -> tuple[str, ...]:
    """Remove the log of a table whose entry says Parquet: it still does, or does again."""
    if table.made:
        raise Refused("UNDO_LEFT_TWO_TABLES", table=table.name, spare=table.spare)
    if table.files == table.root and not commit.is_aside(table.root):
        # The entry never was Delta's, so it knows its partitions.
        commit.undo(table.root)
        _run(spark, f"REFRESH TABLE {table.name.sql}", table.name)
    else:
        _finish(spark, table)
    return ()


def _prepare(spark: SparkSession, table: _Table) -> tuple[str, ...]:
    """Make the new entry, and take the log and a managed table's folder out of sight."""
    assert table.entry is not None
    info = commit.info(table.files)
    if not info:
        raise TableError("UNDO_WITHOUT_LOG", table=table.name, folder=table.files)
    recorded = definitions.recorded(info)
    notes: tuple[str, ...] = ()
    if not (commit.is_aside(table.files) and table.made):
        original, notes = _original_entry(spark, table, recorded)
        _make(spark, table, original)
    try:
        if table.files == table.root:
            commit.set_aside(table.root)
    except (Refused, StateError):
        _drop_spare(spark, table)
        raise
    if table.managed and not table.waiting.exists():
        _rename(table.root, table.waiting)
    return notes


def _original_entry(
    spark: SparkSession, table: _Table, recorded: Entry | None
) -> tuple[Entry, tuple[str, ...]]:
    """Decide what the entry is to say, and refuse what would end badly before anything is done."""
    assert table.entry is not None
    if not commit.is_aside(table.files):
        commit.demand_only_a_conversion(table.root)
    inside = delta_tables_in(spark, table.name.parts[:-1], table.root)
    others = [name for name in inside if name not in (table.name, table.spare)]
    if others:
        raise Refused("UNDO_BLOCKED_BY_OTHER_ENTRIES", others=others, table=table.name)
    if recorded is None:
        raise Refused("UNDO_ENTRY_NOT_RECORDED", table=table.name)
    notes = []
    if recorded.name.table.lower() != table.name.table.lower():
        notes.append(f"the entry says what was recorded of {recorded.name}")
    me = spark.sql("SELECT current_user()").collect()[0][0]
    if recorded.owner and recorded.owner != me:
        notes.append(f"{me} owns the entry now, and {recorded.owner} did before")
    original = replace(
        recorded, location=table.entry.location, type="managed" if table.managed else "external"
    )
    return original, tuple(notes)


def _make(spark: SparkSession, table: _Table, original: Entry) -> None:
    """Make the new entry under the spare name, and look whether it says what it is to."""
    _drop_spare(spark, table)
    _run(spark, definitions.statement(original, table.spare), table.name)
    made = entry(spark, table.spare)
    assert made.folder is not None
    problem = ""
    if not definitions.same(made, original):
        problem = f"its entry can't be made as it was, with {_difference(made, original)}"
    elif table.managed and made.folder.with_name(made.folder.name.removesuffix(_SPARE)) != table.root:
        problem = f"it is managed, and its schema would put it elsewhere than {table.root}"
    if problem:
        _drop_spare(spark, table)
        raise Refused("UNDO_ENTRY_DIFFERS", table=table.name, reason=problem)
    if not table.managed and made.partition_columns:
        register_partitions(spark, made.name)


def _drop_spare(spark: SparkSession, table: _Table) -> None:
    made = list_tables(spark, table.spare.parts[:-1], (table.spare.table,)).get(table.spare.table.lower())
    if made is None:
        return
    same = made.type == table.entry.type if table.entry else False
    empty = made.folder is not None and (not made.folder.exists() or not any(made.folder.iterdir()))
    if not same or not (empty if table.managed else made.location == (table.entry and table.entry.location)):
        raise Refused("UNDO_SPARE_NAME_TAKEN", table=table.name, spare=table.spare)
    _run(spark, f"DROP TABLE {table.spare.sql}", table.name)


def _drop(spark: SparkSession, table: _Table) -> None:
    now = list_tables(spark, table.name.parts[:-1], (table.name.table,)).get(table.name.table.lower())
    if now != table.entry:
        raise Refused("UNDO_ENTRY_CHANGED", table=table.name)
    if table.managed and table.root.exists():
        raise Refused("UNDO_FOLDER_WRITTEN", folder=table.root, table=table.name, waiting=table.waiting)
    _run(spark, f"DROP TABLE {table.name.sql}", table.name)


def _finish(spark: SparkSession, table: _Table) -> None:
    """Put a managed table's folder back, register its partitions, and remove the log."""
    if table.managed and table.waiting.exists():
        # The empty folder of the new entry is replaced in one step; one that holds something isn't.
        _rename(table.waiting, table.root)
    if table.managed:
        now = entry(spark, table.name)
        if now.partition_columns:
            register_partitions(spark, now.name)
    _run(spark, f"REFRESH TABLE {table.name.sql}", table.name)
    commit.forget(table.root)


def _difference(made: Entry, original: Entry) -> str:
    for attribute in ("columns", "partition_columns", "comment", "properties", "options", "buckets", "serde"):
        if getattr(made, attribute) != getattr(original, attribute):
            return f"its {attribute.replace('_', ' ')}"
    return "its buckets"


def _same_folder(left: Path, right: Path) -> bool:
    return os.path.realpath(left) == os.path.realpath(right)


def _rename(old: Path, new: Path) -> None:
    try:
        old.rename(new)
    except OSError as error:
        raise StateError("UNDO_FOLDER_NOT_RENAMED", old=old, new=new, reason=error.strerror) from error


def _run(spark: SparkSession, statement: str, name: TableName) -> None:
    problem = f"{name} can't be made Parquet in the catalog"
    with explained(problem, "fix the cause, and undo it again"):
        spark.sql(statement).collect()
