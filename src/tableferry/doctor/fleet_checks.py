"""Checks of a fleet: its queue and its mail server.

A bundle with the package's source may lack the fleet, and an environment its packages.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.doctor.check import (
    Check,
    Observation,
    Place,
    Route,
    failure,
    not_applicable,
    success,
)
from tableferry.doctor.environment import Environment
from tableferry.errors import MissingPackage
from tableferry.extras import install

try:
    from tableferry import fleet
    from tableferry.fleet.notifications.password import with_password
    from tableferry.fleet.notifications.smtp import SmtpOutbox

    _HAS_FLEET = True
except ImportError:
    _HAS_FLEET = False

if TYPE_CHECKING:
    from tableferry.fleet.settings import FleetSettings

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///(?P<file>[^?]+)")
_WITHOUT_FLEET = f"the fleet isn't installed ({install('fleet')})"


def _settings(env: Environment) -> FleetSettings:
    """Return the fleet's settings with the options of the doctor."""
    flags = {"store": env.options.store} if env.options.store else {}
    return fleet.settings_file.load(
        flags, file=env.options.fleet_settings, env=env.options.fleet_env or None, environ=os.environ
    )


def _queue(env: Environment) -> Observation:
    if not _HAS_FLEET:
        return not_applicable(_WITHOUT_FLEET)
    settings = _settings(env)
    if "store" not in settings.model_fields_set:
        return not_applicable("no queue is given: pass --store, or name it in fleet.yml")
    kind = settings.store.partition(":")[0].partition("+")[0]
    if (sqlite := _SQLITE.match(settings.store)) and not Path(sqlite["file"]).exists():
        return failure(f"the {kind} file doesn't exist", "Create the queue: tableferry fleet init.")
    try:
        store = fleet.open_store(
            settings.store, resolve=env.session, password_secret=settings.store_password_secret
        )
    except MissingPackage as error:
        return failure(error.message, error.remedy)
    try:
        # The first query also compares the queue's version with the one of this package.
        waves = len(fleet.waves_by_name(store))
    finally:
        store.close()
    return success(f"a {kind} queue of this version, with {waves} waves")


def _mail_server(env: Environment) -> Observation:
    if not _HAS_FLEET:
        return not_applicable(_WITHOUT_FLEET)
    settings = _settings(env)
    if "mail" not in settings.model_fields_set:
        return not_applicable("no mail server is given: name it in fleet.yml")
    outbox = SmtpOutbox(with_password(settings.mail))
    try:
        outbox.connect()
    finally:
        outbox.close()
    login = " and accepts the login" if settings.mail.user else ""
    return success(f"the server greets{login}; no e-mail was sent")


_FLEET = (Route.FLEET,)

FLEET_CHECKS = (
    Check(
        name="queue",
        place=Place.FLEET,
        routes=_FLEET,
        proves="The fleet's queue can be opened, and has the version of this package.",
        remedy="Check the URL and the network, then create or upgrade the queue: tableferry fleet init.",
        observe=_queue,
    ),
    Check(
        name="mail-server",
        place=Place.FLEET,
        routes=_FLEET,
        proves="The mail server answers, with the configured encryption and login.",
        remedy="Correct the section mail of fleet.yml, or let the server accept this machine.",
        observe=_mail_server,
    ),
)
