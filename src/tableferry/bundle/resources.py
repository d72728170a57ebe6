"""Jobs and pipelines, and what all resources may have: schedules, and references to others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from tableferry.bundle import cron
from tableferry.bundle.findings import Finding, Rule, nearest
from tableferry.bundle.loading import Bundle, matches
from tableferry.bundle.tree import REFERENCE, Text, find, get, items, known, walk

_DEFINED = (
    ("environment_key", "environments", Rule.UNDEFINED_ENVIRONMENT_KEY),
    ("job_cluster_key", "job_clusters", Rule.UNDEFINED_JOB_CLUSTER_KEY),
)
_SOURCES = (".py", ".sql", ".ipynb")


def check(bundle: Bundle, today: date) -> Iterator[Finding]:
    """Check all resources."""
    for kind, _ in items(get(bundle.tree, "resources")):
        for location, resource in bundle.resources(kind):
            for key, text in (pair for pair in walk(resource) if isinstance(pair[1], Text)):
                if str(key).startswith("quartz_cron_") and known(text) and (fault := cron.fault(text, today)):
                    yield bundle.finding(Rule.NEVER_FIRES, location, f"'{text}' {fault}", text)
                for reference in REFERENCE.findall(text) if bundle.complete else ():
                    head, other_kind, other = (*str(reference).split("."), "", "")[:3]
                    others = get(bundle.tree, "resources", other_kind) or {}
                    if head == "resources" and other and isinstance(others, dict) and other not in others:
                        remedy = nearest(other, others, "define it, or correct the name")
                        message = f"'{reference}' isn't there to refer to: {remedy}"
                        yield bundle.finding(Rule.UNDEFINED_RESOURCE, location, message, text)
    for location, job in bundle.resources("jobs"):
        yield from _job(bundle, location, job)
    for location, pipeline in bundle.resources("pipelines"):
        for include in find(pipeline, "libraries.*.glob.include"):
            if path := bundle.local(include):
                every = path.name == "**"
                # In the workspace a notebook has no suffix.
                files = matches(path / "*") if every else matches(path) + matches(Path(f"{path}.*"))
                if not any(file.suffix in _SOURCES or not every for file in files):
                    message = f"'{bundle.shown(path)}' matches no source file: correct it, or add one"
                    yield bundle.finding(Rule.EMPTY_GLOB, location, message, include)


def check_keys(bundle: Bundle) -> Iterator[Finding]:
    """Check that no list has two tasks of one key, as it's written: deployed, they become one task."""
    for tree in (bundle.tree, *(target for _, target in items(get(bundle.tree, "targets")))):
        for location, job in replace(bundle, tree=tree).resources("jobs"):
            keys = find(job, "tasks.*.task_key")
            for position, key in enumerate(keys):
                if isinstance(key, Text) and key in keys[:position]:
                    message = (
                        f"task '{key}' is there twice, and the two become one: give each a key of its own"
                    )
                    yield bundle.finding(Rule.DUPLICATE_TASK_KEY, location, message, key)


def tasks(job: Any) -> list[Any]:
    """Return a job's tasks, also those that run for each of several inputs."""
    paths = ("tasks.*", "tasks.*.for_each_task.task")
    return [task for path in paths for task in find(job, path) if isinstance(task, dict)]


def _job(bundle: Bundle, location: Text, job: Any) -> Iterator[Finding]:
    for task in tasks(job):
        name = get(task, "task_key")
        if not any(key.endswith("_task") and item is not None for key, item in items(task)):
            message = f"task '{name}' has no type: give it one, such as notebook_task or python_wheel_task"
            yield bundle.finding(Rule.TASK_WITHOUT_TYPE, location, message, known(name) or location)
        for key, group, rule in _DEFINED:
            wanted, several = known(get(task, key)), get(job, group)
            defined = list(map(known, find(job, f"{group}.*.{key}")))
            # One that isn't known may be the one that is meant.
            if wanted and wanted not in defined and None not in defined and isinstance(several, list | None):
                remedy = nearest(wanted, filter(None, defined), f"define it under '{group}'")
                message = f"task '{name}' has {key} '{wanted}', which the job doesn't define: {remedy}"
                yield bundle.finding(rule, location, message, wanted)
    waits: dict[Text, list[Text]] = {}
    for task in find(job, "tasks.*"):
        before = map(known, find(task, "depends_on.*.task_key"))
        waits[known(get(task, "task_key")) or Text("")] = [other for other in before if other]
    if "" in waits:
        return
    for name, other in ((name, other) for name, several in waits.items() for other in several):
        if other not in waits:
            remedy = nearest(other, waits, "correct it, or remove it")
            message = f"task '{name}' waits for '{other}', which the job doesn't have: {remedy}"
            yield bundle.finding(Rule.UNKNOWN_DEPENDS_ON, location, message, other)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        message = f"tasks wait for each other ({' → '.join(error.args[1])}): take one depends_on out"
        yield bundle.finding(Rule.CIRCULAR_DEPENDS_ON, location, message, error.args[1][0])
