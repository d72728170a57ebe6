"""Decide which jobs of waves may start, by the waves' status and limits."""

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
    Load,
    Wave,
    WaveStatus,
    room,
    too_many_failed,
    why_none_begins,
    why_not_running,
)
from tableferry.fleet.modes.claims import ClaimableJobs
from tableferry.fleet.queue.loads import loads
from tableferry.fleet.queue.selections import in_other_waves, in_wave, to_archive, to_begin, to_go_on
from tableferry.fleet.queue.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WaveGate:
    """The check before a table's migration starts.

    Attributes:
        dry_run: Whether a wave with too many failed tables only counts as paused, without a change.
    """

    store: Store
    clock: Clock
    dry_run: bool = False
    _warned: set[str] = field(default_factory=set)

    def list_claimable(self) -> Iterator[ClaimableJobs]:
        """Yield the jobs that may be claimed now, and pause waves with too many failed tables."""
        now = self.clock()
        waves = self.store.waves()
        if not waves:
            yield ClaimableJobs(to_go_on() | to_begin(now))
            return
        at = loads(self.store, now)
        waves = [self._paused_if_failing(wave, at.get(wave.name, Load())) for wave in waves]
        begin = [wave for wave in waves if self._begins(wave, now)]
        bounded = [wave for wave in begin if wave.tables_at_once is not None]
        apart = {wave.name for wave in waves} - {wave.name for wave in begin if wave not in bounded}
        if bounded:
            # Jobs that have begun are claimed first, because their writers may be blocked; this isn't so for
            # tables before the archive. Waves with a limit are next: after a long list of other jobs, their
            # hours might be over.
            yield ClaimableJobs(to_go_on() & ~to_archive(), only_begun=True)
        for wave in bounded:
            some = room(wave, at.get(wave.name, Load()))
            yield ClaimableJobs(to_begin(now) & in_wave(wave.name), wave.name, some, wave.tables_at_once)
        yield ClaimableJobs(to_go_on() | (to_begin(now) & in_other_waves(sorted(apart))))

    def _begins(self, wave: Wave, now: datetime) -> bool:
        """Return whether tables of a wave may start now; False if this machine doesn't know its time zone.

        An unknown time zone must not stop the other waves.
        """
        try:
            return not why_none_begins(wave, now)
        except TableferryError as error:
            if wave.name not in self._warned:
                self._warned.add(wave.name)
                _log.warning("no table of the wave %s starts here: %s", wave.name, error.one_line)
            return False

    def _paused_if_failing(self, wave: Wave, load: Load) -> Wave:
        why = too_many_failed(wave, load) if wave.status is WaveStatus.RUNNING else ""
        if not why:
            return wave
        paused = replace(wave, status=WaveStatus.PAUSED, reason=why)
        if self.dry_run:
            return paused
        try:
            paused = self.store.save_wave(paused)
        except Busy:
            # Another process paused the wave too, or started it again; the next check reads the result.
            return paused
        _log.warning(
            "the wave %s is paused: %s. List them with %s, and then resume with %s",
            wave.name,
            why,
            command("list --paused --wave", wave.name),
            command("wave start", wave.name),
        )
        return paused

    def reason_to_wait(self, job: Job) -> str:
        """Return why a claimed job may no longer start or be archived; empty if it may.

        After the claim, a person may have paused its wave, or other tables of the wave may have failed.
        """
        if job.wave is None:
            return ""
        now = self.clock()
        wave = next((wave for wave in self.store.waves() if wave.name == job.wave), None)
        if wave is None:
            return f"the wave {job.wave} is missing: add it with {command('wave add', job.wave)}"
        load = loads(self.store, now).get(job.wave, Load())
        wave = self._paused_if_failing(wave, load)
        if job.in_process:
            return why_not_running(wave)
        return why_none_begins(wave, now)
