"""Fleet migration: a warehouse of Hive tables becomes Iceberg or Delta, by a queue and five modes.

Its functions are loaded at first use, so that the command line shows its help where neither Spark nor a
database's client is installed.
"""

from typing import Any

import lazy_loader

from tableferry.errors import MissingPackage
from tableferry.extras import install

_EXTRA = ("alembic", "jinja2", "sqlalchemy")

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise MissingPackage(
                "MISSING_PACKAGE_FOR_FLEET", package=error.name, command=install("fleet")
            ) from error
        raise
