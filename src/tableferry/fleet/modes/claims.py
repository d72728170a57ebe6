"""Claims a run's jobs, a few at a time, each once, and holds the claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tableferry.backoff import pause
from tableferry.fleet.clock import Clock
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue.selections import Selection, numbered_after
from tableferry.fleet.queue.store import Store

# Few enough that one that dies strands few; many enough that a claim, dear in a Delta table, is shared.
_AT_ONCE = 10

# How often to claim again when others have claimed the last room of a wave in the same moment.
_LOOKS = 4


@dataclass(frozen=True)
class Portion:
    """Jobs that a run may claim.

    Attributes:
        selection: Which.
        wave: The wave that bounds how many are moved at once; empty for all others.
        room: How many may be claimed now; None for any number.
        at_once: How many of the wave all workers together may have; None for any number.
        begun: Whether these are only jobs that have begun.
    """

    selection: Selection
    wave: str = ""
    room: int | None = None
    at_once: int | None = None
    begun: bool = False

    @property
    def key(self) -> tuple[str, bool]:
        """What tells this portion from the run's others."""
        return self.wave, self.begun


Takes = Callable[[], Iterable[Portion]]
"""Says what a run may claim now."""


@dataclass
class Claims:
    """A run's claims: those that were taken, and those that it still holds.

    Attributes:
        takes: What may be claimed.
        most: How many jobs the run takes at most.
        threads: How many tables the run moves at once: it holds no more of a wave that bounds these, so that
            other workers have the rest.
    """

    store: Store
    worker: str
    clock: Clock
    lease: timedelta
    share: tuple[int, int]
    most: int
    takes: Takes
    threads: int
    # By the portion, in the order in which they were taken.
    _taken: dict[tuple[str, bool], list[int]] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)
    # With the wave that bounds it.
    _held: dict[int, str] = field(default_factory=dict)
    _ended: set[tuple[str, bool]] = field(default_factory=set)

    def more(self) -> Sequence[Job]:
        """Claim a few more; none of a portion that had none the last time, unless its wave had no room.

        Nothing else is claimed together with jobs that have begun and leave no thread free: what waits for
        them holds a wave's place.
        """
        claimed: list[Job] = []
        for portion in self.takes():
            # Each portion has one at least, however many waves come before it.
            left = min(self.most - len(self._done), max(1, _AT_ONCE - len(claimed)))
            if portion.room is not None:
                left = min(left, portion.room, self.threads - list(self._held.values()).count(portion.wave))
            if left > 0 and portion.key not in self._ended:
                claimed += self._claim(portion, left)
            if claimed and portion.begun and len(self._held) >= self.threads:
                break
        return claimed

    def ended(self, task_id: int) -> None:
        """Hold one no more."""
        self._held = {number: wave for number, wave in self._held.items() if number != task_id}

    def renew(self) -> None:
        """Let those that are held hold for longer; another thread calls this."""
        if held := self._held:
            self.store.renew(tuple(held), self.worker, self.clock(), self.lease)

    def _claim(self, portion: Portion, limit: int) -> Sequence[Job]:
        """Claim jobs of a portion, but none that was done in another one."""
        taken = self._taken.setdefault(portion.key, [])
        attempt = 0
        while attempt < _LOOKS:
            claimed = self.store.claim(
                # What failed, and what is on probation, would be claimed without end.
                portion.selection & numbered_after(taken, self.share),
                self.worker,
                now=self.clock(),
                lease=self.lease,
                limit=limit,
                share=self.share,
            )
            if not claimed:
                self._ended.add(portion.key)
                return ()
            again = [job for job in claimed if job.task_id in self._done]
            taken += [job.task_id for job in again]
            mine, too_many = self._within(portion, [job for job in claimed if job not in again])
            if again or too_many:
                self.store.save_all([*again, *too_many], self.clock(), release=True)
            if mine:
                numbers = [job.task_id for job in mine]
                taken += numbers
                self._done |= set(numbers)
                self._held = {**self._held, **dict.fromkeys(numbers, portion.wave)}
                return mine
            if too_many:
                pause(attempt)
                attempt += 1
        return ()

    def _within(self, portion: Portion, claimed: Sequence[Job]) -> tuple[Sequence[Job], Sequence[Job]]:
        """Divide what was just claimed into what is kept and what is too many, as others claimed some too.

        Each worker counts when its own claim can be seen: of two that claim at once each sees the other's,
        and never do both keep theirs.
        """
        if portion.at_once is None or not claimed:
            return claimed, ()
        taken = self.store.wave_loads(self.clock())[portion.wave].taken
        kept = len(claimed) - max(0, taken - portion.at_once)
        return claimed[: max(0, kept)], claimed[max(0, kept) :]
