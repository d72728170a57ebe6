"""Wheels and jars: what is installed is there or will be built, and has the entry points that tasks call."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tableferry.bundle.findings import Finding, Rule, nearest
from tableferry.bundle.loading import Bundle, matches
from tableferry.bundle.resources import tasks
from tableferry.bundle.tree import Text, find, get, items, known

# Builds that put their wheels into `dist`; any other may put them anywhere.
_INTO_DIST = re.compile(r"(uv|poetry|hatch|python3?)( (build|-m|--wheel|-w|setup\.py|sdist|bdist_wheel))+")
_LIBRARIES = (
    "environment.dependencies.*",
    "environments.*.spec.dependencies.*",
    *(f"tasks.*.{inner}libraries.*.{key}" for inner in ("", "for_each_task.task.") for key in ("whl", "jar")),
)


@dataclass(frozen=True)
class _Build:
    """What an artifact builds from a folder, and into which ones; what only the build knows is None."""

    folder: Path
    into: tuple[Path, ...] | None
    name: str | None = None
    entry_points: dict[str, str] | None = None

    def makes(self, library: Path) -> bool:
        """Return whether it may make what a path or pattern names."""
        if self.into is None or not any(fnmatch(str(folder), str(library.parent)) for folder in self.into):
            return self.into is None
        names = (library.name.lower().split("-")[0], library.name.lower().replace("*.whl", "*"))
        return not self.name or any(fnmatch(self.name, name) for name in names)


def check(bundle: Bundle) -> Iterator[Finding]:
    """Check the libraries of jobs and pipelines, and the tasks that call into a wheel."""
    builds = list(_builds(bundle))
    for location, resource in bundle.resources("jobs") + bundle.resources("pipelines"):
        for text in (text for path in _LIBRARIES for text in find(resource, path)):
            path = bundle.local(text)
            if path is None or path.suffix not in (".whl", ".jar") or matches(path):
                continue
            # A folder that is kept empty is for others to fill.
            kept = any(matches(path.parent / file) for file in (".gitignore", ".gitkeep"))
            level = "advice" if kept and not text.startswith(bundle.file_path) else "error"
            if not any(build.makes(path) for build in builds):
                message = (
                    f"'{bundle.shown(path)}' isn't there, and no artifact builds it: correct or build it"
                )
                yield bundle.finding(Rule.MISSING_LIBRARY, location, message, text, level)
        for task in tasks(resource):
            yield from _entry_point(bundle, location, resource, task, builds)


def _builds(bundle: Bundle) -> Iterator[_Build]:
    artifacts = [artifact for _, artifact in items(get(bundle.tree, "artifacts"))]
    if get(bundle.tree, "experimental", "scripts"):  # they may make anything
        yield _Build(bundle.folder, None)
    if not artifacts and (bundle.folder / "setup.py").is_file():  # the CLI builds it unasked
        artifacts = [{}]
    for artifact in artifacts:
        path, command = known(get(artifact, "path")), get(artifact, "build")
        folder = bundle.path(path) if path else bundle.folder
        sources = list(map(known, find(artifact, "files.*.source")))
        if command is not None or not sources:
            into = (folder / "dist", *(bundle.path(source).parent for source in sources if source))
            simple = command is None or _INTO_DIST.fullmatch(str(command).strip())
            yield _Build(folder, into if simple else None, *_project(folder))


def _project(folder: Path) -> tuple[str | None, dict[str, str] | None]:
    """Return the name and the entry points of the wheel that is built from a folder."""
    try:
        data = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None, None
    project, poetry = get(data, "project"), get(data, "tool", "poetry")
    name, scripts = get(project or poetry, "name"), get(project or poetry, "scripts") or {}
    elsewhere = [
        *(get(project or poetry, key) for key in ("entry-points", "gui-scripts", "plugins")),
        *((folder / file).exists() for file in ("setup.py", "setup.cfg")),
        *(item in ("scripts", "gui-scripts", "entry-points") for item in find(project, "dynamic.*")),
        get(poetry, "scripts") not in (None, scripts),
        not isinstance(scripts, dict) or not all(isinstance(target, str) for target in scripts.values()),
    ]
    return _normal(name) if isinstance(name, str) else None, None if any(elsewhere) else scripts


def _entry_point(bundle: Bundle, where: Text, job: Any, task: Any, builds: list[_Build]) -> Iterator[Finding]:
    package = known(get(task, "python_wheel_task", "package_name"))
    name = known(get(task, "python_wheel_task", "entry_point"))
    key = get(task, "environment_key")
    environments = [item for item in find(job, "environments.*") if get(item, "environment_key") == key]
    texts = find(task, "libraries.*.whl") + find(environments, "*.spec.dependencies.*")
    paths = list(filter(None, map(bundle.local, texts)))
    for build in builds:
        if package and name and build.name == _normal(package) and build.entry_points is not None:
            # Databricks takes one that isn't declared for a function of the package.
            target = build.entry_points.get(name, f"{build.name}:{name}")
            if any(map(build.makes, paths)) and not _leads(build.folder, target):
                remedy = nearest(name, build.entry_points, "define it, or correct its name")
                message = f"entry point '{name}' of '{package}' leads to no '{target}': {remedy}"
                yield bundle.finding(Rule.MISSING_ENTRY_POINT, where, message, name)


def _leads(folder: Path, target: str) -> bool:
    """Return whether an entry point leads to a function, or may; nothing is imported."""
    inside, _, function = re.sub(r"\[.*|\s", "", target).replace(".", "/").partition(":")
    for root in (folder / "src", folder):
        for file in matches(root / f"{inside}.py") + matches(root / inside / "__init__.py"):
            # Code may bind a name in many ways, but hardly without its word.
            words = rf"\b{re.escape(function.split('/')[0])}\b|import \*|__getattr__|globals\("
            return not file.is_file() or bool(re.search(words, file.read_text("utf-8", "replace")))
        # A module may also be a folder, or not be written in Python.
        if (root / inside).parent != root and matches((root / inside).parent / "*.py"):
            return bool(matches(root / f"{inside}*"))
    return True


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
