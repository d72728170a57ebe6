"""Lets jobs of waves start: when their wave is running, and within its limits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from tableferry.errors import Busy, TableferryError
from tableferry.fleet.clock import Clock
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.waves import (
    Wave,
    WaveLoad,
    WaveStatus,
    free_slots,
    not_running_reason,
    start_blocker,
    stop_reason,
)
from tableferry.fleet.modes.claims import Portion
from tableferry.fleet.queue.selections import in_other_waves, in_wave, to_archive, to_continue, to_start
from tableferry.fleet.queue.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gate:
    """What a migration asks before tables start.

    Attributes:
        dry_run: Whether a wave in which too many tables have failed is only taken to be paused.
    """

    store: Store
    clock: Clock
    dry_run: bool = False
    _warned: set[str] = field(default_factory=set)

    def portions(self) -> Iterator[Portion]:
        """Return what may be claimed now, and pause waves in which too many tables have failed."""
        now = self.clock()
        waves = self.store.waves()
        if not waves:
            yield Portion(to_continue() | to_start(now))
            return
        at = self.store.wave_loads(now)
        waves = [self._paused_if_failing(wave, at.get(wave.name, WaveLoad())) for wave in waves]
        begin = [wave for wave in waves if self._begins(wave, now)]
        bounded = [wave for wave in begin if wave.tables_at_once is not None]
        apart = {wave.name for wave in waves} - {wave.name for wave in begin if wave not in bounded}
        if bounded:
            # What has begun comes first, as its writers may be locked out, which those of a table that is to
            # be archived aren't; then waves of which only a few are moved at once, for behind a long list
            # their hours would pass.
            yield Portion(to_continue() & ~to_archive(), begun=True)
        for wave in bounded:
            some = free_slots(wave, at.get(wave.name, WaveLoad()))
            yield Portion(to_start(now) & in_wave(wave.name), wave.name, some, wave.tables_at_once)
        yield Portion(to_continue() | (to_start(now) & in_other_waves(sorted(apart))))

    def _begins(self, wave: Wave, now: datetime) -> bool:
        """Say whether tables of a wave begin now; none where its time zone isn't known.

        Whoever added it knew the zone; for want of it on this machine no writer of another table may wait.
        """
        try:
            return not start_blocker(wave, now)
        except TableferryError as error:
            if wave.name not in self._warned:
                self._warned.add(wave.name)
                _log.warning("no table of the wave %s starts here: %s", wave.name, error.one_line)
            return False

    def _paused_if_failing(self, wave: Wave, load: WaveLoad) -> Wave:
        why = stop_reason(wave, load) if wave.status is WaveStatus.RUNNING else ""
        if not why:
            return wave
        paused = replace(wave, status=WaveStatus.PAUSED, reason=why)
        if self.dry_run:
            return paused
        try:
            paused = self.store.save_wave(paused)
        except Busy:
            # Who was faster has paused it too, or has started it anew: the next look tells.
            return paused
        _log.warning(
            "the wave %s is paused: %s. Look at them: %s; then go on with %s",
            wave.name,
            why,
            command("list --paused --wave", wave.name),
            command("wave start", wave.name),
        )
        return paused

    def holds_back(self, job: Job) -> str:
        """Say why a claimed job mustn't start, or be archived, any more; nothing if it may.

        Since it was claimed, somebody may have paused its wave, or other tables of it may have failed.
        """
        if job.wave is None:
            return ""
        now = self.clock()
        wave = next((wave for wave in self.store.waves() if wave.name == job.wave), None)
        if wave is None:
            return f"the wave {job.wave} isn't there: make it with {command('wave add', job.wave)}"
        load = self.store.wave_loads(now).get(job.wave, WaveLoad())
        wave = self._paused_if_failing(wave, load)
        if job.in_process:
            return not_running_reason(wave)
        return start_blocker(wave, now)
