"""The communicator: owners and users are notified before a table's migration, after it, and at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tableferry.errors import TableferryError
from tableferry.fleet.clock import Clock
from tableferry.fleet.notifications.addresses import LeftOut
from tableferry.fleet.notifications.delivery import Posting
from tableferry.fleet.notifications.drafts import is_needed
from tableferry.fleet.notifications.emails import check
from tableferry.fleet.notifications.folder import FolderOutbox
from tableferry.fleet.notifications.password import with_password
from tableferry.fleet.notifications.smtp import Outbox, SmtpOutbox
from tableferry.fleet.notifications.texts import Templates
from tableferry.fleet.queue.selections import longest_ago, to_notify
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings, MailSettings
from tableferry.heartbeat import heartbeat
from tableferry.progress import task

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommunicateReport:
    """What a run of the communicator did.

    Attributes:
        sent: Notifications that a server took.
        repeated: How many of these an earlier run had recorded, and perhaps sent.
        failed: Notifications that the next run has to send, if only to some of their recipients.
        jobs: Jobs that have their date now, by level.
        untold: Jobs that still wait for a notification of theirs.
        unneeded: Jobs whose gap is 0 days, so that they get their date without a notification.
        left_out: Owners and users who get none: without an address, or refused for good.
        problems: Why notifications failed, a sentence each.
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
        """Whether nothing failed; who is left out for good is no failure."""
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
    """Notify owners and users of their tables' migration; see `notifications.delivery`.

    Args:
        store: The queue.
        settings: The fleet's.
        worker: Who does it; unique among processes.
        clock: What time it is.
        batch_size: At most how many jobs.
        share: Of N workers, the I-th prefers a share of its own.
        dry_run_to: Write the notifications into this folder as .eml files, and change nothing.
        outbox: Sends notifications.

    Raises:
        InputError: A template or an address in the settings is invalid; nothing was sent.
        TableferryError: The password can't be had, or the queue can't be reached.
    """
    templates = Templates(settings.mail)
    check(settings.mail)
    # By their numbers alone, a small run would take those again whose recipients have to wait, and no others.
    due = to_notify() & longest_ago(store, to_notify(), batch_size * share[1])
    if dry_run_to is not None:
        jobs = store.jobs(due, limit=batch_size)
        posting = Posting(store, settings, templates, clock, {job.task_id: job for job in jobs}, clock())
        posting.read()
        posting.compose()
        with task(_log, "write letters", worker=worker) as running:
            posting.send(FolderOutbox(dry_run_to), remember=False)
            running.update("letters", len(posting.sent))
        return _report(posting, {})
    mail, now = with_password(settings.mail), clock()
    jobs = store.claim(due, worker, now=now, lease=settings.lease, limit=batch_size, share=share)
    posting = Posting(store, settings, templates, clock, {job.task_id: job for job in jobs}, now)
    numbers = [job.task_id for job in jobs]
    with heartbeat(lambda: store.renew(numbers, worker, clock(), settings.lease), settings.lease):
        try:
            posting.read()
            posting.record()
        except (TableferryError, KeyboardInterrupt):
            posting.give_back()
            raise
        with closing(outbox(mail)) as post:
            try:
                with task(_log, "send letters", worker=worker) as running:
                    running.refresher = lambda running: running.update("letters", len(posting.sent))
                    posting.send(post, remember=True)
                    running.update("letters", len(posting.sent))
            except (TableferryError, KeyboardInterrupt):
                posting.settle()
                raise
        return _report(posting, posting.settle())


def _report(posting: Posting, dated: Mapping[int, int]) -> CommunicateReport:
    problems = [
        f"{to[0]} waits for the next run: {why}"
        if len(to) == 1
        else f"{len(to)} recipients wait for the next run, {to[0]} among them: {why}"
        for why, to in posting.waiting.items()
    ]
    return CommunicateReport(
        sent=len(posting.sent),
        repeated=len(posting.sent - posting.new),
        failed=len(posting.failed),
        jobs=dict(sorted(dated.items())),
        untold=len(posting.held) - sum(dated.values()),
        unneeded=sum(not is_needed(job) for job in posting.held.values()),
        left_out=tuple(posting.left_out),
        problems=tuple(posting.problems + problems),
    )
