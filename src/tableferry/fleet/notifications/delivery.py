"""Record notifications, send them, and mark them sent, so that a crash drops none.

1. Each new notification is noted on its jobs by compare-and-swap, recorded with its Message-ID, and only then
   sent. All texts are rendered before the first note.
2. A recorded notification that isn't marked sent is sent again: with the recorded Message-ID, to the recorded
   recipients who still wait, about the jobs that have it noted. A crash between sending and marking therefore
   repeats it recognisably.
3. New notifications go only to the recipients of a job that no recorded one covers.
4. A job gets its date when all its notifications are sent or refused permanently; the same write removes the
   notes.

If a worker loses its claim on a job, it sends no more notifications in this run.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import select

from tableferry.fleet.clock import Clock
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.notifications.addresses import LeftOut
from tableferry.fleet.notifications.drafts import audience, draft, level, with_date
from tableferry.fleet.notifications.emails import build_email, sender
from tableferry.fleet.notifications.notes import Note, notes_of, with_notes
from tableferry.fleet.notifications.readers import refused_recipients, with_refused
from tableferry.fleet.notifications.smtp import MailServerUnavailable, Outbox, SendResult
from tableferry.fleet.notifications.texts import Templates, Words
from tableferry.fleet.queue.records import NotificationRecord
from tableferry.fleet.queue.schema import notifications
from tableferry.fleet.queue.selections import numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings

_log = logging.getLogger(__name__)

# A mark is a commit in a Delta queue. After a crash, at most the notifications of this time are repeated.
_MARK_EVERY = timedelta(seconds=1)
# A reply of the server, as opposed to a lost connection.
_REPLY = re.compile(r"[45]\d\d ")


@dataclass
class Outgoing:
    """A notification, and the state of its delivery.

    Attributes:
        record: The notification as the queue has it.
        jobs: The jobs of the tables in it.
        waiting: The recipients who don't have it yet; without any, it is sent.
        is_new: Whether this run drafted it.
        refused_since: The time when the server first asked a recipient to wait.
        replies: The server's replies to waiting recipients in this run.
    """

    record: NotificationRecord
    jobs: Sequence[Job]
    waiting: frozenset[str]
    is_new: bool = False
    refused_since: datetime | None = None
    replies: dict[str, str] = field(default_factory=dict)

    @classmethod
    def recorded(cls, record: NotificationRecord, jobs: Sequence[Job]) -> Outgoing:
        """Return a notification of an earlier run, with the jobs that have it noted."""
        # Version 0.2 also recorded addresses that aren't ASCII, which many servers refuse.
        waiting = {to for to in record.recipients if to.isascii() and record.sent_at is None}
        notes = [notes_of(job)[record.message_id] for job in jobs]
        # The jobs may have been in different runs: a recipient has it if one of them has recorded that.
        for note in notes:
            if note.waiting is not None:
                waiting &= note.waiting
        refused = min((note.refused_since for note in notes if note.refused_since), default=None)
        return cls(record, jobs, frozenset(waiting), refused_since=refused)

    @property
    def note(self) -> Note:
        """The note of it for its jobs."""
        waiting = None if self.waiting == set(self.record.recipients) else self.waiting
        return Note(waiting, self.refused_since)


class Delivery:
    """The notifications of one run of the communicator.

    Attributes:
        held: The claimed jobs, by number.
        outgoing: The notifications of these jobs, also those that are sent already, by Message-ID.
        sent: The Message-IDs that the server accepted for a recipient in this run.
        left_out: The owners and readers who get no notification.
        problems: The reasons why the server accepts nothing.
    """

    def __init__(
        self, store: Store, settings: FleetSettings, templates: Templates, clock: Clock, jobs: Iterable[Job]
    ) -> None:
        self.held = {job.task_id: job for job in jobs}
        self.outgoing: dict[str, Outgoing] = {}
        self.sent: set[str] = set()
        self.left_out: list[LeftOut] = []
        self.problems: list[str] = []
        self._store, self._settings, self._templates, self._clock = store, settings, templates, clock
        self._held_at = self._marked_at = clock()
        self._marked: set[str] = set()
        self._refused: dict[int, dict[str, str]] = defaultdict(dict)
        self._doubtful: list[tuple[Outgoing, str]] = []

    @property
    def unsent(self) -> list[Outgoing]:
        """The notifications to send, those of earlier runs first."""
        return sorted(
            (each for each in self.outgoing.values() if each.waiting),
            key=lambda each: (each.is_new, each.record.level, each.record.task_ids, each.record.recipients),
        )

    def prepare(self) -> None:
        """Read the recorded notifications of the jobs, draft the missing ones, and render all texts.

        Raises:
            InputError: A template can't be rendered.
        """
        noted_ids = {key for job in self.held.values() for key in notes_of(job)}
        recorded, jobs = self._store.notifications(noted_ids), self.held
        others = {task for record in recorded.values() for task in record.task_ids} - self.held.keys()
        if others:
            jobs = jobs | {job.task_id: job for job in self._store.jobs(numbered(others))}
            # Another worker that removed a note since then had marked the notification first.
            recorded = self._store.notifications(noted_ids)
        for key, record in recorded.items():
            # A job without the note has started again, or its recipients have another notification.
            noted = [jobs[task] for task in record.task_ids if task in jobs and key in notes_of(jobs[task])]
            self.outgoing[key] = Outgoing.recorded(record, noted)
        self._marked = {key for key, record in recorded.items() if record.sent_at is not None}
        self._draft()
        for outgoing in self.unsent:
            self._words(outgoing)

    def record(self) -> bool:
        """Note the new notifications on their jobs, and record them; return False if a claim is lost."""
        new = [each.record for each in self.outgoing.values() if each.is_new]
        numbers = {task for record in new for task in record.task_ids}
        noted = [_noted(job, mine) for job, mine in self._by_job() if job.task_id in numbers]
        if not self._save(noted, lease=self._settings.lease):
            return False
        if new:
            self._store.record_notifications(new)
        return True

    def send(self, outbox: Outbox, *, dry_run: bool) -> None:
        """Send the unsent notifications; a real run also renews the claims, and marks them sent."""
        for outgoing in self.unsent:
            if not (dry_run or self._hold()):
                break
            to = sorted(outgoing.waiting)
            email = build_email(
                self._words(outgoing), outgoing.record.message_id, to, self._settings.mail, self._clock()
            )
            try:
                result = outbox.send(email, to)
            except MailServerUnavailable as error:
                self.problems.append(error.one_line)
                break
            self._apply(result, outgoing)
            if not dry_run and self._clock() - self._marked_at >= _MARK_EVERY:
                self._mark_sent()
        self._leave_out_doubtful()

    def settle(self) -> Mapping[int, int]:
        """Give the jobs back, with their dates or notes, and return the number of dated ones by level."""
        self._mark_sent()
        now, settled, dated = self._clock(), [], {}
        for job, mine in self._by_job():
            due, (refused_level, refused) = level(job), refused_recipients(job)
            earlier = refused if refused_level == due else {}
            job = with_refused(job, due, {**earlier, **self._refused[job.task_id]})
            if any(each.waiting for each in mine):
                settled.append(_noted(job, mine))
            else:
                settled.append(with_date(with_notes(job, {}), now))
                dated[job.task_id] = due
        self._save(settled, release=True)
        return Counter(due for number, due in dated.items() if number in self.held)

    def give_back(self) -> None:
        """Give the jobs back as they are."""
        self._save(list(self.held.values()), release=True)

    def _draft(self) -> None:
        """Add notifications for recipients that the recorded ones don't cover."""
        mail = self._settings.mail
        covered = {
            (job.task_id, to)
            for each in self.outgoing.values()
            for job in each.jobs
            for to in each.record.recipients
        }
        drafts, self.left_out = draft(
            self.held.values(),
            covered,
            now=self._clock(),
            domain=mail.domain,
            id_domain=sender(mail).domain,
            batch=mail.batch,
        )
        for new in drafts:
            jobs = [self.held[task] for task in new.task_ids]
            self.outgoing[new.message_id] = Outgoing(new, jobs, frozenset(new.recipients), is_new=True)

    def _words(self, outgoing: Outgoing) -> Words:
        speaks_to = audience(outgoing.record.recipients, outgoing.jobs, self._settings.mail.domain)
        return self._templates.words(outgoing.record.level, speaks_to, outgoing.jobs, self._clock())

    def _by_job(self) -> list[tuple[Job, list[Outgoing]]]:
        """Return each job with its notifications."""
        by_number = defaultdict(list)
        for outgoing in self.outgoing.values():
            for job in outgoing.jobs:
                by_number[job.task_id].append(outgoing)
        return [(job, by_number[number]) for number, job in self.held.items()]

    def _apply(self, result: SendResult, outgoing: Outgoing) -> None:
        """Apply the result of an attempt."""
        now = self._clock()
        outgoing.replies = {**result.waiting, **result.denied}
        not_sent = {**result.refused, **outgoing.replies}
        if accepted := sorted(outgoing.waiting - not_sent.keys()):
            self.sent.add(outgoing.record.message_id)
            to = accepted[0] if len(accepted) == 1 else f"{len(accepted)} readers"
            about = str(outgoing.jobs[0].name) if len(outgoing.jobs) == 1 else f"{len(outgoing.jobs)} tables"
            repeated = "" if outgoing.is_new else ", recorded by an earlier run"
            _log.info("notification of level %d to %s about %s%s", outgoing.record.level, to, about, repeated)
        replied = {to for to, reply in outgoing.replies.items() if _REPLY.match(reply)}
        if replied:
            outgoing.refused_since = outgoing.refused_since or now
            if now - outgoing.refused_since < self._settings.mail.give_up_after:
                replied &= result.denied.keys()
            self._doubtful += [(outgoing, to) for to in sorted(replied)]
        outgoing.waiting = frozenset(not_sent)
        for to, reply in sorted(result.refused.items()):
            self._leave_out(outgoing, to, reply)

    def _leave_out_doubtful(self) -> None:
        """Leave out recipients that the server refuses, unless it refuses all."""
        if self._doubtful and not self.sent and not self._accepted_recently():
            mail = self._settings.mail
            problem = MailServerUnavailable(
                "MAIL_ALL_RECIPIENTS_REFUSED",
                server=f"{mail.host}:{mail.port}",
                sender=sender(mail).addr_spec,
                days=mail.give_up_days,
            )
            self.problems.append(problem.one_line)
            return
        for outgoing, to in self._doubtful:
            self._leave_out(outgoing, to, outgoing.replies[to])

    def _accepted_recently(self) -> bool:
        """Return whether the server accepted a notification in the last `MailSettings.give_up_days`."""
        since = self._clock() - self._settings.mail.give_up_after
        query = select(notifications.c.message_id).where(notifications.c.sent_at >= since).limit(1)
        return bool(self._store.rows(query))

    def _leave_out(self, outgoing: Outgoing, recipient: str, reply: str) -> None:
        """Leave a recipient out of a notification permanently."""
        tables = tuple(job.name for job in outgoing.jobs)
        self.left_out.append(LeftOut(recipient, tables, f"the mail server replied: {reply}"))
        for job in outgoing.jobs:
            self._refused[job.task_id][recipient] = reply
        outgoing.waiting -= {recipient}

    def _mark_sent(self) -> None:
        sent = {key for key, each in self.outgoing.items() if not each.waiting} - self._marked
        if sent:
            self._store.notifications_sent(sent, self._clock())
            self._marked |= sent
        self._marked_at = self._clock()

    def _hold(self) -> bool:
        """Renew the claims after half of the lease; return False if one is lost."""
        if self._clock() - self._held_at < self._settings.lease / 2:
            return True
        self._held_at = self._clock()
        return self._save(list(self.held.values()), lease=self._settings.lease)

    def _save(self, jobs: Sequence[Job], *, lease: timedelta | None = None, release: bool = False) -> bool:
        """Write jobs; return False if another worker has claimed one of them."""
        saved = self._store.save_all(jobs, self._clock(), lease=lease, release=release) if jobs else ()
        self.held |= {job.task_id: job for job in saved}
        lost = {job.task_id for job in jobs} - {job.task_id for job in saved}
        for number in sorted(lost):
            _log.warning("%s is claimed by another worker", self.held.pop(number).name)
        return not lost


def _noted(job: Job, outgoing: Iterable[Outgoing]) -> Job:
    return with_notes(job, {each.record.message_id: each.note for each in outgoing})
