"""Fleet migration: migrate a warehouse of Hive tables to Iceberg or Delta, with a queue and five modes.

Functions are loaded at first use, so that the command line shows its help without Spark and a database
client.
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
