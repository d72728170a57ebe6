"""What a conversion asks of Spark: tables of the catalog, storage that only Spark reaches, rows to compare.

Each module is loaded at its first use, so that a folder is converted where pyspark isn't installed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
