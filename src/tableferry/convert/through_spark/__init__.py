"""What a conversion asks of Spark: tables of the catalog, storage that only Spark reaches, rows to compare.

Everything is loaded at first use, so that a folder is converted where pyspark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.convert.catalog_partitions import partitions_of, register_missing
    from tableferry.convert.entries import entry, tables
    from tableferry.convert.native import convert, convert_table, has_log, list_files
    from tableferry.convert.switching import switch_to_delta
    from tableferry.convert.through_spark.batches import batch_size
    from tableferry.convert.through_spark.tasks import Unreached, read
    from tableferry.convert.through_spark.verifying import compare_rows
    from tableferry.convert.undoing import undo, undo_if_named

_HOMES = {
    "catalog_partitions": ("partitions_of", "register_missing"),
    "entries": ("entry", "tables"),
    "native": ("convert", "convert_table", "has_log", "list_files"),
    "switching": ("switch_to_delta",),
    "through_spark.batches": ("batch_size",),
    "through_spark.tasks": ("Unreached", "read"),
    "undoing": ("undo", "undo_if_named"),
    "through_spark.verifying": ("compare_rows",),
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
            return getattr(import_module(f"tableferry.convert.{home}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
