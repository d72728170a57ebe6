"""Sends the letters that claimed jobs are due, so that a crash drops none, and says nothing under two names.

The rule:

1. A letter is noted on each of its jobs, by compare-and-swap, then recorded, and only then sent.
2. A recorded letter that all of its jobs have noted may have been sent. It is sent as it was recorded, to its
   own recipients about its own jobs, until a server has taken it. What is only noted, or only recorded, was
   never sent, and counts for nothing.
3. New letters tell, of each job, only those whom no letter of rule 2 tells: jobs that were added since, and
   owners that changed, make new letters and never regroup old ones.
4. A job has its date when each of its letters was taken, or refused for good; the same save ends its notes.

So a crash between the server's taking a letter and our remembering it repeats that letter with its own
Message-ID; and a worker whose claims lapsed on the way sends nothing that another has composed anew.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count

from tableferry.fleet.clock import Clock
from tableferry.fleet.job import Job
from tableferry.fleet.mail.addresses import LeftOut
from tableferry.fleet.mail.messages import message, sender_domain
from tableferry.fleet.mail.notifications import (
    audience,
    binding,
    compose,
    level,
    message_id,
    note,
    noted,
    told,
)
from tableferry.fleet.mail.rendering import Templates
from tableferry.fleet.mail.smtp import Delivery, NoServer, Outbox
from tableferry.fleet.queue.records import NotificationRecord
from tableferry.fleet.queue.selections import numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings

_log = logging.getLogger(__name__)

# Remembering is a commit in a lakehouse; a crash repeats the letters of so long at most.
_REMEMBER_EVERY = timedelta(seconds=1)


@dataclass
class Posting:
    """The letters of one run.

    Attributes:
        store: The queue.
        settings: The fleet's.
        templates: What letters say.
        clock: What time it is.
        held: The jobs to be told of, as they are saved; by their numbers.
        held_at: When their claims were made, or last renewed.
        letters: Those of these jobs that are recorded and bind, and then the new ones; by Message-ID.
        jobs: The jobs of those letters, ours or not.
        new: The letters that this run composed.
        left: Who still waits for a letter, where it's known; by Message-ID.
        taken: Letters that need no more sending.
        sent: Letters that a server took in this run.
        failed: Letters for the next run.
        left_out: Who gets none.
        waiting: Why recipients have to wait, and who they are.
        problems: Why there is no sending at all.
    """

    store: Store
    settings: FleetSettings
    templates: Templates
    clock: Clock
    held: dict[int, Job]
    held_at: datetime
    letters: dict[str, NotificationRecord] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    new: set[str] = field(default_factory=set)
    left: dict[str, frozenset[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    left_out: list[LeftOut] = field(default_factory=list)
    waiting: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)
    _lost: set[int] = field(default_factory=set)
    _unremembered: list[str] = field(default_factory=list)
    _taken_at: datetime = datetime.min

    def read(self) -> None:
        """Find the letters that earlier runs recorded, and what became of them."""
        notes = {task: noted(job) for task, job in self.held.items()}
        ids = {each for some in notes.values() for each in some}
        recorded = self.store.letters(ids)
        others = {task for letter in recorded.values() for task in letter.task_ids} - self.held.keys()
        if others:
            self.jobs = {job.task_id: job for job in self.store.jobs(numbered(others))}
            # Another worker that ended a note meanwhile had remembered before that the letter was taken.
            recorded = self.store.letters(ids)
        self.jobs |= self.held
        self.letters = {each: letter for each, letter in recorded.items() if binding(letter, self.jobs)}
        self.taken = {each for each, letter in self.letters.items() if letter.sent_at is not None}
        for some in notes.values():
            for each, waiting in some.items():
                if waiting is not None:
                    # Whoever isn't among them has it, whichever job says so.
                    self.left[each] = self.left.get(each, frozenset(waiting)) & frozenset(waiting)

    def compose(self) -> list[NotificationRecord]:
        """Write what no letter of an earlier run says."""
        mail = self.settings.mail
        domain = sender_domain(mail)
        done = {
            (task, to)
            for task, job in self.held.items()
            for each in noted(job)
            if each in self.letters and each not in self.new
            for to in self.letters[each].recipients
        }
        composed = compose(
            self.held.values(), done, now=self.clock(), domain=mail.domain, sent_from=domain, batch=mail.batch
        )
        self.left_out = list(composed.left_out)
        letters = list(composed.letters)
        for edition in count(1):
            # Sent, and noted on none of these jobs: it was of an earlier migration of these tables.
            known = self.store.letters(each.message_id for each in letters)
            before = {each for each, letter in known.items() if letter.sent_at is not None}
            if not before:
                break
            letters = [
                replace(one, message_id=message_id(one.level, one.task_ids, one.recipients, domain, edition))
                if one.message_id in before
                else one
                for one in letters
            ]
        for old in self.new:
            del self.letters[old]
        self.letters |= {letter.message_id: letter for letter in letters}
        self.new = {letter.message_id for letter in letters}
        return letters

    def record(self) -> None:
        """Note the new letters on their jobs, without those that others took meanwhile, and record them."""
        while True:
            letters = self.compose()
            mine: dict[int, list[str]] = defaultdict(list)
            for letter in letters:
                for task in letter.task_ids:
                    mine[task].append(letter.message_id)
            noting = [
                note(self.held[task], {**self._kept(self.held[task]), **dict.fromkeys(new)})
                for task, new in mine.items()
            ]
            if not self._save(noting, lease=self.settings.lease):
                break
        if letters:
            self.store.record_notifications(letters)

    def send(self, outbox: Outbox, *, remember: bool) -> None:
        """Send what is recorded and not taken: first what earlier runs recorded.

        Args:
            outbox: Sends.
            remember: Whether to hold the claims meanwhile, and to remember what was taken.
        """
        waiting = [letter for each, letter in self.letters.items() if each not in self.taken]
        waiting.sort(
            key=lambda letter: (
                letter.message_id in self.new,
                letter.level,
                letter.task_ids,
                letter.recipients,
            )
        )
        for position, letter in enumerate(waiting):
            if remember:
                self._hold()
            if self._lost.intersection(letter.task_ids):
                # Whoever has its jobs now sends it, or has composed it anew.
                continue
            now = self.clock()
            jobs = [self.jobs[task] for task in letter.task_ids if task in self.jobs]
            to = sorted(self.left.get(letter.message_id, frozenset(letter.recipients)))
            speaks_to = audience(letter, jobs, self.settings.mail.domain)
            words = self.templates.words(letter.level, speaks_to, jobs, now)
            try:
                mail = message(words, letter.message_id, to, self.settings.mail, now)
                delivery = outbox.send(mail, to)
            except NoServer as error:
                self.problems.append(str(error))
                self.failed |= {each.message_id for each in waiting[position:]}
                return
            self._sort(letter, jobs, to, delivery)
            if remember and self._unremembered and self.clock() - self._taken_at >= _REMEMBER_EVERY:
                self._remember()

    def settle(self) -> Mapping[int, int]:
        """Give the jobs back, with their date or with what is left to send; count the dated ones by level."""
        self._remember()
        now, settled, dated = self.clock(), [], set()
        for task, job in self.held.items():
            kept = self._kept(job)
            if kept.keys() <= self.taken:
                settled.append(told(note(job, {}), now))
                dated.add(task)
            else:
                settled.append(note(job, kept))
        lost = self._save(settled, release=True)
        return Counter(level(self.held[task]) for task in dated - lost)

    def give_back(self) -> None:
        """Give the jobs back as they are."""
        self._save(self.held.values(), release=True)

    def _kept(self, job: Job) -> dict[str, frozenset[str] | None]:
        """Return the letters noted on a job that count, with who still waits for each."""
        return {
            each: self.left.get(each)
            for each in noted(job)
            if each in self.letters and job.task_id in self.letters[each].task_ids
        }

    def _sort(self, letter: NotificationRecord, jobs: list[Job], to: list[str], delivery: Delivery) -> None:
        """Take down what became of a letter."""
        about = str(jobs[0].name) if len(jobs) == 1 else f"{len(jobs)} tables"
        whom = f"{len(to)} users" if len(to) > 1 else to[0]
        for each, why in sorted(delivery.refused.items()):
            self.left_out.append(
                LeftOut(each, tuple(job.name for job in jobs), f"the mail server said: {why}")
            )
        for each, why in sorted(delivery.waiting.items()):
            self.waiting[why].append(each)
        if len(delivery.refused) + len(delivery.waiting) < len(to):
            self.sent.add(letter.message_id)
            repeated = "" if letter.message_id in self.new else ", which an earlier run recorded"
            _log.info("letter %d to %s about %s%s", letter.level, whom, about, repeated)
        if delivery.waiting:
            self.failed.add(letter.message_id)
            self.left[letter.message_id] = frozenset(delivery.waiting)
        else:
            self.taken.add(letter.message_id)
            if not self._unremembered:
                self._taken_at = self.clock()
            self._unremembered.append(letter.message_id)

    def _hold(self) -> None:
        """Renew the claims in good time."""
        now = self.clock()
        if now - self.held_at >= self.settings.lease / 2:
            self._save(list(self.held.values()), lease=self.settings.lease)
            self.held_at = now

    def _remember(self) -> None:
        """Let the queue know which letters were taken."""
        if self._unremembered:
            self.store.notifications_sent(self._unremembered, self.clock())
            self._unremembered.clear()

    def _save(
        self, jobs: Iterable[Job], *, lease: timedelta | None = None, release: bool = False
    ) -> set[int]:
        """Write jobs back, and say which ones others have taken."""
        jobs = list(jobs)
        saved = self.store.save_all(jobs, self.clock(), lease=lease, release=release) if jobs else ()
        self.held |= {job.task_id: job for job in saved}
        lost = {job.task_id for job in jobs} - {job.task_id for job in saved}
        for task in sorted(lost):
            _log.warning("%s was taken by another worker", self.held.pop(task).name)
        self._lost |= lost
        return lost
