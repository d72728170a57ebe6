"""Pipelines: where they publish, what they run on, and the source files they load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tableferry.bundle import files
from tableferry.bundle.deployment import Deployment
from tableferry.bundle.jobs import recipients
from tableferry.bundle.problems import Problem
from tableferry.bundle.tree import Node

_SOURCES = (".py", ".sql", ".ipynb")
# Pipelines that others' definitions fill have no source files.
_WITHOUT_LIBRARIES = ("ingestion_definition", "gateway_definition")


def check(deployment: Deployment) -> Iterator[Problem]:
    """Check what the CLI and the shape of a pipeline let through."""
    for _, pipeline in deployment.resources("pipelines"):
        if not isinstance(pipeline.value, dict):
            continue
        yield from _publishes(pipeline)
        if pipeline["serverless"].value is True and pipeline["clusters"].elements:
            yield pipeline["clusters"].problem(
                "a serverless pipeline takes no clusters", "remove them, or 'serverless'"
            )
        if not pipeline["libraries"].elements and not any(pipeline[key].given for key in _WITHOUT_LIBRARIES):
            yield pipeline.problem("loads no source file", "name some under 'libraries'")
        for library in pipeline["libraries"].elements:
            yield from _library(deployment, library)
        for notification in pipeline["notifications"].elements:
            yield from recipients(notification["email_recipients"])


def _publishes(pipeline: Node) -> Iterator[Problem]:
    if not _filled(pipeline["catalog"]):
        yield pipeline.problem(
            "says no catalog, so that it would publish to the Hive metastore", "write 'catalog'"
        )
    if pipeline["target"].given:
        yield pipeline["target"].problem("'target' is the old name of 'schema'", "write 'schema'")
    elif not _filled(pipeline["schema"]):
        yield pipeline.problem("says no schema to publish to", "write 'schema'")


def _library(deployment: Deployment, library: Node) -> Iterator[Problem]:
    for field in ("notebook", "file"):
        path = library[field]["path"]
        if path.known is None or not files.is_local(path.known):
            continue
        if "*" not in path.known:
            yield from files.notebook_or_file(deployment, path, field)
        elif not files.matches(files.path_of(deployment, path)):
            yield path.problem(f"'{path.known}' matches no file", "correct the pattern")
    include = library["glob"]["include"]
    if library["glob"].given and not include.given:
        yield library["glob"].problem("includes nothing", "write 'include'")
    if include.known is not None and files.is_local(include.known):
        yield from _glob(deployment, include, include.known)


def _glob(deployment: Deployment, include: Node, text: str) -> Iterator[Problem]:
    """A pattern is the path of a file, or that of a folder with ``/**`` behind it."""
    folder = text.removesuffix("/**")
    if any(mark in folder for mark in "*?[") or folder in ("", "**"):
        yield include.problem(
            f"'{text}' is a pattern that pipelines don't know",
            "write the path of a file, or that of a folder with /** behind it",
        )
        return
    path = files.path_of(deployment, include, folder)
    if not files.is_synchronised(deployment, path):
        yield include.problem(
            f"'{text}' lies outside of what is synchronised to the workspace",
            "move it into the bundle's folder",
        )
    elif folder == text and files.is_folder(path):
        yield include.problem(f"'{text}' is a folder", f"write '{text.rstrip('/')}/**'")
    elif folder == text and not files.is_file(path):
        yield include.problem(f"'{text}' matches no file", "correct the path, or add the file")
    elif folder != text and not _has_source(path):
        yield include.problem(
            f"'{text}' matches no source file", "correct the path, or add a .py or .sql file"
        )


def _has_source(folder: Path) -> bool:
    return any(path.suffix in _SOURCES for path in files.matches(folder / "**" / "*") if files.is_file(path))


def _filled(node: Node) -> bool:
    return node.given and node.value != ""
