"""Find and replace the table names in a SQL statement.

The package is loaded at first use, because importing sqlglot takes longer than checking a project
without SQL.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
