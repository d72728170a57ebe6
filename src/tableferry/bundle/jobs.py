"""Jobs: environments, clusters, schedules and notifications."""

from __future__ import annotations

import re
from collections.abc import Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tableferry.bundle import cron, tasks
from tableferry.bundle.deployment import Deployment
from tableferry.bundle.files import tasks_of
from tableferry.bundle.problems import Problem, nearest, one_of
from tableferry.bundle.tree import Node

_STARTS = ("schedule", "trigger", "continuous")
_OFFSET = re.compile(r"GMT[+-][0-9]{1,2}(:?[0-9]{2})?")


def check(deployment: Deployment) -> Iterator[Problem]:
    """Check what the CLI and the shape of a job let through."""
    for _, job in deployment.resources("jobs"):
        if not isinstance(job.value, dict):
            continue
        yield from tasks.check(job)
        yield from _keys(job, "environments", "environment_key")
        yield from _keys(job, "job_clusters", "job_cluster_key")
        for environment in job["environments"].elements:
            yield from _environment(environment["spec"])
        yield from _starts(job)
        for node in (job, *tasks_of(job)):
            yield from _recipients(node["email_notifications"])


def recipients(several: Node) -> Iterator[Problem]:
    """Check the addresses in a list."""
    for address in several.elements:
        if address.text is not None and not address.text.strip():
            yield address.problem(
                "is an empty e-mail address, which is refused when it's deployed",
                "write an address, or leave it out",
            )
        elif address.known is not None and "@" not in address.known:
            yield address.problem(f"'{address.known}' isn't an e-mail address", "write one")


def _recipients(notifications: Node) -> Iterator[Problem]:
    for _, several in notifications.items:
        yield from recipients(several)


def _keys(job: Node, field: str, key: str) -> Iterator[Problem]:
    """Check that the keys of a list and the tasks that name one fit together."""
    defined: dict[str, Node] = {}
    for element in job[field].elements:
        name = element[key].known
        if name is not None and defined.setdefault(name, element) is not element:
            yield element[key].problem(f"{key} '{name}' is there twice", "give each one a key of its own")
    # With a key that isn't known, or is wrong, nobody can say which ones aren't used.
    unsure = False
    named: set[str | None] = set()
    for task in tasks_of(job):
        name = task[key].known
        named.add(name)
        unsure = unsure or (task[key].given and name not in defined)
        if name is not None and name not in defined:
            otherwise = one_of(defined) if defined else "define it there"
            yield task[key].problem(
                f"{key} '{name}' isn't defined under '{field}'", nearest(name, defined, otherwise)
            )
    for name, element in defined.items():
        if name not in named and not unsure:
            yield element[key].problem(f"no task uses {key} '{name}'", "use it or remove it")


def _environment(spec: Node) -> Iterator[Problem]:
    if spec["client"].given:
        yield spec["client"].problem("'client' is deprecated", "write it as environment_version")
    elif spec.given and not any(spec[key].given for key in ("environment_version", "base_environment")):
        yield spec.problem("says no version of the environment", 'write environment_version, such as "4"')


def _starts(job: Node) -> Iterator[Problem]:
    given = [key for key in _STARTS if job[key].given]
    if len(given) > 1:
        yield job[given[1]].problem(
            f"stands beside '{given[0]}', and a job starts by one of them", "keep one"
        )
    schedule = job["schedule"]
    expression = schedule["quartz_cron_expression"]
    if expression.known is not None:
        try:
            cron.check(expression.known)
        except cron.CronError as error:
            yield expression.problem(f"'{expression.known}' would be refused: {error.what}", error.remedy)
    zone = schedule["timezone_id"]
    if zone.known is not None and not _is_timezone(zone.known):
        remedy = nearest(zone.known, available_timezones(), "write one such as 'UTC' or 'Europe/Berlin'")
        yield zone.problem(f"there is no timezone '{zone.known}'", remedy)


def _is_timezone(name: str) -> bool:
    if _OFFSET.fullmatch(name):
        return True
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return not _has_timezones()
    return True


def _has_timezones() -> bool:
    """Return whether this machine knows timezones at all; a bare container may not."""
    try:
        ZoneInfo("Europe/Berlin")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
