"""All checks of a bundle, target by target."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tableferry.bundle import files, jobs, pipelines, securables, shape, targets, variables, wheels
from tableferry.bundle.cycles import cycle
from tableferry.bundle.deployment import Deployment
from tableferry.bundle.kinds import KINDS, type_of, types_installed
from tableferry.bundle.loading import load
from tableferry.bundle.merging import by_key, for_target
from tableferry.bundle.problems import Problem, listed, nearest, one_of
from tableferry.bundle.resolving import Resolver, dependencies
from tableferry.bundle.sections import Root
from tableferry.bundle.tree import Node
from tableferry.extras import install

_NOT_CHECKED = (
    "the package databricks-bundles isn't installed, so that unknown fields and wrong types of resources "
    "weren't looked for: "
)
# What the CLI calls the target of a bundle that has none.
_ONLY_TARGET = "default"


@dataclass(frozen=True)
class Examination:
    """What was found in a bundle.

    Attributes:
        files: The files that were read.
        targets: The targets that were looked at.
        problems: What is wrong, sorted.
        notes: What wasn't looked at, and why.
    """

    files: tuple[str, ...]
    targets: tuple[str, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def examine(
    folder: str | os.PathLike[str], target: str | None = None, environment: Mapping[str, str] | None = None
) -> Examination:
    """Check a bundle for one target, or for each of its targets.

    Args:
        folder: The folder with databricks.yml.
        target: The only target to look at.
        environment: Where ``BUNDLE_VAR_<name>`` gives values; the process's by default.
    """
    problems: list[Problem] = []
    sources = load(Path(os.path.abspath(folder)), problems)
    notes = () if types_installed() else (_NOT_CHECKED + install("bundle"),)
    if problems:  # what can't be read for sure would only give rise to more
        return Examination(sources.files, (), tuple(sorted(set(problems))), notes)
    names = [name for name, _ in sources.tree["targets"].items] or [_ONLY_TARGET]
    if target is not None and target not in names:
        problems.append(
            sources.tree["targets"].problem(
                f"there is no target '{target}'", nearest(target, names, one_of(names))
            )
        )
        names = []
    elif target is not None:
        names = [target]
    problems.extend(shape.check(sources.tree, Root))
    problems.extend(targets.check_all(sources.tree))
    problems.extend(variables.undefined(sources.tree))
    in_targets: dict[Problem, list[str]] = {}
    wrong_references = 0
    given = os.environ if environment is None else environment
    for name in names:
        referring, others = _in_target(sources.folder, sources.tree, name, given)
        wrong_references += len(referring)
        for problem in {*referring, *others}:
            in_targets.setdefault(problem, []).append(name)
    if not wrong_references:  # else one of them may be meant for a variable that seems unused
        unused = list(variables.unused(sources.tree))
        reported = {(problem.file, problem.place) for problem in unused}
        for problem in [problem for problem in in_targets if (problem.file, problem.place) in reported]:
            del in_targets[problem]
        problems.extend(unused)
    problems.extend(
        problem if len(where) == len(names) else _only(problem, where)
        for problem, where in in_targets.items()
    )
    return Examination(sources.files, tuple(names), tuple(sorted(set(problems))), notes)


def _in_target(
    folder: Path, tree: Node, name: str, environment: Mapping[str, str]
) -> tuple[list[Problem], list[Problem]]:
    """Return the references of a target that are wrong, and everything else."""
    problems: list[Problem] = []
    written = for_target(tree, name, problems)
    resolver = Resolver(written, variables.values(written, name, folder, environment, problems))
    resolved = {
        key: item if key in ("targets", "include") else resolver.resolve(item) for key, item in written.items
    }
    deployment = Deployment(folder, name, by_key(written.with_value(resolved), problems), written)
    for part in (targets, jobs, pipelines, securables, files, wheels):
        problems.extend(part.check(deployment))
    places = {problem.place for problem in problems}
    # A wrong privilege is reported better by `securables`, which knows those of its kind.
    shapes = (
        problem
        for problem in _resources(deployment.tree)
        if "privileges[" not in problem.place or problem.place not in places
    )
    return resolver.problems, [*problems, *shapes]


def _resources(tree: Node) -> Iterator[Problem]:
    """Check the shape of each resource, and that no two wait for each other."""
    for kind, resources in tree["resources"].items:
        if kind not in KINDS:
            remedy = nearest(kind, KINDS, "write a kind such as 'jobs'")
            yield resources.problem(f"there is no kind of resource '{kind}'", remedy)
            continue
        if resources.given and not isinstance(resources.value, dict):
            yield resources.problem(
                f"must be a mapping, not {resources.kind}", "write resources by their keys"
            )
        for name, resource in resources.items:
            if "${" in name:
                yield resource.problem("a resource's key can't hold a reference", "write the key")
            if not resource.given:
                yield resource.problem("says nothing", "fill it or remove it")
            elif (known := type_of(kind)) is not None:
                problems = list(shape.check(resource, known))
                yield from problems or _refused(resource, known)
    if ring := cycle(dependencies(tree)):
        kind, name = ring[0].split(".", 1)
        what = f"the resources refer to each other: {' → '.join(ring)}"
        yield tree["resources"][kind][name].problem(what, "take one of the references out")


def _refused(resource: Node, known: Any) -> Iterator[Problem]:
    """Let the package itself have the last word on a resource's shape."""
    try:
        known.from_dict(resource.plain())
    except Exception as error:
        yield resource.problem(
            f"databricks-bundles refuses it: {' '.join(str(error).split())}", "correct it there"
        )


def _only(problem: Problem, where: list[str]) -> Problem:
    """Say in which targets a problem is one, where the place doesn't say it."""
    if all(problem.place.startswith(f"targets.{name}") or f"'{name}'" in problem.what for name in where):
        return problem
    several = "target" if len(where) == 1 else "targets"
    return Problem(
        problem.file, problem.place, f"{problem.what} (in {several} {listed(where)})", problem.remedy
    )
