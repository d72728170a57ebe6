"""Compare two tables: their columns, their rows whatever the order, and where they differ.

Everything is loaded at first use, so that the command line shows its help where pyspark isn't installed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
