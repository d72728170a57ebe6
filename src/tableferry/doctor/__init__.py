"""Check an environment before a migration: this machine, the Spark session, the state and the workspace.

The names load at first use, so that the command line can show its help without pyspark.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
