"""The files that a bundle names: they must be there, inside what is synchronised, and of the right sort."""

from __future__ import annotations

import glob
import os.path
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tableferry.bundle.deployment import Deployment
from tableferry.bundle.problems import Problem
from tableferry.bundle.tree import Node

_NOTEBOOK_STARTS = {
    ".py": "# Databricks notebook source",
    ".r": "# Databricks notebook source",
    ".scala": "// Databricks notebook source",
    ".sql": "-- Databricks notebook source",
}
_NOTEBOOKS = (*_NOTEBOOK_STARTS, ".ipynb")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_SYNCHRONISED = re.compile(r"\$\{workspace\.file_path\}/([^\s'\",;:]+)")
_UNSURE = re.compile(r"[*?\[\]{}$]")
_OPTION = re.compile(r"(?P<flag>--?[a-z][a-z-]*)[ =]\s*(?P<path>\S+)")
_OF_FILES = ("-r", "-e", "-c", "--requirement", "--editable", "--constraint")


def is_local(text: str) -> bool:
    """Return whether the CLI takes a path for one on this machine, and not in the workspace or on the web."""
    return not text.startswith("/") and not _SCHEME.match(text) and "${" not in text and text != ""


def is_local_library(text: str) -> bool:
    """Return whether the CLI takes a dependency for a file, and not for a package or an option of pip."""
    if text.startswith("."):
        return True
    name = re.split(r"[\s\[<>=!~;@]", text, maxsplit=1)[0]
    return not text.startswith("-") and is_local(text) and ("/" in name or name.endswith((".whl", ".jar")))


def pip_option(text: str) -> tuple[str, str] | None:
    """Take an option of pip that names a file or a folder apart, such as ``-r requirements.txt``."""
    match = _OPTION.fullmatch(text.strip())
    return (match["flag"], match["path"]) if match and match["flag"] in _OF_FILES else None


def path_of(deployment: Deployment, node: Node, text: str | None = None) -> Path:
    """Return the file that a value means; paths are relative to the file that they're written in."""
    written = text if text is not None else node.text or ""
    return Path(os.path.normpath(deployment.folder / node.place.folder / written))


def matches(path: Path) -> list[Path]:
    """Return the files and folders that a path or pattern leads to."""
    try:
        return [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
    except (OSError, ValueError, re.error):
        return []


def is_file(path: Path) -> bool:
    """Return whether there is a file; a path that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Return whether there is a folder; a path that no folder can have is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def synchronised(deployment: Deployment) -> Path:
    """Return the folder that is synchronised: the bundle's, or one above it that ``sync.paths`` names."""
    paths = deployment.tree["sync"]["paths"].elements
    folders = [path_of(deployment, node) for node in paths if node.known]
    return Path(os.path.commonpath([deployment.folder, *folders]))


def is_synchronised(deployment: Deployment, path: Path) -> bool:
    """Return whether a file or folder gets into the workspace, as far as ``sync.paths`` decides it."""
    sync = deployment.tree["sync"]
    paths = [path_of(deployment, node) for node in sync["paths"].elements if node.known]
    if sync["include"].elements or not paths:
        paths = [synchronised(deployment)]
    # A folder above a synchronised one is made for it.
    inside = path.is_relative_to(synchronised(deployment))
    return inside and any(path.is_relative_to(root) or root.is_relative_to(path) for root in paths)


def check(deployment: Deployment) -> Iterator[Problem]:
    """Check every field that names a file."""
    for _, job in deployment.resources("jobs"):
        if job["git_source"].given:
            continue  # its paths are those of another repository
        for task in tasks_of(job):
            for path, sort in (
                (task["notebook_task"]["notebook_path"], _notebook),
                (task["spark_python_task"]["python_file"], _plain),
                (task["sql_task"]["file"]["path"], _plain),
                (task["dbt_task"]["project_directory"], _folder),
            ):
                yield from _one(deployment, path, sort)
            for library in task["libraries"].elements:
                yield from _one(deployment, library["requirements"], _plain)
    for kind, field, sort in (
        ("pipelines", "root_path", _folder),
        ("dashboards", "file_path", _plain),
        ("genie_spaces", "file_path", _plain),
        ("alerts", "file_path", _plain),
        ("apps", "source_code_path", _folder),
    ):
        for _, resource in deployment.resources(kind):
            yield from _one(deployment, resource[field], sort)
    yield from _in_workspace(deployment)


def tasks_of(job: Node) -> Iterator[Node]:
    """Yield a job's tasks, with those that run for each of several inputs."""
    for task in job["tasks"].elements:
        yield task
        if task["for_each_task"]["task"].given:
            yield task["for_each_task"]["task"]


def notebook_or_file(deployment: Deployment, node: Node, field: str) -> Iterator[Problem]:
    """Check the path in ``notebook.path`` or ``file.path`` of a pipeline's library."""
    yield from _one(deployment, node, _notebook if field == "notebook" else _plain)


def _one(
    deployment: Deployment, node: Node, sort: Callable[[Path, Node], Iterator[Problem]]
) -> Iterator[Problem]:
    if node.known is None or not is_local(node.known):
        return
    path = path_of(deployment, node)
    if not is_synchronised(deployment, path):
        yield node.problem(
            f"'{node.known}' lies outside of what is synchronised to the workspace",
            "move it into the bundle's folder, or widen sync.paths",
        )
    else:
        yield from sort(path, node)


def _plain(path: Path, node: Node) -> Iterator[Problem]:
    if not is_file(path):
        yield _missing(node, "file")
    elif _is_notebook(path):
        yield node.problem(f"'{node.text}' is a notebook, and a file is asked for", "remove its first line")


def _notebook(path: Path, node: Node) -> Iterator[Problem]:
    if not is_file(path):
        extended = [
            node.known + end for end in _NOTEBOOKS if node.known and is_file(path.with_name(path.name + end))
        ]
        yield _missing(node, "notebook", f"did you mean '{extended[0]}'?" if extended else None)
    elif not _is_notebook(path):
        start = _NOTEBOOK_STARTS.get(path.suffix.lower(), _NOTEBOOK_STARTS[".py"])
        yield node.problem(f"'{node.text}' isn't a notebook", f"begin it with the line '{start}'")


def _folder(path: Path, node: Node) -> Iterator[Problem]:
    if not is_folder(path):
        yield _missing(node, "folder")


def _missing(node: Node, sort: str, remedy: str | None = None) -> Problem:
    return node.problem(
        f"there is no {sort} '{node.text}'",
        remedy or f"correct the path, which is relative to the folder of {node.place.file}",
    )


def _is_notebook(path: Path) -> bool:
    if path.suffix.lower() == ".ipynb":
        return True
    start = _NOTEBOOK_STARTS.get(path.suffix.lower())
    try:
        with path.open("rb") as file:
            first = file.read(64).split(b"\n")[0].rstrip(b"\r")
    except OSError:
        return False
    return start is not None and first == start.encode()


def _in_workspace(deployment: Deployment) -> Iterator[Problem]:
    """Check paths that are written as they will be in the workspace."""
    top = synchronised(deployment)
    for node in deployment.tree["resources"].within():
        for match in _SYNCHRONISED.finditer(node.text or ""):
            path = top / match[1]
            if _UNSURE.search(match[1]):
                continue
            paths = [path, *(path.with_name(path.name + end) for end in _NOTEBOOKS)]
            if not any(is_folder(candidate) or is_file(candidate) for candidate in paths):
                what = f"there is no '{match[1]}' to be synchronised to '{match[0]}'"
                yield node.problem(what, "correct the path, or add the file")
            elif not is_synchronised(deployment, path):
                yield node.problem(
                    f"'{match[1]}' isn't synchronised to the workspace", "add it to sync.paths"
                )
