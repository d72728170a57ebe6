"""SQL of the project's own: which tables a statement names, and other names in their place.

It is loaded at first use, because sqlglot takes longer to import than a project without SQL takes to check.
"""

from tableferry import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__)
