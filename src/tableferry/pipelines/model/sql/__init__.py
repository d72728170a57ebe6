"""SQL of the project's own: which tables a statement names, and other names in their place.

It is loaded at first use, because sqlglot takes longer to import than a project without SQL takes to check.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
