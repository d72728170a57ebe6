"""Compare two tables: their columns and, independent of the order, their rows.

The names load at first use, so that the command line can show its help without pyspark.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
