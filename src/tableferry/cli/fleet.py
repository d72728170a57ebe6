"""``tableferry fleet``: migrate a warehouse of Hive tables; the module of each command."""

from __future__ import annotations

from typing import ClassVar

from tableferry.cli.command import App
from tableferry.cli.groups import Entry, LazyGroup


class _Fleet(LazyGroup):
    entries: ClassVar = {
        "init": Entry("fleet_queue:queue_app"),
        "add": Entry("fleet_queue:queue_app"),
        "preflight": Entry("fleet_preflight:preflight_app"),
        "list": Entry("fleet_jobs:jobs_app"),
        "show": Entry("fleet_jobs:jobs_app"),
        "pause": Entry("fleet_jobs:jobs_app"),
        "resume": Entry("fleet_jobs:jobs_app"),
        "archive": Entry("fleet_jobs:jobs_app"),
        "status": Entry("fleet_status:status_app"),
        "preprocess": Entry("fleet_modes:modes_app"),
        "communicate": Entry("fleet_modes:modes_app"),
        "migrate": Entry("fleet_modes:modes_app"),
        "shadow": Entry("fleet_modes:modes_app"),
        "revert": Entry("fleet_modes:modes_app"),
        "views": Entry("fleet_views:views_app"),
        "close": Entry("fleet_close:close_app"),
        "readers": Entry("fleet_readers:readers_app", is_group=True),
        "wave": Entry("fleet_waves:wave_app", is_group=True),
    }


fleet_app = App(
    cls=_Fleet,
    help="Migrate a warehouse of Hive tables to Iceberg or Delta.",
    no_args_is_help=True,
)
