"""Sends the notifications that claimed jobs are due, so that a crash drops none and renames none.

The rule:

1. A notification is noted on each of its jobs, by compare-and-swap, then recorded, and only then sent.
2. A recorded notification that all of its jobs have noted may have been sent. It is sent as it was recorded,
   to its own recipients about its own jobs, until a server has taken it. What is only noted, or only
   recorded, was never sent, and counts for nothing.
3. New notifications go, for each job, only to those whom none of rule 2 goes to: jobs that were added since,
   and owners that changed, make new notifications and never regroup old ones.
4. A job has its date when each of its notifications was taken, or refused for good; the same save ends its
   notes. A refusal that may concern the sender is permanent at once, and each refusal after
   `MailSettings.give_up_days`, if the server took a message in this run or in as many days before it.

So a crash between the server's taking a notification and our remembering it repeats that one with its own
Message-ID; and a worker whose claims lapsed meanwhile sends nothing that another has composed anew.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count

from sqlalchemy import select

from tableferry.fleet.clock import Clock
from tableferry.fleet.job import Job
from tableferry.fleet.notifications.addresses import LeftOut
from tableferry.fleet.notifications.drafts import (
    audience,
    binding,
    compose,
    level,
    message_id,
    note,
    noted,
    put_off,
    with_date,
)
from tableferry.fleet.notifications.emails import message, sender
from tableferry.fleet.notifications.readers import refused_recipients, with_refused
from tableferry.fleet.notifications.smtp import Delivery, NoServer, Outbox
from tableferry.fleet.notifications.texts import Templates
from tableferry.fleet.queue.records import NotificationRecord
from tableferry.fleet.queue.schema import notifications
from tableferry.fleet.queue.selections import numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings

_log = logging.getLogger(__name__)

# Remembering is a commit in a lakehouse; a crash repeats the notifications of so long at most.
_REMEMBER_EVERY = timedelta(seconds=1)
# A server's answer, as opposed to a lost connection.
_ANSWER = re.compile(r"[45]\d\d ")


@dataclass
class Posting:
    """The notifications of one run.

    Attributes:
        held: The jobs to be told of, as they are saved; by their numbers.
        held_at: When their claims were made, or last renewed.
        notifications: Those of these jobs that are recorded and bind, and then the new ones; by Message-ID.
        jobs: The jobs of those notifications, ours or not.
        new: The notifications that this run composed.
        left: Who still waits for a notification, where it's known; by Message-ID.
        put_off: The time of a server's first refusal; by Message-ID.
        taken: Notifications that need no more sending.
        sent: Notifications that a server took in this run.
        failed: Notifications for the next run.
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
    notifications: dict[str, NotificationRecord] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    new: set[str] = field(default_factory=set)
    left: dict[str, frozenset[str]] = field(default_factory=dict)
    put_off: dict[str, datetime] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    left_out: list[LeftOut] = field(default_factory=list)
    waiting: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)
    _refused: dict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _perhaps_refused: list[tuple[NotificationRecord, str, str]] = field(default_factory=list)
    _lost: set[int] = field(default_factory=set)
    _unremembered: list[str] = field(default_factory=list)
    _taken_at: datetime = datetime.min

    def read(self) -> None:
        """Find the notifications that earlier runs recorded, and what became of them."""
        notes = {task: noted(job) for task, job in self.held.items()}
        ids = set().union(*notes.values())
        recorded = self.store.notifications(ids)
        others = {task for record in recorded.values() for task in record.task_ids} - self.held.keys()
        if others:
            self.jobs = {job.task_id: job for job in self.store.jobs(numbered(others))}
            # Another worker that ended a note meanwhile had remembered before that it was taken.
            recorded = self.store.notifications(ids)
        self.jobs |= self.held
        self.notifications = {key: record for key, record in recorded.items() if binding(record, self.jobs)}
        self.taken = {key for key, record in self.notifications.items() if record.sent_at is not None}
        for noted_on_job in notes.values():
            for key, waiting in noted_on_job.items():
                if waiting is not None:
                    # Whoever isn't among them has it, whichever job says so.
                    self.left[key] = self.left.get(key, frozenset(waiting)) & frozenset(waiting)
        for job in self.held.values():
            for key, since in put_off(job).items():
                self.put_off[key] = min(since, self.put_off.get(key, since))

    def compose(self) -> list[NotificationRecord]:
        """Write what no notification of an earlier run says."""
        mail = self.settings.mail
        domain = sender(mail).domain
        done = {
            (task, to)
            for task, job in self.held.items()
            for key in noted(job)
            if key in self.notifications and key not in self.new
            for to in self.notifications[key].recipients
        }
        composed = compose(
            self.held.values(), done, now=self.clock(), domain=mail.domain, sent_from=domain, batch=mail.batch
        )
        self.left_out = list(composed.left_out)
        notifications = list(composed.notifications)
        for edition in count(1):
            # Sent, and noted on none of these jobs: it was of an earlier migration of these tables.
            known = self.store.notifications(new.message_id for new in notifications)
            before = {key for key, record in known.items() if record.sent_at is not None}
            if not before:
                break
            notifications = [
                replace(new, message_id=message_id(new.level, new.task_ids, new.recipients, domain, edition))
                if new.message_id in before
                else new
                for new in notifications
            ]
        for old in self.new:
            del self.notifications[old]
        self.notifications |= {notification.message_id: notification for notification in notifications}
        self.new = {notification.message_id for notification in notifications}
        return notifications

    def record(self) -> None:
        """Note the new ones on their jobs, without jobs that others claimed meanwhile, and record them."""
        while True:
            notifications = self.compose()
            mine: dict[int, list[str]] = defaultdict(list)
            for notification in notifications:
                for task in notification.task_ids:
                    mine[task].append(notification.message_id)
            noting = [
                self._noted(self.held[task], {**self._still_due(self.held[task]), **dict.fromkeys(new)})
                for task, new in mine.items()
            ]
            if not self._save(noting, lease=self.settings.lease):
                break
        if notifications:
            self.store.record_notifications(notifications)

    def send(self, outbox: Outbox, *, remember: bool) -> None:
        """Send what is recorded and not taken: first what earlier runs recorded.

        To `remember` is to hold the claims meanwhile, and to let the queue know what was taken.
        """
        waiting = sorted(
            (record for key, record in self.notifications.items() if key not in self.taken),
            key=lambda record: (
                record.message_id in self.new,
                record.level,
                record.task_ids,
                record.recipients,
            ),
        )
        for position, notification in enumerate(waiting):
            if remember:
                self._hold()
            if self._lost.intersection(notification.task_ids):
                # Whoever has its jobs now sends it, or has composed it anew.
                continue
            now = self.clock()
            jobs = [self.jobs[task] for task in notification.task_ids if task in self.jobs]
            to = sorted(self.left.get(notification.message_id, frozenset(notification.recipients)))
            if not to:
                # Its jobs named others as those who still waited: each of them has it.
                self._take(notification)
                continue
            speaks_to = audience(notification, jobs, self.settings.mail.domain)
            words = self.templates.words(notification.level, speaks_to, jobs, now)
            try:
                mail = message(words, notification.message_id, to, self.settings.mail, now)
                delivery = outbox.send(mail, to)
            except NoServer as error:
                self.problems.append(error.one_line)
                self.failed |= {unsent.message_id for unsent in waiting[position:]}
                break
            self._sort(notification, jobs, to, delivery)
            if remember and self._unremembered and self.clock() - self._taken_at >= _REMEMBER_EVERY:
                self._remember()
        self._settle_refused()

    def settle(self) -> Mapping[int, int]:
        """Give the jobs back, with their date or with what is left to send; count the dated ones by level."""
        self._remember()
        now, settled, dated = self.clock(), [], set()
        for task, job in self.held.items():
            due = self._still_due(job)
            if due.keys() <= self.taken:
                settled.append(with_date(note(self._with_refusals(job), {}), now))
                dated.add(task)
            else:
                settled.append(self._noted(self._with_refusals(job), due))
        lost = self._save(settled, release=True)
        return Counter(level(self.held[task]) for task in dated - lost)

    def give_back(self) -> None:
        """Give the jobs back as they are."""
        self._save(self.held.values(), release=True)

    def _still_due(self, job: Job) -> dict[str, frozenset[str] | None]:
        """Return the notifications noted on a job that count, with who still waits for each."""
        return {
            key: self.left.get(key)
            for key in noted(job)
            if key in self.notifications and job.task_id in self.notifications[key].task_ids
        }

    def _with_refusals(self, job: Job) -> Job:
        """Record whom the server refused a notification of this level."""
        due, (recorded, before) = level(job), refused_recipients(job)
        return with_refused(job, due, {**(before if recorded == due else {}), **self._refused[job.task_id]})

    def _noted(self, job: Job, due: Mapping[str, Iterable[str] | None]) -> Job:
        return note(job, due, {key: self.put_off[key] for key in due if key in self.put_off})

    def _sort(
        self, notification: NotificationRecord, jobs: list[Job], to: list[str], delivery: Delivery
    ) -> None:
        """Take down what became of a notification."""
        key, now = notification.message_id, self.clock()
        waiting = {**delivery.waiting, **delivery.denied}
        if any(_ANSWER.match(why) for why in waiting.values()):
            self.put_off.setdefault(key, now)
        for recipient, why in sorted(delivery.refused.items()):
            self._leave_out(notification, recipient, why)
        for recipient, why in sorted(waiting.items()):
            self.waiting[why].append(recipient)
            late = _ANSWER.match(why) and now - self.put_off[key] >= self.settings.mail.give_up_after
            if late or recipient in delivery.denied:
                self._perhaps_refused.append((notification, recipient, why))
        if len(delivery.refused) + len(delivery.waiting) + len(delivery.denied) < len(to):
            about = str(jobs[0].name) if len(jobs) == 1 else f"{len(jobs)} tables"
            whom = f"{len(to)} users" if len(to) > 1 else to[0]
            self.sent.add(key)
            repeated = "" if key in self.new else ", which an earlier run recorded"
            _log.info("letter %d to %s about %s%s", notification.level, whom, about, repeated)
        self._keep_waiting(notification, frozenset(waiting))

    def _settle_refused(self) -> None:
        """Leave out recipients with a lasting refusal, unless the server refuses everybody."""
        if not self._perhaps_refused:
            return
        if not self.sent and not self._took_others():
            mail = self.settings.mail
            self.problems.append(
                f"the mail server {mail.host}:{mail.port} took nothing in this run: let it relay mail from "
                f"this host and from {sender(mail).addr_spec}, or set mail.user and mail.sender"
            )
            return
        for notification, recipient, why in self._perhaps_refused:
            self._leave_out(notification, recipient, why)
            self.waiting[why].remove(recipient)
            self._keep_waiting(notification, self.left[notification.message_id] - {recipient})
        self._perhaps_refused.clear()
        self.waiting = defaultdict(list, {why: to for why, to in self.waiting.items() if to})

    def _took_others(self) -> bool:
        """Return whether a server took a notification since the time after which a refusal is permanent."""
        since = self.clock() - self.settings.mail.give_up_after
        query = select(notifications.c.message_id).where(notifications.c.sent_at >= since).limit(1)
        return bool(self.store.rows(query))

    def _leave_out(self, notification: NotificationRecord, recipient: str, why: str) -> None:
        """Note that a recipient gets no notification, with the server's words."""
        tables = tuple(self.jobs[task].name for task in notification.task_ids if task in self.jobs)
        self.left_out.append(LeftOut(recipient, tables, f"the mail server said: {why}"))
        for task in notification.task_ids:
            self._refused[task][recipient] = why

    def _keep_waiting(self, notification: NotificationRecord, recipients: frozenset[str]) -> None:
        """Note who still waits for a notification; without anybody it needs no more sending."""
        self.left[notification.message_id] = recipients
        if recipients:
            self.failed.add(notification.message_id)
        else:
            self.failed.discard(notification.message_id)
            self._take(notification)

    def _take(self, notification: NotificationRecord) -> None:
        """Note that a notification needs no more sending."""
        self.taken.add(notification.message_id)
        if not self._unremembered:
            self._taken_at = self.clock()
        self._unremembered.append(notification.message_id)

    def _hold(self) -> None:
        """Renew the claims in good time."""
        now = self.clock()
        if now - self.held_at >= self.settings.lease / 2:
            self._save(list(self.held.values()), lease=self.settings.lease)
            self.held_at = now

    def _remember(self) -> None:
        """Let the queue know which notifications were taken."""
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
