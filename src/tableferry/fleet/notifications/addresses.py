"""Whom a job's notifications go to: the mail addresses behind the names that catalogs keep."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tableferry.fleet.job import Job
from tableferry.spark.tables import TableName

_LOCAL = re.compile(r"[^\s@<>()\[\]\\,;:\"\x00-\x1f\x7f]{1,64}")
_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_APPLICATION = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class LeftOut:
    """An owner or user, as the job or the notification has them, who gets none about some tables, and why."""

    recipient: str
    tables: tuple[TableName, ...]
    why: str


@dataclass(frozen=True)
class People:
    """Who is to be told of a job, each by a mail address in lower case.

    Attributes:
        users: Those who read the table and don't own it.
        left_out: Those who have no address, and why.
    """

    owners: frozenset[str]
    users: frozenset[str]
    left_out: tuple[tuple[str, str], ...]


def people(job: Job, domain: str) -> People:
    """Return who is to be told of a job; a name that isn't an address gets the domain, if there is one."""
    left_out: list[tuple[str, str]] = []

    def addresses(names: Iterable[str]) -> frozenset[str]:
        valid = set()
        for name in names:
            try:
                valid.add(address(name, domain))
            except ValueError as error:
                left_out.append((name, str(error)))
        return frozenset(valid)

    owners = addresses(job.tbl_owners)
    return People(owners, addresses(job.downstream_users) - owners, tuple(dict.fromkeys(left_out)))


def address(name: str, domain: str) -> str:
    """Return the mail address behind a name, in lower case; an international domain by its ASCII name.

    Raises:
        ValueError: There is none; says why.
    """
    if _APPLICATION.fullmatch(name.strip()):
        raise ValueError("this is an application's id, and nobody reads its mail: name a person as owner")
    local, at, own_domain = name.strip().lower().rpartition("@")
    if not at:
        if not domain:
            raise ValueError("this isn't a mail address: set mail.domain, or give the job addresses")
        local, own_domain = own_domain, domain.lower()
    try:
        ascii_domain = own_domain if own_domain.isascii() else own_domain.encode("idna").decode("ascii")
    except UnicodeError:
        ascii_domain = ""
    dots = local.startswith(".") or local.endswith(".") or ".." in local
    if dots or not _LOCAL.fullmatch(local) or not _DOMAIN.fullmatch(ascii_domain):
        raise ValueError("no mail address can be made of this: give the job addresses")
    return f"{local}@{ascii_domain}"
