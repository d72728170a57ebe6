"""The readers who are notified, and the mail server's refusals of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.record import RefusedRecipients
from tableferry.fleet.notifications.addresses import address
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class TableReader:
    """A reader of some tables.

    Attributes:
        name: The reader, as the jobs have it: an e-mail address or a user's name.
        tables: The tables that the reader reads, by name.
        refused: The mail server's refusal of this address; empty without one.
    """

    name: str
    tables: tuple[TableName, ...]
    refused: str


def list_readers(jobs: Iterable[Job], domain: str = "") -> list[TableReader]:
    """Return the readers of some jobs' tables, by name.

    Args:
        jobs: The jobs.
        domain: The setting `MailSettings.domain`, which completes names to addresses.
    """
    tables: dict[str, list[TableName]] = defaultdict(list)
    refused: dict[str, str] = {}
    for job in jobs:
        for name in job.downstream_users:
            tables[name].append(job.name)
        refused |= refused_recipients(job)[1]
    return [
        TableReader(name, tuple(sorted(read)), refused.get(_address_or_name(name, domain), ""))
        for name, read in sorted(tables.items())
    ]


def without_reader(job: Job, name: str, domain: str = "") -> Job:
    """Return the job without a reader, who gets no more notifications; the same job if it has no such reader.

    Args:
        job: The job.
        name: The reader's name or address.
        domain: The setting `MailSettings.domain`, which completes names to addresses.
    """
    dropped = _address_or_name(name, domain)
    left = tuple(reader for reader in job.downstream_users if _address_or_name(reader, domain) != dropped)
    if left == job.downstream_users:
        return job
    level, refused = refused_recipients(job)
    others = {to: why for to, why in refused.items() if to != dropped}
    return with_refused(replace(job, downstream_users=left), level, others)


def _address_or_name(name: str, domain: str) -> str:
    """Return a reader's address, or the name in lower case if it has no address."""
    try:
        return address(name, domain)
    except ValueError:
        return name.lower()


def refused_recipients(job: Job) -> tuple[int, Mapping[str, str]]:
    """Return the level of the last refused notification, and the server's replies by recipient.

    The recipients are those of that level; the level is 0 without a refusal.
    """
    recorded = job.record.refused_recipients
    return (recorded["level"], recorded["recipients"]) if recorded else (0, {})


def with_refused(job: Job, level: int, refused: Mapping[str, str]) -> Job:
    """Return the job with these refusals recorded, and no others."""
    recorded = RefusedRecipients(level=level, recipients=dict(sorted(refused.items())))
    return job.with_record(refused_recipients=recorded if refused else None)
