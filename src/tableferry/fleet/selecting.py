"""Chooses jobs of the queue, or of its archive: by names, patterns, states, pauses and owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tableferry.errors import TableError
from tableferry.fleet.adding import Pattern, parse
from tableferry.fleet.job import Job, State
from tableferry.fleet.queue.selections import Selection, everything, named
from tableferry.fleet.queue.store import Store
from tableferry.tables import TableName

# A name that is written without a catalog means the jobs of each.
_ANY = "*"


@dataclass(frozen=True)
class Filter:
    """Which jobs to list; what is empty or None excludes none.

    Attributes:
        tables: Names and patterns.
        states: Where the jobs are.
        paused: Whether they are paused.
        owner: One of their owners, in any case.
    """

    tables: Sequence[str] = ()
    states: Sequence[State] = ()
    paused: bool | None = None
    owner: str | None = None


def list_jobs(store: Store, wanted: Filter, *, archived: bool = False) -> list[Job]:
    """Return the jobs that a filter lets through, by their task_id.

    Raises:
        TableError: One of its tables is neither a name nor a pattern.
    """
    tables = [_pattern(parse(text, _ANY)) for text in wanted.tables]
    owner = wanted.owner.lower() if wanted.owner is not None else None
    return [
        job
        for job in (store.archived if archived else store.jobs)(everything())
        if (not tables or any(each.matches(job.name) for each in tables))
        and (not wanted.states or job.state in wanted.states)
        and (wanted.paused is None or job.migration_paused is wanted.paused)
        and (owner is None or owner in (each.lower() for each in job.tbl_owners))
    ]


def select_jobs(store: Store, written: Iterable[str], *, archive: bool = False) -> list[Job]:
    """Return the jobs that names and patterns mean, each once.

    Args:
        store: The queue.
        written: Names and patterns; one without a catalog means the jobs of every catalog.
        archive: Whether archived jobs count too, where the queue has none.

    Raises:
        TableError: One of them means no job.
    """
    places = (store.jobs, store.archived) if archive else (store.jobs,)
    found: dict[int, Job] = {}
    for text in written:
        wanted = parse(text, _ANY)
        jobs = next((jobs for place in places if (jobs := _meant(store, place, wanted))), [])
        if not jobs:
            where = "the queue or the archive" if archive else "the queue"
            raise TableError(f"'{text}' has no job in {where}: tableferry fleet list shows all jobs")
        found |= {job.task_id: job for job in jobs}
    return list(found.values())


def _meant(
    store: Store, place: Callable[[Selection], Sequence[Job]], wanted: TableName | Pattern
) -> list[Job]:
    if isinstance(wanted, Pattern):
        return [job for job in place(everything()) if wanted.matches(job.name)]
    catalog, *rest = wanted.parts
    if catalog != _ANY:
        return list(place(named([wanted])))
    if place == store.jobs:
        # Far fewer rows than the jobs, which may be a hundred thousand.
        catalogs = [str(group["catalog_name"]) for group in store.counts(everything(), ["catalog_name"])]
        return list(place(named(TableName((each, *rest)) for each in catalogs)))
    return [job for job in place(everything()) if job.name.parts[1:] == tuple(rest)]


def _pattern(wanted: TableName | Pattern) -> Pattern:
    return wanted if isinstance(wanted, Pattern) else Pattern(*wanted.parts)
