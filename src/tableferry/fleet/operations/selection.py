"""Select jobs of the queue or of its archive by names, patterns, states, pauses and owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import and_

from tableferry.errors import TableError
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.operations.table_requests import Pattern, parse
from tableferry.fleet.queue import schema
from tableferry.fleet.queue.selections import Selection, everything, named
from tableferry.fleet.queue.store import Store
from tableferry.spark.tables import TableName

# A name without a catalog selects the jobs of all catalogs.
_ANY = "*"


@dataclass(frozen=True)
class Filter:
    """The criteria of a list of jobs; an empty or None criterion excludes no job.

    Attributes:
        tables: Names and patterns.
        states: The states of the jobs.
        paused: Whether they are paused.
        owner: One of their owners, compared without case.
        wave: Their wave.
    """

    tables: Sequence[str] = ()
    states: Sequence[State] = ()
    paused: bool | None = None
    owner: str | None = None
    wave: str | None = None


def list_jobs(store: Store, criteria: Filter, *, archived: bool = False) -> list[Job]:
    """Return the jobs that meet the criteria, by their task_id.

    Raises:
        TableError: One of the tables is neither a name nor a pattern.
    """
    tables = [_pattern(parse(text, _ANY)) for text in criteria.tables]
    owner = criteria.owner.lower() if criteria.owner is not None else None
    return [
        job
        for job in (store.archived if archived else store.jobs)(everything())
        if (not tables or any(pattern.matches(job.name) for pattern in tables))
        and (not criteria.states or job.state in criteria.states)
        and (criteria.paused is None or job.migration_paused is criteria.paused)
        and (owner is None or owner in map(str.lower, job.tbl_owners))
        and criteria.wave in (None, job.wave)
    ]


def select_jobs(store: Store, written: Iterable[str], *, archive: bool = False) -> list[Job]:
    """Return the jobs that names and patterns select, each once.

    Args:
        store: The queue.
        written: Names and patterns; one without a catalog selects the jobs of all catalogs.
        archive: Whether archived jobs are selected too, for tables without a job in the queue.

    Raises:
        TableError: One of them selects no job.
    """
    selected: dict[int, Job] = {}
    for text in written:
        wanted = parse(text, _ANY)
        jobs = _wanted(store.jobs, wanted)
        if archive and (not jobs or isinstance(wanted, Pattern)):
            queued = {job.name for job in jobs}
            jobs += [job for job in _wanted(store.archived, wanted) if job.name not in queued]
        if not jobs:
            raise TableError("JOB_NOT_FOUND" if archive else "JOB_NOT_IN_QUEUE", text=text)
        selected |= {job.task_id: job for job in jobs}
    return list(selected.values())


def select_archived(store: Store, written: Iterable[str]) -> tuple[list[Job], list[Job]]:
    """Return the jobs whose Hive table is archived, of the queue and of its archive, each once.

    Args:
        store: The queue.
        written: Names and patterns, as in `select_jobs`. A name selects its job in any state, so that the
            user gets a reason; a pattern selects only these jobs. None selects all of them.

    Raises:
        TableError: One of them selects no job.
    """
    written = tuple(written)
    queued: dict[int, Job] = {}
    archived: dict[int, Job] = {}
    for text in written or ("*.*",):
        wanted, count = parse(text, _ANY), len(queued) + len(archived)
        for source, jobs in ((store.jobs, queued), (store.archived, archived)):
            for job in _wanted(source, wanted):
                if not isinstance(wanted, Pattern) or job.state is State.HIVE_DROPPED:
                    jobs[job.task_id] = job
        if written and count == len(queued) + len(archived):
            raise TableError("ARCHIVED_JOB_NOT_FOUND", text=text)
    return list(queued.values()), [job for number, job in archived.items() if number not in queued]


def _wanted(source: Callable[[Selection], Sequence[Job]], name: TableName | Pattern) -> list[Job]:
    if isinstance(name, Pattern):
        return [job for job in source(everything()) if name.matches(job.name)]
    catalog, *rest = name.parts
    if catalog != _ANY:
        return list(source(named([name])))
    c = schema.jobs.c
    return list(source(and_(c.db_name == rest[0], c.tbl_name == rest[1])))


def _pattern(name: TableName | Pattern) -> Pattern:
    return name if isinstance(name, Pattern) else Pattern(*name.parts)
