"""The queue: a table of jobs in a database or a lakehouse, claimed by compare-and-swap with a lease."""

from __future__ import annotations

from importlib.util import find_spec

import lazy_loader

from tableferry.errors import MissingPackage
from tableferry.extras import install

for _package in ("sqlalchemy", "alembic"):
    if find_spec(_package) is None:
        raise MissingPackage("MISSING_PACKAGE_FOR_QUEUE", package=_package, command=install("fleet"))

# alembic takes a quarter of a second to load, and only `init` needs it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
