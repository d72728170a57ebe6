"""The e-mail addresses of a job's owners and readers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tableferry.fleet.jobs.job import Job
from tableferry.spark.tables import TableName

_LOCAL_PART = re.compile(r"[^\s@<>()\[\]\\,;:\"\x00-\x1f\x7f]{1,64}")
_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_APPLICATION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class LeftOut:
    """An owner or reader who gets no notification about some tables, with the reason."""

    recipient: str
    tables: tuple[TableName, ...]
    why: str


@dataclass(frozen=True)
class Recipients:
    """The e-mail addresses for a job's notifications.

    Attributes:
        owners: The owners' addresses.
        readers: The addresses of readers who aren't owners.
        left_out: The names that have no address, each with the reason.
    """

    owners: frozenset[str]
    readers: frozenset[str]
    left_out: tuple[tuple[str, str], ...]


def recipients_of(job: Job, domain: str) -> Recipients:
    """Return the addresses of a job's owners and readers; names that aren't addresses get the domain."""
    left_out: dict[tuple[str, str], None] = {}

    def addresses(names: Iterable[str]) -> Iterable[str]:
        for name in names:
            try:
                yield address(name, domain)
            except ValueError as error:
                left_out[name, str(error)] = None

    owners = frozenset(addresses(job.tbl_owners))
    readers = frozenset(addresses(job.downstream_users)) - owners
    return Recipients(owners, readers, tuple(left_out))


def address(name: str, domain: str) -> str:
    """Return the e-mail address for a name in lower case, with an international domain in its ASCII form.

    Raises:
        ValueError: The name has no address; the text is the reason.
    """
    if _APPLICATION_ID.fullmatch(name.strip()):
        raise ValueError("this is an application's id, and no person reads its mail: name a person as owner")
    local, at, own_domain = name.strip().lower().rpartition("@")
    if not at:
        if not domain:
            raise ValueError("this isn't an e-mail address: set mail.domain, or give the job addresses")
        local, own_domain = own_domain, domain.lower()
    try:
        ascii_domain = own_domain if own_domain.isascii() else own_domain.encode("idna").decode("ascii")
    except UnicodeError:
        ascii_domain = ""
    dots = local.startswith(".") or local.endswith(".") or ".." in local
    valid = local.isascii() and not dots and _LOCAL_PART.fullmatch(local) and _DOMAIN.fullmatch(ascii_domain)
    if not valid:
        raise ValueError("this can't become an e-mail address: give the job addresses")
    return f"{local}@{ascii_domain}"
