"""What a conversion asks of Spark: tables of the catalog, storage that only Spark reaches, rows to compare.

Each module is loaded at its first use, so that a folder is converted where pyspark isn't installed.
"""

from tableferry import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__)
