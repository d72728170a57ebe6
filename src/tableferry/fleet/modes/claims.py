"""Claim a run's jobs in small groups, each job once, and renew the claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tableferry.backoff import pause
from tableferry.fleet.clock import Clock
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue.selections import Selection, numbered_after
from tableferry.fleet.queue.store import Store

# The jobs of one claim: if a worker dies, few jobs stay claimed; but each claim is slow in Delta tables.
_CLAIM_SIZE = 10

# The number of attempts if other workers claim a wave's last free places concurrently.
_ATTEMPTS = 4


@dataclass(frozen=True)
class ClaimableJobs:
    """Jobs that a run may claim.

    Attributes:
        selection: The jobs.
        wave: The wave that limits the number of concurrent tables; empty for other jobs.
        room: The number of jobs that may be claimed now; None for no limit.
        wave_limit: The number of the wave's jobs that all workers together may claim; None for no limit.
        only_begun: Whether these are only jobs that have begun.
    """

    selection: Selection
    wave: str = ""
    room: int | None = None
    wave_limit: int | None = None
    only_begun: bool = False

    @property
    def key(self) -> tuple[str, bool]:
        """The key of these jobs among a run's claimable jobs."""
        return self.wave, self.only_begun


ListClaimable = Callable[[], Iterable[ClaimableJobs]]
"""Returns the jobs that a run may claim now."""


@dataclass
class Claims:
    """A run's claims, including those of finished jobs.

    Attributes:
        claimable: Returns the jobs that may be claimed.
        max_jobs: The maximum number of jobs of the run.
        threads: The number of tables that the run processes concurrently. It claims at most this number of
            jobs of a wave with a limit, so that other workers can claim the rest.
    """

    store: Store
    worker: str
    clock: Clock
    lease: timedelta
    share: tuple[int, int]
    max_jobs: int
    claimable: ListClaimable
    threads: int
    # By `ClaimableJobs.key`, in the order of the claims.
    _taken: dict[tuple[str, bool], list[int]] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)
    # The wave that limits each claimed job.
    _held: dict[int, str] = field(default_factory=dict)
    _exhausted: set[tuple[str, bool]] = field(default_factory=set)

    def claim_more(self) -> Sequence[Job]:
        """Claim more jobs, but none of a selection that was exhausted before.

        If jobs that have begun occupy all threads, no other jobs are claimed: a claimed job that waits for a
        thread would occupy a place in its wave.
        """
        claimed: list[Job] = []
        for group in self.claimable():
            # At least one job of each selection is claimed, even after many waves.
            left = min(self.max_jobs - len(self._done), max(1, _CLAIM_SIZE - len(claimed)))
            if group.room is not None:
                left = min(left, group.room, self.threads - list(self._held.values()).count(group.wave))
            if left > 0 and group.key not in self._exhausted:
                claimed += self._claim(group, left)
            if claimed and group.only_begun and len(self._held) >= self.threads:
                break
        return claimed

    def stop_renewing(self, task_id: int) -> None:
        """Stop renewing the claim of a job."""
        self._held = {number: wave for number, wave in self._held.items() if number != task_id}

    def renew(self) -> None:
        """Renew the leases of all held claims; `tableferry.heartbeat` calls this in its thread."""
        if held := self._held:
            self.store.renew(tuple(held), self.worker, self.clock(), self.lease)

    def _claim(self, group: ClaimableJobs, limit: int) -> Sequence[Job]:
        """Claim jobs of a selection, but no job that was done in another selection."""
        taken = self._taken.setdefault(group.key, [])
        attempt = 0
        while attempt < _ATTEMPTS:
            claimed = self.store.claim(
                # Otherwise jobs that failed or are on probation would be claimed endlessly.
                group.selection & numbered_after(taken, self.share),
                self.worker,
                now=self.clock(),
                lease=self.lease,
                limit=limit,
                share=self.share,
            )
            if not claimed:
                self._exhausted.add(group.key)
                return ()
            again = [job for job in claimed if job.task_id in self._done]
            taken += [job.task_id for job in again]
            kept, excess = self._divide_by_limit(group, [job for job in claimed if job not in again])
            if again or excess:
                self.store.save_all([*again, *excess], self.clock(), release=True)
            if kept:
                numbers = [job.task_id for job in kept]
                taken += numbers
                self._done |= set(numbers)
                self._held = {**self._held, **dict.fromkeys(numbers, group.wave)}
                return kept
            if excess:
                pause(attempt)
                attempt += 1
        return ()

    def _divide_by_limit(
        self, group: ClaimableJobs, claimed: Sequence[Job]
    ) -> tuple[Sequence[Job], Sequence[Job]]:
        """Divide the claimed jobs into those within the wave's limit and those above it.

        Each worker counts after its own claim is visible. So two workers that claim concurrently both count
        the other's claims, and never keep more jobs than the limit.
        """
        if group.wave_limit is None or not claimed:
            return claimed, ()
        taken = self.store.wave_loads(self.clock())[group.wave].taken
        count = len(claimed) - max(0, taken - group.wave_limit)
        return claimed[: max(0, count)], claimed[max(0, count) :]
