"""What a conversion asks of Spark: tables of the catalog, storage that only Spark reaches, rows to compare.

Everything is loaded at first use, so that a folder is converted where pyspark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.convert.through_spark.batches import batch_size
    from tableferry.convert.through_spark.catalog_partitions import partitions_of, register_missing
    from tableferry.convert.through_spark.entries import entry, tables
    from tableferry.convert.through_spark.native import convert, convert_table, has_log, list_files
    from tableferry.convert.through_spark.switching import switch_to_delta
    from tableferry.convert.through_spark.tasks import Unreached, read
    from tableferry.convert.through_spark.undoing import undo, undo_if_named
    from tableferry.convert.through_spark.verifying import compare_rows

_HOMES = {
    "catalog_partitions": ("partitions_of", "register_missing"),
    "entries": ("entry", "tables"),
    "native": ("convert", "convert_table", "has_log", "list_files"),
    "switching": ("switch_to_delta",),
    "batches": ("batch_size",),
    "tasks": ("Unreached", "read"),
    "verifying": ("compare_rows",),
    "undoing": ("undo", "undo_if_named"),
}

__all__ = [
    "Unreached",
    "batch_size",
    "compare_rows",
    "convert",
    "convert_table",
    "entry",
    "has_log",
    "list_files",
    "partitions_of",
    "read",
    "register_missing",
    "switch_to_delta",
    "tables",
    "undo",
    "undo_if_named",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"tableferry.convert.through_spark.{home}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
