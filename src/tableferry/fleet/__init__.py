"""Fleet migration: a warehouse of Hive tables becomes Iceberg or Delta, by a queue and five modes.

Its functions are loaded at first use, so that the command line shows its help where neither Spark nor a
database's client is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableferryError

if TYPE_CHECKING:
    from tableferry.fleet.history import events_of, notifications_of
    from tableferry.fleet.modes.communicate import communicate
    from tableferry.fleet.modes.migrate import migrate
    from tableferry.fleet.modes.preprocess import preprocess
    from tableferry.fleet.modes.revert import revert
    from tableferry.fleet.modes.shadow import shadow
    from tableferry.fleet.modes.worker import Worker
    from tableferry.fleet.prechecking import precheck
    from tableferry.fleet.queue import selections
    from tableferry.fleet.queue.opening import open_store
    from tableferry.fleet.queue.store import NewJob
    from tableferry.fleet.registering import Named, Registration, register
    from tableferry.fleet.selecting import Filter, list_jobs, select_jobs
    from tableferry.fleet.status.page import render as page
    from tableferry.fleet.status.preflight import lines as preflight_lines
    from tableferry.fleet.status.preflight import page as preflight_page
    from tableferry.fleet.status.reading import status as read_status
    from tableferry.fleet.status.text import render as as_text
    from tableferry.fleet.status.watch import watch
    from tableferry.fleet.warehouse.context import Warehouse
    from tableferry.fleet.warehouse.opening import open_access

_MODULES = {
    "Registration": "registering",
    "Filter": "selecting",
    "Named": "registering",
    "NewJob": "queue.store",
    "Warehouse": "warehouse.context",
    "Worker": "modes.worker",
    "select_jobs": "selecting",
    "communicate": "modes.communicate",
    "register": "registering",
    "events_of": "history",
    "notifications_of": "history",
    "list_jobs": "selecting",
    "migrate": "modes.migrate",
    "open_access": "warehouse.opening",
    "open_store": "queue.opening",
    "precheck": "prechecking",
    "preprocess": "modes.preprocess",
    "revert": "modes.revert",
    "shadow": "modes.shadow",
    "watch": "status.watch",
}
# Those whose names say enough only where they are.
_RENAMED = {
    "as_text": ("status.text", "render"),
    "page": ("status.page", "render"),
    "preflight_lines": ("status.preflight", "lines"),
    "preflight_page": ("status.preflight", "page"),
    "read_status": ("status.reading", "status"),
}

__all__ = [
    "Filter",
    "Named",
    "NewJob",
    "Registration",
    "Warehouse",
    "Worker",
    "as_text",
    "communicate",
    "events_of",
    "list_jobs",
    "migrate",
    "notifications_of",
    "open_access",
    "open_store",
    "page",
    "precheck",
    "preflight_lines",
    "preflight_page",
    "preprocess",
    "read_status",
    "register",
    "revert",
    "select_jobs",
    "selections",
    "shadow",
    "watch",
]

_EXTRA = ("alembic", "jinja2", "sqlalchemy")


def __getattr__(name: str) -> Any:
    try:
        if name in _MODULES or name in _RENAMED:
            module, attribute = _RENAMED.get(name) or (_MODULES[name], name)
            return getattr(import_module(f"tableferry.fleet.{module}"), attribute)
        if name == "selections":
            return import_module("tableferry.fleet.queue.selections")
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise TableferryError(
                f'a fleet needs the package {error.name}: pip install "tableferry[fleet]"'
            ) from error
        raise
    raise AttributeError(f"module {__name__} has no attribute {name}")
