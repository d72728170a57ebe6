"""What a conversion asks of Spark: tables of the catalog, storage that only Spark reaches, rows to compare.

Everything is loaded at first use, so that a folder is converted where pyspark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.convert.catalog_partitions import partitions_of, register_missing
    from tableferry.convert.entries import (
        Entry,
        check_declared,
        entry,
        existence_defaults,
        kept_properties,
        log_columns,
        needs_defaults,
        notes,
        tables,
    )
    from tableferry.convert.native import convert, convert_table, has_log, list_files
    from tableferry.convert.switching import switch_to_delta
    from tableferry.convert.through_spark.tasks import Unreached, batch_size, read
    from tableferry.convert.through_spark.verifying import compare_rows

_HOMES = {
    "catalog_partitions": ("partitions_of", "register_missing"),
    "entries": (
        *("Entry", "check_declared", "entry", "existence_defaults"),
        *("kept_properties", "log_columns", "needs_defaults", "notes", "tables"),
    ),
    "native": ("convert", "convert_table", "has_log", "list_files"),
    "switching": ("switch_to_delta",),
    "through_spark.tasks": ("Unreached", "batch_size", "read"),
    "through_spark.verifying": ("compare_rows",),
}

__all__ = [
    "Entry",
    "Unreached",
    "batch_size",
    "check_declared",
    "compare_rows",
    "convert",
    "convert_table",
    "entry",
    "existence_defaults",
    "has_log",
    "kept_properties",
    "list_files",
    "log_columns",
    "needs_defaults",
    "notes",
    "partitions_of",
    "read",
    "register_missing",
    "switch_to_delta",
    "tables",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"tableferry.convert.{home}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
