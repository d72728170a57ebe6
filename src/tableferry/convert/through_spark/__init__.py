"""What a conversion asks of Spark: tables of the catalog, storage that only Spark reaches, rows to compare.

Each module is loaded at its first use, so that a folder is converted where pyspark isn't installed.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.convert.through_spark import batches as batches
    from tableferry.convert.through_spark import entries as entries
    from tableferry.convert.through_spark import native as native
    from tableferry.convert.through_spark import partitions as partitions
    from tableferry.convert.through_spark import switching as switching
    from tableferry.convert.through_spark import tasks as tasks
    from tableferry.convert.through_spark import undoing as undoing
    from tableferry.convert.through_spark import verifying as verifying


def __getattr__(name: str) -> Any:
    if find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return import_module(f"{__name__}.{name}")
