"""Artifacts: the wheels that a deployment builds, and what environments install of the bundle."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tableferry.bundle import files, projects
from tableferry.bundle.deployment import Deployment
from tableferry.bundle.problems import Problem
from tableferry.bundle.projects import Project, module_name
from tableferry.bundle.tree import Node

_OUTPUT = re.compile(r"(?:--out-dir|--outdir|--dist-dir|-o|-d)[ =]+(\S+)")
_FILE_PATH = "${workspace.file_path}"


@dataclass(frozen=True)
class Built:
    """What an artifact builds.

    Attributes:
        folders: Where the wheel or jar will lie; None where that isn't known.
        project: What it's built from; None where that isn't known.
        suffix: Which of the two it is.
    """

    folders: frozenset[Path] | None
    project: Project | None
    suffix: str = ".whl"

    def makes(self, pattern: Path) -> bool:
        """Return whether it will be found by a path or pattern."""
        if pattern.suffix != self.suffix or (self.folders is not None and pattern.parent not in self.folders):
            return False
        if self.project is None or self.project.name is None:
            return True
        name = module_name(self.project.name)
        if "-" in pattern.name:  # what comes after the name is the build's to say
            return fnmatch(name, pattern.name.split("-")[0])
        return fnmatch(f"{name}-1-py3-none-any.whl", pattern.name)


def built(deployment: Deployment, problems: list[Problem]) -> list[Built]:
    """Return the wheels that the artifacts build, and say which artifacts can't be had."""
    tree = deployment.tree
    if not tree["artifacts"].given and files.is_file(deployment.folder / "setup.py"):
        return [Built(frozenset({deployment.folder / "dist"}), None)]  # the CLI builds it unasked
    wheels = []
    for _, artifact in tree["artifacts"].items:
        faults = list(_faults(deployment, artifact))
        problems.extend(faults)
        if faults:  # what it would have built is missed by nobody else
            wheels.append(Built(None, None, ".whl" if artifact["type"].text == "whl" else ".jar"))
            continue
        folder = _folder(deployment, artifact)
        sources = [file["source"] for file in artifact["files"].elements]
        into = frozenset(files.path_of(deployment, source).parent for source in sources if source.known)
        if artifact["type"].text != "whl":
            wheels.append(Built(into, None, ".jar"))
            continue
        output = _OUTPUT.search(artifact["build"].text or "")
        usual = Path(os.path.normpath(folder / (output[1].strip("'\"") if output else "dist")))
        shown = os.path.relpath(folder / projects.FILE, deployment.folder).replace(os.sep, "/")
        project = projects.read(folder, shown, problems) if artifact["build"].text else None
        wheels.append(Built(into or frozenset({usual}), project))
    return wheels


def check_dependency(deployment: Deployment, node: Node, wheels: list[Built]) -> Iterator[Problem]:
    """Check a dependency that is a file or folder of the bundle's."""
    folder = editable(deployment, node)
    if folder is not None and not _buildable(folder):
        what = f"there is no {projects.FILE} to install '{node.text}' from"
        yield node.problem(what, "add it, or correct the path")
    elif folder is not None and not files.is_synchronised(deployment, folder / projects.FILE):
        what = f"the project of '{node.text}' isn't synchronised to the workspace"
        yield node.problem(what, "add it to sync.paths")
    option = files.pip_option(node.known or "")
    if option is not None and files.is_local(option[1]):
        flag, path = option
        if flag not in ("-r", "-e"):
            what = f"the CLI leaves the path after '{flag}' as it is"
            yield node.problem(what, "write -r or -e and one space")
        elif not files.matches(files.path_of(deployment, node, path)):
            remedy = f"correct the path, which is relative to the folder of {node.place.file}"
            yield node.problem(f"there is no '{path}'", remedy)
    elif node.known is not None and files.is_local_library(node.known):
        wheel = wheel_path(deployment, node)
        if not any(built.makes(wheel) for built in wheels) and not files.matches(wheel):
            yield node.problem(
                f"'{node.known}' matches no file, and no artifact builds one there",
                "correct it, or write an artifact of type whl that builds it",
            )


def wheel_path(deployment: Deployment, node: Node) -> Path:
    """Return the file or pattern that a dependency names, without the wheel's extras."""
    return files.path_of(deployment, node, re.sub(r"(\.whl)\[.*\]$", r"\1", node.text or ""))


def editable(deployment: Deployment, node: Node) -> Path | None:
    """Return the folder of the bundle that a dependency installs in place."""
    option = files.pip_option(node.text or "")
    if option is None or option[0] not in ("-e", "--editable"):
        return None
    path = option[1].removeprefix(_FILE_PATH)
    if path != option[1] and "${" not in path:
        return files.synchronised(deployment) / path.strip("/")
    return files.path_of(deployment, node, path) if files.is_local(path) else None


def _faults(deployment: Deployment, artifact: Node) -> Iterator[Problem]:
    folder = _folder(deployment, artifact)
    sources = [file["source"] for file in artifact["files"].elements]
    wheel = artifact["type"].text == "whl"
    if not files.is_folder(folder):
        yield artifact["path"].problem(f"there is no folder '{artifact['path'].text}'", "correct the path")
    elif artifact["build"].text:
        if wheel and not _buildable(folder):
            where = artifact["path"].text or "."
            yield artifact.problem(
                f"there is no {projects.FILE} in '{where}' to build a wheel from", "add it"
            )
    elif sources:
        for source in sources:
            if source.known and not files.matches(files.path_of(deployment, source)):
                remedy = "correct it, or say how to 'build' it"
                yield source.problem(f"'{source.text}' matches no file", remedy)
    elif not wheel:
        yield artifact.problem(
            "says neither how it's built nor which files it is", "write 'build' or 'files'"
        )
    elif not files.is_file(folder / "setup.py"):
        what = "has no 'build', so that setup.py would be run, which isn't there"
        yield artifact.problem(what, "write 'build: uv build --wheel'")


def _folder(deployment: Deployment, artifact: Node) -> Path:
    path = artifact["path"]
    return files.path_of(deployment, path) if path.known else deployment.folder


def _buildable(folder: Path) -> bool:
    return files.is_file(folder / projects.FILE) or files.is_file(folder / "setup.py")
