"""The tasks of a job: what each one is, what it runs on, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tableferry.bundle.cycles import cycle
from tableferry.bundle.files import tasks_of
from tableferry.bundle.problems import Problem, listed, nearest, one_of
from tableferry.bundle.tree import Node

_COMPUTE = ("environment_key", "job_cluster_key", "existing_cluster_id", "new_cluster")
_NEEDS_COMPUTE = ("python_wheel_task", "spark_python_task", "spark_jar_task", "spark_submit_task", "dbt_task")


def check(job: Node) -> Iterator[Problem]:
    """Check a job's tasks and the order between them."""
    if not job["tasks"].given:
        yield job.problem("has no tasks", "write one under 'tasks'")
    named: dict[str, Node] = {}
    for task in job["tasks"].elements:
        key = task["task_key"].known
        if key is not None and named.setdefault(key, task) is not task:
            yield task["task_key"].problem(
                f"task_key '{key}' is there twice, which makes the two tasks one",
                "give each task a key of its own",
            )
    for task in tasks_of(job):
        yield from _kind(task)
        yield from _compute(task)
    yield from _order(job, named)


def _kind(task: Node) -> Iterator[Problem]:
    """A task is of exactly one type, which the field ending in ``_task`` says."""
    if not isinstance(task.value, dict):
        return
    kinds = [key for key, item in task.items if key.endswith("_task") and item.given]
    bare = [key for key, item in task.items if key.endswith("_task") and not item.given]
    if not kinds:
        what = f"'{bare[0]}' says nothing" if bare else "the task has no type"
        yield task.problem(
            what, "fill it" if bare else "give it one, such as notebook_task or python_wheel_task"
        )
    elif len(kinds) > 1:
        yield task.problem(f"the task is of {len(kinds)} types: {listed(kinds)}", "make two tasks of it")


def _compute(task: Node) -> Iterator[Problem]:
    given = [key for key in _COMPUTE if task[key].given]
    if len(given) > 1:
        yield task[given[1]].problem(
            f"stands beside '{given[0]}', and a task runs on one of them", "keep one"
        )
    needing = [key for key in _NEEDS_COMPUTE if task[key].given]
    if needing and not given:
        yield task.problem(f"a {needing[0]} needs something to run on", one_of(_COMPUTE))
    if task["environment_key"].given and task["libraries"].elements:
        yield task["libraries"].problem(
            "a task with an environment_key takes no libraries",
            "write them into the environment's dependencies",
        )


def _order(job: Node, named: dict[str, Node]) -> Iterator[Problem]:
    waits: dict[str, list[str]] = {key: [] for key in named}
    for task in job["tasks"].elements:
        seen: set[str] = set()
        for before in task["depends_on"].elements:
            key = before["task_key"].known
            if key is None:
                continue
            if key not in named:
                yield before["task_key"].problem(
                    f"there is no task '{key}' to wait for",
                    nearest(key, named, one_of(named)),
                )
            elif key in seen:
                yield before["task_key"].problem(f"waits for task '{key}' twice", "keep one")
            elif task["task_key"].known in waits:
                waits[task["task_key"].known or ""].append(key)
            seen.add(key)
            if before["outcome"].given and key in named and not named[key]["condition_task"].given:
                yield before["outcome"].problem(
                    f"task '{key}' has no outcome, as it isn't a condition_task", "remove 'outcome'"
                )
    if ring := cycle(waits):
        what = f"the tasks wait for each other: {' → '.join(ring)}"
        yield named[ring[0]]["depends_on"].problem(what, "take one of them out")
