"""``tableferry fleet``: migrate a warehouse of Hive tables; the module of each command."""

from __future__ import annotations

from typing import ClassVar

from tableferry.cli.command import App
from tableferry.cli.groups import Entry, LazyGroup


class _Fleet(LazyGroup):
    entries: ClassVar = {
        "init": Entry("fleet.queue:queue_app"),
        "add": Entry("fleet.queue:queue_app"),
        "preflight": Entry("fleet.preflight:preflight_app"),
        "list": Entry("fleet.jobs:jobs_app"),
        "show": Entry("fleet.jobs:jobs_app"),
        "pause": Entry("fleet.jobs:jobs_app"),
        "resume": Entry("fleet.jobs:jobs_app"),
        "archive": Entry("fleet.jobs:jobs_app"),
        "status": Entry("fleet.status:status_app"),
        "preprocess": Entry("fleet.modes:modes_app"),
        "communicate": Entry("fleet.modes:modes_app"),
        "migrate": Entry("fleet.modes:modes_app"),
        "shadow": Entry("fleet.modes:modes_app"),
        "revert": Entry("fleet.modes:modes_app"),
        "views": Entry("fleet.views:views_app"),
        "close": Entry("fleet.close:close_app"),
        "readers": Entry("fleet.readers:readers_app", is_group=True),
        "wave": Entry("fleet.waves:wave_app", is_group=True),
    }


fleet_app = App(
    cls=_Fleet,
    help="Migrate a warehouse of Hive tables to Iceberg or Delta.",
    no_args_is_help=True,
)
