"""Undo the conversion of a catalog table: remove its Delta log and restore its old catalog entry.

Spark can't change a table's provider, so the entry is dropped and recreated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry import storage
from tableferry.convert import definitions
from tableferry.convert.catalog.entries import delta_tables_in, entry
from tableferry.convert.catalog.partitions import register_partitions
from tableferry.errors import Refused, StateError, TableError
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.formats.hive.catalog_tables import list_tables, qualified
from tableferry.formats.hive.sql import in_metastore
from tableferry.spark.catalog import explaining
from tableferry.spark.tables import CatalogTable, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An undo has these steps:
#
# 1. Create the new entry under a spare name.
# 2. Set the log aside, so that readers don't find it. After this step, the undo can only be completed.
# 3. Rename a managed table's folder, because DROP TABLE removes the files in the entry's folder.
# 4. Drop the old entry, and rename the new one.
# 5. Move a managed table's folder back, and remove the log.
#
# If the process dies, the next undo finds the state in the catalog and on disk, and resumes.
_SPARE = "__tableferry_undo"
# Readers ignore names that begin with ``_``, and no table's folder in the schema has this name.
_WAITING = "_tableferry_undo_"


@dataclass(frozen=True)
class _Table:
    """The current state of a table to undo.

    Attributes:
        spare: The name of the new entry until the old one is dropped.
        entry: The catalog's table with the table's name.
        made: The catalog's table with the spare name.
        managed: Whether DROP TABLE removes the files.
    """

    name: TableName
    spare: TableName
    entry: CatalogTable | None
    made: CatalogTable | None
    root: Path
    managed: bool

    @property
    def waiting(self) -> Path:
        """The path of a managed table's folder while its entries change."""
        return self.root.with_name(_WAITING + self.root.name)

    @property
    def files(self) -> Path:
        """The folder that contains the files now."""
        return self.waiting if self.managed and self.waiting.exists() else self.root

    @property
    def lock(self) -> Path:
        """The lock file of the undo: only one process at a time undoes the table."""
        if self.managed:
            return self.root.with_name(f"{_WAITING}{self.root.name}.lock")
        return self.root / "_tableferry_undo.lock"


def undo(spark: SparkSession, name: TableName) -> tuple[str, ...]:
    """Undo a table's conversion if nothing was written after it, and return notes on what differs.

    The entry is restored: provider or Hive's SerDe, columns, comments, partitions, properties, options,
    buckets and location. The catalog's statistics of ANALYZE TABLE aren't restored.

    Raises:
        TableError: The table is missing or isn't Delta, or the catalog can't be changed.
        Refused: Another commit followed the conversion, another table has the same files, or only Spark
            reaches the files. Or the old entry wasn't recorded, or can't be recreated.
        Busy: Another process is undoing the table.
    """
    name = qualified(spark, name)
    table = _look(spark, name)
    with _locked(table):
        # Reread the state, because another process may have changed it before it released the lock.
        return _undo(spark, _look(spark, name))


def undo_if_named(spark: SparkSession, name: TableName, root: Path) -> tuple[str, ...] | None:
    """Undo a table's conversion if its catalog entry is Delta and has this folder; else return None."""
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
    with storage.locked([table.lock], f"the undo of {table.name}"):
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
    """Remove the log of a table whose entry is Parquet, either unchanged or already restored."""
    if table.made:
        raise Refused("UNDO_LEFT_TWO_TABLES", table=table.name, spare=table.spare)
    if table.files == table.root and not initial_commit.is_aside(table.root):
        # The entry was never changed to Delta, so its partitions are still registered.
        initial_commit.undo(table.root)
        _run(spark, f"REFRESH TABLE {table.name.sql}", table.name)
    else:
        _finish(spark, table)
    return ()


def _prepare(spark: SparkSession, table: _Table) -> tuple[str, ...]:
    """Create the new entry, set the log aside, and rename a managed table's folder."""
    assert table.entry is not None
    info = initial_commit.info(table.files)
    if not info:
        raise TableError("UNDO_WITHOUT_LOG", table=table.name, folder=table.files)
    recorded = definitions.recorded(info)
    notes: tuple[str, ...] = ()
    if not (initial_commit.is_aside(table.files) and table.made):
        original, notes = _original_entry(spark, table, recorded)
        _make(spark, table, original)
    try:
        if table.files == table.root:
            initial_commit.set_aside(table.root)
    except (Refused, StateError):
        _drop_spare(spark, table)
        raise
    if table.managed and not table.waiting.exists():
        _rename(table.root, table.waiting)
    return notes


def _original_entry(
    spark: SparkSession, table: _Table, recorded: Entry | None
) -> tuple[Entry, tuple[str, ...]]:
    """Return the entry to restore and notes, before any change.

    Raises:
        Refused: The undo would fail or harm another table.
    """
    assert table.entry is not None
    if not initial_commit.is_aside(table.files):
        initial_commit.require_only_a_conversion(table.root)
    inside = delta_tables_in(spark, table.name.parts[:-1], table.root)
    others = [name for name in inside if name not in (table.name, table.spare)]
    if others:
        raise Refused("UNDO_BLOCKED_BY_OTHER_ENTRIES", others=others, table=table.name)
    if recorded is None:
        raise Refused("UNDO_ENTRY_NOT_RECORDED", table=table.name)
    notes = []
    if recorded.name.table.lower() != table.name.table.lower():
        notes.append(f"the entry has the recorded definition of {recorded.name}")
    me = spark.sql("SELECT current_user()").collect()[0][0]
    if recorded.owner and recorded.owner != me:
        notes.append(f"{me} owns the entry now, and {recorded.owner} did before")
    original = replace(
        recorded, location=table.entry.location, type="managed" if table.managed else "external"
    )
    return original, tuple(notes)


def _make(spark: SparkSession, table: _Table, original: Entry) -> None:
    """Create the new entry under the spare name, and check that it equals the original."""
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
    """Move a managed table's folder back, register its partitions, and remove the log."""
    if table.managed and table.waiting.exists():
        # The rename replaces the new entry's folder if that is empty, and fails otherwise.
        _rename(table.waiting, table.root)
    if table.managed:
        now = entry(spark, table.name)
        if now.partition_columns:
            register_partitions(spark, now.name)
    _run(spark, f"REFRESH TABLE {table.name.sql}", table.name)
    initial_commit.forget(table.root)


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
    with explaining("CATALOG_UNDO_FAILED", table=name):
        spark.sql(statement).collect()
