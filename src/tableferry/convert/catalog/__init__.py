"""Parts of a conversion that use Spark: catalog tables, storage that only Spark reaches, row comparison.

Modules are loaded on first use, so that folders can be converted without pyspark.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
