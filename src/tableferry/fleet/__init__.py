"""Fleet migration: a warehouse of Hive tables becomes Iceberg or Delta, by a queue and five modes.

Its functions are loaded at first use, so that the command line shows its help where neither Spark nor a
database's client is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableferryError

if TYPE_CHECKING:
    from tableferry.fleet.choosing import Filter, chosen, listed
    from tableferry.fleet.enlisting import Enlisted, Named, enlist
    from tableferry.fleet.history import events_of, letters_of
    from tableferry.fleet.modes.communicate import communicate
    from tableferry.fleet.modes.migrate import migrate
    from tableferry.fleet.modes.preprocess import preprocess
    from tableferry.fleet.modes.revert import revert
    from tableferry.fleet.modes.shadow import shadow
    from tableferry.fleet.modes.taking import Worker
    from tableferry.fleet.queue import selections
    from tableferry.fleet.queue.opening import open_store
    from tableferry.fleet.status import page as status_page
    from tableferry.fleet.status import reading as status_reading
    from tableferry.fleet.warehouse.context import Warehouse
    from tableferry.fleet.warehouse.opening import open_access

_MODULES = {
    "Enlisted": "enlisting",
    "Filter": "choosing",
    "Named": "enlisting",
    "Warehouse": "warehouse.context",
    "Worker": "modes.taking",
    "chosen": "choosing",
    "communicate": "modes.communicate",
    "enlist": "enlisting",
    "events_of": "history",
    "letters_of": "history",
    "listed": "choosing",
    "migrate": "modes.migrate",
    "open_access": "warehouse.opening",
    "open_store": "queue.opening",
    "preprocess": "modes.preprocess",
    "revert": "modes.revert",
    "shadow": "modes.shadow",
}

_WHOLE = {"selections": "queue.selections", "status_page": "status.page", "status_reading": "status.reading"}

__all__ = [
    "Enlisted",
    "Filter",
    "Named",
    "Warehouse",
    "Worker",
    "chosen",
    "communicate",
    "enlist",
    "events_of",
    "letters_of",
    "listed",
    "migrate",
    "open_access",
    "open_store",
    "preprocess",
    "revert",
    "selections",
    "shadow",
    "status_page",
    "status_reading",
]

_EXTRA = ("alembic", "jinja2", "sqlalchemy")


def __getattr__(name: str) -> Any:
    try:
        if name in _MODULES:
            return getattr(import_module(f"tableferry.fleet.{_MODULES[name]}"), name)
        if name in _WHOLE:
            return import_module(f"tableferry.fleet.{_WHOLE[name]}")
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise TableferryError(
                f'a fleet needs the package {error.name}: pip install "tableferry[fleet]"'
            ) from error
        raise
    raise AttributeError(f"module {__name__} has no attribute {name}")
