"""The tasks that call into a wheel: the wheel is installed, and has what they call."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tableferry.bundle import entrypoints, files, projects
from tableferry.bundle.artifacts import Built, built, check_dependency, editable, wheel_path
from tableferry.bundle.deployment import Deployment
from tableferry.bundle.problems import Problem, nearest, one_of
from tableferry.bundle.projects import Project, module_name, normal
from tableferry.bundle.tree import Node

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check(deployment: Deployment) -> Iterator[Problem]:
    """Check artifacts, what environments install of the bundle, and tasks that call into a wheel."""
    problems: list[Problem] = []
    wheels = built(deployment, problems)
    yield from problems
    for wheel in wheels:
        if wheel.project is not None:
            yield from entrypoints.check(wheel.project)
    for dependency in _dependencies(deployment):
        yield from check_dependency(deployment, dependency, wheels)
    for _, job in deployment.resources("jobs"):
        for task in files.tasks_of(job):
            yield from _wheel_task(deployment, job, task, wheels)


def _dependencies(deployment: Deployment) -> Iterator[Node]:
    for _, pipeline in deployment.resources("pipelines"):
        yield from pipeline["environment"]["dependencies"].elements
    for _, job in deployment.resources("jobs"):
        for environment in job["environments"].elements:
            yield from environment["spec"]["dependencies"].elements
        for task in files.tasks_of(job):
            for library in task["libraries"].elements:
                yield from (library["whl"], library["jar"])


def _wheel_task(deployment: Deployment, job: Node, task: Node, wheels: list[Built]) -> Iterator[Problem]:
    package, entry = task["python_wheel_task"]["package_name"], task["python_wheel_task"]["entry_point"]
    if package.known is None or entry.known is None:
        return
    key = task["environment_key"].text
    environments = job["environments"].elements if key else ()
    mine = [environment for environment in environments if environment["environment_key"].text == key]
    dependencies = [node for environment in mine for node in environment["spec"]["dependencies"].elements]
    for library in task["libraries"].elements:
        dependencies += [library["whl"], library["pypi"]["package"]]
    installed: list[Project] = []
    for dependency in dependencies:
        source = _installs(deployment, dependency, wheels) if dependency.given else []
        if source is None or (isinstance(source, str) and normal(source) == normal(package.known)):
            return  # another's package, or one that can't be known
        installed += [] if isinstance(source, str) else source
    names = [project.name for project in installed if project.name]
    fitting = [
        project for project in installed if project.name and normal(project.name) == normal(package.known)
    ]
    if not fitting and (mine or installed):
        otherwise = one_of(names) if names else "add its wheel to them"
        what = f"the task's dependencies install no '{package.known}'"
        yield package.problem(what, nearest(package.known, names, otherwise))
    for project in fitting[:1]:
        known = [entry_point.name for entry_point in project.entry_points]
        if entry.known in known or not project.entry_points_known:
            continue
        if not _is_function(project, package.known, entry.known):
            yield entry.problem(
                f"'{entry.known}' isn't an entry point of '{project.name}'",
                nearest(entry.known, known, f"define it in project.scripts of {project.file}"),
            )


def _installs(deployment: Deployment, node: Node, wheels: list[Built]) -> list[Project] | str | None:
    """Return the bundle's projects that a dependency installs, or a package's name; None if it's unknown."""
    text = node.text or ""
    if (folder := editable(deployment, node)) is not None:
        project = projects.read(folder, projects.FILE, [])
        return [project] if project is not None else None
    if node.known and files.is_local_library(node.known):
        path = wheel_path(deployment, node)
        built = [wheel.project for wheel in wheels if wheel.makes(path)]
        known = [project for project in built if project is not None]
        return known if built and len(known) == len(built) else None
    name = _NAME.match(text) if files.pip_option(text) is None else None
    return name[0] if name and node.known else None


def _is_function(project: Project, package: str, name: str) -> bool:
    """Return whether a package has such a function, which Databricks calls where there's no entry point."""
    file = entrypoints.source(project, module_name(package))
    names = entrypoints.names(file) if file is not None else set()
    return isinstance(names, set) and name in names
