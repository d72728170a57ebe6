"""Conversion in place: a directory or table of Parquet files becomes Delta, with no data file rewritten.

`run`, `sync` and `undo` are the whole of it. They are loaded at first use, so that the command line shows
its help where pyarrow isn't installed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
