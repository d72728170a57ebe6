"""The communicator: notify owners and readers before a table's migration, after it, and at its end."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tableferry.errors import TableferryError
from tableferry.fleet.clock import Clock
from tableferry.fleet.notifications.addresses import LeftOut
from tableferry.fleet.notifications.delivery import Delivery
from tableferry.fleet.notifications.drafts import is_needed
from tableferry.fleet.notifications.emails import check_addresses
from tableferry.fleet.notifications.folder import FolderOutbox
from tableferry.fleet.notifications.password import with_password
from tableferry.fleet.notifications.smtp import Outbox, SmtpOutbox
from tableferry.fleet.notifications.texts import Templates
from tableferry.fleet.queue.selections import least_recent, to_notify
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings, MailSettings
from tableferry.heartbeat import heartbeat
from tableferry.progress import task

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommunicateReport:
    """The result of a run of the communicator.

    Attributes:
        sent: The number of notifications that the server accepted.
        repeated: The number of these that an earlier run had recorded, and perhaps sent.
        failed: The number of notifications that the next run has to send, if only to some recipients.
        jobs: The number of jobs that got their date, by level.
        untold: The number of jobs that wait for a notification.
        unneeded: The number of jobs with a gap of 0 days, which get their date without a notification.
        left_out: Owners and readers who get none: without an address, or refused permanently.
        problems: The reasons why notifications failed, a sentence each.
    """

    sent: int = 0
    repeated: int = 0
    failed: int = 0
    jobs: Mapping[int, int] = field(default_factory=dict)
    untold: int = 0
    unneeded: int = 0
    left_out: tuple[LeftOut, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no notification failed; a recipient who is left out permanently is no failure."""
        return not self.failed


def communicate(
    store: Store,
    settings: FleetSettings,
    *,
    worker: str,
    clock: Clock,
    batch_size: int = 5000,
    share: tuple[int, int] = (0, 1),
    dry_run_to: Path | None = None,
    outbox: Callable[[MailSettings], Outbox] = SmtpOutbox,
) -> CommunicateReport:
    """Notify owners and readers of their tables' migration; `Delivery` guarantees that none is dropped.

    Notifications that the mail server doesn't accept, or that it can't be reached, are in the report.

    Args:
        store: The queue.
        settings: The fleet's settings.
        worker: The name of this worker; unique among processes.
        clock: Returns the time.
        batch_size: The maximum number of jobs.
        share: The number of this worker, from zero, and the number of workers. It claims jobs of its share
            first, then others. A dry run ignores it.
        dry_run_to: Write the notifications to this folder as .eml files, instead of those of an earlier dry
            run. Nothing is sent, and the queue isn't changed.
        outbox: Returns the outbox that sends notifications.

    Raises:
        InputError: A template or an address in the settings is invalid, or the password is missing; nothing
            was sent.
        TableferryError: The password's secret can't be read, the queue can't be reached, or the folder can't
            be created.
    """
    templates = Templates(settings.mail)
    check_addresses(settings.mail)
    # In the order of numbers, a small run would always claim the same jobs with waiting recipients.
    due = to_notify() & least_recent(store, to_notify(), batch_size * share[1])
    if dry_run_to is not None:
        delivery = Delivery(store, settings, templates, clock, store.jobs(due, limit=batch_size))
        delivery.prepare()
        with task(_log, "write notifications", worker=worker) as running:
            delivery.send(FolderOutbox(dry_run_to), dry_run=True)
            running.update("notifications", len(delivery.sent))
        return _report(delivery, {})
    mail = with_password(settings.mail)
    jobs = store.claim(due, worker, now=clock(), lease=settings.lease, limit=batch_size, share=share)
    delivery = Delivery(store, settings, templates, clock, jobs)
    numbers = [job.task_id for job in jobs]
    with heartbeat(lambda: store.renew(numbers, worker, clock(), settings.lease), settings.lease):
        try:
            delivery.prepare()
            recorded = delivery.record()
        except (TableferryError, KeyboardInterrupt):
            delivery.give_back()
            raise
        with closing(outbox(mail)) as post:
            try:
                with task(_log, "send notifications", worker=worker) as running:
                    running.refresher = lambda running: running.update("notifications", len(delivery.sent))
                    if recorded:
                        delivery.send(post, dry_run=False)
                    running.update("notifications", len(delivery.sent))
            except (TableferryError, KeyboardInterrupt):
                delivery.settle()
                raise
        return _report(delivery, delivery.settle())


def _report(delivery: Delivery, dated: Mapping[int, int]) -> CommunicateReport:
    return CommunicateReport(
        sent=len(delivery.sent),
        repeated=sum(not delivery.outgoing[key].is_new for key in delivery.sent),
        failed=len(delivery.unsent),
        jobs=dict(sorted(dated.items())),
        untold=len(delivery.held) - sum(dated.values()),
        unneeded=sum(not is_needed(job) for job in delivery.held.values()),
        left_out=tuple(delivery.left_out),
        problems=(*delivery.problems, *_waiting(delivery)),
    )


def _waiting(delivery: Delivery) -> Iterator[str]:
    """Yield a sentence per reply to recipients who wait."""
    recipients = defaultdict(list)
    for outgoing in delivery.unsent:
        for to, reply in sorted(outgoing.replies.items()):
            if to in outgoing.waiting:
                recipients[reply].append(to)
    for reply, (first, *others) in recipients.items():
        if others:
            yield f"{1 + len(others)} recipients wait for the next run, {first} among them: {reply}"
        else:
            yield f"{first} waits for the next run: {reply}"
