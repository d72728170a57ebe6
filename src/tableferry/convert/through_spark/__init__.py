"""What a conversion asks of Spark: tables of the catalog, storage that only Spark reaches, rows to compare.

Everything is loaded at first use, so that a folder is converted where pyspark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.convert.through_spark.batches import batch_size as batch_size
    from tableferry.convert.through_spark.entries import entry as entry
    from tableferry.convert.through_spark.entries import tables as tables
    from tableferry.convert.through_spark.native import convert as convert
    from tableferry.convert.through_spark.native import convert_table as convert_table
    from tableferry.convert.through_spark.native import has_log as has_log
    from tableferry.convert.through_spark.native import list_files as list_files
    from tableferry.convert.through_spark.partitions import partitions_of as partitions_of
    from tableferry.convert.through_spark.switching import switch_to_delta as switch_to_delta
    from tableferry.convert.through_spark.tasks import Unreached as Unreached
    from tableferry.convert.through_spark.tasks import read as read
    from tableferry.convert.through_spark.undoing import undo as undo
    from tableferry.convert.through_spark.undoing import undo_if_named as undo_if_named
    from tableferry.convert.through_spark.verifying import compare_rows as compare_rows
    from tableferry.hive.catalog_partitions import register_partitions as register_partitions

_MODULES = {
    "tableferry.convert.through_spark.batches": ("batch_size",),
    "tableferry.convert.through_spark.entries": ("entry", "tables"),
    "tableferry.convert.through_spark.native": ("convert", "convert_table", "has_log", "list_files"),
    "tableferry.convert.through_spark.partitions": ("partitions_of",),
    "tableferry.convert.through_spark.switching": ("switch_to_delta",),
    "tableferry.convert.through_spark.tasks": ("Unreached", "read"),
    "tableferry.convert.through_spark.undoing": ("undo", "undo_if_named"),
    "tableferry.convert.through_spark.verifying": ("compare_rows",),
    "tableferry.hive.catalog_partitions": ("register_partitions",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
