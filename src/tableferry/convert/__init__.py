"""Convert directories and tables of Parquet files to Delta in place, without rewriting data files.

The API is `run`, `sync` and `undo`. They are loaded at first use, so that the command line can show its help
without pyarrow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
