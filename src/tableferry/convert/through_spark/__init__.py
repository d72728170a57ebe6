"""What a conversion asks of Spark: tables of the catalog, storage that only Spark reaches, rows to compare.

Everything is loaded at first use, so that a folder is converted where pyspark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.convert.through_spark.verifying import compare_rows

__all__ = ["compare_rows"]

_HOMES = {"compare_rows": "verifying"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"tableferry.convert.through_spark.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
